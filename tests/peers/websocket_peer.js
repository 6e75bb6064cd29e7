// The relay as a WebSocket server (RFC 6455), asked by ws (npm): through its own sending where that can say it, and with
// frames of its encoder, spoiled where needed, on its TCP socket where not.
// Usage: node websocket_peer.js DEMO_JSON; the package is found through NODE_PATH. Says what it checked.
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const WebSocket = require('ws');

const demo = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const relay = new URL(demo.relayUrl);
const LIMIT = 64 * 1024;
const CONTINUE = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10;
/** Letters of one, two, three and four bytes. */
const LETTERS = 'aé€𝄞';

async function api(method, path, { body, headers = { cookie: demo.cookie } } = {}) {
  headers = body ? { ...headers, 'content-type': 'application/json' } : headers;
  const answer = await fetch(demo.apiUrl + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.json();
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no ${what} within 20 s`)), 20_000); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A masked frame of the library's encoder; `first` and `second` are xored into its head. */
function frame(opcode, data = '', { fin = true, first = 0, second = 0 } = {}) {
  const parts = WebSocket.Sender.frame(Buffer.from(data), { opcode, fin, mask: true, readOnly: false });
  const bytes = Buffer.concat(parts);
  bytes[0] ^= first;
  bytes[1] ^= second;
  return bytes;
}
const unmasked = (opcode, data) =>
  Buffer.concat(WebSocket.Sender.frame(Buffer.from(data), { opcode, fin: true, mask: false, readOnly: false }));
const closeFrame = (code, reason = '') => frame(CLOSE, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]));
const json = value => JSON.stringify(value);
/** A message that is answered by an `error` with this id. */
const asked = id => json({ type: 'conformance', requestId: id });
const PING_MESSAGE = json({ type: 'ping' });

let token;
/** A connection and what arrived on it, in order: messages, pongs and at last the close. */
class Connection {
  arrived = [];
  wake = () => {};

  constructor(options = {}) {
    this.socket = new WebSocket(`${demo.relayUrl}/v1?token=${token}`, { perMessageDeflate: false, ...options });
    const take = what => { this.arrived.push(what); this.wake(); };
    this.socket.on('message', (data, binary) => take(binary ? { binary: data } : JSON.parse(data)));
    this.socket.on('pong', payload => take({ pong: payload.toString() }));
    // After the end of the TCP connection too.
    this.socket.on('close', (code, reason) => take({ close: code, reason: reason.toString() }));
    this.socket.on('error', error => take({ error: error.message }));
  }

  static async open(options) {
    const connection = new Connection(options);
    await within(new Promise((resolve, reject) => connection.socket.once('open', resolve).once('error', reject)), '101');
    return connection;
  }

  /** Bytes as they are, in one write. */
  write(...frames) {
    this.socket._socket.write(Buffer.concat(frames));
    return this;
  }

  async next() {
    while (this.arrived.length === 0) await within(new Promise(resolve => { this.wake = resolve; }), 'answer');
    return this.arrived.shift();
  }

  async echoes(id) {
    const { type, code, requestId } = await this.next();
    assert.deepEqual({ type, code, requestId }, { type: 'error', code: 'unknown_type', requestId: id });
  }

  async isMalformed() {
    const { type, code } = await this.next();
    assert.deepEqual({ type, code }, { type: 'error', code: 'malformed' });
  }

  async isAlive() {
    this.write(frame(TEXT, PING_MESSAGE));
    assert.deepEqual(await this.next(), { type: 'pong' });
  }

  async isClosed(...codes) {
    const told = await this.next();
    assert.ok(codes.includes(told.close), `close ${codes.join(' or ')}, not ${json(told)}`);
    return told.reason;
  }

  async leave() {
    this.socket.close(1000);
    await this.isClosed(1000);
  }
}

const checks = {
  async 'messages in fragments, with control frames between and ends inside a character'() {
    const connection = await Connection.open();
    const message = Buffer.from(asked(LETTERS));
    const [middle, inside] = [5, message.indexOf('𝄞') + 2];
    const send = (data, options) => connection.socket.send(data, { binary: false, ...options });
    send(message.subarray(0, middle), { fin: false });
    connection.socket.ping('between');
    send('', { fin: false });
    send(message.subarray(middle, inside), { fin: false });
    connection.socket.pong('unasked');
    connection.socket.ping('');
    send(message.subarray(inside), { fin: false });
    send('', { fin: true });
    assert.deepEqual(await connection.next(), { pong: 'between' });
    assert.deepEqual(await connection.next(), { pong: '' });
    await connection.echoes(LETTERS);
    send('', { fin: false });
    send(PING_MESSAGE, { fin: true });
    assert.deepEqual(await connection.next(), { type: 'pong' });
    await connection.leave();
  },

  async 'a message of as many fragments as it has bytes is one message'() {
    const connection = await Connection.open();
    const message = Buffer.from(asked(LETTERS));
    const parts = [...message].map((byte, at) =>
      frame(at === 0 ? TEXT : CONTINUE, [byte], { fin: at === message.length - 1 }));
    assert.ok(parts.length > 30);
    connection.write(...parts);
    await connection.echoes(LETTERS);
    await connection.leave();
  },

  async 'a ping is answered by its payload'() {
    const connection = await Connection.open();
    for (const payload of ['', 'x', LETTERS, 'y'.repeat(125)]) {
      connection.socket.ping(payload);
      assert.deepEqual(await connection.next(), { pong: payload });
    }
    await connection.leave();
  },

  async 'what is no frame of a client closes with 1002'() {
    const part = frame(TEXT, '{"type":', { fin: false });
    const wrong = {
      'an unmasked text': [unmasked(TEXT, PING_MESSAGE)],
      'an unmasked ping': [unmasked(PING, 'x')],
      'a new text within a message': [part, frame(TEXT, PING_MESSAGE)],
      'a new text in fragments within a message': [part, part],
      'a new binary within a message': [part, frame(BINARY, 'x')],
      'a continuation without a start': [frame(CONTINUE, PING_MESSAGE)],
      'an unfinished continuation without a start': [frame(CONTINUE, '{', { fin: false })],
      'a continuation after the end': [frame(TEXT, PING_MESSAGE), frame(CONTINUE, 'x')],
    };
    for (const opcode of [3, 4, 5, 6, 7, 11, 12, 13, 14, 15]) wrong[`opcode ${opcode}`] = [frame(opcode, 'x')];
    for (const bits of [0x10, 0x20, 0x40, 0x70]) {
      wrong[`reserved bits ${bits} of a text`] = [frame(TEXT, PING_MESSAGE, { first: bits })];
      wrong[`reserved bits ${bits} of a continuation`] = [part, frame(CONTINUE, '"ping"}', { first: bits })];
    }
    for (const [name, opcode] of Object.entries({ ping: PING, pong: PONG, close: CLOSE })) {
      wrong[`reserved bit of a ${name}`] = [frame(opcode, '', { first: 0x40 })];
      wrong[`a ${name} in fragments`] = [frame(opcode, '', { fin: false })];
      wrong[`a ${name} of 126 bytes`] = [frame(opcode, Buffer.alloc(126, 3))];
    }
    for (const [what, frames] of Object.entries(wrong)) {
      const connection = await Connection.open();
      connection.write(...frames);
      if (what === 'a continuation after the end') assert.deepEqual(await connection.next(), { type: 'pong' });
      await connection.isClosed(1002).catch(error => { throw new Error(`${what}: ${error.message}`); });
    }
    return `${Object.keys(wrong).length} ways`;
  },

  async 'text that is no UTF-8 closes with 1007'() {
    const bad = { 'a stray byte': [0x80], 'a cut character': [0xf0, 0x9d, 0x84], 'a surrogate': [0xed, 0xa0, 0x80],
      'too long': [0xc0, 0xaf], 'beyond Unicode': [0xf4, 0x90, 0x80, 0x80], 'no lead': [0xff] };
    for (const [what, bytes] of Object.entries(bad)) {
      const text = Buffer.concat([Buffer.from('{"type":"'), Buffer.from(bytes), Buffer.from('"}')]);
      for (const parts of [[text], [text.subarray(0, 10), text.subarray(10)]]) {
        const connection = await Connection.open();
        parts.forEach((part, at) => connection.socket.send(part, { binary: false, fin: at === parts.length - 1 }));
        await connection.isClosed(1007).catch(error => { throw new Error(`${what}: ${error.message}`); });
      }
    }
  },

  async 'binary is answered by an error and the connection goes on'() {
    const connection = await Connection.open();
    connection.socket.send(Buffer.from(PING_MESSAGE));
    await connection.isMalformed();
    connection.socket.send(Buffer.from([0xff]), { fin: false });
    connection.socket.send(Buffer.from([0xfe]), { fin: true });
    await connection.isMalformed();
    await connection.isAlive();
    await connection.leave();
  },

  async 'the largest message is taken, one byte more closes with 1009'() {
    const largest = Buffer.from(PING_MESSAGE.padEnd(LIMIT));
    const connection = await Connection.open();
    connection.socket.send(largest, { binary: false });
    assert.deepEqual(await connection.next(), { type: 'pong' });
    for (let at = 0; at < LIMIT; at += LIMIT / 4) {
      connection.socket.send(largest.subarray(at, at + LIMIT / 4), { binary: false, fin: at + LIMIT / 4 === LIMIT });
    }
    assert.deepEqual(await connection.next(), { type: 'pong' });
    await connection.leave();

    const tooMany = Buffer.concat([largest, Buffer.from(' ')]);
    for (const ends of [[LIMIT + 1], [LIMIT, LIMIT + 1], [1, LIMIT / 2, LIMIT + 1]]) {
      const closed = await Connection.open();
      ends.forEach((end, at) =>
        closed.socket.send(tooMany.subarray(ends[at - 1] ?? 0, end), { binary: false, fin: end === LIMIT + 1 }));
      await closed.isClosed(1009);
    }
    const announced = await Connection.open();
    announced.write(frame(TEXT, tooMany).subarray(0, 14 + LIMIT), Buffer.from(' '));
    await announced.isClosed(1009);
  },

  async 'a close is answered by its code, and the connection ends'() {
    for (const code of [1000, 1001, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4501, 4999]) {
      const connection = await Connection.open();
      connection.socket.close(code, LETTERS);
      await connection.isClosed(code);
    }
    const without = await Connection.open();
    without.socket.close();
    await without.isClosed(1005);
    const long = await Connection.open();
    long.socket.close(1000, 'z'.repeat(123));
    await long.isClosed(1000);
    const unfinished = await Connection.open();
    unfinished.write(frame(TEXT, '{', { fin: false }), closeFrame(1001));
    await unfinished.isClosed(1001);
  },

  async 'a close that says nothing valid closes with 1002 or 1007'() {
    for (const code of [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]) {
      const connection = await Connection.open();
      connection.write(closeFrame(code));
      await connection.isClosed(1002).catch(error => { throw new Error(`code ${code}: ${error.message}`); });
    }
    const short = await Connection.open();
    short.write(frame(CLOSE, [3]));
    await short.isClosed(1002);
    const reason = await Connection.open();
    reason.write(closeFrame(1000, Buffer.from([0xff])));
    await reason.isClosed(1002, 1007);
  },

  async 'a close by the relay carries its code and reason'() {
    const flooding = await Connection.open();
    flooding.write(...Array.from({ length: 40 }, () => frame(TEXT, PING_MESSAGE)));
    let last;
    do last = await flooding.next(); while (last.type === 'pong');
    assert.deepEqual(last, { close: 4429, reason: 'too many messages' });

    // An overlay's socket ends with its device.
    const { code } = await api('POST', '/pairing/device/code', { body: { scope: 'overlay', serverId: demo.servers[0].id } });
    const device = await api('POST', '/pairing/device/activate', { body: { code } });
    const owners = token;
    ({ token } = await api('POST', '/relay/token', { headers: { authorization: `Bearer ${device.token}` } }));
    const overlay = await Connection.open();
    token = owners;
    await overlay.isAlive();
    await api('DELETE', `/pairing/device/${device.deviceId}`);
    assert.deepEqual(await overlay.next(), { close: 4501, reason: 'signed out' });
  },

  async 'what comes after a close is ignored'() {
    const after = [frame(TEXT, PING_MESSAGE), frame(PING, 'x'), unmasked(TEXT, 'x'), closeFrame(1002)];
    const connection = await Connection.open();
    connection.write(closeFrame(4000), ...after);
    await connection.isClosed(4000);
    const later = await Connection.open();
    later.write(closeFrame(4000));
    for (const bytes of after) later.write(bytes);
    await later.isClosed(4000);
    const refused = await Connection.open();
    refused.write(unmasked(TEXT, 'x'), ...after);
    await refused.isClosed(1002);
  },

  async 'many frames come in one segment, and each byte in its own'() {
    const ids = Array.from({ length: 30 }, (_, at) => String(at));
    const many = await Connection.open();
    many.write(...ids.map(id => frame(TEXT, asked(id))));
    for (const id of ids) await many.echoes(id);
    await many.leave();

    const slow = await Connection.open();
    slow.socket._socket.setNoDelay(true);
    const bytes = Buffer.concat([frame(TEXT, asked(LETTERS)), frame(PING, 'x'), frame(TEXT, asked('y'.repeat(128)))]);
    for (const byte of bytes) {
      slow.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    await slow.echoes(LETTERS);
    assert.deepEqual(await slow.next(), { pong: 'x' });
    await slow.echoes('y'.repeat(128));
    await slow.leave();
  },

  async 'frames may come in the same segment as the handshake'() {
    const split = frame(TEXT, asked('split'));
    const createConnection = options => {
      const socket = net.connect(options);
      // The library writes the handshake in one piece.
      const write = socket.write;
      socket.write = (head, ...rest) => {
        socket.write = write;
        assert.match(head, /^GET \/v1[^]*\r\n\r\n$/);
        const frames = [frame(TEXT, asked('early')), frame(PING, 'early'), split.subarray(0, 9)];
        return socket.write(Buffer.concat([Buffer.from(head), ...frames]), ...rest.slice(1));
      };
      return socket;
    };
    const connection = new Connection({ createConnection });
    await connection.echoes('early');
    assert.deepEqual(await connection.next(), { pong: 'early' });
    connection.write(split.subarray(9));
    await connection.echoes('split');
    await connection.leave();
  },

  async 'compressed messages are understood both ways, whole and in fragments'() {
    const connection = await Connection.open({ perMessageDeflate: { threshold: 0 } });
    assert.equal(connection.socket.extensions, 'permessage-deflate');
    connection.socket.send(asked(LETTERS));
    await connection.echoes(LETTERS);
    const long = 'y'.repeat(128);
    const message = Buffer.from(asked(long));
    connection.socket.send(message.subarray(0, 9), { binary: false, fin: false });
    connection.socket.ping('between');
    connection.socket.send(message.subarray(9), { binary: false, fin: true });
    assert.deepEqual(await connection.next(), { pong: 'between' });
    await connection.echoes(long);
    connection.socket.send(PING_MESSAGE, { compress: false });
    assert.deepEqual(await connection.next(), { type: 'pong' });

    const before = connection.socket._socket.bytesRead;
    connection.socket.send(json({ type: 'subscribe', serverId: demo.servers[0].id }));
    const snapshot = await connection.next();
    assert.equal(snapshot.type, 'snapshot');
    const [bytes, whole] = [connection.socket._socket.bytesRead - before, json(snapshot).length];
    assert.ok(bytes < whole / 2, `${bytes} of ${whole} bytes`);
    connection.socket.terminate();

    const largest = await Connection.open({ perMessageDeflate: { threshold: 0 } });
    largest.socket.send(PING_MESSAGE.padEnd(LIMIT));
    assert.deepEqual(await largest.next(), { type: 'pong' });
    largest.socket.send(PING_MESSAGE.padEnd(LIMIT + 1));
    await largest.isClosed(1009);
    for (const [what, frames, code] of [
      ['no deflate', [frame(TEXT, PING_MESSAGE, { first: 0x40 })], 1007],
      ['a compressed ping', [frame(PING, '', { first: 0x40 })], 1002],
      ['a compressed continuation', [frame(TEXT, '{', { fin: false }), frame(CONTINUE, '}', { first: 0x40 })], 1002],
    ]) {
      const wrong = await Connection.open({ perMessageDeflate: true });
      wrong.write(...frames);
      await wrong.isClosed(code).catch(error => { throw new Error(`${what}: ${error.message}`); });
    }
    return `a snapshot of ${whole} characters in at most ${bytes} bytes`;
  },

  async 'what is not offered is not agreed on, and another version is answered by 426 and the right one'() {
    for (const perMessageDeflate of [false, { serverMaxWindowBits: 10 }]) {
      const connection = await Connection.open({ perMessageDeflate });
      assert.equal(connection.socket.extensions, '');
      await connection.isAlive();
      await connection.leave();
    }
    const headers = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '14',
      'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' };
    const answer = await within(new Promise((resolve, reject) =>
      http.get({ host: relay.hostname, port: relay.port, path: `/v1?token=${token}`, headers }, resolve).on('error', reject)), '426');
    answer.destroy();
    assert.deepEqual([answer.statusCode, answer.headers['sec-websocket-version']], [426, '13']);
  },
};

async function main() {
  ({ token } = await api('POST', '/relay/token'));
  let failed = 0;
  for (const [what, check] of Object.entries(checks)) {
    try {
      const detail = await check();
      console.log(`websocket_peer.js: ${what}${detail ? ` (${detail})` : ''}`);
    } catch (error) {
      failed += 1;
      console.error(`websocket_peer.js: FAILED: ${what}: ${error.message}`);
    }
  }
  return failed;
}

main().then(failed => process.exit(failed === 0 ? 0 : 1),
            error => { console.error('websocket_peer.js: FAILED', error); process.exit(1); });
