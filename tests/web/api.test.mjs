// Calls to the API, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";

Object.assign(globalThis, {
  location: { origin: "https://api.test" },
  document: { documentElement: { dataset: {} } },
});
const { newKey } = await import("../../src/web/files/api.js");

test("a key is a random UUID, also on pages without https", () => {
  const form = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
  assert.match(newKey(), form);
  const secure = globalThis.crypto;
  const getRandomValues = (bytes) => secure.getRandomValues(bytes);
  Object.defineProperty(globalThis, "crypto", { value: { getRandomValues }, configurable: true });
  const keys = Array.from({ length: 50 }, newKey);
  Object.defineProperty(globalThis, "crypto", { value: secure, configurable: true });
  for (const key of keys) assert.match(key, form);
  assert.equal(new Set(keys).size, 50);
});
