// Names of those who watch a server, by the id of the user. They are asked for when there is someone without a name.

import { get } from "../api.js";
import { emit, live } from "./live.js";

/** A user whose name did not come, such as a guest of another owner who has left, is asked for again after this. */
const AGAIN = 60_000;
/** @type {Map<string, string>} */
const names = new Map();
/** @type {Map<string, number>} when the people of a server were asked for, by its id */
const asked = new Map();

/** The name of a user who watches this server; empty while it is not known. @param {string} serverId @param {string} user */
export function personName(serverId, user) {
  if (!names.has(user)) ask(serverId);
  return names.get(user) ?? "";
}

/** @param {string} serverId */
async function ask(serverId) {
  if (Date.now() - (asked.get(serverId) ?? 0) < AGAIN) return;
  asked.set(serverId, Date.now());
  const isGuest = live.servers.get(serverId)?.info.role === "guest";
  const lists = await Promise.allSettled([
    get(`/paired-servers/${serverId}/guests?limit=100`).then(({ guests }) => guests.map(({ user }) => user)),
    isGuest && get("/guest-invites?limit=100").then(({ servers }) => servers.map(({ owner }) => owner)),
  ]);
  const people = lists.flatMap((list) => (list.status === "fulfilled" && list.value) || []);
  for (const one of people) if (one) names.set(one.id, one.displayName);
  emit("raids");
}
