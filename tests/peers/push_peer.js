// push-receiver, a third-party client that comes with rustplus.js, against the simulated push service.
// Usage: node push_peer.js HOST PORT ANDROID_ID SECURITY_TOKEN; the packages are found through NODE_PATH.
'use strict';
const assert = require('node:assert/strict');
const tls = require('node:tls');

const [host, port, androidId, securityToken] = process.argv.slice(2);

// The client's address is a constant; it does not check the certificate.
const connect = tls.TLSSocket.prototype.connect;
tls.TLSSocket.prototype.connect = function (options, ...rest) {
  if (options && options.host === 'mtalk.google.com') options = { host, port: Number(port) };
  return connect.call(this, options, ...rest);
};
const Client = require('@liamcottle/push-receiver/src/client');
Client.prototype._checkIn = async () => {}; // otherwise it asks the internet

setTimeout(() => { console.error('push_peer.js: FAILED: no pairing within 30 s'); process.exit(1); }, 30000).unref();

const kinds = [];
const client = new Client(androidId, securityToken, []);
client.on('ON_DATA_RECEIVED', ({ appData, persistentId, from, category }) => {
  const data = Object.fromEntries(appData.map(({ key, value }) => [key, value]));
  const body = JSON.parse(data.body);
  assert.ok(persistentId && from === '976529667804' && category === 'com.facepunch.rust.companion');
  assert.equal(data.channelId, 'pairing');
  assert.ok(Object.values(body).every(value => typeof value === 'string'), data.body);
  assert.ok(Number(body.port) > 0 && body.ip && body.playerId && Number.isInteger(Number(body.playerToken)));
  kinds.push(body.type);
  if (kinds.length < 2) return;
  assert.deepEqual(kinds, ['server', 'entity']);
  assert.ok(Number(body.entityId) > 0 && ['1', '2', '3'].includes(body.entityType) && body.entityName);
  client.destroy();
  console.log('push_peer.js: ok');
  process.exit(0);
});
client.connect();
