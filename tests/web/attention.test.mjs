// The siren without a browser: the clock of its sound and the locks of its tabs are ours.

import assert from "node:assert/strict";
import { test } from "node:test";

const settle = () => new Promise((resolve) => setImmediate(resolve));
Object.assign(globalThis, {
  localStorage: { getItem: () => null, setItem: () => {} },
  addEventListener: () => {},
  AudioContext: class {
    constructor() {
      Object.assign(this, { state: "suspended", currentTime: 0, oscillators: [] });
    }
    async resume() {
      this.state = "running";
    }
    createGain() {
      return { gain: {}, connect: (next) => next };
    }
    createOscillator() {
      const context = this;
      const oscillator = {
        frequency: { setValueAtTime() {}, cancelScheduledValues() {} },
        end: Number.POSITIVE_INFINITY,
        connect: (next) => next,
        start() {},
        stop(at = context.currentTime) {
          this.end = at;
        },
      };
      this.oscillators.push(oscillator);
      return oscillator;
    }
  },
});
Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
const { Siren } = await import("../../src/web/files/attention.js");

const raid = (id, age = 0) => ({ id, raid: { lastAt: new Date(Date.now() - age).toISOString() } });

/** A siren that a click has armed, with `ends`: when each of its rings ends, in seconds of its sound. */
async function armed() {
  const siren = new Siren();
  siren.arm();
  await settle();
  return { siren, context: siren.context, ends: () => siren.context.oscillators.map(({ end }) => end) };
}

test("a second raid rings for a whole minute, too", async () => {
  const { siren, context, ends } = await armed();
  siren.call([raid("a")]);
  context.currentTime = 55;
  siren.call([raid("b")]);
  assert.deepEqual(ends(), [115]);
});

test("a click that allows sound rings for a raid that is open and not old", async () => {
  const siren = new Siren();
  siren.call([raid("a")]);
  siren.arm();
  await settle();
  assert.equal(siren.context.oscillators.length, 1);
  for (const prepare of [
    (late) => late.call([raid("old", 5 * 60_000)]),
    (late) => late.call([raid("a")]) ?? late.keep([]),
    (late) => late.call([raid("a")]) ?? late.stop(),
  ]) {
    const late = new Siren();
    prepare(late);
    late.arm();
    await settle();
    assert.equal(late.context.oscillators.length, 0);
  }
});

test("it is silent as soon as nothing that rang is open", async () => {
  const { siren, context, ends } = await armed();
  siren.call([raid("a"), raid("b")]);
  context.currentTime = 5;
  siren.keep(["old", "b"]);
  assert.deepEqual(ends(), [60]);
  siren.keep(["old"]);
  assert.deepEqual(ends(), [5]);
});

test("sound that is turned off and on again rings for what is open", async () => {
  const { siren, context, ends } = await armed();
  siren.call([raid("a")]);
  context.currentTime = 5;
  siren.mute(true);
  context.currentTime = 7;
  siren.mute(false);
  assert.deepEqual(ends(), [5, 67]);
});
