// The live map of the server that is shown: one canvas, its tools, and what was chosen on it.

import { live, on } from "../dashboard/live.js";
import { h, text } from "../ui/dom.js";
import { everySecond, now as serviceNow } from "../ui/time.js";
import { MAP } from "../words/map.js";
import { SHELL } from "../words/shell.js";
import { ageOfMap } from "./age.js";
import { Flight, Glide } from "./flight.js";
import { listen } from "./gestures.js";
import { labelOf } from "./grid.js";
import { thingsOf } from "./looks.js";
import { Motion } from "./motion.js";
import { Painter } from "./painter.js";
import { alarmsOf, countsOf, Picture, staleLayers } from "./scene.js";
import { layerMenu, mapButtons, shownLayers } from "./tools.js";
import { View } from "./view.js";

/** Metres that are seen around a place to which the map flies. */
const SEEN = 1200;

export class LiveMap {
  /** @param {HTMLElement} element it goes into, before what is there */
  constructor(element) {
    this.element = element;
    this.view = new View(4000);
    this.motion = new Motion();
    this.show = shownLayers();
    /** @type {import("./looks.js").Thing[]} */
    this.things = [];
    this.picture = new Picture();
    /** @type {string | null} id of the thing that was chosen */
    this.selected = null;
    /** @type {import("./looks.js").Thing[] | undefined} things on each other, of which none is chosen yet */
    this.crowd = undefined;
    /** @type {string | null} id of the thing that is kept in the middle */
    this.followed = null;
    /** @type {string | null} tool in use */
    this.mode = null;
    /** @type {[number, number][]} */
    this.measured = [];
    /** @type {((x: number, y: number) => void) | null} */
    this.chosen = null;
    this.glide = new Glide(() => this.#soon());
    /** @type {Flight | null} the last one, until a hand moves the map */
    this.flight = null;
    /** @type {number | null} the next frame, if one was asked for */
    this.frame = null;
    const reduced = matchMedia("(prefers-reduced-motion: reduce)");
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.isReduced = () => reduced.matches;
    this.isDark = () => dark.matches;
    dark.addEventListener("change", () => this.#redraw());
    this.canvas = h("canvas", { role: "application", "aria-label": MAP.name, tabindex: "0" });
    this.painter = new Painter(this.canvas, this.view);
    this.plate = h("div", { class: "map-plate", role: "status" });
    this.place = h("div", { class: "map-place" });
    this.old = ageOfMap();
    /** @type {Promise<import("./opened.js").Opened> | null} what opens at a press, once it did */
    this.opened = null;
    this.menu = layerMenu(this.show, () => this.#redraw());
    this.buttons = this.#makeButtons();
    element.prepend(this.canvas, this.menu.element, this.buttons.element, this.place, this.plate, this.old);
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      this.use(null);
      this.select(null);
    });
    new ResizeObserver(() => {
      this.painter.resize();
      this.#redraw();
    }).observe(this.canvas);
    on("current", () => this.#changeServer());
    on("map", () => this.#loadPicture());
    on("team mapMarkers devices mapNotes", () => this.#update());
    on("places connection raids", () => this.#soon());
    everySecond(() => {
      this.old.update();
      this.#soon();
    });
    // A flight that was asked for before needs the size at once.
    this.painter.resize();
    this.#changeServer();
  }

  /** The card, the form of a note and the ruler; null if they do not come: the next press asks for them again. */
  async #open() {
    this.opened ??= import("./opened.js").then((module) => ({ ...module, ...module.openedParts(this) }));
    return this.opened.catch(() => {
      text(this.plate, SHELL.offline);
      this.opened = null;
      return null;
    });
  }

  #makeButtons() {
    const moved = () => {
      this.flight = null;
      this.#redraw();
    };
    const { zoom } = listen(this.canvas, this.view, {
      moved,
      held: () => this.followed && this.follow(null),
      tapped: (left, top) => this.#tap(left, top),
      pointed: (left, top) => text(this.place, labelOf(this.view.size, ...this.view.toWorld(left, top))),
    });
    const whole = () => {
      this.follow(null);
      this.view.fit();
      moved();
    };
    const use = (/** @type {string | null} */ mode) => () => this.use(this.mode === mode ? null : mode);
    return mapButtons({ zoom, whole, measure: use("measure"), note: use("note") });
  }

  /** The next place that is chosen is for another part of the page. @param {(x: number, y: number) => Promise<any>} done */
  choosePlace(done) {
    this.use("place");
    this.chosen = (x, y) =>
      done(x, y).then(
        () => this.use(null),
        (problem) => text(this.plate, problem.message),
      );
  }

  /** Uses a tool: `measure`, `note`, `place`, or null for none. @param {string | null} mode */
  use(mode) {
    this.mode = mode;
    this.chosen = null;
    this.measured = [];
    this.opened?.then(({ form }) => form.hide()).catch(() => {});
    this.buttons.use(mode);
    this.canvas.classList.toggle("is-measuring", mode !== null);
    text(this.plate, MAP.modes[mode ?? ""] ?? "");
    this.#soon();
  }

  /** Chooses a thing by its id; null for none. @param {string | null} id */
  select(id) {
    this.selected = id;
    this.crowd = undefined;
    this.#showCard();
    this.#soon();
  }

  /** Keeps a thing in the middle; null ends that. @param {string | null} id */
  follow(id) {
    this.followed = id;
    if (id) this.flight = null;
    const thing = id && this.things.find((thing) => thing.id === id);
    if (thing && this.view.zoom < 2) this.view.scale = Math.min(this.view.largest, this.view.fitting * 4);
    if (this.mode === null) text(this.plate, thing ? MAP.following(thing.name) : "");
    this.#showCard();
    this.#redraw();
  }

  /** Moves to a place. @param {number} x @param {number} y */
  flyTo(x, y) {
    this.follow(null);
    const { scale, largest, width, height } = this.view;
    const near = Math.max(scale, Math.min(largest, width / SEEN, height / SEEN));
    this.flight = new Flight(this.view, x, y, near, this.isReduced());
    this.#soon();
  }

  /** The world has this size. What was flown to before that was known stays in the middle. @param {number} size */
  #resize(size) {
    this.view.size = size;
    this.view.fit();
    this.painter.isGroundOld = true;
    if (this.flight) this.flyTo(this.flight.to.x, this.flight.to.y);
  }

  /** Chooses a thing and moves there. @param {string} id */
  choose(id) {
    const thing = this.things.find((thing) => thing.id === id);
    if (!thing) return;
    this.flyTo(thing.x, thing.y);
    this.select(id);
  }

  #changeServer() {
    this.picture.clear();
    [this.selected, this.followed, this.flight, this.crowd] = [null, null, null, undefined];
    this.motion = new Motion();
    this.#resize(live.current?.state?.server?.mapSize ?? 4000);
    this.use(null);
    this.#update();
    if (live.current?.map) this.#loadPicture();
  }

  async #loadPicture() {
    const map = live.current?.map;
    if (!map) return;
    if (map.size && map.size !== this.view.size) this.#resize(map.size);
    this.#redraw();
    await this.picture.load(map, Math.max(this.element.clientWidth, this.element.clientHeight) * devicePixelRatio);
    this.#redraw();
  }

  #update() {
    const state = live.current?.state;
    this.things = state ? thingsOf(state) : [];
    const size = state?.server?.mapSize;
    if (size && size !== this.view.size && !live.current?.map) this.#resize(size);
    this.motion.isStill = this.isReduced();
    this.motion.update(this.things, performance.now());
    for (const thing of this.things) if (thing.kind === "member") thing.heading = this.motion.headingOf(thing.id);
    this.menu.count(countsOf(this.things, live.current?.map));
    this.#showCard();
    this.#soon();
  }

  /** The card of what is chosen. It waits for nothing once it was loaded: what is shown is of this moment. */
  async #showCard() {
    if (!this.selected && !this.crowd && !this.opened) return;
    (await this.#open())?.card.show(this.things.find(({ id }) => id === this.selected) ?? null, this.crowd);
  }

  /** @param {number} left @param {number} top */
  async #tap(left, top) {
    const [x, y] = this.view.toWorld(left, top);
    if (this.mode === "measure") {
      const ruler = await this.#open();
      if (!ruler) return;
      this.measured = ruler.measure(this.measured, x, y);
      text(this.plate, ruler.wordsOf(this.measured));
      return this.#soon();
    }
    if (this.chosen) return this.chosen(x, y);
    if (this.mode === "note") {
      this.plate.textContent = "";
      this.measured = [[x, y]];
      this.#soon();
      return (await this.#open())?.form.open(x, y, labelOf(this.view.size, x, y));
    }
    /** @type {any} */
    const hit = this.painter.hits.at(left, top);
    if (hit?.crowd) {
      if (this.view.scale < this.view.largest / 3) {
        this.view.zoomAt(2.5, hit.left, hit.top);
        return this.#redraw();
      }
      this.select(null);
      this.crowd = hit.crowd;
      return this.#showCard();
    }
    this.select(hit?.id ?? null);
  }

  #redraw() {
    this.painter.isGroundOld = true;
    this.#soon();
  }

  #soon() {
    this.frame ??= requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.frame = null;
    const at = performance.now();
    if (this.flight?.move(this.view, at)) this.painter.isGroundOld = true;
    const followed = this.followed && this.things.find(({ id }) => id === this.followed);
    if (followed) {
      const [x, y] = this.motion.placeOf(followed, at);
      this.view.center(x, y);
      this.painter.isGroundOld = true;
    }
    const alarms = alarmsOf(live.current);
    const chosen = this.selected?.startsWith("member ") ? this.selected.slice(7) : "";
    const isMoving = !this.isReduced();
    this.painter.paint({
      map: live.current?.map ?? null,
      picture: this.picture.bitmap,
      isDark: this.isDark(),
      show: this.show,
      things: this.things,
      trail: live.current?.trails.get(chosen) ?? [],
      selected: this.selected,
      alarms,
      measured: this.measured,
      stale: staleLayers(live.current?.state),
      isGrey: !this.old.hidden,
      now: serviceNow(),
      isMoving,
      placeOf: (thing) => this.motion.placeOf(thing, at),
    });
    if (this.flight && !this.flight.isOver) this.#soon();
    else if ((isMoving && alarms.some(({ isOpen }) => isOpen)) || this.motion.isMoving(at))
      this.glide.next(this.canvas);
  }
}
