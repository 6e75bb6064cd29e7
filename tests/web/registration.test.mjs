// The registration without a browser: the timer of steps that are no longer shown. The service and the elements are ours.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

class FakeElement {
  isConnected = true;
  children = [];
  listeners = {};
  dataset = {};
  constructor(name) {
    this.name = name;
  }
  setAttribute() {}
  removeAttribute() {}
  addEventListener(kind, listener) {
    this.listeners[kind] = listener;
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  /** All below it that have this name. */
  find(name) {
    const below = this.children.flatMap((child) => child.find?.(name) ?? []);
    return this.name === name ? [this, ...below] : below;
  }
}

/** Answers of the service that are waited for. */
const asked = [];
const create = (name) => new FakeElement(name);
Object.assign(globalThis, {
  location: { origin: "https://api.test" },
  document: {
    documentElement: { dataset: {} },
    createElement: create,
    createElementNS: (_, name) => create(name),
  },
  fetch: () => new Promise((resolve) => asked.push(resolve)),
});
mock.timers.enable({ apis: ["setTimeout"] });
const { registrationBlock } = await import("../../src/web/files/more/registration.js");
const settle = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

const failed = { id: "one", next: "Wait.", endsAt: null, steps: [{ name: "expo_token", state: "failed" }] };

/** The steps of a registration that has failed. */
async function failedBlock() {
  const block = registrationBlock("one");
  await answer(failed);
  assert.equal(isForm(block), false);
  return block;
}

async function answer(json, status = 200) {
  asked.shift()(Response.json(json, { status }));
  await settle();
}

const isForm = (block) => block.find("form").length === 1;

async function beginAgain(block) {
  block.find("button")[0].listeners.click({ currentTarget: new FakeElement("button") });
  await settle();
}

test("the form of a registration that is begun again stays", async () => {
  const block = await failedBlock();
  await beginAgain(block);
  mock.timers.tick(3000);
  assert.deepEqual([asked.length, isForm(block)], [0, true]);
});

test("an answer that comes after the form changes nothing", async () => {
  const block = await failedBlock();
  mock.timers.tick(3000);
  assert.equal(asked.length, 1);
  await beginAgain(block);
  await answer(failed);
  assert.equal(isForm(block), true);
});

test("a failed question is asked again, and a registration that is gone is begun again", async () => {
  const block = await failedBlock();
  mock.timers.tick(3000);
  await answer({ code: "unavailable", detail: "Not now." }, 503);
  assert.equal(isForm(block), false);
  mock.timers.tick(3000);
  await answer({ code: "not_found", detail: "Not found." }, 404);
  assert.equal(isForm(block), true);
  mock.timers.tick(3000);
  assert.equal(asked.length, 0);
});
