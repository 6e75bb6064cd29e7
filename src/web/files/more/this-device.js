// This device as a channel: whether an alarm wakes it while the page is closed, and the buttons for that.

import { post } from "../api.js";
import { live } from "../dashboard/live.js";
import { deviceState, obstacle, prepare, subscribe, unsubscribe } from "../push.js";
import { button, fill, h } from "../ui/dom.js";
import { sureButton } from "../ui/form.js";
import { PUSH } from "../words/push.js";

/** @param {Api["ChannelView"][]} channels of the user @param {() => void} reload */
export async function thisDevice(channels, reload) {
  const user = live.me.id;
  const { state, channel } = await deviceState(user, channels);
  const hindrance = obstacle();
  const outcome = h("p", { role: "status" });
  /** @param {string} words */
  const say = (words) => fill(outcome, words);
  if (hindrance)
    return block(h("p", {}, state === "off" ? PUSH.off : PUSH.lost), h("p", {}, PUSH.obstacles[hindrance]));
  if (state === "on" && channel) {
    return block(
      h("p", {}, PUSH.on),
      h("p", { class: "quiet" }, PUSH.loudness),
      h(
        "div",
        { class: "actions" },
        pressed(PUSH.test, "bell", async () => {
          const tested = await post(`/channels/${channel.id}/test`);
          say(tested.accepted ? PUSH.tested : (tested.advice ?? ""));
        }),
        sureButton(PUSH.stop, PUSH.sure, () => unsubscribe(user).then(reload, ({ message }) => say(message))),
      ),
      outcome,
    );
  }
  // Before a click: Safari subscribes only right after it.
  const prepared = prepare();
  prepared.catch(() => {});
  const wake = async () => subscribe({ user, prepared: await prepared, channel }).then(reload);
  return block(
    h("p", {}, state === "lost" ? PUSH.lost : PUSH.off),
    h("p", { class: "quiet" }, PUSH.why),
    h("div", { class: "actions" }, pressed(state === "lost" ? PUSH.again : PUSH.wake, "bell", wake, "primary")),
    outcome,
  );

  /** A button that waits while it works, and says what went wrong. @param {string} label @param {string} name @param {() => Promise<any>} does */
  function pressed(label, name, does, kind = "") {
    const press = button(
      label,
      async () => {
        press.disabled = true;
        await does().catch(({ message }) => say(message));
        press.disabled = false;
      },
      { name, kind },
    );
    return press;
  }
}

/** @param {...import("../ui/dom.js").Content} content */
function block(...content) {
  return h("section", { class: "form", "aria-label": PUSH.title }, h("h3", {}, PUSH.title), content);
}
