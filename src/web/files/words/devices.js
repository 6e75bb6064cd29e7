// Texts of devices.

export const DEVICES = {
  title: "Devices",
  /** @type {Record<string, string>} */
  groups: {
    alarm: "Alarms",
    switch: "Switches",
    storageMonitor: "Storage",
    camera: "Cameras",
    unknown: "Not known yet",
  },
  none: "Here are your switches, alarms, storage monitors and cameras.",
  noneWhy: "Hold the wire tool on a device in the game and press Pair.",
  noAlarm: "No smart alarm yet.",
  noAlarmWhy: "Hold the wire tool on one in the game and press Pair. It wakes you when your base is raided.",
  on: "on",
  off: "off",
  ringing: "going off",
  quiet: "quiet",
  /** @param {string} age */
  lastAt: (age) => `last went off ${age}`,
  reachable: {
    ok: "",
    pending: "not asked yet",
    removed: "gone: destroyed, picked up, or you lost the tool cupboard",
    no_privilege: "you have no privilege for it",
    no_response: "it does not answer",
  },
  /** @param {boolean} value @param {string | null} left */
  turnsBack: (value, left) => `${value ? "on" : "off"} again ${left ? `in ${left}` : "now"}`,
  stayOn: "Leave it on",
  stayOff: "Leave it off",
  guest: "Only the owner can switch it.",
  offline: "Not possible without a connection.",
  /** @param {string} left */
  upkeep: (left) => `upkeep ${left}`,
  noUpkeep: "decaying: no upkeep left",
  /** @param {number} used @param {number} capacity */
  used: (used, capacity) => `${used} of ${capacity} slots`,
  noPower: "no power, or not attached to a container",
  emptyBox: "It is empty.",
  blueprint: "blueprint",
  unknownContent: "Its content is not known yet.",
  look: "Look through it",
  lookAgain: "Look again",
  looking: "The camera turns on…",
  watch: "Keep looking",
  stopWatching: "Stop",
  camera: "Name of a camera",
  cameraId: "Name of the camera, as a computer station takes it",
  add: "Add",
  showOnMap: "Show on map",
  edit: "Name and place",
  label: "Name",
  save: "Save",
  close: "Close",
  remove: "Remove",
  sure: "Sure?",
  setPlace: "Set its place on the map",
  /** @param {string} name */
  frameOf: (name) => `Picture of ${name}`,
};

export const GROUPS = {
  title: "Groups",
  make: "Group switches",
  add: "Add the group",
  word: "Its word in team chat, such as gates for !gates (optional)",
  members: "Switches of the group",
  edit: "Name, word and switches",
  remove: "Remove the group",
  /** @param {number} on @param {number} all @param {string | null | undefined} word */
  facts: (on, all, word) => [`${on} of ${all} on`, word && `!${word}`].filter(Boolean).join(" · "),
  /** @type {Record<string, string>} */
  errors: {
    not_found: "there is no such device",
    owner_only: "only the owner can switch it",
    not_a_switch: "it is no switch",
    device_removed: "it is gone",
    rate_limited: "too many commands, wait a moment",
    game_server_unavailable: "the game server does not answer",
    game_server_timeout: "the game server did not answer in time",
  },
};
