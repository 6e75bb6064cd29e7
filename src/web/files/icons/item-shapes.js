// Icons of the game's items, as paths in a square of 24. Drawn for companion: none is a picture of the game.

/** By the category of the catalogue. @type {Record<string, string>} */
export const ITEM_SHAPES = {
  Ammunition: "M8 17V9c0-3 2-5.5 4-7 2 1.5 4 4 4 7v8zM8 17h8v4H8z",
  Attire: "M8 3 3 6l2 5 2-1v11h10V10l2 1 2-5-5-3c-.8 1.8-2.2 2.7-4 2.7S8.8 4.8 8 3z",
  Component:
    "M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 1 0 0-7zM12 5.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 1 0 0-13zM12 2v3.5M12 18.5V22M2 12h3.5M18.5 12H22M5 5l2.4 2.4M16.6 16.6 19 19M5 19l2.4-2.4M16.6 7.4 19 5",
  Construction:
    "M3 5h18v14H3zM3 9.7h18M3 14.3h18M9 5v4.7M15 5v4.7M6 9.7v4.6M12 9.7v4.6M18 9.7v4.6M9 14.3V19M15 14.3V19",
  Electrical: "M13 2 4 14h7l-1 8 9-12h-7z",
  Food: "M12 7c-1.5-1.6-3.6-2-5.2-1C4.7 7.2 4 9.6 4.5 12.5 5.2 16.7 7.5 21 10 21c.8 0 1.3-.5 2-.5s1.2.5 2 .5c2.5 0 4.8-4.3 5.5-8.5.5-2.900-.2-5.3-2.3-6.5C15.6 5 13.5 5.4 12 7zM12 7c0-2 .8-3.8 2.5-5",
  Fun: "M9 18V5l11-2v13M9 18a3 3 0 1 1-6 0 3 3 0 1 1 6 0zM20 16a3 3 0 1 1-6 0 3 3 0 1 1 6 0z",
  Items: "M3 10a4 4 0 0 1 4-4h10a4 4 0 0 1 4 4v9H3zM3 12h7M14 12h7M10 10.5h4v4h-4z",
  Medical: "M9 3h6v6h6v6h-6v6H9v-6H3V9h6z",
  Misc: "M3 3h8l10 10-8 8L3 11zM7.5 7.5h.01",
  Resources: "M4 18l3-9 6-4 6 5 2 8zM7 9l5 4 7-3M12 13l-1 5",
  Tool: "M5 20 14.5 9.5M7 4c5.5-1.5 12 3.5 12.5 11-2-3.2-4-5.2-6-6.7S9.5 5.5 7 4z",
  Traps: "M2 20h20M4 20l2.5-9L9 20M9.5 20 12 8l2.5 12M15 20l2.5-9L20 20",
  Weapon: "M2 9h13l1-1h6v3h-6l-1 2h-4l-2 5H5l1.5-5L2 12zM11 13v1.5a1.5 1.5 0 0 0 1.5 1.5H14",
};

const INGOTS = "M4 18l1.5-5h5L12 18zM12 18l1.5-5h5L20 18zM8 12l1.5-5h5L16 12z";
const POWDER = "M3 18c2-1 4-6 6-8 1.5-1.5 4.5-1.5 6 0 2 2 4 7 6 8zM10 14h.01M14 13h.01M12 16h.01";

/** Common resources, by short name. @type {Record<string, string>} */
export const RESOURCE_SHAPES = {
  wood: "M5 9h12v7H5zM17 9a2 3.5 0 0 1 0 7M5 9a2 3.5 0 0 0 0 7 2 3.5 0 0 0 0-7M10 12.5h4",
  "metal.fragments": INGOTS,
  "metal.refined": INGOTS,
  sulfur: POWDER,
  gunpowder: POWDER,
  cloth: "M4 6c3-2 5 2 8 0s5-2 8 0v12c-3-2-5 2-8 0s-5-2-8 0zM4 12c3-2 5 2 8 0s5-2 8 0",
  lowgradefuel: "M12 3c3 4 6 7.5 6 11a6 6 0 0 1-12 0c0-3.5 3-7 6-11z",
  scrap: ITEM_SHAPES.Component,
};

/** For an item without a category, or one that is not known. */
export const ANY_ITEM = "M4 4h16v16H4zM8 8h8v8H8z";
