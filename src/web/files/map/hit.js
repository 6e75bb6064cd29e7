// Finds the marker under a finger: a grid of cells over the page, so that thousands cost nothing.

const CELL = 64;
/** Farthest distance of a hit, pixels. */
const REACH = 24;

export class HitGrid {
  constructor() {
    this.cells = new Map();
  }

  clear() {
    this.cells.clear();
  }

  /** @param {number} left @param {number} top @param {any} target */
  add(left, top, target) {
    const key = keyOf(Math.floor(left / CELL), Math.floor(top / CELL));
    const cell = this.cells.get(key);
    if (cell) cell.push({ left, top, target });
    else this.cells.set(key, [{ left, top, target }]);
  }

  /** The nearest target within reach, or null; of equal ones the one that was added last, which is on top. @param {number} left @param {number} top */
  at(left, top, reach = REACH) {
    let [best, distance] = [null, reach];
    const [column, row] = [Math.floor(left / CELL), Math.floor(top / CELL)];
    for (let x = column - 1; x <= column + 1; x++) {
      for (let y = row - 1; y <= row + 1; y++) {
        for (const entry of this.cells.get(keyOf(x, y)) ?? []) {
          const away = Math.hypot(entry.left - left, entry.top - top);
          if (away <= distance) [best, distance] = [entry.target, away];
        }
      }
    }
    return best;
  }
}

/** @param {number} x @param {number} y */
const keyOf = (x, y) => x * 100_003 + y;
