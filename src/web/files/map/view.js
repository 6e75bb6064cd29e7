// The piece of the world that is seen: its middle and its scale. Metres, origin in the south-west, y to the north.

/** Metres beyond the world that may be the middle of the view. */
const BEYOND = 400;

export class View {
  /** @param {number} size edge of the world, metres */
  constructor(size) {
    this.size = size;
    this.width = 1;
    this.height = 1;
    this.x = size / 2;
    this.y = size / 2;
    /** Pixels of the page for a metre. */
    this.scale = 1;
  }

  /** The scale at which the whole world fits. */
  get fitting() {
    return Math.min(this.width, this.height) / (this.size * 1.06);
  }

  get largest() {
    return Math.max(this.fitting * 24, 2);
  }

  /** The zoom: 0 for the whole world, 1 more for each doubling. */
  get zoom() {
    return Math.log2(this.scale / this.fitting);
  }

  /** @param {number} width @param {number} height */
  resize(width, height) {
    const wasFitting = this.width > 1 && Math.abs(this.scale - this.fitting) < 1e-9;
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    if (wasFitting || this.scale < this.fitting) this.scale = this.fitting;
    this.#bound();
  }

  fit() {
    Object.assign(this, { x: this.size / 2, y: this.size / 2, scale: this.fitting });
  }

  /** Pixels of a place. @param {number} x @param {number} y @returns {[number, number]} */
  toScreen(x, y) {
    return [this.width / 2 + (x - this.x) * this.scale, this.height / 2 - (y - this.y) * this.scale];
  }

  /** The middle of something `half` as wide on both sides, so that it does not go beyond the edge. Pixels. @param {number} middle @param {number} half */
  within(middle, half) {
    return Math.max(half, Math.min(middle, this.width - half));
  }

  /** The place of a pixel. @param {number} left @param {number} top @returns {[number, number]} */
  toWorld(left, top) {
    return [this.x + (left - this.width / 2) / this.scale, this.y - (top - this.height / 2) / this.scale];
  }

  /** Moves by pixels. @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y += dy / this.scale;
    this.#bound();
  }

  /** Zooms around a pixel that keeps its place. @param {number} factor @param {number} left @param {number} top */
  zoomAt(factor, left, top) {
    const [x, y] = this.toWorld(left, top);
    this.scale = Math.min(this.largest, Math.max(this.fitting, this.scale * factor));
    this.x = x - (left - this.width / 2) / this.scale;
    this.y = y + (top - this.height / 2) / this.scale;
    this.#bound();
  }

  /** Makes a place the middle. @param {number} x @param {number} y */
  center(x, y) {
    Object.assign(this, { x, y });
    this.#bound();
  }

  #bound() {
    /** @param {number} value @param {number} pixels */
    const bound = (value, pixels) => {
      // A world that is smaller than the view stays within it.
      const half = Math.min(this.size / 2, pixels / 2 / this.scale);
      const [low, high] = [half - BEYOND, this.size - half + BEYOND];
      return Math.min(Math.max(value, Math.min(low, high)), Math.max(low, high));
    };
    this.x = bound(this.x, this.width);
    this.y = bound(this.y, this.height);
  }
}
