// The dashboard begins here: who is it, and what do they watch?

import { get } from "../api.js";
import { button, fill, h } from "../ui/dom.js";
import { SHELL } from "../words/shell.js";
import { firstAnswers } from "./first-answers.js";
import { invitation, keepInvitation } from "./invitation.js";
import { connect, live, on } from "./live.js";
import { drawShell, signInUrl } from "./shell.js";

const root = /** @type {HTMLElement} */ (document.getElementById("app"));

/** Length of a start that needs no word, and the pause before another one. Milliseconds. */
const PATIENCE = 10_000;
const AGAIN = 10_000;

async function start() {
  keepInvitation();
  const patience = setTimeout(
    () =>
      fill(
        root,
        sheet(
          h("p", {}, SHELL.offline),
          button(SHELL.tryAgain, () => location.reload()),
        ),
      ),
    PATIENCE,
  );
  const answers = firstAnswers();
  try {
    if (answers) Object.assign(live, { config: answers.config, me: answers.me });
    else [live.config, live.me] = await Promise.all([get("/client-config"), get("/me")]);
  } catch (problem) {
    if (problem.status === 401) return signIn();
    // A page that is left open at night comes back by itself.
    setTimeout(begin, AGAIN);
    return fill(
      root,
      sheet(
        h("p", {}, problem.message),
        h("p", { class: "quiet" }, SHELL.again),
        button(SHELL.tryAgain, () => location.reload(), { kind: "primary" }),
      ),
    );
  } finally {
    clearTimeout(patience);
  }
  const parts = drawShell(root);
  on("message", (message) => message.type === "devicePaired" && early?.push(message));
  await connect(answers);
  arrive(parts);
  if (live.servers.size === 0) {
    const { firstSteps } = await import("../more/first-steps.js");
    firstSteps(parts);
  }
}

/** Pairings that came before there was anyone to say them. @type {Extract<Relay["ServerMessage"], { type: "devicePaired" }>[] | null} */
let early = [];

/** Begins what is said besides raids; a line that broke is tried again. @param {import("./types.js").Parts} parts */
function arrive(parts) {
  import("./arrivals.js").then(
    (arrivals) => {
      arrivals.arrive(parts, early ?? []);
      early = null;
    },
    () => setTimeout(arrive, AGAIN, parts),
  );
}

function signIn() {
  const isCancelled = new URLSearchParams(location.search).get("signIn") === "cancelled";
  fill(
    root,
    sheet(
      h("h1", {}, SHELL.product),
      h("p", {}, SHELL.about),
      invitation() !== null && h("p", { role: "status" }, SHELL.invited),
      isCancelled && h("p", { class: "quiet", role: "status" }, SHELL.cancelled),
      h("a", { class: "button primary", href: signInUrl() }, SHELL.signIn),
      h("p", { class: "quiet" }, SHELL.signInWhy),
    ),
  );
}

/** @param {...import("../ui/dom.js").Content} content */
function sheet(...content) {
  return h("main", { class: "center" }, h("div", { class: "sheet" }, content));
}

function begin() {
  start().catch((error) =>
    fill(
      root,
      sheet(
        h("p", {}, SHELL.failed),
        h("p", { class: "quiet" }, String(error?.message ?? "")),
        button(SHELL.tryAgain, () => location.reload()),
      ),
    ),
  );
}
begin();
