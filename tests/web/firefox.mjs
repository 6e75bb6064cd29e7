// The dashboard in Firefox, by WebDriver BiDi: it opens signed in, the map is drawn, a raid is seen and acknowledged, and the
// console has no error. Run it by `tests/web/firefox`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { PATIENCE, startDemo } from "./lib.mjs";
import { until } from "./push-lib.mjs";

const ended = [];
after(async () => {
  for (const end of ended.reverse()) await end();
});

/** Starts Firefox with a profile of its own; the address at which it takes commands. */
async function startFirefox() {
  const profile = mkdtempSync(join(tmpdir(), "companion-firefox-"));
  const parameters = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port=0"];
  const child = spawn(process.env.FIREFOX ?? "firefox-esr", parameters, { stdio: ["ignore", "ignore", "pipe"] });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  ended.push(async () => {
    child.kill("SIGTERM");
    await exited;
    rmSync(profile, { recursive: true, force: true });
  });
  return new Promise((resolve, reject) => {
    let said = "";
    const late = setTimeout(() => reject(new Error(`Firefox did not start:\n${said}`)), PATIENCE);
    child.once("error", reject);
    child.stderr.on("data", (bytes) => {
      said += bytes;
      const [, url] = /WebDriver BiDi listening on (ws:\S+)/.exec(said) ?? [];
      if (!url) return;
      clearTimeout(late);
      resolve(`${url}/session`);
    });
  });
}

/** A session of a browser: commands with their answers, and the entries of its console. */
class Session {
  /** @param {string} url */
  constructor(url) {
    this.socket = new WebSocket(url);
    this.count = 0;
    this.waiting = new Map();
    this.log = [];
    this.opened = new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.socket.onerror = () => reject(new Error(`no connection to ${url}`));
    });
    this.socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.type === "event") return this.log.push(message.params);
      const { resolve, reject } = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (message.type === "success") resolve(message.result);
      else reject(new Error(`${message.error}: ${message.message}`));
    };
  }

  /** @param {string} method @param {any} params */
  async send(method, params = {}) {
    await this.opened;
    const id = ++this.count;
    this.socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }
}

/** A page: its address, what a function of it gives, and clicks as of a hand. */
async function openPage(session) {
  await session.send("session.new", { capabilities: {} });
  await session.send("session.subscribe", { events: ["log.entryAdded"] });
  const { context } = await session.send("browsingContext.create", { type: "tab" });
  await session.send("browsingContext.setViewport", { context, viewport: { width: 1366, height: 768 } });
  /** Result of a function in the page, as JSON. @param {(...given: any[]) => any} does @param {...any} given */
  const ask = async (does, ...given) => {
    const expression = `JSON.stringify((${does})(...${JSON.stringify(given)}) ?? null)`;
    const parameters = { expression, target: { context }, awaitPromise: false };
    const { type, result, exceptionDetails } = await session.send("script.evaluate", parameters);
    if (type !== "success") throw new Error(exceptionDetails.text);
    return JSON.parse(result.value);
  };
  /** Presses a button by its words, once it is there. @param {string} words */
  const press = async (words) => {
    const placeOf = (words) => {
      const found = [...document.querySelectorAll("button")].find((one) => one.textContent === words);
      const { x, y, width, height } = found?.getBoundingClientRect() ?? {};
      return width ? { x: Math.round(x + width / 2), y: Math.round(y + height / 2) } : null;
    };
    const place = await until(() => ask(placeOf, words), Boolean);
    const steps = [
      { type: "pointerMove", ...place },
      { type: "pointerDown", button: 0 },
      { type: "pointerUp", button: 0 },
    ];
    await session.send("input.performActions", { context, actions: [{ type: "pointer", id: "hand", actions: steps }] });
  };
  const open = (url) => session.send("browsingContext.navigate", { context, url, wait: "complete" });
  return { open, ask, press };
}

test("Firefox opens the dashboard signed in, draws the map, and shows a raid until it is acknowledged", async () => {
  const demo = await startDemo();
  ended.push(demo.stop);
  const url = await startFirefox();
  const session = new Session(url);
  const page = await openPage(session);
  await page.open(demo.openUrl);
  const textOf = (selector) => document.querySelector(selector)?.textContent ?? "";
  await until(
    () => page.ask(textOf, "[aria-label=Connection]"),
    (words) => words.startsWith("live"),
  );
  const coloursOfMap = () => {
    const canvas = document.querySelector(".map canvas");
    if (!canvas) return 0;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  };
  await until(
    () => page.ask(coloursOfMap),
    (count) => count > 50,
  );
  await until(
    () => page.ask(textOf, "#panel"),
    (words) => words.includes("Juniper"),
  );
  await until(
    () => page.ask(textOf, "#alerts"),
    (words) => words.startsWith("RAID"),
  );
  // An alarm that goes on may open another incident meanwhile.
  await until(
    async () => {
      if ((await page.ask(textOf, ".raid-bar .primary")) !== "") await page.press("Acknowledge");
      return page.ask(textOf, ".raid-bar.is-known");
    },
    (words) => words.includes("Acknowledged"),
  );
  const { alarms } = await demo.call("GET", `/paired-servers/${demo.serverId}/alarms`);
  assert.ok(
    alarms.some(({ acks }) => Object.keys(acks).length > 0),
    "the service knows of it",
  );
  const faults = session.log.filter(({ level }) => level === "error").map(({ text }) => text);
  assert.deepEqual(faults, []);
});
