// A bad line between a browser and the relay: it swallows bytes, loses some of them, or whole messages, or is cut.

import { connect, createServer } from "node:net";

/** The length of the head of a response: what follows are frames. */
const headOf = (bytes) => bytes.indexOf("\r\n\r\n") + 4;

/** The first frame of these bytes, which no one masked: its length, or 0 if it is not whole. @param {Buffer} bytes */
function frameLength(bytes) {
  if (bytes.length < 2) return 0;
  const short = bytes[1] & 0x7f;
  const [head, body] =
    short < 126
      ? [2, short]
      : short === 126
        ? [4, bytes.length < 4 ? 0 : bytes.readUInt16BE(2)]
        : [10, bytes.length < 10 ? 0 : Number(bytes.readBigUInt64BE(2))];
  return bytes.length < head || bytes.length < head + body ? 0 : head + body;
}

/**
 * A line to this port. `mode` is how it is: `good`; `deaf`, connections stay open and nothing passes; `down`, none is taken.
 */
export class BadLine {
  constructor() {
    this.mode = "good";
    /** Messages of the relay that are lost, those that begin with this text; and bytes that are lost from the next one. */
    this.loses = "";
    this.lostMessages = this.losesBytes = this.lostBytes = this.opened = 0;
    this.ends = new Set();
    this.server = createServer((browser) => this.#join(browser));
  }

  /** Begins to listen. @param {number} port of the relay @returns {Promise<string>} where browsers find it */
  async listen(port) {
    this.port = port;
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", () => resolve(undefined)));
    return `ws://127.0.0.1:${/** @type {any} */ (this.server.address()).port}`;
  }

  /** Waits until there is one connection only: those that end would take what another one is to lose. */
  async alone() {
    while (this.ends.size !== 2) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  /** Ends every connection now, in the middle of what it says. */
  cut() {
    for (const end of this.ends) end.destroy();
  }

  close() {
    this.cut();
    this.server.close();
  }

  #join(browser) {
    if (this.mode === "down") return browser.destroy();
    this.opened += 1;
    const relay = connect(this.port ?? 0, "127.0.0.1");
    let isHead = true;
    let rest = Buffer.alloc(0);
    for (const [one, other] of [
      [browser, relay],
      [relay, browser],
    ]) {
      this.ends.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        this.ends.delete(one);
        other.destroy();
      });
    }
    // A connection that was deaf stays so: what it swallowed is gone.
    let isDeaf = false;
    const hears = () => !(isDeaf ||= this.mode === "deaf");
    browser.on("data", (bytes) => hears() && relay.write(bytes));
    relay.on("data", (bytes) => {
      if (!hears()) return;
      rest = Buffer.concat([rest, bytes]);
      if (isHead) {
        const head = headOf(rest);
        if (head < 4) return;
        browser.write(rest.subarray(0, head));
        rest = rest.subarray(head);
        isHead = false;
      }
      for (let length = frameLength(rest); length > 0; length = frameLength(rest)) {
        this.#pass(browser, rest.subarray(0, length));
        rest = rest.subarray(length);
      }
    });
  }

  #pass(browser, frame) {
    if (this.loses && frame.subarray(2, 200).includes(this.loses)) {
      this.lostMessages += 1;
      return;
    }
    const lost = Math.min(this.losesBytes, frame.length - 1);
    this.losesBytes = 0;
    this.lostBytes += lost;
    browser.write(frame.subarray(lost));
  }
}
