// Opens at a press on the map: the card of a thing, the form of a note, the ruler.

import { post, remove } from "../api.js";
import { currentServer } from "../dashboard/live.js";
import { mapCard } from "./card.js";
import { noteForm } from "./note-form.js";

export { measure, wordsOf } from "./ruler.js";

/** @typedef {typeof import("./opened.js") & ReturnType<typeof openedParts>} Opened the module with the parts of a map */

/** The card and the form of this map. @param {import("./map.js").LiveMap} map */
export function openedParts(map) {
  const card = mapCard({
    close: () => map.select(null),
    follow: (id) => map.follow(id),
    isFollowed: (id) => map.followed === id,
    removeNote: (id) => remove(`/intel/${currentServer().id}/map-notes/${id}`).then(() => map.select(null)),
    choose: (thing) => map.choose(thing.id),
  });
  const form = noteForm({
    save: (note) => post(`/intel/${currentServer().id}/map-notes`, note),
    close: () => map.use(null),
  });
  map.old.before(card.element, form.element);
  return { card, form };
}
