// The set-up: what must be true so that a raid wakes the player. Plain functions.

import { CREDENTIAL } from "../words/registration.js";

/** A sentence about a credential that needs a word; empty: it needs none. @param {Api["PushCredentialView"] | null} credential */
export function credentialNote(credential) {
  const { session, refusal, warning } = credential ?? {};
  if (session?.state === "unreadable" || session?.lastError === "unknown_key") return CREDENTIAL.operator;
  return refusal?.advice ?? CREDENTIAL.warnings[warning ?? ""] ?? "";
}

/** Channels by which no alarm is sent until the user does something. @param {Api["AlarmReadiness"] | null} readiness */
export function lostChannels(readiness) {
  return (readiness?.channels ?? []).filter(({ proof }) => proof === "disabled" || proof === "gone");
}

/**
 * @param {{ devices: Api["HelperDeviceView"][], credential: Api["PushCredentialView"] | null,
 *   server: { state: Relay["StateDocument"] | null } | null, readiness: Api["AlarmReadiness"] | null, soundState: string,
 *   notifications: string, isGuest: boolean }} facts
 * @returns {{ name: string, isDone: boolean, state?: string }[]} in the order in which they are done
 */
export function stepsOf({ devices, credential, server, readiness, soundState, notifications, isGuest }) {
  /** @param {string} name */
  const path = (name) => readiness?.paths?.find(({ path }) => path === name);
  const isAccepted = credential?.state === "proven" || credential?.state === "unproven";
  const note = credentialNote(credential);
  const channels = readiness?.channels ?? [];
  const advised = channels.find(({ inRules, advice }) => inRules && advice) ?? channels.find(({ advice }) => advice);
  const alarms = Object.values(server?.state?.devices ?? {}).filter(({ kind }) => kind === "alarm");
  const raids = Object.values(server?.state?.raids ?? {});
  const own = [
    { name: "device", isDone: devices.length > 0 || isAccepted },
    { name: "credential", isDone: isAccepted && note !== CREDENTIAL.operator, state: note },
    { name: "server", isDone: Boolean(server) },
    { name: "alarm", isDone: alarms.length > 0 },
    { name: "link", isDone: path("link")?.up === true, state: path("link")?.advice ?? "" },
    { name: "push", isDone: path("push")?.up === true, state: path("push")?.advice ?? "" },
  ];
  return [
    { name: "signedIn", isDone: true },
    // A guest watches what the owner has set up.
    ...(isGuest ? [] : own),
    { name: "sound", isDone: soundState === "armed" },
    { name: "notifications", isDone: notifications === "granted", state: notifications },
    {
      name: "channel",
      // A line in the game wakes no sleeper.
      isDone: channels.some(({ kind, inRules, proof }) => kind !== "teamChat" && inRules && proof === "accepted"),
      state: advised?.advice ?? "",
    },
    {
      name: "drill",
      isDone:
        raids.some(({ drill, acks }) => drill && Object.keys(acks).length > 0) ||
        raids.some(({ acks }) => Object.keys(acks).length > 0),
    },
  ];
}
