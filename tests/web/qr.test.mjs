// QR codes, read by a program of others.

import assert from "node:assert/strict";
import { test } from "node:test";
import jsqr from "jsqr";
import { qrOf } from "../../src/web/files/ui/qr.js";

const read = jsqr.default ?? jsqr;
const [SCALE, QUIET] = [3, 4];

/** The text of a code, from a picture of it. */
function decoded(rows) {
  const edge = (rows.length + 2 * QUIET) * SCALE;
  const pixels = new Uint8ClampedArray(4 * edge * edge).fill(255);
  for (let y = 0; y < edge; y++) {
    for (let x = 0; x < edge; x++) {
      const isDark = rows[Math.floor(y / SCALE) - QUIET]?.[Math.floor(x / SCALE) - QUIET];
      if (isDark) pixels.fill(0, 4 * (y * edge + x), 4 * (y * edge + x) + 3);
    }
  }
  return read(pixels, edge, edge);
}

const text = (length) => Array.from({ length }, (_, at) => String.fromCharCode(33 + ((at * 7 + length) % 90))).join("");

test("texts of each length are read as they were written, in the smallest version", () => {
  // The most bytes of each version at level M, as the standard lists them.
  const rooms = [14, 26, 42, 62, 84, 106, 122, 152, 180, 213];
  const lengths = rooms.flatMap((room) => [room - 4, room - 1, room, room + 1]);
  for (const length of [1, ...lengths].filter((length) => length <= 213)) {
    const rows = qrOf(text(length));
    const version = rooms.findIndex((room) => length <= room) + 1;
    assert.equal(rows.length, 17 + 4 * version, `${length} bytes`);
    assert.equal(decoded(rows)?.data, text(length), `${length} bytes`);
  }
  assert.equal(qrOf(text(214)), null);
});

test("text of any language is read", () => {
  for (const words of [
    "LINK-7K3M",
    "https://companion.example/invite#token=0123456789abcdef",
    "Ключ от базы: ñ 漢字 🔑",
  ]) {
    assert.equal(decoded(qrOf(words)).data, words);
  }
});

test("a code is read that is damaged", () => {
  const rows = qrOf(text(100));
  for (let y = 20; y < 24; y++) for (let x = 20; x < 26; x++) rows[y][x] = !rows[y][x];
  assert.equal(decoded(rows)?.data, text(100));
});
