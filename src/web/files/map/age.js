// Age of the map, in its middle, once it is old.

import { live } from "../dashboard/live.js";
import { h, text } from "../ui/dom.js";
import { duration } from "../ui/time.js";
import { MAP } from "../words/map.js";

/** After this long without the relay, the map is grey and says how old it is, milliseconds. */
const OLD_AFTER = 30_000;

/** An element with `update()`; it is hidden while the map is live. */
export function ageOfMap() {
  const element = h("div", { class: "map-age", hidden: true });
  element.update = () => {
    const { state, since } = live.connection;
    const isOld = state !== "live" && since > 0 && Date.now() - since > OLD_AFTER && live.current?.state;
    element.hidden = !isOld;
    if (isOld) text(element, MAP.offline(duration(Date.now() - (live.current?.heardAt ?? 0))));
  };
  return element;
}
