// Texts of raids.

export const RAID = {
  title: "RAID",
  drill: "drill",
  late: "reported late",
  /** @param {number} count */
  hits: (count) => (count === 1 ? "1 hit" : `${count} hits`),
  acknowledge: "Acknowledge",
  showOnMap: "Show on map",
  /** @param {number} count */
  more: (count) => `and ${count} more`,
  acknowledgeAll: "Acknowledge all",
  /** @param {string} when */
  known: (when) => `Acknowledged ${when}.`,
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
