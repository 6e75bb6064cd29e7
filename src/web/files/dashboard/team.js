// The team: who is online, where, since when.

import { attribute, bdi, clean, empty, fill, h, icon, iconButton, keyed, text } from "../ui/dom.js";
import { ago, everySecond } from "../ui/time.js";
import { MAP } from "../words/map.js";
import { TEAM } from "../words/team.js";
import { avatar } from "./avatar.js";
import { staleNote } from "./freshness.js";
import { emit, live, on } from "./live.js";
import { timersBlock } from "./timers.js";

export function teamPanel() {
  const rows = h("ul", { class: "rows" });
  const count = h("span", { class: "quiet" });
  const none = h("div", {});
  const element = h(
    "div",
    {},
    h("div", { class: "block-head" }, h("h2", {}, TEAM.title), count),
    staleNote("team"),
    rows,
    none,
    timersBlock(),
  );

  function update() {
    const team = live.current?.state?.team;
    const members = Object.entries(team?.members ?? {}).map(([id, member]) => ({
      id,
      member,
      isLeader: team?.leaderId === id,
    }));
    /** @param {{ member: Relay["Member"] }} given */
    const rank = ({ member }) => (member.online ? (member.alive ? 0 : 1) : 2);
    members.sort((a, b) => rank(a) - rank(b) || a.member.name.localeCompare(b.member.name));
    text(count, members.length ? TEAM.count(members.filter(({ member }) => member.online).length, members.length) : "");
    keyed(rows, members, ({ id }) => id, row);
    fill(none, members.length === 0 && empty(TEAM.none, TEAM.noneWhy));
  }

  on("current team", update);
  everySecond(update);
  update();
  return element;
}

/** @param {{ id: string }} given */
function row({ id }) {
  const picture = avatar(id);
  const name = h("span", { class: "title" });
  const leader = h("span", { class: "tag", hidden: true }, TEAM.leader);
  const self = h("span", { class: "tag", hidden: id !== live.me.platformId }, TEAM.you);
  const where = h("span", {});
  const follow = iconButton(MAP.follow, "target", () => emit("followMember", id));
  const element = h(
    "li",
    { class: "row" },
    picture,
    h("div", { class: "main" }, h("div", {}, name, self, leader), h("div", { class: "quiet" }, where)),
    follow,
  );
  /** @param {{ member: Relay["Member"], isLeader: boolean }} given */
  element.update = ({ member, isLeader }) => {
    const key = `${member.name} ${member.alive}`;
    if (picture.dataset.key !== key) {
      picture.dataset.key = key;
      picture.show(member.name, member.alive ? undefined : icon("skull"));
      fill(name, bdi(member.name));
      attribute(follow, "aria-label", TEAM.follow(clean(member.name)));
    }
    picture.classList.toggle("is-away", !member.online);
    leader.hidden = !isLeader;
    follow.disabled = member.x === null;
    text(
      where,
      TEAM.state(
        member,
        member.alive ? member.spawnedAt && ago(member.spawnedAt) : member.diedAt && ago(member.diedAt),
      ),
    );
  };
  return element;
}
