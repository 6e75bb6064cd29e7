// Texts of raids.

export const RAID = {
  /** @param {string} grid */
  at: (grid) => `RAID ${grid}`,
  /** In the title of the page. @param {string} grid */
  tab: (grid) => `(!) RAID ${grid}`,
  drill: "drill",
  late: "reported late",
  /** @param {number} count */
  hits: (count) => (count === 1 ? "1 hit" : `${count} hits`),
  acknowledge: "Acknowledge",
  showOnMap: "Show on map",
  /** @param {number} count */
  more: (count) => `and ${count} more`,
  acknowledgeAll: "Acknowledge all",
  you: "you",
  /** @param {string[]} names of those who did, as far as they are known @param {string} when the last one did */
  known: (names, when) => `Acknowledged ${by(names)}${when}.`,
  /** @param {string[]} names of others who did */
  knownToOthers: (names) => `acknowledged ${by(names)}`.trim(),
  over: "over",
  /** @param {Pick<Relay["Incident"], "count" | "drill" | "late" | "grid" | "alarmName">} raid @param {string} age */
  sentence: ({ count, drill, late, grid, alarmName }, age) =>
    [
      `RAID${grid ? ` ${grid}` : ""}: ${alarmName} went off ${age}${count > 1 ? `, ${count} hits` : ""}.`,
      drill && "Drill.",
      late && "Reported late.",
    ]
      .filter(Boolean)
      .join(" "),
  notDone: "The acknowledgement was not sent:",
};

/** @param {string[]} names */
const by = (names) => {
  const last = names.at(-1);
  if (!last) return "";
  return `by ${names.length > 1 ? `${names.slice(0, -1).join(", ")} and ` : ""}${last} `;
};
