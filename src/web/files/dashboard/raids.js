// The raid bar: an alarm that cannot be missed, until the player takes note of it.

import { notify, Siren, TabSignal, withdraw } from "../attention.js";
import { acknowledgedBy, isUnknown, sentence, shown, toRaise } from "../raid.js";
import { bdi, button, clean, fill, h, icon, text } from "../ui/dom.js";
import { ago, everySecond, now } from "../ui/time.js";
import { RAID } from "../words/raid.js";
import { SHELL } from "../words/shell.js";
import { incidents, live, nameOf, on, show } from "./live.js";

/** Incidents that go on and are shown whole, on a phone one; the others are counted. One is shown whole in any case. */
const WHOLE = 2;

/** @typedef {import("../raid.js").Incident} Incident */

/**
 * @param {{ flyTo: (x: number, y: number) => void }} does
 */
export function raidBars({ flyTo }) {
  const siren = new Siren();
  const tab = new TabSignal();
  const element = h("div", { class: "raids" });
  const alerts = /** @type {HTMLElement} */ (document.getElementById("alerts"));
  /** @type {Set<string>} */
  const raised = new Set();
  /** @type {Set<string>} incidents of which no notification shows any longer */
  const withdrawn = new Set();
  /** @type {Map<string, string>} faults of acknowledgements, by incident */
  const faults = new Map();
  const narrow = matchMedia("(max-width: 719px)");
  let drawn = "";
  /** @type {typeof import("./people.js") | null} loaded when another user has taken note of a raid */
  let people = null;

  /** The name of a user. @param {string} serverId @param {string} user */
  function personName(serverId, user) {
    if (user === live.me.id) return RAID.you;
    if (people) return clean(people.personName(serverId, user));
    const take = (/** @type {typeof import("./people.js")} */ loaded) => {
      people = loaded;
      update();
    };
    import("./people.js").then(take, () => {});
    return "";
  }

  function update() {
    const all = incidents();
    const { open, known } = shown(all, live.me.id, now());
    const fresh = toRaise(all, live.me.id, now(), raised);
    if (fresh.length > 0) raise(fresh);
    siren.keep(open.map(({ id }) => id));
    for (const { id, raid } of all) {
      if (isUnknown(raid, live.me.id) || withdrawn.has(id)) continue;
      withdrawn.add(id);
      withdraw(id);
    }
    tab.show(open.length > 0 ? RAID.tab(clean(open[0].raid.grid)) : null);
    text(alerts, open.length > 0 ? sentence(open[0].raid, ago(open[0].raid.lastAt)) : "");
    draw(open, known);
  }

  /** @param {Incident[]} fresh */
  function raise(fresh) {
    siren.call(fresh);
    const [{ serverId, serverName, id, raid }] = fresh;
    notify(RAID.at(clean(raid.grid)), `${clean(raid.alarmName)} · ${clean(serverName)}`, id);
    if (serverId !== live.current?.id) show(serverId);
    if (raid.x !== null && raid.y !== null) flyTo(raid.x, raid.y);
  }

  /** @param {Incident[]} open @param {Incident[]} known */
  function draw(open, known) {
    const room = narrow.matches ? 1 : WHOLE;
    const whole = Math.max(1, open.slice(0, room).filter(({ raid }) => raid.endedAt === null).length);
    const bars = [...open.slice(0, whole), ...known.slice(0, 1)];
    const now = JSON.stringify([
      whole,
      bars.map((incident) => [incident.id, incident.raid, faults.get(incident.id), namesOf(incident)]),
      open.length,
      live.servers.size,
    ]);
    if (now === drawn) return;
    drawn = now;
    const rows = open.slice(0, whole).map((incident) => openBar(incident));
    if (open.length > whole) rows.push(moreBar(open.slice(whole), open));
    if (open.length === 0) rows.push(...known.slice(0, 1).map(knownBar));
    fill(element, rows);
  }

  /** Users who took note of it. @param {Incident} incident */
  const namesOf = ({ serverId, raid }) => acknowledgedBy(raid, (user) => personName(serverId, user));

  /** @param {Incident} incident */
  function openBar(incident) {
    const { serverId, serverName, id, raid } = incident;
    const age = h("span", { class: "age", "data-time": raid.lastAt }, ago(raid.lastAt));
    const server = live.servers.size > 1 ? [bdi(serverName), " · "] : [];
    const facts = [
      RAID.hits(raid.count),
      " · ",
      age,
      raid.endedAt && ` · ${RAID.over}`,
      raid.late && ` · ${RAID.late}`,
      raid.drill && ` · ${RAID.drill}`,
      Object.keys(raid.acks).length > 0 && ` · ${RAID.knownToOthers(namesOf(incident))}`,
    ];
    const fault = faults.get(id);
    return h(
      "div",
      { class: `raid-bar${raid.endedAt ? "" : " is-open"}` },
      h("strong", {}, icon("siren"), RAID.at(clean(raid.grid))),
      h(
        "div",
        { class: "what" },
        bdi(raid.alarmName),
        h("div", { class: "quiet" }, server, facts),
        fault && h("div", { class: "quiet" }, `${RAID.notDone} ${fault}`),
      ),
      h(
        "div",
        { class: "actions" },
        button(RAID.acknowledge, () => acknowledge([{ serverId, id }]), { kind: "primary" }),
        button(RAID.showOnMap, () => showOnMap(serverId, raid), { disabled: raid.x === null }),
      ),
    );
  }

  /** @param {Incident[]} rest @param {Incident[]} all */
  function moreBar(rest, all) {
    return h(
      "div",
      { class: "raid-bar is-more" },
      h("div", { class: "what" }, RAID.more(rest.length)),
      h(
        "div",
        { class: "actions" },
        button(RAID.acknowledgeAll, () => acknowledge(all)),
      ),
    );
  }

  /** @param {Incident} incident */
  function knownBar(incident) {
    const { serverId, raid } = incident;
    const at = Object.values(raid.acks).sort().at(-1);
    return h(
      "div",
      { class: "raid-bar is-known" },
      icon("check"),
      h(
        "div",
        { class: "what" },
        `${RAID.at(clean(raid.grid))} · `,
        bdi(raid.alarmName),
        " ",
        h("span", { class: "quiet" }, RAID.known(namesOf(incident), ago(at ?? null))),
      ),
      h(
        "div",
        { class: "actions" },
        button(RAID.showOnMap, () => showOnMap(serverId, raid), { disabled: raid.x === null }),
      ),
    );
  }

  /** @param {string} serverId @param {Relay["Incident"]} raid */
  function showOnMap(serverId, raid) {
    show(serverId);
    if (raid.x !== null && raid.y !== null) flyTo(raid.x, raid.y);
  }

  /** @param {{ serverId: string, id: string }[]} list */
  function acknowledge(list) {
    siren.stop();
    for (const { serverId, id } of list) {
      live.relay?.acknowledge(serverId, id).then(
        () => faults.delete(id),
        (error) => {
          faults.set(id, error.message);
          update();
        },
      );
    }
  }

  on("raids connection", update);
  on("servers current", () =>
    tab.rename(live.current ? `${clean(nameOf(live.current))} · ${SHELL.product}` : SHELL.product),
  );
  everySecond(() => {
    for (const age of element.querySelectorAll(".age"))
      text(age, ago(/** @type {HTMLElement} */ (age).dataset.time ?? null));
    update();
  });
  addEventListener("keydown", (event) => {
    if (!event.altKey || event.code !== "KeyA") return;
    event.preventDefault();
    acknowledge(incidents().filter(({ raid }) => isUnknown(raid, live.me.id)));
  });
  return { element, siren };
}
