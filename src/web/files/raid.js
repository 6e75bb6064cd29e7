// Which incidents ring, and how they are shown. Plain functions: the truth is `state.raids`.

import { RAID } from "./words/raid.js";

/** An incident that opens rings at most this long, milliseconds. */
export const RINGS_FOR = 60_000;
/** One that begins to be shown rings only if its last trigger is not older than this. */
export const RINGS_UNTIL = 5 * 60_000;
/** After this, an acknowledged incident is shown no more. */
const KNOWN_FOR = 5 * 60_000;

/**
 * @typedef {{ serverId: string, serverName: string, id: string, raid: Relay["Incident"] }} Incident an entry of `state.raids` of a server
 */

/** True while this user has not taken note of it. @param {Relay["Incident"]} raid @param {string} me */
export function isUnknown(raid, me) {
  return !raid.acks[me];
}

/**
 * The incidents to show, those to be acknowledged first and of these the newest first; then those that were
 * acknowledged shortly ago.
 * @param {Incident[]} incidents @param {string} me @param {number} now
 * @returns {{ open: Incident[], known: Incident[] }}
 */
export function shown(incidents, me, now) {
  /** @param {Incident} a @param {Incident} b */
  const newest = (a, b) => (a.raid.lastAt < b.raid.lastAt ? 1 : -1);
  const open = incidents.filter(({ raid }) => isUnknown(raid, me)).sort(newest);
  const known = incidents.filter(({ raid }) => {
    const at = Object.values(raid.acks).sort().at(-1);
    return !isUnknown(raid, me) && now - Date.parse(at ?? "") < KNOWN_FOR;
  });
  return { open, known: known.sort(newest) };
}

/**
 * Names of the users who took note of it, the first one first; users without a known name are left out.
 * @param {Relay["Incident"]} raid @param {(user: string) => string} nameOf empty where it is not known
 */
export function acknowledgedBy({ acks }, nameOf) {
  const inOrder = Object.entries(acks).sort(([, a], [, b]) => (a < b ? -1 : 1));
  return inOrder.map(([user]) => nameOf(user)).filter(Boolean);
}

/**
 * The incidents to raise: those that are open for this user and were not raised yet. Marks them as raised.
 * @param {Incident[]} incidents @param {string} me @param {number} now @param {Set<string>} raised ids
 * @returns {Incident[]}
 */
export function toRaise(incidents, me, now, raised) {
  return incidents.filter(({ id, raid }) => {
    if (raised.has(id) || !isUnknown(raid, me)) return false;
    raised.add(id);
    return now - Date.parse(raid.lastAt) < RINGS_UNTIL;
  });
}

/**
 * The sentence of an incident, for the bar and for screen readers.
 * @param {Parameters<typeof RAID.sentence>[0]} raid @param {string} age of its last trigger
 */
export function sentence(raid, age) {
  return RAID.sentence(raid, age);
}
