// Camera pictures of the service against those of rustplus.js, a third-party client, of the same still scene.
// Usage: node camera_peer.js DEMO_JSON SIMULATOR_JSON; the packages are found through NODE_PATH.
//   DEMO_JSON       the file of a running `companion demo`
//   SIMULATOR_JSON  the line that `companion simulate --still` prints: the game server with the cameras
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const Jimp = require('jimp');
const RustPlus = require('@liamcottle/rustplus.js');

const demo = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const simulator = JSON.parse(process.argv[3]);
const CAMERAS = ['CAM1', 'GATE1'];

function deadline(seconds, what) {
  return new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what} within ${seconds} s`)), seconds * 1000).unref());
}

async function api(method, path, body, headers = {}) {
  headers = { cookie: demo.cookie, ...(body && { 'content-type': 'application/json' }), ...headers };
  const answer = await fetch(demo.apiUrl.replace(/\/$/, '') + path, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, type: answer.headers.get('content-type'), bytes: Buffer.from(await answer.arrayBuffer()) };
}

/** The service's picture without what it draws over it, once the link to the game server is up. */
async function ours(server, camera) {
  const path = `/paired-servers/${server}/devices/${camera}/camera-frame?entities=false`;
  for (let attempt = 0; attempt < 60; attempt++) {
    const { status, type, bytes } = await api('GET', path, undefined, { accept: 'image/png' });
    if (status === 200) {
      assert.equal(type, 'image/png');
      return Jimp.read(bytes);
    }
    assert.ok(status === 503 || status === 504, `${status}: ${bytes}`);
    await new Promise(resolve => setTimeout(resolve, 500));
  }
  throw new Error(`no frame of ${camera}`);
}

/** The picture that rustplus.js draws. */
async function theirs(camera) {
  const [host, port] = simulator.game.split(':');
  const peer = new RustPlus(host, Number(port), simulator.playerId, simulator.playerToken);
  const opened = new Promise((resolve, reject) => { peer.on('connected', resolve); peer.on('error', reject); });
  peer.connect();
  await Promise.race([opened, deadline(10, 'connection')]);
  const session = peer.getCamera(camera);
  const rendered = new Promise(resolve => session.once('render', resolve));
  await session.subscribe();
  const png = await Promise.race([rendered, deadline(15, 'camera picture')]);
  await session.unsubscribe();
  peer.disconnect();
  return Jimp.read(Buffer.from(png));
}

async function main() {
  const [address, port] = simulator.game.split(':');
  const { playerId, playerToken } = simulator;
  const paired = await api('POST', '/paired-servers', { address, port: Number(port), playerId, playerToken: String(playerToken) });
  assert.ok(paired.status === 201 || paired.status === 200, `${paired.status}: ${paired.bytes}`);
  const server = JSON.parse(paired.bytes).id;
  const pictures = [];
  for (const camera of CAMERAS) {
    const added = await api('POST', `/paired-servers/${server}/devices`, { cameraId: camera });
    assert.equal(added.status, 201, String(added.bytes));
    const [our, their] = [await ours(server, camera), await theirs(camera)];
    assert.deepEqual([our.bitmap.width, our.bitmap.height], [their.bitmap.width, their.bitmap.height], 'the same size');
    let different = 0;
    const colours = new Set();
    for (let at = 0; at < our.bitmap.data.length; at += 4) {
      different += our.bitmap.data.readUInt32BE(at) !== their.bitmap.data.readUInt32BE(at);
      colours.add(our.bitmap.data.readUInt32BE(at));
    }
    assert.equal(different, 0, `${camera}: ${different} pixels differ`);
    assert.ok(colours.size > 20, `${camera} shows nothing: ${colours.size} colours`);
    pictures.push(our.bitmap.data);
  }
  assert.notDeepEqual(pictures[0], pictures[1], 'each camera shows what is in front of it');
}

main().then(() => { console.log('camera_peer.js: ok'); process.exit(0); },
            error => { console.error('camera_peer.js: FAILED', error); process.exit(1); });
