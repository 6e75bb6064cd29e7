// The map without a browser: which picture it keeps while others come.

import assert from "node:assert/strict";
import { test } from "node:test";

const bitmaps = [];
const decoded = [];
Object.assign(globalThis, {
  location: { origin: "https://api.test" },
  document: { documentElement: { dataset: {} } },
  fetch: async (url) => new Response(new Blob([url]), { headers: { "content-type": "image/png" } }),
  createImageBitmap: (blob) =>
    new Promise((resolve, reject) => {
      decoded.push(async (isGood = true) => {
        if (!isGood) return reject(new Error("no picture"));
        const bitmap = { of: await blob.text(), isClosed: false, close: () => (bitmap.isClosed = true) };
        bitmaps.push(bitmap);
        resolve(bitmap);
      });
    }),
});
const { Picture } = await import("../../src/web/files/map/scene.js");
const { drawGround } = await import("../../src/web/files/map/ground.js");

const mapOf = (name) => ({ image: { url: `https://api.test/maps/${name}?v=1` } });
/** Until as many pictures wait to be decoded. */
const waiting = async (count) => {
  while (decoded.length < count) await new Promise((resolve) => setImmediate(resolve));
};

test("a picture that is decoded when another map is shown is not kept, nor is the earlier one", async () => {
  const picture = new Picture();
  const loads = [picture.load(mapOf("a"), 100)];
  await waiting(1);
  picture.clear();
  loads.push(picture.load(mapOf("b"), 100));
  await waiting(2);
  await decoded[1]();
  await decoded[0]();
  await Promise.all(loads);
  const [b, a] = bitmaps;
  assert.match(b.of, /\/maps\/b\?v=1/);
  assert.equal(picture.bitmap, b);
  assert.deepEqual([a.isClosed, b.isClosed], [true, false]);
  const again = picture.load(mapOf("c"), 100);
  await waiting(3);
  await decoded[2]();
  await again;
  assert.deepEqual([b.isClosed, picture.bitmap === bitmaps[2]], [true, true]);
  const broken = picture.load(mapOf("d"), 100);
  await waiting(4);
  await decoded[3](false);
  await broken;
  assert.equal(picture.bitmap, bitmaps[2]);
});

test("a picture without its map is not drawn", () => {
  const drawn = [];
  const context = { fillRect: () => {}, drawImage: () => drawn.push("picture") };
  const scene = { map: null, picture: {}, isDark: true, show: new Set(), unit: 1 };
  drawGround(context, { width: 10, height: 10 }, scene);
  assert.deepEqual(drawn, []);
});
