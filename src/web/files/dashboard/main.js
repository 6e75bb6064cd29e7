// The dashboard begins here: who is it, and what do they watch?

import { get } from "../api.js";
import { button, fill, h } from "../ui/dom.js";
import { ARRIVALS } from "../words/arrivals.js";
import { SHELL } from "../words/shell.js";
import {
  checkPushes,
  followAlarms,
  followChannels,
  followPairings,
  greet,
  isInvited,
  keepInvitation,
} from "./arrivals.js";
import { firstAnswers } from "./first-answers.js";
import { connect, live } from "./live.js";
import { keepReadiness } from "./readiness.js";
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
  followChannels(parts.notices);
  followPairings(parts.notices);
  await connect(answers);
  keepReadiness();
  greet(parts.notices);
  followAlarms();
  checkPushes(parts.notices);
  if (live.servers.size === 0) {
    const { firstSteps } = await import("../more/first-steps.js");
    firstSteps(parts);
  }
}

function signIn() {
  const isCancelled = new URLSearchParams(location.search).get("signIn") === "cancelled";
  fill(
    root,
    sheet(
      h("h1", {}, SHELL.product),
      h("p", {}, SHELL.about),
      isInvited() && h("p", { role: "status" }, ARRIVALS.invited),
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
