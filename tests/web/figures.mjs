// Figures of the dashboard, in a real browser against a demo of its own: `node figures.mjs [load] [visits] [frames]
// [memory] [overlay] [--check]`. What they must be is in docs/web.md. With `--check`, sizes and numbers that are beyond their bounds end it
// with 1; times never do: other load of the machine makes them worse, so it is printed, too. MINUTES: of `memory` and `overlay`.

import { loadavg } from "node:os";
import { launch, openPage, startDemo } from "./lib.mjs";

const wanted = process.argv.slice(2).filter((word) => word !== "--check");
const isChecked = process.argv.includes("--check");
/** KiB of a first visit without pictures, with heads; scripts of its first screen; growth of a heap after its second minute, MiB. */
const MOST = { load: 120, modules: 25, growth: 2 };
const does = (name) => wanted.length === 0 || wanted.includes(name);
const ROUND_TRIP = 100;
const MARKERS = 2000;
const MOVED = 200;
const PATCHES_PER_SECOND = 6;
const MEASURED = 10_000;
const VISITS = 15;
const MEMORY_MINUTES = Number(process.env.MINUTES ?? 10);

const demo = await startDemo();
const browser = await launch();
const say = (words) => console.log(`${words} (load ${loadavg()[0].toFixed(1)})`);
const live = (page) => page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Says what is beyond its bound. @param {string} name @param {number} value @param {number} most */
function check(name, value, most) {
  if (!isChecked || value <= most) return;
  console.log(`beyond its bound: ${name}, ${value.toFixed(1)} of ${most}`);
  process.exitCode = 1;
}

if (does("load")) await load();
if (does("visits")) await visits();
if (does("frames"))
  for (const size of [
    [390, 844],
    [1366, 768],
    [3840, 2160],
  ])
    await frames(size);
if (does("memory")) await memory("/");
if (does("overlay")) await memory(await overlayPath());
await browser.close();
await demo.stop();

/** Bytes of the first visit, and the time to the first raid. */
async function load() {
  const { page, close } = await openPage(browser, demo, { path: "/status" });
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const kinds = new Map();
  const sums = { page: 0, files: 0, answers: 0, players: 0, map: 0 };
  session.on("Network.responseReceived", ({ requestId, response, type }) =>
    kinds.set(requestId, kindOf(response, type)),
  );
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    if (kinds.has(requestId)) sums[kinds.get(requestId)] += encodedDataLength;
  });
  const began = Date.now();
  await page.goto(demo.openUrl);
  await live(page);
  await page.locator(".map canvas").waitFor();
  const parts = Object.entries(sums).map(([kind, bytes]) => `${kind} ${(bytes / 1024).toFixed(0)}`);
  const modules = await page.locator("link[rel=modulepreload]").count();
  say(
    `first visit until it is live and has its map, KiB with heads: ${parts.join(", ")}; ${modules + 1} scripts at once`,
  );
  check("first visit", (sums.page + sums.files + sums.answers) / 1024, MOST.load);
  check("scripts at once", modules + 1, MOST.modules);
  await page.getByRole("alert").filter({ hasText: /^RAID/ }).waitFor({ state: "attached", timeout: 200_000 });
  say(`a raid is on the screen ${((Date.now() - began) / 1000).toFixed(1)} s after the printed link was opened`);
  await close();
}

/** First and repeated visits on a long line, each from the first byte that is asked for to the frame, and to the live state. */
async function visits() {
  // The link that is opened for the load has ended the session of the other demo.
  const demo = await startDemo();
  const { page, close } = await openPage(browser, demo, { path: "/status" });
  const session = await page.context().newCDPSession(page);
  const line = { offline: false, latency: ROUND_TRIP, downloadThroughput: -1, uploadThroughput: -1 };
  await session.send("Network.enable");
  await session.send("Network.emulateNetworkConditions", line);
  await page.addInitScript(() => {
    globalThis.seen = {};
    new MutationObserver(() => {
      for (const [name, selector] of Object.entries({ frame: ".shell", "live state": ".status.is-live" }))
        if (document.querySelector(selector)) globalThis.seen[name] ??= performance.now();
    }).observe(document, { childList: true, subtree: true, attributes: true });
  });
  const times = [];
  for (let visit = 0; visit <= VISITS; visit++) {
    await page.goto(demo.apiUrl);
    await live(page);
    times.push(await page.evaluate(() => globalThis.seen));
    // Panels are loaded a little later.
    if (visit === 0) await pause(5000);
  }
  const words = ([first, ...others]) => {
    const all = others.sort((a, b) => a - b);
    return `${first.toFixed(0)} ms at first, then ${all[0].toFixed(0)} to ${all.at(-1).toFixed(0)} ms, mostly ${all[VISITS >> 1].toFixed(0)} ms`;
  };
  for (const name of ["frame", "live state"])
    say(`visits at ${ROUND_TRIP} ms, until there is the ${name}: ${words(times.map((time) => time[name]))}`);
  await close();
  await demo.stop();
}

function kindOf({ url }, type) {
  const { pathname } = new URL(url);
  if (pathname.endsWith("/map/image")) return "map";
  if (pathname.endsWith("/avatar")) return "players";
  if (pathname.startsWith("/_/")) return "files";
  return type === "Document" ? "page" : "answers";
}

/** Frames while many markers move. */
async function frames([width, height]) {
  const prepare = (page) =>
    page.routeWebSocket(/\/v1$/, (socket) => {
      const relay = socket.connectToServer();
      relay.onMessage((data) => {
        const message = JSON.parse(String(data));
        // A raid flies to its place; all markers are to be seen.
        if (message.type === "patch" || message.type === "raid") return;
        if (message.type === "snapshot") {
          message.state.raids = {};
          for (let id = 0; id < MARKERS; id++) message.state.mapMarkers[`x${id}`] = markerOf(id);
        }
        socket.send(JSON.stringify(message));
        if (message.type === "snapshot") move(socket, message);
      });
    });
  const { page, close } = await openPage(browser, demo, { width, height, prepare });
  await live(page);
  await page.getByRole("tab", { name: width < 720 ? "Map" : "Team" }).click();
  await page.getByRole("button", { name: "Show the whole map" }).click();
  await pause(3000);
  const { times, isHidden } = await page.evaluate(async (measured) => {
    const times = [];
    const end = performance.now() + measured;
    let last = performance.now();
    while (last < end) {
      const now = await new Promise(requestAnimationFrame);
      times.push(now - last);
      last = now;
    }
    return { times: times.slice(1), isHidden: document.hidden };
  }, MEASURED);
  times.sort((a, b) => a - b);
  const sum = times.reduce((all, one) => all + one, 0);
  const p95 = times[Math.floor(times.length * 0.95)];
  say(
    `${width} × ${height}, ${MARKERS} markers, ${PATCHES_PER_SECOND} patches/s of ${MOVED}: ${((times.length / sum) * 1000).toFixed(1)} frames/s, 95 % within ${p95.toFixed(0)} ms, longest ${times.at(-1)?.toFixed(0)} ms${isHidden ? ", hidden" : ""}`,
  );
  await close();
}

function markerOf(id) {
  return { kind: "crate", x: (id * 37) % 4000, y: (id * 101) % 4000, grid: "A0", rotation: 0, name: null };
}

/** Sends patches until the page is gone. */
function move(socket, { serverId, epoch, seq, state }) {
  let turn = 0;
  let base = seq;
  const known = Object.keys(state.mapMarkers).filter((id) => id.startsWith("x"));
  const timer = setInterval(() => {
    turn += 1;
    const patch = known
      .slice(0, MOVED)
      .map((id, at) => ({ op: "replace", path: `/mapMarkers/${id}/x`, value: (at * 37 + turn * 5) % 4000 }));
    try {
      socket.send(JSON.stringify({ type: "patch", serverId, epoch, base, seq: base + 1, patch }));
      base += 1;
    } catch {
      clearInterval(timer);
    }
  }, 1000 / PATCHES_PER_SECOND);
  socket.onClose(() => clearInterval(timer));
}

/** The address of an overlay that shows everything, below the origin. */
async function overlayPath() {
  const { serverId } = demo;
  const { code } = await demo.call("POST", "/pairing/device/code", { scope: "overlay", serverId, label: "figures" });
  const { token, deviceId } = await demo.call("POST", "/pairing/device/activate", { code });
  await demo.call("POST", `/pairing/device/${deviceId}/seen`);
  return `/overlay?server=${serverId}&show=raid,events,team#${token}`;
}

/** The heap of JavaScript of a page each minute. @param {string} path */
async function memory(path) {
  const { page, close } = await openPage(browser, demo, { path, signedIn: path === "/" });
  if (path === "/") await live(page);
  else await page.locator(".member:not([hidden])").first().waitFor();
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const heaps = [];
  for (let minute = 0; minute <= MEMORY_MINUTES; minute++) {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    const of = (wanted) => metrics.find(({ name }) => name === wanted)?.value ?? 0;
    heaps.push(of("JSHeapUsedSize") / 2 ** 20);
    say(
      `${path.split("?")[0]} minute ${minute}: heap ${heaps[minute].toFixed(2)} MiB, ${of("Nodes")} nodes, ${of("JSEventListeners")} listeners`,
    );
    if (minute < MEMORY_MINUTES) await pause(60_000);
  }
  check(`heap of ${path.split("?")[0]}`, heaps[MEMORY_MINUTES] - (heaps[2] ?? heaps[0]), MOST.growth);
  await close();
}
