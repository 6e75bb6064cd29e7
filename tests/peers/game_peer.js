// rustplus.js, a third-party client, against the simulated game server.
// Usage: node game_peer.js HOST PORT PLAYER_ID PLAYER_TOKEN; the packages are found through NODE_PATH.
'use strict';
const assert = require('node:assert/strict');
const Jimp = require('jimp');
const RustPlus = require('@liamcottle/rustplus.js');

const [host, port, playerId, playerToken] = process.argv.slice(2);
const SWITCH = 4242, ALARM = 4244, CUPBOARD = 4246;

function deadline(seconds, what) {
  return new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what} within ${seconds} s`)), seconds * 1000).unref());
}

function connected(token) {
  const peer = new RustPlus(host, Number(port), playerId, token);
  const opened = new Promise((resolve, reject) => { peer.on('connected', resolve); peer.on('error', reject); });
  peer.connect();
  return Promise.race([opened.then(() => peer), deadline(10, 'connection')]);
}

/** The first broadcast of a kind for which `wanted` holds, from now on. */
function broadcast(peer, kind, wanted) {
  const found = new Promise(resolve => peer.on('message', message => {
    const body = message.broadcast && message.broadcast[kind];
    if (body && wanted(body)) resolve(body);
  }));
  return Promise.race([found, deadline(10, kind)]);
}

async function main() {
  const peer = await connected(Number(playerToken));
  const ask = request => peer.sendRequestAsync(request, 15000);

  const { info } = await ask({ getInfo: {} });
  assert.equal(info.mapSize, 4000);
  assert.ok(info.wipeTime > 1600000000 && info.name.length > 0 && info.maxPlayers >= info.players);

  const { time } = await ask({ getTime: {} });
  assert.ok(time.time >= 0 && time.time < 24 && time.sunrise < time.sunset);

  const { teamInfo } = await ask({ getTeamInfo: {} });
  assert.equal(teamInfo.leaderSteamId.toString(), playerId);
  assert.equal(teamInfo.members.length, 4);

  const { map } = await ask({ getMap: {} });
  const mapPicture = await Jimp.read(Buffer.from(map.jpgImage));
  assert.deepEqual([mapPicture.bitmap.width, mapPicture.bitmap.height], [map.width, map.height]);
  assert.ok(map.monuments.some(monument => monument.token === 'large_oil_rig'));

  const { mapMarkers } = await ask({ getMapMarkers: {} });
  const shops = mapMarkers.markers.filter(marker => marker.type === 'VendingMachine' || marker.type === 3);
  assert.ok(shops.length >= 40 && shops.some(shop => shop.sellOrders.length > 0));

  const line = `hello from a peer ${process.pid}`;
  const received = broadcast(peer, 'teamMessage', body => body.message.message === line);
  await ask({ sendTeamMessage: { message: line } });
  assert.equal((await received).message.steamId.toString(), playerId);
  const { teamChat } = await ask({ getTeamChat: {} });
  assert.ok(teamChat.messages.some(message => message.message === line));

  const { entityInfo } = await ask({ entityId: SWITCH, getEntityInfo: {} });
  assert.ok(entityInfo.type === 'Switch' || entityInfo.type === 1);
  const value = !entityInfo.payload.value;
  const changed = broadcast(peer, 'entityChanged', body => body.entityId === SWITCH && body.payload.value === value);
  await ask({ entityId: SWITCH, setEntityValue: { value } });
  await changed;
  const cupboard = (await ask({ entityId: CUPBOARD, getEntityInfo: {} })).entityInfo.payload;
  assert.equal(cupboard.hasProtection, true);
  assert.equal((await ask({ entityId: ALARM, checkSubscription: {} })).flag.value, true);

  await assert.rejects(ask({ entityId: 1, getEntityInfo: {} }), { error: 'not_found' });
  await assert.rejects(ask({ entityId: ALARM, setEntityValue: { value: true } }), { error: 'wrong_type' });
  const stranger = await connected(Number(playerToken) + 1);
  await assert.rejects(stranger.sendRequestAsync({ getInfo: {} }, 5000), { error: 'not_found' });
  stranger.disconnect();

  const camera = peer.getCamera('CAM1');
  const rendered = new Promise(resolve => camera.once('render', resolve));
  await camera.subscribe();
  const png = await Promise.race([rendered, deadline(15, 'camera picture')]);
  const picture = await Jimp.read(Buffer.from(png));
  assert.equal(picture.getMIME(), 'image/png');
  assert.deepEqual([picture.bitmap.width, picture.bitmap.height], [160, 90]);
  const colours = new Set();
  for (let at = 0; at < picture.bitmap.data.length; at += 4) colours.add(picture.bitmap.data.readUInt32BE(at));
  assert.ok(colours.size > 20, `the picture is blank: ${colours.size} colours`);
  const sky = 0xd0e6fcff;
  assert.equal(picture.getPixelColor(80, 0) >>> 0, sky, 'the sky is above');
  assert.notEqual(picture.getPixelColor(80, 89) >>> 0, sky, 'the ground is below');
  await camera.unsubscribe();
  peer.disconnect();
}

main().then(() => { console.log('game_peer.js: ok'); process.exit(0); },
            error => { console.error('game_peer.js: FAILED', error); process.exit(1); });
