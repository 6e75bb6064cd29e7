// Dashboards of third-party parts (ws, fast-json-patch) against a running demo, while everything that may go wrong does.
//
// usage: patch_client.mjs DEMO_JSON SIMULATOR_JSON SECONDS [SEED]
//   DEMO_JSON       the file that `companion demo` writes
//   SIMULATOR_JSON  the line that `companion simulate` prints: a second game server, paired through a proxy that fails
//
// Every patch must apply with validation and start where the client is; any two clients that reach the same
// position of the same epoch, by patches or by a snapshot, must hold the same state. Every message in both directions must
// be as the schema says that the service serves.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';

// The packages are found through NODE_PATH, which `import` does not know.
const require = createRequire(import.meta.url);
const WebSocket = require('ws');
const { applyPatch } = require('fast-json-patch');
const Ajv = require('ajv/dist/2020');

const [demoFile, simulatorJson, seconds, seed = String(Date.now() % 1e6)] = process.argv.slice(2);
const demo = JSON.parse(readFileSync(demoFile, 'utf8'));
const simulator = JSON.parse(simulatorJson);

const WINDOW_MS = 10_000, WINDOW_FRAMES = 60, SNAPSHOT_MS = 5_000;
/** Two frames may travel unequally long on a busy machine; a snapshot that is sent for nothing comes much sooner. */
const JITTER_MS = 1_000;
const ANSWER_MS = 8_000;

let passed = 0, failed = 0;
const count = { validated: 0, snapshots: 0, patches: 0, operations: 0, compared: 0, reconnects: 0, resumed: 0, pauses: 0, toggles: 0, faults: 0 };
function check(condition, what) {
  if (condition) passed += 1;
  else if (++failed <= 20) console.error(`FAILED: ${what()}`);
}

// mulberry32: the same seed, the same decisions.
let random = Number(seed) | 0;
function chance() {
  random = (random + 0x6d2b79f5) | 0;
  let t = Math.imul(random ^ (random >>> 15), 1 | random);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}
const between = (low, high) => low + chance() * (high - low);
const pick = list => list[Math.floor(chance() * list.length)];
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

function canonical(value) {
  if (Array.isArray(value)) return value.map(canonical);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.keys(value).sort().map(key => [key, canonical(value[key])]));
}

/** Digests of the state by position, as the first client to arrive there had it. */
const known = new Map();
function compare(client, server, { epoch, seq, state }) {
  const digest = createHash('sha1').update(JSON.stringify(canonical(state))).digest('hex');
  const place = `${server} ${epoch} ${seq}`;
  const first = known.get(place);
  if (first === undefined) return known.set(place, { digest, client: client.name });
  count.compared += 1;
  check(first.digest === digest, () => `${client.name} and ${first.client} differ at ${place}`);
}

async function api(method, path, body) {
  const headers = { cookie: demo.cookie, ...(body && { 'content-type': 'application/json' }) };
  const answer = await fetch(demo.apiUrl + path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** The formats of the schema, which ajv leaves to others. */
const whole = bits => ({ type: 'number', validate: value => Number.isInteger(value) && Math.abs(value) <= 2 ** (bits - 1) });
const FORMATS = {
  int32: whole(32),
  int64: whole(64),
  double: { type: 'number', validate: Number.isFinite },
  'date-time': text => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(text) && !Number.isNaN(Date.parse(text)),
};

/** Every message that came, or went out, against the schema of the running service; compiled once. */
class Schema {
  /** The last message of each type. */
  kinds = new Map();

  async load() {
    const answer = await fetch(`${demo.apiUrl}/relay.schema.json`);
    const ajv = new Ajv({ formats: FORMATS });
    ajv.addSchema(await answer.json(), 'relay');
    for (const name of ['ClientMessage', 'ServerMessage']) this[name] = ajv.compile({ $ref: `relay#/$defs/${name}` });
    this.refusesInventions();
  }

  /** A schema that takes everything would find nothing. */
  refusesInventions() {
    const serverId = 's', pong = { type: 'pong' };
    const wrong = {
      ClientMessage: [pong, {}, 'ping', { type: 'subscribe' }, { type: 'subscribe', serverId: 7 },
        { type: 'subscribe', serverId: '\u0000' }, { type: 'deviceToggle', serverId, deviceId: 'x'.repeat(129) }],
      ServerMessage: [{ type: 'ping' }, {}, null, { type: 'ack' }, { type: 'error', code: 'unheard_of', message: 'x' },
        { type: 'patch', serverId, epoch: 1, base: 0, seq: 1, patch: [{ op: 'mend', path: '/server', value: 1 }] },
        { type: 'patch', serverId, epoch: 1, base: '0', seq: 1, patch: [] },
        { type: 'snapshot', serverId, epoch: 1, seq: 1, state: { team: 1 } }, { type: 'raid', serverId }],
    };
    for (const [name, messages] of Object.entries(wrong)) {
      for (const message of messages) check(!this[name](message), () => `${name} takes ${JSON.stringify(message)}`);
    }
    check(this.ServerMessage(pong) && this.ClientMessage({ type: 'ping' }), () => 'the schema takes no ping or pong');
  }

  validate(name, message) {
    count.validated += 1;
    this.kinds.set(message.type, { name, message });
    const validate = this[name];
    check(validate(message), () => `no ${name}: ${JSON.stringify(validate.errors)}: ${JSON.stringify(message).slice(0, 500)}`);
  }

  /** Nor does one that takes what came once it is spoiled. */
  refusesSpoiled() {
    for (const type of ['subscribe', 'unsubscribe', 'deviceToggle', 'snapshot', 'patch', 'ack', 'pong']) {
      check(this.kinds.has(type), () => `no ${type} was seen`);
    }
    for (const { name, message } of this.kinds.values()) {
      for (const field of Object.keys(message)) {
        const spoiled = { ...message, [field]: [message[field]] };
        check(!this[name](spoiled), () => `${name} takes a list as ${field}: ${JSON.stringify(spoiled).slice(0, 500)}`);
      }
    }
    console.log(`schema: ${[...this.kinds.keys()].sort().join(', ')}`);
  }
}
const schema = new Schema();

class Client {
  constructor(name) {
    this.name = name;
    this.wanted = new Set();
    this.views = new Map();
    this.reset();
  }

  /** Forgets the earlier connection. */
  reset() {
    this.views.clear();
    this.arrivals = [];
    this.snapshots = new Map();
    this.waiting = new Map();
    this.leaving = false;
  }

  async open() {
    const { token } = await api('POST', '/relay/token');
    const before = new Map(this.views);
    this.reset();
    const socket = new WebSocket(`${demo.relayUrl}/v1?token=${token}`, { origin: demo.apiUrl, perMessageDeflate: true });
    this.socket = socket;
    await new Promise((resolve, reject) => { socket.once('open', resolve); socket.once('error', reject); });
    socket.on('error', error => check(this.leaving, () => `${this.name}: ${error.message}`));
    socket.on('close', (code, reason) => check(this.leaving, () => `${this.name} was closed: ${code} ${reason}`));
    socket.on('message', (data, binary) => {
      if (socket !== this.socket || this.leaving) return;
      check(!binary, () => `${this.name}: a binary message`);
      this.take(JSON.parse(data.toString()));
    });
    for (const server of this.wanted) {
      const view = before.get(server);
      if (view && chance() < 0.7) this.resume(server, view);
      else this.send({ type: 'subscribe', serverId: server });
    }
  }

  /** Goes on from what was known on another connection, if the relay can. */
  resume(server, view) {
    this.views.set(server, { ...view, resuming: true });
    this.send({ type: 'subscribe', serverId: server, epoch: view.epoch, seq: view.seq });
  }

  leave(rudely) {
    this.leaving = true;
    if (rudely) this.socket.terminate();
    else this.socket.close(1000);
    this.socket.resume();
  }

  send(message) {
    schema.validate('ClientMessage', message);
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  subscribe(server) {
    this.wanted.add(server);
    this.send({ type: 'subscribe', serverId: server });
  }

  unsubscribe(server) {
    this.wanted.delete(server);
    this.views.delete(server);
    this.send({ type: 'unsubscribe', serverId: server });
  }

  /** Reads nothing for a while. Frames that came meanwhile are read at once, so their arrival says nothing of when they were sent. */
  async pause(ms) {
    const socket = this.socket;
    socket.pause();
    await sleep(ms);
    socket.resume();
    // An answer that came meanwhile is not read yet: a request waits for the time in which this client reads.
    for (const [id, since] of this.waiting) this.waiting.set(id, since + ms);
    this.untimed = Date.now() + 500;
  }

  /** A request that must be answered once, by `ack` or by an `error` that says why. */
  request(message) {
    const requestId = `${this.name}-${passed}`;
    this.waiting.set(requestId, Date.now());
    this.send({ ...message, requestId });
  }

  answered(message) {
    check(this.waiting.delete(message.requestId), () => `${this.name}: nobody asked for ${JSON.stringify(message)}`);
  }

  take(message) {
    schema.validate('ServerMessage', message);
    const now = Date.now();
    if (now < (this.untimed ?? 0) || this.socket.isPaused) {
      this.arrivals = [];
      this.snapshots.clear();
    } else {
      this.arrivals.push(now);
      while (this.arrivals[0] <= now - WINDOW_MS) this.arrivals.shift();
      check(this.arrivals.length <= WINDOW_FRAMES, () => `${this.name}: ${this.arrivals.length} frames in 10 s`);
    }
    const { type, serverId: server } = message;
    switch (type) {
      case 'snapshot': {
        const last = this.snapshots.get(server);
        const since = now - (last ?? 0);
        check(since >= SNAPSHOT_MS - JITTER_MS, () => `${this.name}: two snapshots of ${server} within ${since} ms`);
        this.snapshots.set(server, now);
        if (!this.wanted.has(server)) return; // it was on its way when we unsubscribed
        count.snapshots += 1;
        const { epoch, seq, state } = message;
        this.views.set(server, { epoch, seq, state, fresh: true });
        return compare(this, server, this.views.get(server));
      }
      case 'patch': {
        const view = this.views.get(server);
        if (!view) return; // as above
        const { epoch, base, seq, patch } = message;
        // A client that missed nothing gets a patch without changes.
        const leadsOn = seq > base || (view.resuming && seq === base && patch.length === 0);
        const fits = epoch === view.epoch && base === view.seq && leadsOn;
        check(fits, () => `${this.name}: ${base} to ${seq} of ${epoch} does not follow ${view.seq} of ${view.epoch}`);
        try {
          view.state = applyPatch(view.state, patch, true, true).newDocument;
          passed += 1;
        } catch (error) {
          check(false, () => `${this.name}: ${error.name} at ${server} ${epoch} ${seq}: ${JSON.stringify(patch)}`);
        }
        if (view.resuming) count.resumed += 1;
        Object.assign(view, { epoch, seq, fresh: false, resuming: false });
        count.patches += 1;
        count.operations += patch.length;
        return compare(this, server, view);
      }
      case 'ack':
        return this.answered(message);
      case 'error':
        check(/^game_server_/.test(message.code), () => `${this.name}: ${JSON.stringify(message)}`);
        return this.answered(message);
      case 'pong':
      case 'event':
      case 'chat':
        return;
      case 'raid':
        return this.request({ type: 'raidAck', serverId: server, incident: message.incident });
      default:
        check(false, () => `${this.name}: an unknown message ${JSON.stringify(message)}`);
    }
  }
}

/** A proxy between the service and its second game server that fails on demand. */
class Proxy {
  pairs = new Set();
  refusing = false;

  async listen() {
    const [host, port] = simulator.game.split(':');
    this.server = net.createServer(near => {
      if (this.refusing) return near.destroy();
      const pair = [near, net.connect(Number(port), host)];
      this.pairs.add(pair);
      pair.forEach((socket, index) => {
        socket.on('error', () => {}).on('close', () => { this.pairs.delete(pair); pair[1 - index].destroy(); });
      });
      near.pipe(pair[1]).pipe(near);
    });
    await new Promise(resolve => this.server.listen(0, '127.0.0.1', resolve));
    return this.server.address().port;
  }

  cut() {
    for (const pair of this.pairs) pair.forEach(socket => socket.destroy());
  }

  async fault() {
    count.faults += 1;
    switch (pick(['cut', 'freeze', 'refuse'])) {
      case 'cut':
        return this.cut();
      case 'freeze': {
        const frozen = [...this.pairs];
        for (const [near, far] of frozen) { near.unpipe(far); far.unpipe(near); }
        await sleep(between(2_000, 9_000));
        for (const [near, far] of frozen) near.pipe(far).pipe(near);
        return;
      }
      case 'refuse':
        this.refusing = true;
        this.cut();
        await sleep(between(1_000, 4_000));
        this.refusing = false;
    }
  }
}

/** One client's play until `end`: not more than two messages a second, well within what a client may send. */
async function play(client, servers, switches, end) {
  while (Date.now() < end) {
    await sleep(between(600, 2_500));
    const server = pick(servers);
    const act = chance();
    if (act < 0.12) {
      count.reconnects += 1;
      client.leave(chance() < 0.5);
      await sleep(between(0, 800));
      await client.open();
    } else if (act < 0.27) {
      client.unsubscribe(server);
      await sleep(between(0, 2_000));
      client.subscribe(server);
    } else if (act < 0.37) {
      client.subscribe(server); // again: asks for a fresh snapshot
    } else if (act < 0.57) {
      count.pauses += 1;
      await client.pause(between(500, 6_000));
    } else if (act < 0.87) {
      count.toggles += 1;
      client.request({ type: 'deviceToggle', serverId: server, deviceId: pick(switches) });
    } else {
      client.send({ type: 'ping' });
    }
    const late = [...client.waiting].filter(([, since]) => Date.now() - since > ANSWER_MS);
    check(late.length === 0, () => `${client.name}: no answer to ${late.map(([id]) => id)}`);
    late.forEach(([id]) => client.waiting.delete(id));
  }
}

/** Everybody catches up: each client must be where a fresh client's snapshot is, at least once. */
async function settle(clients, servers) {
  const open = new Set(clients.flatMap(client => servers.map(server => `${client.name} ${server}`)));
  const deadline = Date.now() + 40_000;
  while (open.size > 0 && Date.now() < deadline) {
    const fresh = new Client('fresh');
    servers.forEach(server => fresh.wanted.add(server));
    await fresh.open();
    // The fresh client's own patches stay out of this: what it is compared with is a snapshot.
    const until = Date.now() + 3_000;
    const snapshots = new Map();
    while (Date.now() < until) {
      for (const [server, view] of fresh.views) {
        if (view.fresh && !snapshots.has(server)) snapshots.set(server, { epoch: view.epoch, seq: view.seq });
      }
      for (const client of clients) {
        for (const [server, at] of snapshots) {
          const view = client.views.get(server);
          // They were compared there when the second of the two arrived.
          if (view && view.epoch === at.epoch && view.seq === at.seq) open.delete(`${client.name} ${server}`);
        }
      }
      await sleep(5);
    }
    fresh.leave(false);
  }
  check(open.size === 0, () => `never seen where a fresh snapshot is: ${[...open].join(', ')}`);
}

async function main() {
  await schema.load();
  const proxy = new Proxy();
  const port = await proxy.listen();
  const second = await api('POST', '/paired-servers', {
    address: '127.0.0.1', port, playerId: simulator.playerId, playerToken: String(simulator.playerToken), name: 'Behind a bad line',
  });
  for (const { entityId, name } of simulator.devices) {
    await api('POST', `/paired-servers/${second.id}/devices`, { entityId, name });
  }
  const servers = [demo.servers[0].id, second.id];

  const clients = ['a', 'b', 'c', 'd'].map(name => new Client(name));
  for (const client of clients) {
    servers.forEach(server => client.wanted.add(server));
    await client.open();
  }
  const steady = clients.pop(); // only reads
  const start = Date.now();
  const devicesOf = server => steady.views.get(server)?.state.devices ?? {};
  // All of them: what is added shows one after the other.
  const isComplete = () => simulator.devices.every(({ entityId }) => devicesOf(second.id)[entityId])
    && servers.every(server => Object.values(devicesOf(server)).some(device => device.kind === 'switch'));
  while (!isComplete()) {
    if (Date.now() - start > 20_000) throw new Error('the devices were not seen within 20 s');
    await sleep(50);
  }
  const devices = Object.entries(steady.views.get(servers[0]).state.devices);
  const switches = devices.filter(([, device]) => device.kind === 'switch').map(([id]) => id);

  const end = Date.now() + Number(seconds) * 1000;
  const faults = async () => {
    while (Date.now() < end) {
      await sleep(between(3_000, 8_000));
      await proxy.fault();
    }
  };
  await Promise.all([faults(), ...clients.map(client => play(client, servers, switches, end))]);
  await settle([steady, ...clients], servers);
  for (const client of [steady, ...clients]) client.leave(false);
  proxy.server.close();
  proxy.cut();

  schema.refusesSpoiled();
  for (const [what, times] of Object.entries(count)) check(times > 0, () => `no ${what}: the test tests nothing`);
  console.log(Object.entries(count).map(([what, times]) => `${times} ${what}`).join(', '));
}

console.log(`patch_client: seed ${seed}, ${seconds} s`);
try {
  await main();
} catch (error) {
  check(false, () => error.stack);
}
console.log(`patch_client: ${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
