// Team chat: the last lines, and a line of one's own.

import { post } from "../api.js";
import { bdi, button, empty, fill, h, icon, keyed } from "../ui/dom.js";
import { clock } from "../ui/time.js";
import { PAST } from "../words/feed.js";
import { CHAT } from "../words/team.js";
import { avatar } from "./avatar.js";
import { currentServer, live, on } from "./live.js";

export function chatBlock() {
  const log = h("div", { class: "scroll", role: "log", "aria-label": CHAT.title, tabindex: "0", "aria-live": "off" });
  const input = h("input", { "aria-label": CHAT.say, placeholder: CHAT.say, maxlength: "128", autocomplete: "off" });
  const send = button("", null, { name: "send", type: "submit", "aria-label": CHAT.send });
  const fault = h("p", { class: "fault", role: "alert" });
  const form = h("form", { class: "say", onsubmit: submit }, input, send, fault);
  const element = h(
    "section",
    { class: "block chat" },
    h("div", { class: "block-head" }, h("h2", {}, CHAT.title)),
    log,
    form,
  );

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    const words = input.value.trim();
    if (!words || send.disabled) return;
    send.disabled = true;
    fill(fault);
    try {
      await post(`/paired-servers/${currentServer().id}/chat`, { text: words });
      input.value = "";
    } catch (problem) {
      fill(fault, icon("warning"), problem.message);
    }
    send.disabled = false;
  }

  function update() {
    const lines = [...(live.current?.chat ?? [])].reverse();
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    if (lines.length === 0) fill(log, empty(CHAT.none, PAST[live.current?.past ?? ""] ?? CHAT.noneWhy));
    else {
      if (log.firstElementChild?.className === "empty") fill(log);
      keyed(log, lines, ({ id, ts }) => id ?? ts, line);
    }
    if (isAtEnd) log.scrollTop = log.scrollHeight;
    const isOwner = live.current?.info.role === "owner";
    input.disabled = send.disabled = !isOwner;
    input.placeholder = isOwner || !live.current ? CHAT.say : CHAT.guest;
  }

  on("current chat", update);
  new ResizeObserver(() => (log.scrollTop = log.scrollHeight)).observe(log);
  update();
  return element;
}

/** @param {import("./types.js").Line} entry */
function line({ author, authorId, text, ts }) {
  const picture = avatar(authorId);
  picture.show(author);
  return h(
    "div",
    { class: "chat-line" },
    picture,
    h("div", {}, h("b", {}, bdi(author)), " ", bdi(text)),
    h("time", { datetime: ts }, clock(ts)),
  );
}
