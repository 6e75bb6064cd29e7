// Topics: parts of the page ask to be called when one changes.

/** @type {Map<string, Set<(value?: any) => void>>} */
const listeners = new Map();
/** Topics of which listeners are called with the next frame. */
const waiting = new Set();

/**
 * Calls `listener` when the topic changes: `connection`, `servers`, `current`, `raids`, `me`; of the server that is
 * shown: `server`, `team`, `mapMarkers`, `devices`, `mapNotes`, `feed`, `chat`, `map`.
 * @param {string} topics with blanks between them @param {(value?: any) => void} listener
 */
export function on(topics, listener) {
  for (const topic of topics.split(" ")) {
    if (!listeners.has(topic)) listeners.set(topic, new Set());
    listeners.get(topic)?.add(listener);
  }
}

/** @param {string} topic @param {any} [value] of the topic */
export function emit(topic, value) {
  for (const listener of listeners.get(topic) ?? []) listener(value);
}

/** Once for all changes until the next frame, so that a burst of patches is drawn once. @param {string} topic */
export function emitSoon(topic) {
  if (waiting.size === 0) requestAnimationFrame(emitWaiting);
  waiting.add(topic);
}

function emitWaiting() {
  const topics = [...waiting];
  waiting.clear();
  const called = new Set();
  for (const topic of topics) {
    for (const listener of listeners.get(topic) ?? []) {
      if (called.has(listener)) continue;
      called.add(listener);
      listener();
    }
  }
}
