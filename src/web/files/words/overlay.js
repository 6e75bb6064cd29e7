// Texts of the overlay.

export const OVERLAY_WORDS = {
  raid: "RAID",
  dead: "dead",
  /** @param {number} count */
  hits: (count) => (count === 1 ? "1 hit" : `${count} hits`),
  noToken: "This address has no token. Make one in the dashboard: More, Overlay for streams.",
  ended: "The token of this overlay was deleted.",
  noRelay: "This service has no relay.",
  lost: "This overlay is for another server.",
};
