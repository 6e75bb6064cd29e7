// relay-patch.js: applies the patches of the relay (JSON Patch, RFC 6902) to a state, in place.
/*! Part of relay-client.js; you may copy it. Licence: MIT or Apache-2.0, at your choice. Copyright (c) the authors of
companion. */

// A state is any JSON, and so is a part of it.

/** A patch that does not fit: the state may be half changed, and a snapshot is needed. */
export class Gap extends Error {}

/** @param {string} pointer RFC 6901 @returns {string[]} */
export function keysOf(pointer) {
  if (pointer === "") return [];
  if (pointer[0] !== "/") throw new Gap(`not a pointer: ${pointer}`);
  return pointer
    .slice(1)
    .split("/")
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/**
 * Applies `add`, `replace` and `remove`; the relay sends no others, and each of them is a gap.
 * @param {any} state an object, edited in place
 * @param {{ op: string, path: string, value?: any }[]} operations
 * @returns {Set<string>} the keys of the state that changed
 */
export function applyPatch(state, operations) {
  const changed = new Set();
  for (const { op, path, value } of operations) {
    const keys = keysOf(path);
    const last = keys.pop();
    if (last === undefined) throw new Gap("the whole state is replaced by a snapshot only");
    let parent = state;
    for (const key of keys) parent = child(parent, key);
    if (Array.isArray(parent)) edit(parent, op, last, value);
    else put(parent, op, last, value);
    changed.add(keys[0] ?? last);
  }
  return changed;
}

/** @param {any} parent @param {string} key */
function child(parent, key) {
  if (!has(parent, key)) throw new Gap(`nothing at ${key}`);
  return parent[key];
}

/** @param {any} parent @param {string} key */
function has(parent, key) {
  return typeof parent === "object" && parent !== null && Object.hasOwn(parent, key);
}

/** @param {any} parent @param {string} op @param {string} key @param {any} value */
function put(parent, op, key, value) {
  if (typeof parent !== "object" || parent === null || key === "__proto__") throw new Gap(`nothing can be at ${key}`);
  if (op !== "add" && !has(parent, key)) throw new Gap(`nothing at ${key}`);
  if (op === "add" || op === "replace") parent[key] = value;
  else if (op === "remove") delete parent[key];
  else throw new Gap(`unknown operation ${op}`);
}

/** @param {any[]} list @param {string} op @param {string} key @param {any} value */
function edit(list, op, key, value) {
  const at = key === "-" && op === "add" ? list.length : Number(key);
  const isIndex = /^(0|[1-9][0-9]*)$/.test(key) || (key === "-" && op === "add");
  if (!isIndex || at > list.length - (op === "add" ? 0 : 1)) throw new Gap(`no place ${key} in a list`);
  if (op === "add") list.splice(at, 0, value);
  else if (op === "replace") list[at] = value;
  else if (op === "remove") list.splice(at, 1);
  else throw new Gap(`unknown operation ${op}`);
}
