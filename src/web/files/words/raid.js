// Texts of raids.

export const RAID = {
  title: "RAID",
  drill: "drill",
  late: "reported late",
  hits: (count) => (count === 1 ? "1 hit" : `${count} hits`),
  acknowledge: "Acknowledge",
  showOnMap: "Show on map",
  more: (count) => `and ${count} more`,
  acknowledgeAll: "Acknowledge all",
  known: (when) => `Acknowledged ${when}.`,
  over: "over",
  notDone: "The acknowledgement was not sent:",
};
