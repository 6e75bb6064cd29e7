// The grid as the game labels it; the same rule as in the service (`src/domain/grid.rs`).

/** Edge of a cell, metres. @param {number} size edge of the world */
export function cellOf(size) {
  const cells = Math.max(1, Math.floor(size / 146.28572 + 0.001));
  return Math.floor(size / cells);
}

/** `A`…`Z`, `AA`… @param {number} column from 0 */
export function letters(column) {
  let text = "";
  for (let left = column + 1; left > 0; left = Math.floor((left - 1) / 26)) {
    text = String.fromCharCode(65 + ((left - 1) % 26)) + text;
  }
  return text;
}

/** The label of a place, empty outside of the world. @param {number} size @param {number} x @param {number} y */
export function labelOf(size, x, y) {
  if (!(size > 0) || x < 0 || y < 0 || x > size || y > size) return "";
  const cell = cellOf(size);
  const last = Math.ceil(size / cell) - 1;
  /** @param {number} metres */
  const index = (metres) => Math.min(last, Math.max(0, Math.floor(metres / cell)));
  return letters(index(x)) + index(size - y);
}
