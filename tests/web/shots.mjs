// Pictures of every screen in every state, to be looked at: `node shots.mjs DIRECTORY [WORD...]`, of which only those whose
// name has all of the words. What needs no eye is looked for as well; the flaws are printed, and the exit code is 1 if there
// are any. The demo is one of our own; states that it does not have are made of its answers on their way.

import { mkdirSync } from "node:fs";
import { flawsOf } from "./flaws.mjs";
import { launch, openPage, startDemo } from "./lib.mjs";

const [directory, ...words] = process.argv.slice(2);
const SIZES = [
  ["phone", 390, 844],
  ["laptop", 1366, 768],
  ["4k", 3840, 2160],
];
const TABS = ["Map", "Team", "Devices", "Feed", "Shops", "More"];
const LONG_AGO = "2026-01-01T00:00:00.000Z";

/** Edits each snapshot of the relay on its way. */
const edited = (edit) => (page) =>
  page.routeWebSocket(/\/v1$/, (socket) => {
    const relay = socket.connectToServer();
    relay.onMessage((data) => {
      const message = JSON.parse(String(data));
      if (message.type === "snapshot") edit(message.state);
      if (message.type !== "patch") socket.send(JSON.stringify(message));
    });
  });
/** Edits what the dashboard comes with; without `edit`, it asks itself. */
const begun = (page, edit) =>
  page.route(
    ({ pathname }) => pathname === "/",
    async (route) => {
      const answer = await route.fetch();
      const text = (await answer.text()).replace(/(id="answers">)(.*?)(<\/script>)/, (_, head, json, tail) => {
        const answers = JSON.parse(json);
        edit?.(answers);
        return head + (edit ? JSON.stringify(answers) : "") + tail;
      });
      await route.fulfill({ response: answer, body: text });
    },
  );
const never = (page, path) => page.route(path, () => {});
const LONG = "Wolfeschlegelsteinhausenbergerdorff the 3rd of Outpost";
/** Answers calls to these paths itself. */
const answered = (path, status, json) => (page) => page.route(path, (route) => route.fulfill({ status, json }));
const press = (name) => (page) => page.getByRole("tab", { name }).click();
const problem = (status, code, detail) => [status, { title: code, status, code, detail, requestId: "x", type: "x" }];

/** Each state: what is prepared, and what is done once the page is open. */
const STATES = {
  live: [],
  long: [
    edited((state) => {
      state.server.name = LONG;
      for (const member of Object.values(state.team.members)) member.name = LONG;
      for (const device of Object.values(state.devices)) device.label = LONG;
      for (const marker of Object.values(state.mapMarkers)) if (marker.name) marker.name = LONG;
    }),
  ],
  turning: [
    edited((state) => {
      const at = new Date(Date.now() + 252_000).toISOString();
      for (const device of Object.values(state.devices))
        if (device.kind === "switch") device.turnsBack = { value: !device.value, at };
    }),
    press("Devices"),
  ],
  layers: [null, (page) => page.getByRole("button", { name: "Layers" }).click()],
  card: [
    null,
    async (page) => {
      // On a phone the map has no list beside it.
      if ((page.viewportSize()?.width ?? 0) < 720) return page.getByRole("application").click();
      await press("Map")(page);
      await page.getByRole("list", { name: "On the map" }).getByText("Travelling vendor").click();
    },
  ],
  note: [
    null,
    async (page) => {
      await page.getByRole("button", { name: "Add a note" }).click();
      await page.getByRole("application").click({ position: { x: 150, y: 150 } });
    },
  ],
  forms: [
    null,
    async (page) => {
      await press("Devices")(page);
      await page.getByRole("button", { name: "Name and place" }).first().click();
      await page.getByRole("button", { name: "Group switches" }).click();
    },
  ],
  offer: [
    null,
    async (page) => {
      await press("Shops")(page);
      await page.locator("#panel .row button[aria-expanded]").first().click();
    },
  ],
  folds: [
    null,
    async (page) => {
      await press("More")(page);
      await page.getByText("My data").waitFor();
      const closed = page.locator("#panel details:not([open]) > summary");
      while ((await closed.count()) > 0) await closed.first().click();
    },
  ],
  raid: [null, (page) => page.getByRole("button", { name: "Acknowledge" }).first().waitFor({ timeout: 200_000 })],
  starting: [(page) => begun(page).then(() => never(page, /\/client-config$/))],
  loading: [(page) => never(page, /\/(chat|timeline|shops|map|guests|device|push|readiness|tokens|alarms)(\?.*)?$/)],
  connecting: [(page) => page.routeWebSocket(/\/v1$/, () => {})],
  empty: [
    edited((state) =>
      Object.assign(state, {
        team: { ...state.team, members: {} },
        devices: {},
        mapMarkers: {},
        mapNotes: {},
        raids: {},
      }),
    ),
  ],
  stale: [
    edited((state) => {
      const asOf = new Date(Date.now() - 95_000).toISOString();
      state.server.stale = { team: { asOf }, mapMarkers: { asOf }, devices: { asOf } };
    }),
  ],
  unreachable: [
    edited((state) =>
      Object.assign(state.server, {
        connection: "unreachable",
        reason: "no_answer",
        nextAttemptAt: new Date(Date.now() + 90_000).toISOString(),
      }),
    ),
  ],
  offline: [
    null,
    async (page) => {
      await page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
      // Panels are loaded a little later than the page.
      await page.waitForTimeout(5000);
      await page.context().setOffline(true);
      await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pagehide")));
      await page.waitForTimeout(32_000);
    },
  ],
  refused: [
    (page) =>
      page.routeWebSocket(/\/v1$/, (socket) => {
        const relay = socket.connectToServer();
        socket.onMessage((data) => {
          const { type, requestId } = JSON.parse(String(data));
          if (type !== "deviceToggle") return relay.send(data);
          const message = "The game server did not show the wanted state in time.";
          socket.send(JSON.stringify({ type: "error", code: "game_server_timeout", message, requestId }));
        });
      }),
    async (page) => {
      await press("Devices")(page);
      await page.getByRole("switch").first().click();
      await page.locator(".fault:not([hidden])").first().waitFor();
    },
  ],
  "no-servers": [
    (page) =>
      begun(page, (answers) => (answers.servers = [])).then(() =>
        answered(/\/paired-servers\?/, 200, { servers: [], next: null })(page),
      ),
  ],
  "no-service": [
    (page) =>
      begun(page).then(() =>
        answered(/\/me$/, ...problem(503, "unavailable", "The service cannot answer right now."))(page),
      ),
  ],
  operator: [
    answered(/\/credentials\/push$/, 200, {
      state: "proven",
      uploadedAt: LONG_AGO,
      expiresAt: null,
      session: { state: "unreadable", since: LONG_AGO, lastError: "unknown_key" },
    }),
    press("More"),
  ],
  "signed-out": [
    null,
    (page) =>
      page
        .route(/./, (route) =>
          route.fulfill({ status: 401, json: { code: "unauthenticated", detail: "Please sign in." } }),
        )
        .then(() => page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")))),
  ],
};

/** Pages of the service beside the dashboard, which need no session. */
const PAGES = {
  landing: "/",
  cancelled: "/?signIn=cancelled",
  status: "/status",
  problems: "/problems",
  missing: "/none",
};
/** States in which requests fail, which the console of the browser calls errors. */
const FAILING = ["offline", "no-service", "signed-out", "missing"];
/** States that are taken for each tab: their panels are seen often enough from above. */
const TABBED = /^(long|loading|connecting|empty|stale|unreachable|offline)-/;
const WITH_TABS = ["live", "long", "loading", "connecting", "empty", "stale", "unreachable", "offline"];

mkdirSync(directory, { recursive: true });
const [demo, browser] = await Promise.all([startDemo(), launch()]);
let found = 0;

async function take(page, name, faults) {
  await page.waitForFunction(
    () => document.querySelector("#panel")?.closest("[hidden]") || !document.querySelector("#panel:empty"),
  );
  // For what moves in and for the picture of the map; nothing depends on it.
  await page.waitForTimeout(1500);
  await page.screenshot({ path: `${directory}/${name}.png` });
  const scrolled = await page.evaluate(() => {
    const panel = document.querySelector("#panel");
    if (panel) panel.scrollTop = panel.scrollHeight;
    return panel !== null && panel.scrollTop > 0;
  });
  if (scrolled && !TABBED.test(name)) await page.screenshot({ path: `${directory}/${name}-end.png` });
  const isExpected = FAILING.some((state) => name.startsWith(state));
  const flaws = [
    ...(await flawsOf(page)),
    ...faults.splice(0).filter((fault) => !(isExpected && /Failed to load/.test(fault))),
  ];
  found += flaws.length;
  console.log([name, ...new Set(flaws)].join("\n    "));
}

/** One state, and each of its tabs. */
async function takeState(nameOf, [state, [prepare, then]], tabs, looks) {
  const { page, faults, close } = await openPage(browser, demo, { ...looks, prepare });
  try {
    await page.locator(".shell, .sheet, .starting").first().waitFor();
    await then?.(page);
    for (const tab of tabs) {
      const element = page.getByRole("tab", { name: new RegExp(`^${tab || "Team"}`) });
      if (tab && (await element.getAttribute("aria-selected")) === "false") await element.click();
      await take(page, nameOf(state, tab), faults);
    }
  } catch (error) {
    found += 1;
    console.log(`${nameOf(state)} cannot be shown: ${error.message.split("\n")[0]}`);
  }
  await page.context().setOffline(false);
  await close();
}

// The service asks the game for the map once its link is up.
while (!(await demo.call("GET", `/paired-servers/${demo.serverId}/map`).catch(() => null)))
  await new Promise((resolve) => setTimeout(resolve, 500));
for (const [size, width, height] of SIZES) {
  for (const colorScheme of ["dark", "light"]) {
    const nameOf = (...parts) => [...parts.filter(Boolean), size, colorScheme].join("-").toLowerCase();
    const isWanted = (name) => words.every((word) => name.includes(word));
    for (const [state, does] of Object.entries(STATES)) {
      const tabs = (WITH_TABS.includes(state) ? TABS : [""]).filter((tab) => isWanted(nameOf(state, tab)));
      if (tabs.length > 0) await takeState(nameOf, [state, does], tabs, { width, height, colorScheme });
    }
    for (const [state, path] of Object.entries(PAGES).filter(([state]) => isWanted(nameOf(state)))) {
      const { page, faults, close } = await openPage(browser, demo, {
        width,
        height,
        colorScheme,
        signedIn: false,
        path,
      });
      await take(page, nameOf(state), faults);
      await close();
    }
  }
}
await browser.close();
await demo.stop();
process.exitCode = found > 0 ? 1 : 0;
