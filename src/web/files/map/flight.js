// The way of the view to another place, and the steps in which things glide over the map.

const TAKES = 600;

export class Flight {
  /** @param {import("./view.js").View} view @param {number} x @param {number} y @param {number} scale @param {boolean} atOnce */
  constructor(view, x, y, scale, atOnce) {
    this.from = { x: view.x, y: view.y, scale: view.scale };
    this.to = { x, y, scale };
    this.begun = performance.now() - (atOnce ? TAKES : 0);
    this.isOver = false;
  }

  /** Moves the view; false once it is there. @param {import("./view.js").View} view @param {number} at */
  move(view, at) {
    if (this.isOver) return false;
    const part = Math.min(1, (at - this.begun) / TAKES);
    const eased = 1 - (1 - part) ** 3;
    // The scale grows evenly for the eye: by factors.
    view.scale = this.from.scale * (this.to.scale / this.from.scale) ** eased;
    view.center(this.from.x + (this.to.x - this.from.x) * eased, this.from.y + (this.to.y - this.from.y) * eased);
    this.isOver = part === 1;
    return true;
  }
}

/** Pauses between steps, milliseconds: 30 steps in a second look even, and cost half of 60. */
const PAUSE = 20;
/** On a canvas with more pixels than this each step is dear, and the pause is the longer one. */
const LARGE = 4_000_000;
const LARGE_PAUSE = 50;

export class Glide {
  /** @param {() => void} draw with the next frame */
  constructor(draw) {
    this.draw = draw;
    this.timer = 0;
  }

  /** Draws a step after a pause. @param {HTMLCanvasElement} canvas */
  next({ width, height }) {
    if (this.timer) return;
    this.timer = window.setTimeout(
      () => {
        this.timer = 0;
        this.draw();
      },
      width * height > LARGE ? LARGE_PAUSE : PAUSE,
    );
  }
}
