// Shops: a search over all offers, prices over time, watched prices.

import { get, post } from "../api.js";
import { staleNote } from "../dashboard/freshness.js";
import { itemIcon } from "../dashboard/items.js";
import { currentServer, live, on } from "../dashboard/live.js";
import { attribute, bdi, button, clean, empty, fill, h, icon, keyed, text } from "../ui/dom.js";
import { ago, everySecond, now } from "../ui/time.js";
import { PAST } from "../words/feed.js";
import { SHOPS } from "../words/shops.js";
import { priceChart, short } from "./chart.js";
import { found, offersOf, pointsOf } from "./offers.js";
import { watchRow } from "./watch.js";

const ROWS = 80;
/** While they are shown, watches and marks are loaded this often, and this long after the last time at news of a shop. */
const LOAD_EVERY = 60_000;
const LOAD_AGAIN = 5000;

/** @param {{ map: { flyTo: (x: number, y: number) => void } }} parts */
export function shopsPanel({ map }) {
  const search = h("input", { type: "search", "aria-label": SHOPS.search, placeholder: SHOPS.search, oninput: update });
  const count = h("span", { class: "quiet" });
  const list = h("ul", { class: "rows" });
  const none = h("div", {});
  const watchHead = h("h3", { class: "group-head", hidden: true }, SHOPS.watches);
  const watches = h("ul", { class: "rows" });
  const age = h("p", { class: "quiet shops-age", hidden: true });
  const element = h(
    "div",
    {},
    h("div", { class: "block-head" }, h("h2", {}, SHOPS.title), count),
    staleNote("mapMarkers"),
    h("div", { class: "say" }, search),
    watchHead,
    watches,
    age,
    list,
    none,
  );
  /** @type {Map<string, Api["ScanResults"]["results"][number]>} suspicious shops by vendor */
  let suspicious = new Map();
  /** @type {Api["WatchView"][]} */
  let watched = [];
  /** @type {string | null} when the service last saw the shops */
  let asOf = null;
  let [loadedAt, due] = [0, 0];
  let news = "";

  function update() {
    const state = live.current?.state;
    const offers = offersOf(state);
    const matches = found(offers, search.value);
    text(
      count,
      offers.length ? SHOPS.count(matches.length, new Set(matches.map(({ vendorId }) => vendorId)).size) : "",
    );
    keyed(
      list,
      matches.slice(0, ROWS),
      ({ key }) => key,
      (offer) => row(offer),
    );
    const isOff = state?.server?.reports?.shops === "no";
    fill(
      none,
      isOff
        ? empty(SHOPS.off, "")
        : offers.length === 0
          ? empty(SHOPS.none, state ? SHOPS.noneWhy : PAST.loading)
          : matches.length === 0 && empty(SHOPS.noMatch, ""),
    );
  }

  async function load() {
    const { id } = live.current ?? {};
    if (!id) return;
    loadedAt = Date.now();
    due = loadedAt + LOAD_EVERY;
    const [scan, own] = await Promise.all([
      get(`/intel/${id}/shops/scan?limit=200`),
      get(`/intel/${id}/shops?limit=100`),
    ]);
    if (id !== live.current?.id) return;
    suspicious = new Map(scan.results.map((result) => [result.vendorId, result]));
    watched = own.shops;
    asOf = scan.asOf ?? null;
    drawWatches();
    update();
  }

  /** A load that fails is made again, a minute later. */
  const reload = () => load().catch(() => {});

  function keepUp() {
    age.hidden = asOf === null || (watched.length === 0 && suspicious.size === 0);
    text(age, SHOPS.asOf(ago(asOf)));
    if (element.isConnected && Date.now() >= due) reload();
  }

  function noteNews() {
    const newest = live.current?.feed.find(({ kind }) => kind === "shop")?.id ?? "";
    if (newest !== news) due = Math.min(due, loadedAt + LOAD_AGAIN);
    news = newest;
  }

  function changeServer() {
    suspicious = new Map();
    watched = [];
    asOf = null;
    drawWatches();
    reload();
  }

  function drawWatches() {
    watchHead.hidden = watched.length === 0;
    keyed(
      watches,
      watched,
      ({ id }) => id,
      (watch) => watchRow(watch, reload),
    );
    keepUp();
  }

  /** @param {import("./offers.js").Offer} offer */
  function row(offer) {
    const { order, vendorId } = offer;
    const name = clean(order.name ?? order.itemId);
    const price = h("span", {});
    const stock = h("span", {});
    const tag = h("span", { class: "pill is-stale", hidden: true }, `▲ ${SHOPS.suspicious}`);
    const detail = h("div", { class: "wide", hidden: true });
    const opener = h(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-expanded": "false",
        onclick: () => open(),
        "aria-label": `${name}, ${clean(offer.shop)}`,
      },
      icon("chevron"),
    );
    const element = h(
      "li",
      { class: "row" },
      itemIcon(order.itemId),
      h(
        "div",
        { class: "main" },
        h(
          "span",
          { class: "title" },
          bdi(name),
          order.itemIsBlueprint && ` (${SHOPS.blueprint})`,
          typeof order.condition === "number" && ` (${SHOPS.worn})`,
        ),
        h("div", {}, price),
        h("div", { class: "quiet" }, bdi(offer.shop), h("span", {}, offer.grid), stock, tag),
      ),
      opener,
      detail,
    );
    /** @param {import("./offers.js").Offer} latest */
    element.update = ({ order, each }) => {
      text(
        price,
        [
          SHOPS.price(order.quantity, order.cost, clean(order.currencyName ?? order.currencyId)),
          order.quantity > 1 && SHOPS.each(short(each)),
        ]
          .filter(Boolean)
          .join(", "),
      );
      text(stock, SHOPS.stock(order.inStock));
      const reasons = suspicious.get(vendorId)?.reasons ?? [];
      tag.hidden = reasons.length === 0;
      attribute(tag, "title", reasons.map(({ detail }) => detail).join(" ") || null);
    };

    async function open() {
      detail.hidden = !detail.hidden;
      attribute(opener, "aria-expanded", !detail.hidden);
      if (detail.hidden) return;
      const { id, info } = currentServer();
      const isOwner = info.role === "owner";
      const chart = h("div", {});
      const reasons = suspicious.get(vendorId)?.reasons ?? [];
      const fault = h("p", { class: "fault", role: "alert" });
      const watch = isOwner && button(SHOPS.watch, () => startWatch(offer, fault), { name: "eye" });
      fill(
        detail,
        reasons.map(({ detail }) => h("p", { class: "quiet" }, detail)),
        chart,
        h(
          "div",
          { class: "actions" },
          button(SHOPS.showOnMap, () => map.flyTo(offer.x, offer.y), { name: "pin" }),
          watch,
        ),
        fault,
      );
      const { entries } = await get(
        `/paired-servers/${id}/shops/history?itemId=${order.itemId}&vendorId=${vendorId}&limit=200`,
      ).catch(() => ({ entries: [] }));
      const same = entries.filter(
        ({ currencyId, itemIsBlueprint }) =>
          currencyId === order.currencyId && itemIsBlueprint === order.itemIsBlueprint,
      );
      const points = pointsOf(same, now());
      fill(chart, points.length > 1 ? priceChart(points, name) : h("p", { class: "quiet" }, SHOPS.noChart));
    }
    return element;
  }

  /** @param {import("./offers.js").Offer} offer @param {any} fault its element */
  async function startWatch({ order, vendorId }, fault) {
    try {
      await post(`/intel/${currentServer().id}/shops`, {
        itemId: order.itemId,
        vendorId,
        currencyId: order.currencyId,
      });
      fill(fault);
      await load();
    } catch (problem) {
      fill(fault, icon("warning"), problem.message);
    }
  }

  on("current mapMarkers", update);
  on("current", changeServer);
  on("feed", noteNews);
  everySecond(keepUp);
  update();
  reload();
  return element;
}
