// A real service as a process of its own, with simulated neighbours in another: for tests in which one of them is killed
// and comes back on the same data, at the same ports.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PROGRAM } from "./lib.mjs";

const START_DEADLINE = 180_000;
const LOCAL = "127.0.0.1";

/** Ports that are free now, all different. @param {number} count @returns {Promise<number[]>} */
async function freePorts(count) {
  const servers = await Promise.all(
    Array.from(
      { length: count },
      () =>
        new Promise((resolve, reject) => {
          const server = createServer()
            .once("error", reject)
            .listen(0, LOCAL, () => resolve(server));
        }),
    ),
  );
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** Runs the program; `isUp` says of its output, or by asking, that it is ready. */
async function run(parameters, options, isUp) {
  const child = spawn(PROGRAM, parameters, { stdio: ["ignore", "pipe", "pipe"], ...options });
  const program = { child, output: "", errors: "", code: null };
  child.stdout.on("data", (bytes) => (program.output += bytes));
  // The log is of use only if it does not start.
  child.stderr.on("data", (bytes) => (program.errors = (program.errors + bytes).slice(-4000)));
  child.on("exit", (code, signal) => (program.code = code ?? signal));
  child.on("error", ({ message }) => (program.code = message));
  const end = Date.now() + START_DEADLINE;
  while (!(await isUp(program))) {
    if (program.code !== null || Date.now() > end) {
      child.kill("SIGKILL");
      throw new Error(`${parameters[0]} did not start (${program.code}):\n${program.output}${program.errors}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return program;
}

/** Ends a program of ours at once, as a crash does. */
async function kill(program) {
  if (!program || program.code !== null) return;
  const ended = new Promise((resolve) => program.child.once("exit", resolve));
  program.child.kill("SIGKILL");
  await ended;
}

/**
 * A service with neighbours, each a process that can be killed and started again.
 * @param {{ relayUrl?: (port: number) => Promise<string> }} [options] where browsers find the relay, of which this is the port
 */
export async function startService({ relayUrl } = {}) {
  const directory = mkdtempSync(join(tmpdir(), "companion-story-"));
  const envFile = join(directory, "neighbours.env");
  const [api, relay, ...others] = await freePorts(9);
  const names = ["game", "identity", "push", "player-stats", "payments", "chat", "registration"];
  const apiUrl = `http://${LOCAL}:${api}`;
  // Settings of this machine are none of the test's.
  const env = {
    PATH: process.env.PATH,
    API_LISTEN: `${LOCAL}:${api}`,
    RELAY_LISTEN: `${LOCAL}:${relay}`,
    DATA_DIR: join(directory, "data"),
    ...(relayUrl ? { RELAY_URL: await relayUrl(relay) } : {}),
    ...(process.env.WEB_DIR ? { WEB_DIR: process.env.WEB_DIR } : {}),
  };
  const world = {
    apiUrl,
    relayUrl: env.RELAY_URL ?? `ws://${LOCAL}:${relay}`,
    /** Where the sign-in is, for `openPage`, which admits requests there. */
    openUrl: `http://${LOCAL}:${others[1]}`,
    cookie: "",
    /** Facts of the simulator about its player, their phone and devices. */
    facts: /** @type {any} */ (null),
    neighbours: /** @type {any} */ (null),
    service: /** @type {any} */ (null),

    /** The game and its neighbours; the world begins again, with a raid after twenty seconds. */
    async startNeighbours() {
      const ports = names.map((name, at) => `--${name}-port=${others[at]}`);
      const parameters = ["simulate", ...ports, `--env-file=${envFile}`, `--data-dir=${join(directory, "simulator")}`];
      world.neighbours = await run(parameters, { env: { PATH: env.PATH }, cwd: directory }, ({ output }) =>
        output.includes("\n"),
      );
      world.facts = JSON.parse(world.neighbours.output.split("\n")[0]);
    },
    async start() {
      const isUp = () =>
        fetch(`${apiUrl}/ready`).then(
          ({ ok }) => ok,
          () => false,
        );
      world.service = await run(["serve", `--env-file=${envFile}`], { env, cwd: directory }, isUp);
    },
    kill: () => kill(world.service),
    killNeighbours: () => kill(world.neighbours),
    async stop() {
      await Promise.all([kill(world.service), kill(world.neighbours)]);
      rmSync(directory, { recursive: true, force: true });
    },
    /** Does what a helper program of the player does: exchanges a code, and uploads the credential of their phone. */
    async help(code) {
      const { token } = await send(apiUrl, "POST", "/pairing/device/activate", { code });
      const { playerId: platformId, androidId, securityToken } = world.facts;
      const bundle = { platformId, fcm_credentials: { gcm: { androidId, securityToken } } };
      await send(apiUrl, "PUT", "/credentials/push", bundle, { authorization: `Bearer ${token}` });
    },
  };
  try {
    await world.startNeighbours();
    await world.start();
  } catch (error) {
    await world.stop();
    throw error;
  }
  return world;
}

/** A request whose refusal is a fault. */
export async function send(apiUrl, method, path, body, headers = {}) {
  const answer = await fetch(apiUrl + path, {
    method,
    headers: { ...headers, ...(body ? { "content-type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : text;
}

/** Signs in without a browser, as the simulator's first player: the cookie of the session. */
export async function signIn({ apiUrl, openUrl, facts }) {
  const jar = new Map();
  const visit = async (url, options = {}) => {
    const cookie = [...jar].map((pair) => pair.join("=")).join("; ");
    const answer = await fetch(url, { redirect: "manual", headers: { cookie }, ...options });
    for (const line of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (name) jar.set(name, value);
    }
    return answer.headers.get("location") ?? "";
  };
  const asked = new URL(await visit(`${apiUrl}/auth/platform`));
  const fields = new URLSearchParams(asked.search);
  fields.set("person", facts.playerId);
  await visit(await visit(`${openUrl}/openid/choose`, { method: "POST", body: fields }));
  return `rp_sess=${jar.get("rp_sess")}`;
}

/** Pairs the game by push, as a player does with a helper program; the server, once it is there. */
export async function pairByPush(world, cookie) {
  const { code } = await send(world.apiUrl, "POST", "/pairing/device/code", {}, { cookie });
  await world.help(code);
  for (;;) {
    const { servers } = await send(world.apiUrl, "GET", "/paired-servers?limit=10", undefined, { cookie });
    if (servers.length > 0) return servers[0];
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
