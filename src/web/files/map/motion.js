// Smooth movement: a thing goes from its last place to the new one in the time that the service took to send it, and
// never beyond it.

/** A jump of more metres is no movement. */
const JUMP = 300;
const LONGEST = 4000;
const SHORTEST = 200;

/** @typedef {{ from: [number, number], to: [number, number], begun: number, takes: number, heading?: number }} Move */

export class Motion {
  constructor() {
    /** @type {Map<string, Move>} */
    this.moves = new Map();
    this.isStill = false;
  }

  /** Takes the new places of things. @param {{ id: string, x: number, y: number }[]} things @param {number} now milliseconds */
  update(things, now) {
    const gone = new Set(this.moves.keys());
    for (const { id, x, y } of things) {
      gone.delete(id);
      const move = this.moves.get(id);
      if (!move) {
        this.moves.set(id, { from: [x, y], to: [x, y], begun: now, takes: 0 });
        continue;
      }
      const [toX, toY] = move.to;
      if (toX === x && toY === y) continue;
      const from = this.#at(move, now);
      const isJump = Math.hypot(toX - x, toY - y) > JUMP;
      move.from = isJump || this.isStill ? [x, y] : from;
      move.to = [x, y];
      move.takes = Math.min(LONGEST, Math.max(SHORTEST, now - move.begun));
      move.begun = now;
      if (!isJump) move.heading = Math.atan2(x - toX, y - toY);
    }
    for (const id of gone) this.moves.delete(id);
  }

  /** The place of a thing now. @param {{ id: string, x: number, y: number }} thing @param {number} now @returns {[number, number]} */
  placeOf({ id, x, y }, now) {
    const move = this.moves.get(id);
    return move ? this.#at(move, now) : [x, y];
  }

  /** The way it went last, clockwise from north in radians; undefined if it has not moved. @param {string} id */
  headingOf(id) {
    return this.moves.get(id)?.heading;
  }

  /** True while something is on its way. @param {number} now */
  isMoving(now) {
    for (const move of this.moves.values()) if (now - move.begun < move.takes) return true;
    return false;
  }

  /** @param {Move} move @param {number} now */
  #at({ from, to, begun, takes }, now) {
    const part = takes > 0 ? Math.min(1, (now - begun) / takes) : 1;
    return /** @type {[number, number]} */ ([from[0] + (to[0] - from[0]) * part, from[1] + (to[1] - from[1]) * part]);
  }
}
