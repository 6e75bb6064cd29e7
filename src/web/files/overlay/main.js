// The overlay: a page for the browser source of a streaming program. Its token is behind `#`, which no server sees.

import { RelayClient } from "../relay-client.js";
import { setAhead } from "../ui/time.js";
import { OVERLAY_WORDS } from "../words/overlay.js";
import { readOptions, sectionsOf } from "./options.js";
import { OverlayView } from "./view.js";

const API = location.origin + (document.documentElement.dataset.base ?? "");
const options = readOptions(location.search, location.hash);
const view = new OverlayView(/** @type {HTMLElement} */ (document.getElementById("app")), options);

async function start() {
  if (!options.token || !options.server) return view.say(OVERLAY_WORDS.noToken);
  /** @type {Api["ClientConfig"]} */
  const config = await (await fetch(`${API}/client-config`)).json();
  if (!config.urls.relay) return view.say(OVERLAY_WORDS.noRelay);
  const client = new RelayClient({
    api: API,
    relay: config.urls.relay,
    headers: { authorization: `Bearer ${options.token}` },
    history: false,
    handlers: {
      status: ({ state }) => {
        setAhead(client.serviceTime() - Date.now());
        view.say(state === "signed_out" ? OVERLAY_WORDS.ended : null);
      },
      state: (_, state) => view.take(state),
      event: (_, event) => view.add(event),
      lost: () => view.say(OVERLAY_WORDS.lost),
    },
  });
  client.watch(options.server, sectionsOf(options.show));
  client.start();
  addEventListener("online", () => client.wake());
  setInterval(() => {
    if (client.isOpen) view.heard();
    view.draw();
  }, 1000);
}

/** A program that starts with the computer may be there before the network is. */
function tryStart() {
  start().catch(() => setTimeout(tryStart, 10_000));
}
tryStart();
