// QR codes (ISO/IEC 18004): bytes of UTF-8, versions 1 to 10, level M. Plain functions, and a picture.

import { node } from "./svg.js";

/** Codewords of each version, its blocks, and the codewords of a block that correct errors. */
const VERSIONS = [
  [26, 1, 10],
  [44, 1, 16],
  [70, 1, 26],
  [100, 2, 18],
  [134, 2, 24],
  [172, 4, 16],
  [196, 4, 18],
  [242, 4, 22],
  [292, 5, 22],
  [346, 5, 26],
];
/** Modules of a side of version 0; each version has four more. */
const SMALLEST = 17;
/** Light modules around a code. */
const QUIET = 4;

/** True for a module that a mask turns, by its number. @type {((x: number, y: number) => boolean)[]} */
const MASKS = [
  (x, y) => (x + y) % 2 === 0,
  (_, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
];

/** Powers of 2 in the field of 256 elements, twice, and their logarithms. */
const [POWERS, LOGARITHMS] = [new Uint8Array(510), new Uint8Array(256)];
for (let power = 0, value = 1; power < 255; power++) {
  POWERS[power] = POWERS[power + 255] = value;
  LOGARITHMS[value] = power;
  value = (value << 1) ^ (value & 0x80 ? 0x11d : 0);
}
/** @param {number} one @param {number} other */
const times = (one, other) => (one && other ? POWERS[LOGARITHMS[one] + LOGARITHMS[other]] : 0);

/** Codewords of a version that carry data. @param {number} version */
function dataWords(version) {
  const [all, blocks, correcting] = VERSIONS[version - 1];
  return all - blocks * correcting;
}

/** @param {number} version */
const lengthBits = (version) => (version < 10 ? 8 : 16);

/**
 * The modules of a code, in rows; true is dark.
 * @param {string} text @returns {boolean[][] | null} null: it is too long
 */
export function qrOf(text) {
  const bytes = new TextEncoder().encode(text);
  /** @param {unknown} _ @param {number} at */
  const fits = (_, at) => 4 + lengthBits(at + 1) + 8 * bytes.length <= 8 * dataWords(at + 1);
  const version = VERSIONS.findIndex(fits) + 1;
  if (version === 0) return null;
  const words = interleaved(dataOf(bytes, version), version);
  const fixed = fixedModules(version);
  const codes = MASKS.map((_, mask) => masked(fixed, words, mask));
  return codes.reduce((best, code) => (penaltyOf(code) < penaltyOf(best) ? code : best));
}

/** The codewords of the data, filled up. @param {Uint8Array} bytes @param {number} version */
function dataOf(bytes, version) {
  const room = dataWords(version);
  let bits = `0100${bytes.length.toString(2).padStart(lengthBits(version), "0")}`;
  for (const byte of bytes) bits += byte.toString(2).padStart(8, "0");
  bits += "0".repeat(Math.min(4, 8 * room - bits.length));
  const words = (bits.match(/.{1,8}/g) ?? []).map((word) => Number.parseInt(word.padEnd(8, "0"), 2));
  for (let filler = 0xec; words.length < room; filler ^= 0xfd) words.push(filler);
  return words;
}

/** Data and correction of all blocks, the first word of each first. @param {number[]} data @param {number} version */
function interleaved(data, version) {
  const [, count, correcting] = VERSIONS[version - 1];
  const short = Math.floor(data.length / count);
  const blocks = [];
  for (let at = 0, block = 0; block < count; block++) {
    const length = short + (block >= count - (data.length % count) ? 1 : 0);
    blocks.push(data.slice(at, at + length));
    at += length;
  }
  const corrections = blocks.map((block) => correctionOf(block, correcting));
  /** @param {number[][]} lists @param {number} length */
  const inTurn = (lists, length) => Array.from({ length }, (_, at) => lists.map((list) => list[at])).flat();
  return [...inTurn(blocks, short + 1), ...inTurn(corrections, correcting)].filter((word) => word !== undefined);
}

/** The codewords after Reed and Solomon that correct a block. @param {number[]} block @param {number} length */
function correctionOf(block, length) {
  let generator = [1];
  for (let power = 0; power < length; power++) {
    const next = [...generator, 0];
    for (const [at, factor] of generator.entries()) next[at + 1] ^= times(factor, POWERS[power]);
    generator = next;
  }
  const rest = new Array(length).fill(0);
  for (const word of block) {
    const factor = word ^ (rest.shift() ?? 0);
    rest.push(0);
    for (let at = 0; at < length; at++) rest[at] ^= times(generator[at + 1], factor);
  }
  return rest;
}

/** Places of the middles of the small squares, on both axes. @param {number} version */
function alignments(version) {
  const last = SMALLEST + 4 * version - 7;
  return version === 1 ? [] : version < 7 ? [6, last] : [6, (6 + last) / 2, last];
}

/** Modules that are the same in all codes of a version; null is a place for data. @param {number} version @returns {(boolean | null)[][]} */
function fixedModules(version) {
  const size = SMALLEST + 4 * version;
  /** @type {(boolean | null)[][]} */
  const rows = Array.from({ length: size }, () => new Array(size).fill(null));
  /** @param {number} x @param {number} y @param {number} radius @param {(distance: number) => boolean} isLight */
  const square = (x, y, radius, isLight) => {
    for (let row = Math.max(0, y - radius); row <= Math.min(size - 1, y + radius); row++) {
      for (let column = Math.max(0, x - radius); column <= Math.min(size - 1, x + radius); column++) {
        rows[row][column] = !isLight(Math.max(Math.abs(row - y), Math.abs(column - x)));
      }
    }
  };
  for (let at = 0; at < size; at++) rows[6][at] = rows[at][6] = at % 2 === 0;
  for (const x of alignments(version)) {
    for (const y of alignments(version)) {
      const isCorner = (x === 6 && (y === 6 || y === size - 7)) || (x === size - 7 && y === 6);
      if (!isCorner) square(x, y, 2, (distance) => distance === 1);
    }
  }
  for (const [x, y] of [
    [3, 3],
    [size - 4, 3],
    [3, size - 4],
  ])
    square(x, y, 4, (distance) => distance === 2 || distance === 4);
  formatOf(rows, 0);
  if (version >= 7) versionOf(rows, version);
  return rows;
}

/** Remainder of a number with zeros behind it. @param {number} value @param {number} bits @param {number} divisor */
function remainder(value, bits, divisor) {
  let rest = value;
  for (let bit = 0; bit < bits; bit++) rest = (rest << 1) ^ (rest >> (bits - 1) ? divisor : 0);
  return (value << bits) | rest;
}

/** Level (M is 0) and mask, at two places. @param {(boolean | null)[][]} rows @param {number} mask */
function formatOf(rows, mask) {
  const size = rows.length;
  const word = remainder(mask, 10, 0x537) ^ 0x5412;
  for (let bit = 0; bit < 15; bit++) {
    const isDark = ((word >> bit) & 1) === 1;
    if (bit < 6) rows[bit][8] = isDark;
    else if (bit < 8) rows[bit + 1][8] = isDark;
    else rows[8][bit === 8 ? 7 : 14 - bit] = isDark;
    if (bit < 8) rows[8][size - 1 - bit] = isDark;
    else rows[size - 15 + bit][8] = isDark;
  }
  rows[size - 8][8] = true;
}

/** @param {(boolean | null)[][]} rows @param {number} version */
function versionOf(rows, version) {
  const word = remainder(version, 12, 0x1f25);
  for (let bit = 0; bit < 18; bit++) {
    const [far, near] = [rows.length - 11 + (bit % 3), Math.floor(bit / 3)];
    rows[near][far] = rows[far][near] = ((word >> bit) & 1) === 1;
  }
}

/** A code: the words go up and down in columns of two modules, from the right, and a mask turns them. @param {(boolean | null)[][]} fixed @param {number[]} words @param {number} mask */
function masked(fixed, words, mask) {
  const size = fixed.length;
  const rows = fixed.map((row) => [...row]);
  let bit = 0;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step++) {
      const y = ((right + 1) & 2) === 0 ? size - 1 - step : step;
      for (const x of [right, right - 1]) {
        if (fixed[y][x] !== null) continue;
        const isDark = ((words[bit >> 3] >> (7 - (bit & 7))) & 1) === 1;
        rows[y][x] = isDark !== MASKS[mask](x, y);
        bit += 1;
      }
    }
  }
  formatOf(rows, mask);
  return /** @type {boolean[][]} */ (rows);
}

/** The harder a code is to read, the more: long runs, squares, what looks like a corner, too dark or too light. @param {boolean[][]} rows */
function penaltyOf(rows) {
  const size = rows.length;
  const lines = [...rows, ...rows.map((_, /** @type {number} */ x) => rows.map((row) => row[x]))].map((line) =>
    line.map(Number).join(""),
  );
  let penalty = 0;
  for (const line of lines) {
    for (const [run] of line.matchAll(/0{5,}|1{5,}/g)) penalty += run.length - 2;
    penalty += 40 * [...line.matchAll(/(?=10111010000|00001011101)/g)].length;
  }
  for (let y = 1; y < size; y++) {
    for (let x = 1; x < size; x++) {
      const isDark = rows[y][x];
      if (isDark === rows[y - 1][x] && isDark === rows[y][x - 1] && isDark === rows[y - 1][x - 1]) penalty += 3;
    }
  }
  const dark = rows.flat().filter(Boolean).length / (size * size);
  return penalty + 10 * Math.floor(Math.abs(dark - 0.5) * 20);
}

/** A picture of a code, dark on light whatever the page is; null if the text is too long. @param {string} text @param {string} name */
export function qrPicture(text, name) {
  const rows = qrOf(text);
  if (!rows) return null;
  const edge = rows.length + 2 * QUIET;
  const path = rows.flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")));
  const svg = node("svg", { viewBox: `0 0 ${edge} ${edge}`, class: "qr", role: "img", "aria-label": name });
  svg.append(
    node("path", { d: `M0 0h${edge}v${edge}h-${edge}z`, fill: "#ffffff" }),
    node("path", { d: path.join(""), fill: "#000000" }),
  );
  return svg;
}
