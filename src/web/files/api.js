// Calls to the API of the service. What goes wrong is a `Problem` with the words of the service.

import { COMMON } from "./words/common.js";

const root = document.documentElement.dataset;

/** URL below which the API is. */
export const API = location.origin + (root.base ?? "");

/** Hash of the files that this page came with. */
export const PAGES = root.hash ?? "";

/** A call that was refused or did not arrive. */
export class Problem extends Error {
  /** @param {{ status: number, code: string, detail: string, errors?: { path: string, message: string }[], retryAfter?: number }} problem */
  constructor({ status, code, detail, errors = [], retryAfter }) {
    super(detail);
    this.status = status;
    this.code = code;
    this.errors = errors;
    this.retryAfter = retryAfter;
  }
}

/** Called when a call is answered that the sign-in has ended. */
let signedOut = () => {};

/** @param {() => void} handler */
export function onSignedOut(handler) {
  signedOut = handler;
}

/** The last `Date` of an answer and when it came, for the clock of the service. */
export const served = { date: 0, at: 0 };

/**
 * @param {string} method @param {string} path @param {any} [body] sent as JSON @param {any} [headers]
 * @returns {Promise<any>} the JSON of the answer; a Blob if it is a picture; null if it is empty
 */
async function call(method, path, body, headers = {}) {
  const isJson = body !== undefined;
  let answer;
  try {
    answer = await fetch(API + path, {
      method,
      headers: {
        accept: "application/json, image/*",
        ...(isJson ? { "content-type": "application/json" } : {}),
        ...headers,
      },
      body: isJson ? JSON.stringify(body) : undefined,
      credentials: "same-origin",
    });
  } catch {
    throw new Problem({ status: 0, code: "offline", detail: COMMON.offline });
  }
  const date = Date.parse(answer.headers.get("date") ?? "");
  if (!Number.isNaN(date)) Object.assign(served, { date, at: Date.now() });
  if (!answer.ok) throw await problemOf(answer);
  const type = answer.headers.get("content-type") ?? "";
  if (type.startsWith("image/")) return answer.blob();
  return answer.status === 204 ? null : answer.json();
}

/** @param {Response} answer */
async function problemOf(answer) {
  /** @type {Partial<Api["Problem"]>} */
  const problem = await answer.json().catch(() => ({}));
  if (answer.status === 401 && problem.code === "unauthenticated") signedOut();
  const retryAfter = Number(answer.headers.get("retry-after")) || undefined;
  const detail = problem.detail ?? COMMON.answered(answer.status);
  return new Problem({
    status: answer.status,
    code: problem.code ?? "unknown",
    detail,
    errors: problem.errors,
    retryAfter,
  });
}

/** A random UUID, for `Idempotency-Key`. Browsers make one only on pages of https and of this machine. */
export function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

// Bodies and answers are of the types of the route that a path is of; tests/web/contract has them.

/** @type {<const Path extends string>(path: Path, ...given: Given<"get", Path>) => Promise<Answer<"get", Path>>} */
export const get = (path, ...given) => call("GET", path, ...given);

/** @type {<const Path extends string>(path: Path, ...given: Given<"post", Path>) => Promise<Answer<"post", Path>>} */
export const post = (path, ...given) => call("POST", path, ...given);

/** @type {<const Path extends string>(path: Path, ...given: Given<"put", Path>) => Promise<Answer<"put", Path>>} */
export const put = (path, ...given) => call("PUT", path, ...given);

/** @type {<const Path extends string>(path: Path, ...given: Given<"patch", Path>) => Promise<Answer<"patch", Path>>} */
export const patch = (path, ...given) => call("PATCH", path, ...given);

/** @type {<const Path extends string>(path: Path, ...given: Given<"delete", Path>) => Promise<Answer<"delete", Path>>} */
export const remove = (path, ...given) => call("DELETE", path, ...given);
