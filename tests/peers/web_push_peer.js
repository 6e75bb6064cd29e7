// Third parties' libraries for Web Push against the demo: `http_ece` decrypts what the service sends, `jws` (which
// `web-push` brings) verifies its token, and `web-push` sends to the simulated push service.
// Usage: node web_push_peer.js DEMO_JSON; the packages are found through NODE_PATH.
'use strict';
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const { once } = require('node:events');
const ece = require('http_ece');
const webPush = require('web-push');
const jws = require(require.resolve('jws', { paths: [require.resolve('web-push')] }));

const demo = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const CONTACT = 'mailto:peer@example.org';

const call = async (method, path, body) => {
  const headers = { cookie: demo.cookie, ...(body && { 'content-type': 'application/json' }) };
  const answer = await fetch(demo.apiUrl + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${answer.ok || await answer.text()}`);
  return answer.json();
};

/** Keys as a browser makes them. */
const browserKeys = () => {
  const ecdh = crypto.createECDH('prime256v1');
  const keys = { p256dh: ecdh.generateKeys('base64url'), auth: crypto.randomBytes(16).toString('base64url') };
  return { ecdh, keys };
};
const decrypt = ({ ecdh, keys }, body) =>
  JSON.parse(ece.decrypt(body, { version: 'aes128gcm', privateKey: ecdh, authSecret: keys.auth }));

/** The claims of the sender of a request, whose signature is that of its key. */
function sender(headers) {
  const [, token, key] = headers.authorization.match(/^vapid t=([^,]+), k=(\S+)$/);
  const point = Buffer.from(key, 'base64url');
  const jwk = { kty: 'EC', crv: 'P-256', x: point.subarray(1, 33).toString('base64url'), y: point.subarray(33).toString('base64url') };
  const pem = crypto.createPublicKey({ key: jwk, format: 'jwk' }).export({ type: 'spki', format: 'pem' });
  assert.ok(jws.verify(token, 'ES256', pem), 'the signature of the token');
  assert.ok(!jws.verify(`${token.slice(0, -8)}AAAAAAAA`, 'ES256', pem), 'and no other');
  return { key, claims: jws.decode(token, { json: true }).payload };
}

/** The service sends to a push service of this test's. */
async function whatTheServiceSends() {
  const requests = [];
  const server = http.createServer(async (req, answer) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    requests.push({ url: req.url, method: req.method, headers: req.headers, body: Buffer.concat(parts) });
    answer.writeHead(201, { location: '/message' }).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${server.address().port}`;
  const { key } = await call('GET', '/channels/web-push/key');
  assert.equal(Buffer.from(key, 'base64url').length, 65);
  const salts = new Set();
  for (const name of ['one', 'two']) {
    const browser = browserKeys();
    const subscription = { endpoint: `${origin}/send/${name}`, expirationTime: null, keys: browser.keys };
    const { id } = await call('POST', '/channels', { kind: 'webPush', name, subscription });
    for (let turn = 0; turn < 2; turn += 1) {
      assert.deepEqual(await call('POST', `/channels/${id}/test`), { accepted: true, status: 201 });
      const { url, method, headers, body } = requests.pop();
      assert.deepEqual([method, url, requests.length], ['POST', `/send/${name}`, 0]);
      assert.deepEqual([headers.ttl, headers.urgency, headers['content-encoding']], ['60', 'high', 'aes128gcm']);
      const known = sender(headers);
      assert.deepEqual([known.key, known.claims.aud, known.claims.sub], [key, origin, 'mailto:operator@demo.example']);
      const left = known.claims.exp - Date.now() / 1000;
      assert.ok(left > 0 && left <= 86400, `exp in ${left} s`);
      const message = decrypt(browser, body);
      assert.deepEqual([message.web_push, message.event, message.ackUrl], [8030, 'test', null]);
      assert.match(message.notification.title, /^Test/);
      assert.throws(() => decrypt({ ...browserKeys(), keys: browser.keys }, body), 'another browser cannot read it');
      salts.add(body.subarray(0, 16).toString('hex'));
    }
    await call('DELETE', `/channels/${id}`);
  }
  assert.equal(salts.size, 4, 'each message has a salt of its own');
  server.close();
}

/** The library sends to the simulated push service. */
async function whatTheSimulationTakes() {
  const own = webPush.generateVAPIDKeys();
  const other = webPush.generateVAPIDKeys();
  const made = async () => {
    const body = JSON.stringify({ applicationServerKey: own.publicKey });
    const answer = await fetch(`${demo.browserPushUrl}/subscriptions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    return answer.json();
  };
  const { id, endpoint } = await made();
  const browser = browserKeys();
  const send = async (payload, { vapid = own, change = headers => headers, to = endpoint, ...options } = {}) => {
    const vapidDetails = { subject: CONTACT, ...vapid };
    const details = webPush.generateRequestDetails({ endpoint: to, keys: browser.keys }, payload, { TTL: 60, urgency: 'high', vapidDetails, ...options });
    delete details.headers['Content-Length'];
    return fetch(details.endpoint, { method: 'POST', headers: change(details.headers), body: details.body });
  };
  const taken = await send('{"first":1}', { topic: 'raid' });
  assert.deepEqual([taken.status, taken.headers.get('ttl')], [201, '60']);
  assert.ok(taken.headers.get('location').startsWith(`${demo.browserPushUrl}/messages/`));
  assert.equal((await send('{"second":2}', { topic: 'raid' })).status, 201);
  const waiting = await (await fetch(`${demo.browserPushUrl}/subscriptions/${id}/messages`)).json();
  assert.deepEqual(waiting.map(({ body }) => decrypt(browser, Buffer.from(body, 'base64url'))), [{ second: 2 }]);
  assert.equal(waiting[0].contact, CONTACT);

  const header = (name, value) => ({ change: headers => ({ ...headers, [name]: value }) });
  const elsewhere = webPush.getVapidHeaders('https://elsewhere.example', CONTACT, own.publicKey, own.privateKey, 'aes128gcm');
  const over = webPush.getVapidHeaders(demo.browserPushUrl, CONTACT, own.publicKey, own.privateKey, 'aes128gcm', Math.floor(Date.now() / 1000) - 1);
  const swapped = ({ Authorization, ...headers }) => ({ ...headers, Authorization: Authorization.replace(own.publicKey, other.publicKey) });
  const refused = {
    'another key': [403, { vapid: other }],
    'the key of another': [403, { change: swapped }],
    'a token for another origin': [403, header('Authorization', elsewhere.Authorization)],
    'a token that is over': [403, header('Authorization', over.Authorization)],
    'a contact that is none': [403, { vapid: { ...own, subject: 'https://localhost' } }],
    'no token': [401, header('Authorization', '')],
    'no TTL': [400, { change: ({ TTL, ...headers }) => headers }],
    'a topic that Apple cannot read': [400, header('Topic', 'abcde')],
    'another encoding': [400, header('Content-Encoding', 'aesgcm')],
    'an unknown subscription': [404, { to: `${demo.browserPushUrl}/push/none` }],
  };
  for (const [name, [status, options]] of Object.entries(refused)) assert.equal((await send('{}', options)).status, status, name);
  assert.equal((await send('x'.repeat(4096))).status, 413);

  const faults = body => fetch(`${demo.browserPushUrl}/faults`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  await faults({ status: 429, retryAfter: 7, messages: 1 });
  const throttled = await send('{}');
  assert.deepEqual([throttled.status, throttled.headers.get('retry-after')], [429, '7']);
  assert.equal((await send('{}')).status, 201);
  await fetch(`${demo.browserPushUrl}/subscriptions/${id}`, { method: 'DELETE' });
  assert.equal((await send('{}')).status, 410);
}

(async () => {
  await whatTheServiceSends();
  await whatTheSimulationTakes();
  console.log('web_push_peer.js: ok');
})().catch(error => {
  console.error('web_push_peer.js: FAILED:', error);
  process.exit(1);
});
