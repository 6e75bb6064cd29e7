// Draws what is on the map: markers, trails, alarms and a measured distance, above the ground.

import { drawGround } from "./ground.js";
import { HitGrid } from "./hit.js";
import { colourOf, FILLS, MOVERS, NOTES } from "./looks.js";
import { disc, mover, pill, square, triangle } from "./sprites.js";

/** From this many shops in a circle of this many pixels on, they are one pill with their number. */
const CROWD = 5;
const CROWD_PIXELS = 40;

/** Characters of a name on the map. */
const NAME = 18;
/** @param {string} name */
const short = (name) => (name.length > NAME ? `${name.slice(0, NAME - 1)}…` : name);

/** @type {Record<string, string>} */
const DEVICE_ICONS = { switch: "power", alarm: "bell", storageMonitor: "boxes", camera: "camera" };
/** Milliseconds over which a death fades. */
const DEATH_FADES = 30 * 60_000;

export class Painter {
  /** @param {HTMLCanvasElement} canvas @param {import("./view.js").View} view */
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.ground = document.createElement("canvas");
    this.hits = new HitGrid();
    this.isGroundOld = true;
    this.ratio = 1;
    /** On a large screen, all that has a fixed size is larger. */
    this.unit = 1;
    /** Pixels of the screen for one of a marker. */
    this.density = 1;
    /** @type {[string, number, number][]} names, above all markers */
    this.labels = [];
  }

  /** Fits the canvases to the page. */
  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.ratio = Math.min(2, devicePixelRatio || 1);
    this.unit = width >= 2000 ? 1.5 : 1;
    this.density = this.ratio * this.unit;
    for (const canvas of [this.canvas, this.ground]) {
      canvas.width = Math.max(1, Math.round(width * this.ratio));
      canvas.height = Math.max(1, Math.round(height * this.ratio));
    }
    this.view.resize(width, height);
    this.isGroundOld = true;
  }

  /**
   * @typedef {{ map: Api["MapView"] | null, picture: ImageBitmap | null, isDark: boolean, show: Set<string>, things: import("./looks.js").Thing[],
   *   trail: { x: number, y: number }[], selected: string | null, alarms: { x: number, y: number, isOpen: boolean, isUnknown: boolean }[],
   *   measured: [number, number][], stale: Set<string>, isGrey: boolean, now: number, isMoving: boolean,
   *   placeOf: (thing: import("./looks.js").Thing) => [number, number] }} Scene
   */

  /** @param {Scene} scene */
  paint(scene) {
    const { context, ratio, view } = this;
    if (this.isGroundOld) {
      const ground = /** @type {CanvasRenderingContext2D} */ (this.ground.getContext("2d", { alpha: false }));
      ground.setTransform(ratio, 0, 0, ratio, 0, 0);
      drawGround(ground, view, { ...scene, unit: this.unit });
      this.isGroundOld = false;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.filter = scene.isGrey ? "grayscale(1) brightness(.8)" : "none";
    context.drawImage(this.ground, 0, 0);
    context.filter = "none";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.hits.clear();
    this.#trail(scene);
    this.labels = [];
    this.#things(scene);
    this.#names();
    for (const alarm of scene.alarms) this.#alarm(alarm, scene);
    this.#measured(scene.measured);
  }

  /** @param {HTMLCanvasElement} sprite @param {number} left @param {number} top */
  #sprite(sprite, left, top) {
    const { ratio } = this;
    const size = sprite.width / ratio;
    // On whole pixels of the screen it is copied, and not scaled.
    const [x, y] = [left, top].map((at) => Math.round((at - size / 2) * ratio) / ratio);
    this.context.drawImage(sprite, x, y, size, size);
  }

  /** @param {Scene} scene */
  #trail({ trail }) {
    if (trail.length < 2) return;
    const { context, view } = this;
    context.lineJoin = context.lineCap = "round";
    for (const [width, style] of /** @type {[number, string][]} */ ([
      [5, "rgb(0 0 0 / 50%)"],
      [2.5, "#ffffff"],
    ])) {
      context.beginPath();
      for (const { x, y } of trail) context.lineTo(...view.toScreen(x, y));
      context.lineWidth = width;
      context.strokeStyle = style;
      context.stroke();
    }
  }

  /** @param {Scene} scene */
  #things(scene) {
    /** @type {Map<string, [import("./looks.js").Thing, number, number][]>} */
    const crowd = new Map();
    for (const thing of scene.things) {
      if (!scene.show.has(thing.layer)) continue;
      const [x, y] = scene.placeOf(thing);
      const [left, top] = this.view.toScreen(x, y);
      if (left < -30 || top < -30 || left > this.view.width + 30 || top > this.view.height + 30) continue;
      if (thing.layer !== "shops") {
        this.#thing(thing, left, top, scene);
        continue;
      }
      const cell = `${Math.floor(left / CROWD_PIXELS)} ${Math.floor(top / CROWD_PIXELS)}`;
      const members = crowd.get(cell) ?? [];
      members.push([thing, left, top]);
      crowd.set(cell, members);
    }
    for (const members of crowd.values()) {
      if (members.length < CROWD) {
        for (const [thing, left, top] of members) this.#thing(thing, left, top, scene);
        continue;
      }
      /** @param {1 | 2} index */
      const mean = (index) => members.reduce((sum, member) => sum + member[index], 0) / members.length;
      const [left, top] = [mean(1), mean(2)];
      this.#sprite(pill(members.length, this.density), left, top);
      this.hits.add(left, top, { crowd: members.map(([thing]) => thing), left, top });
    }
  }

  /** @param {import("./looks.js").Thing} thing @param {number} left @param {number} top @param {Scene} scene */
  #thing(thing, left, top, scene) {
    const { context, density } = this;
    const { kind, entry } = thing;
    if (thing.id === scene.selected) this.#ring(left, top);
    if (scene.stale.has(thing.layer)) context.globalAlpha = 0.55;
    if (kind === "shop")
      this.#sprite(
        square(entry.outOfStock ? "#6b756f" : "#2f7d4f", "store", this.view.zoom < 1.2 ? 12 : 18, density),
        left,
        top,
      );
    else if (kind === "note") {
      const [icon, fill] = NOTES[entry.category] ?? NOTES.warning;
      if (entry.category === "death")
        context.globalAlpha = Math.max(0.25, 1 - (scene.now - Date.parse(entry.createdAt)) / DEATH_FADES);
      this.#sprite(disc({ icon, fill }, density), left, top);
    } else if (kind === "device") {
      const fill = entry.reachable !== "ok" ? "#9aa59f" : entry.value ? "#8fd18a" : "#dfe6e1";
      this.#sprite(disc({ icon: DEVICE_ICONS[entry.kind] ?? "power", fill }, density), left, top);
    } else if (kind === "member") {
      const look = {
        letter: thing.name.slice(0, 1).toUpperCase(),
        fill: colourOf(thing.id.slice(7)),
        isAway: !entry.online,
      };
      if (thing.heading !== undefined) this.#wedge(left, top, thing.heading);
      this.#sprite(disc(entry.alive ? look : { icon: "skull", fill: look.fill, isAway: true }, density), left, top);
      this.labels.push([short(thing.name), left, top + 17 * this.unit]);
    } else if (MOVERS[kind]) this.#sprite(mover(MOVERS[kind], FILLS[kind], entry.rotation ?? 0, density), left, top);
    else this.#sprite(disc({ icon: kind === "explosion" ? "flame" : "crate", fill: "#f7b267" }, density), left, top);
    context.globalAlpha = 1;
    this.hits.add(left, top, thing);
  }

  /** @param {number} left @param {number} top */
  #ring(left, top) {
    const { context } = this;
    for (const [width, style] of /** @type {[number, string][]} */ ([
      [5, "#000000cc"],
      [2.5, "#8ec5ff"],
    ])) {
      context.beginPath();
      context.arc(left, top, 19 * this.unit, 0, 2 * Math.PI);
      context.lineWidth = width;
      context.strokeStyle = style;
      context.stroke();
    }
  }

  /** The way someone goes. @param {number} heading clockwise from north, radians @param {number} left @param {number} top */
  #wedge(left, top, heading) {
    const { context } = this;
    context.save();
    context.translate(left, top);
    context.rotate(heading);
    context.scale(this.unit, this.unit);
    context.beginPath();
    context.moveTo(0, -21);
    context.lineTo(7, -11);
    context.lineTo(-7, -11);
    context.closePath();
    context.lineWidth = 2.5;
    context.strokeStyle = "#000000cc";
    context.stroke();
    context.fillStyle = "#ffffff";
    context.fill();
    context.restore();
  }

  /** Names below their markers; one that would lie on another, or on the marker of another, is left out. */
  #names() {
    const { context } = this;
    context.font = `600 ${11 * this.unit}px system-ui, 'DejaVu Sans', sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = "rgb(0 0 0 / 80%)";
    context.fillStyle = "#ffffff";
    /** @type {{ left: number, top: number, half: number }[]} */
    const drawn = [];
    for (const [name, middle, top] of this.labels) {
      const half = context.measureText(name).width / 2;
      const left = this.view.within(middle, half + 4);
      /** @param {typeof drawn[number]} other */
      const lies = (other) =>
        Math.abs(other.left - left) < other.half + half && Math.abs(other.top - top) < 12 * this.unit;
      /** @param {typeof this.labels[number]} other a name is 17 pixels below the middle of its marker */
      const covers = ([, x, y]) =>
        Math.abs(x - left) < half + 10 * this.unit && y - top > 5 * this.unit && y - top < 40 * this.unit;
      if (drawn.some(lies) || this.labels.some(covers)) continue;
      drawn.push({ left, top, half });
      context.strokeText(name, left, top);
      context.fillText(name, left, top);
    }
  }

  /** The place of an alarm; while it is open, rings widen around it. @param {Scene["alarms"][number]} alarm @param {Scene} scene */
  #alarm({ x, y, isOpen, isUnknown }, { now, isMoving }) {
    const { context } = this;
    const [left, top] = this.view.toScreen(x, y);
    for (const part of isOpen ? [0, 0.5] : []) {
      const phase = isMoving ? (now / 1000 + part) % 1 : 0.4 + part / 2;
      context.beginPath();
      context.arc(left, top, (16 + phase * 46) * this.unit, 0, 2 * Math.PI);
      context.lineWidth = 4;
      context.strokeStyle = `rgb(255 92 76 / ${isMoving ? 1 - phase : 0.9})`;
      context.stroke();
    }
    this.#sprite(triangle(isUnknown ? "#b3261e" : "#6b756f", this.density), left, top);
  }

  /** @param {Scene["measured"]} places */
  #measured(places) {
    if (places.length === 0) return;
    const { context, view } = this;
    const ends = places.map(([x, y]) => view.toScreen(x, y));
    for (const [width, style] of /** @type {[number, string][]} */ ([
      [6, "rgb(0 0 0 / 60%)"],
      [2.5, "#8ec5ff"],
    ])) {
      context.lineWidth = width;
      context.strokeStyle = style;
      context.beginPath();
      for (const end of ends) context.lineTo(...end);
      context.stroke();
    }
    for (const [left, top] of ends) {
      context.beginPath();
      context.arc(left, top, 5, 0, 2 * Math.PI);
      context.fillStyle = "#8ec5ff";
      context.fill();
      context.lineWidth = 2;
      context.strokeStyle = "#000000cc";
      context.stroke();
    }
  }
}
