// Shared by the tests of the pages: a demo of our own, and a browser that keeps a record of everything that goes wrong.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before } from "node:test";
import { chromium } from "playwright-core";

const ROOT = new URL("../..", import.meta.url).pathname;
export const PROGRAM =
  process.env.COMPANION ?? join(process.env.CARGO_TARGET_DIR ?? join(ROOT, "target"), "debug/companion");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const START_DEADLINE = 180_000;
/** Milliseconds that a test waits for what must come: a busy machine takes long, and a longer wait costs nothing where it comes. */
export const PATIENCE = 120_000;
/** Milliseconds within which a page or a session is closed. */
const CLOSED_WITHIN = 10_000;

/** Starts a demo on free ports. */
export async function startDemo({ options = [] } = {}) {
  const directory = mkdtempSync(join(tmpdir(), "companion-web-"));
  const data = join(directory, "data");
  const child = spawn(PROGRAM, ["demo", "--port=0", `--data-dir=${data}`, ...options], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  // The log is of use only if it does not start.
  let errors = "";
  /** @type {any} */ let timer;
  const started = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`the demo did not start:\n${output}${errors}`)), START_DEADLINE);
    child.stdout.on("data", (bytes) => {
      output += bytes;
      if (output.includes("Ctrl-C ends the demo")) resolve(undefined);
    });
    child.stderr.on("data", (bytes) => (errors = (errors + bytes).slice(-4000)));
    child.on("exit", (code) => reject(new Error(`the demo ended with ${code}:\n${output}${errors}`)));
    child.on("error", reject);
  });
  await started.finally(() => clearTimeout(timer));
  const file = JSON.parse(readFileSync(join(data, "demo.json"), "utf8"));
  return {
    ...file,
    serverId: file.servers[0].id,
    call: (method, path, body) => call(file, method, path, body),
    stop: async () => {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      if (child.exitCode === null && child.signalCode === null && child.kill("SIGINT")) await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function call({ apiUrl, cookie }, method, path, body) {
  const headers = { cookie, ...(body ? { "content-type": "application/json" } : {}) };
  const answer = await fetch(apiUrl + path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.headers.get("content-type")?.includes("json") ? answer.json() : answer.text();
}

/** In a page: counts the tones that ring in `ringing`, and all that began in `rang`. */
export function tones() {
  globalThis.ringing = globalThis.rang = 0;
  const start = OscillatorNode.prototype.start;
  OscillatorNode.prototype.start = function (...values) {
    globalThis.ringing += 1;
    globalThis.rang += 1;
    this.addEventListener("ended", () => (globalThis.ringing -= 1));
    return start.apply(this, values);
  };
}
export const countTones = (page) => page.evaluate(tones);

/** A browser for all tests of a file. */
export const launch = () =>
  chromium.launch({
    executablePath: CHROMIUM,
    // A page that a test has edited is of no address, and would not reach the relay of this machine.
    args: ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks"],
  });

/** The demo and the browser of a file of tests, once `useDemo` was called. */
export let demo;
export let browser;

/** Sessions of `openPage` that were not closed: those of a test that has failed. @type {Set<any>} */
const left = new Set();

/**
 * Starts a demo and a browser before the tests of the file that calls it, and ends both after them. What a test that has
 * failed leaves open goes on to watch, and is closed after it, unless tests run side by side.
 */
export function useDemo({ isSideBySide = false } = {}) {
  before(async () => {
    // Each is known as soon as it is there, and ended also if the other one does not start.
    const started = [startDemo().then((one) => (demo = one)), launch().then((one) => (browser = one))];
    await Promise.all(started);
  });
  after(async () => {
    await browser?.close();
    await demo?.stop();
  });
  if (isSideBySide) return;
  afterEach(async () => {
    for (const session of left) await end(session);
  });
}

/** Closes a page or a session. Chromium never answers that it has closed a session one of whose pages was loading. */
export async function end(opened) {
  /** @type {any} */ let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, CLOSED_WITHIN)));
  await Promise.race([opened.close(), late]).finally(() => clearTimeout(timer));
}

/** A browser of its own as to cookies, storage and files, signed in. */
export async function openSession(browser, demo, { width = 1366, height = 768, signedIn = true, ...context } = {}) {
  const settings = { viewport: { width, height }, locale: "en-GB", timezoneId: "UTC", ...context };
  const session = await browser.newContext(settings);
  session.setDefaultTimeout(PATIENCE);
  if (signedIn) {
    const [name, value] = demo.cookie.split("=");
    await session.addCookies([{ name, value, url: demo.apiUrl }]);
  }
  return session;
}

/**
 * A page that is signed in. `faults` are errors of its console, reports of its policy, failed requests and requests to
 * other origins; a test ends with none. `prepare` is called with the page before it is loaded. Pages of one `session`, made
 * by `openSession`, have all of that in common.
 */
export async function openPage(browser, demo, { path = "/", prepare = null, session = null, ...looks } = {}) {
  const opened = session ?? (await openSession(browser, demo, looks));
  if (!session) left.add(opened);
  opened.once("close", () => left.delete(opened));
  const page = await opened.newPage();
  const faults = [];
  const allowed = new Set([new URL(demo.apiUrl).host, new URL(demo.relayUrl).host, new URL(demo.openUrl).host]);
  page.on("console", (message) => {
    const { url } = message.location();
    // A map that the demo does not know yet is a 404, which browsers log.
    const isUnknownMap = /\/paired-servers\/[^/]+\/map$/.test(url) && message.text().includes("404");
    if (message.type() === "error" && !isUnknownMap) faults.push(`console: ${message.text()} ${url}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.stack}`));
  page.on("request", (request) => {
    const { protocol, host } = new URL(request.url());
    if (protocol.startsWith("http") && !allowed.has(host)) faults.push(`foreign: ${request.url()}`);
  });
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) =>
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
    );
    localStorage.setItem("tab", "team");
  });
  await prepare?.(page);
  await page.goto(demo.apiUrl + path);
  return { page, faults, close: () => end(session ? page : opened) };
}
