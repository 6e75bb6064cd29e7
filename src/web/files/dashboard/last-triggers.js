// When each alarm of a server last went off: as its incidents say, those that go on and those that are kept.

import { get } from "../api.js";
import { live, on } from "./live.js";

/** Incidents that are looked at, and milliseconds until they are asked for again if they did not come. */
const LOOKED_AT = 500;
const AGAIN = 60_000;

/** @typedef {{ last: Map<string, string>, isLoaded: boolean, askedAt: number }} Known */
/** @type {Map<string, Known>} by server */
const known = new Map();

/** The last trigger of an alarm of a server, as far as it is known. @param {import("./types.js").Server} server @param {string} alarm */
export function lastTrigger(server, alarm) {
  let all = known.get(server.id);
  if (!all) known.set(server.id, (all = { last: new Map(), isLoaded: false, askedAt: 0 }));
  note(all, Object.values(server.state?.raids ?? {}));
  if (!all.isLoaded && Date.now() - all.askedAt > AGAIN) load(server, all);
  return all.last.get(alarm) ?? null;
}

/** @param {{ id: string }} server @param {Known} all */
async function load({ id }, all) {
  all.askedAt = Date.now();
  const answer = await get(`/paired-servers/${id}/alarms?limit=${LOOKED_AT}`).catch(() => null);
  if (!answer) return;
  all.isLoaded = true;
  note(all, answer.alarms);
}

/** @param {Known} all @param {{ alarmId: string, lastAt: string }[]} incidents */
function note({ last }, incidents) {
  for (const { alarmId, lastAt } of incidents) if (lastAt > (last.get(alarmId) ?? "")) last.set(alarmId, lastAt);
}

// During a time away, an incident may have begun and ended.
on("connection", () => {
  if (live.connection.state === "live") for (const all of known.values()) all.isLoaded = false;
});
