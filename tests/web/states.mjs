// The states in which the dashboard and the pages of the service are looked at: by eye (`shots.mjs`), and by the rules of axe
// (`states.e2e.mjs`). Those that a demo does not have are made of its answers on their way.

export const TABS = ["Map", "Team", "Devices", "Feed", "Shops", "More"];
const LONG_AGO = "2026-01-01T00:00:00.000Z";

/**
 * The relay's messages on their way: each snapshot is edited, and then no patch comes; `answer` may answer what the page says.
 * Raids are of one state alone: they turn a phone to the map, under the hands of what is done there.
 */
const relayed =
  ({ edit = null, answer = null } = {}) =>
  (page) =>
    page.routeWebSocket(/\/v1$/, (socket) => {
      const relay = socket.connectToServer();
      relay.onMessage((data) => {
        const message = JSON.parse(String(data));
        if (message.type === "raid" || (edit && message.type === "patch")) return;
        if (message.type === "snapshot") {
          message.state.raids = {};
          edit?.(message.state);
        }
        if (message.type === "patch") message.patch = message.patch.filter(({ path }) => !/^\/raids\b/.test(path));
        socket.send(JSON.stringify(message));
      });
      socket.onMessage((data) => {
        const said = answer?.(JSON.parse(String(data)));
        if (said) socket.send(JSON.stringify(said));
        else relay.send(data);
      });
    });
const edited = (edit) => relayed({ edit });
const calm = relayed();
/** Both are prepared. */
const both = (one, other) => (page) => one(page).then(() => other(page));
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
/** Edits the servers, in what the dashboard comes with and in what it asks later. */
const withServers = (edit) => (page) =>
  begun(page, (answers) => (answers.servers = edit(answers.servers))).then(() =>
    page.route(/\/paired-servers\?/, async (route) => {
      const response = await route.fetch();
      const { servers } = await response.json();
      await route.fulfill({ response, json: { servers: edit(servers), next: null } });
    }),
  );
const press = (name) => (page) => page.getByRole("tab", { name }).click();
const problem = (status, code, detail) => [status, { title: code, status, code, detail, requestId: "x", type: "x" }];

/** Each state: what is prepared, and what is done once the page is open. */
export const STATES = {
  live: [calm],
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
  layers: [calm, (page) => page.getByRole("button", { name: "Layers" }).click()],
  card: [
    calm,
    async (page) => {
      // On a phone the map has no list beside it.
      if ((page.viewportSize()?.width ?? 0) < 720) return page.getByRole("application").click();
      await press("Map")(page);
      await page.getByRole("list", { name: "On the map" }).getByText("Travelling vendor").click();
    },
  ],
  note: [
    calm,
    async (page) => {
      await page.getByRole("button", { name: "Add a note" }).click();
      await page.getByRole("application").click({ position: { x: 150, y: 150 } });
    },
  ],
  forms: [
    calm,
    async (page) => {
      await press("Devices")(page);
      await page.getByRole("button", { name: "Name and place" }).first().click();
      await page.getByRole("button", { name: "Group switches" }).click();
    },
  ],
  offer: [
    calm,
    async (page) => {
      await press("Shops")(page);
      await page.locator("#panel .row button[aria-expanded]").first().click();
    },
  ],
  folds: [
    calm,
    async (page) => {
      await press("More")(page);
      await page.getByText("My data").waitFor();
      const closed = page.locator("#panel details:not([open]) > summary");
      while ((await closed.count()) > 0) await closed.first().click();
    },
  ],
  raid: [null, (page) => page.getByRole("button", { name: "Acknowledge" }).first().waitFor({ timeout: 200_000 })],
  guest: [
    both(
      calm,
      withServers(([server]) => [{ ...server, role: "guest", address: null, port: null }]),
    ),
    press("Devices"),
  ],
  "late-drill": [
    edited((state) => {
      const at = new Date(Date.now() - 30_000).toISOString();
      const raid = {
        alarmId: "1",
        alarmName: LONG,
        x: 2000,
        y: 2000,
        grid: "K14",
        firstAt: at,
        lastAt: at,
        endedAt: null,
      };
      state.raids.one = { ...raid, count: 12, paths: ["push"], late: true, drill: true, acks: { other: at } };
    }),
    (page) => page.locator(".raid-bar").getByText("reported late").waitFor(),
  ],
  starting: [(page) => begun(page).then(() => never(page, /\/client-config$/))],
  loading: [
    both(calm, (page) => never(page, /\/(chat|timeline|shops|map|guests|device|push|readiness|tokens|alarms)(\?.*)?$/)),
  ],
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
    both(calm, (page) => page.clock.install()),
    async (page) => {
      await page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
      // Panels are loaded a little later than the page.
      await page.clock.fastForward(5000);
      await page.waitForLoadState("networkidle");
      await page.context().setOffline(true);
      await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pagehide")));
      await page.clock.fastForward(32_000);
      await page.locator(".map-age:not([hidden])").waitFor({ state: "attached" });
    },
  ],
  refused: [
    relayed({
      answer: ({ type, requestId }) => {
        if (type !== "deviceToggle") return null;
        const message = "The game server did not show the wanted state in time.";
        return { type: "error", code: "game_server_timeout", message, requestId };
      },
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
    both(
      calm,
      answered(/\/credentials\/push$/, 200, {
        state: "proven",
        uploadedAt: LONG_AGO,
        expiresAt: null,
        session: { state: "unreadable", since: LONG_AGO, lastError: "unknown_key" },
      }),
    ),
    press("More"),
  ],
  "signed-out": [
    calm,
    (page) =>
      page
        .route(/./, (route) =>
          route.fulfill({ status: 401, json: { code: "unauthenticated", detail: "Please sign in." } }),
        )
        .then(() => page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")))),
  ],
};

/** Pages of the service beside the dashboard, which need no session. */
export const PAGES = {
  landing: "/",
  cancelled: "/?signIn=cancelled",
  status: "/status",
  problems: "/problems",
  missing: "/none",
  invited: "/invite#token=none",
  overlay: "/overlay",
};
/** States in which requests fail, which the console of the browser calls errors. */
export const FAILING = ["offline", "no-service", "signed-out", "missing", "invited"];
/** States that are taken for each tab: their panels are seen often enough from above. */
export const TABBED = /^(long|loading|connecting|empty|stale|unreachable|offline)-/;
export const WITH_TABS = ["live", "long", "loading", "connecting", "empty", "stale", "unreachable", "offline"];
