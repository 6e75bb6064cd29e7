// The server that is shown: where it is, whether an alarm would arrive, and the way out.

import { get, post, remove } from "../api.js";
import { currentServer, loadServers } from "../dashboard/live.js";
import { bdi, button, h } from "../ui/dom.js";
import { sureButton } from "../ui/form.js";
import { ago, day } from "../ui/time.js";
import { ACCOUNT } from "../words/account.js";
import { LINKS } from "../words/shell.js";

/** @param {() => void} reload */
export async function serverSection(reload) {
  const { id, info, state } = currentServer();
  const isOwner = info.role === "owner";
  const ready = isOwner ? await get(`/paired-servers/${id}/readiness`) : null;
  const head = state?.server;
  const link = head ? LINKS[head.connection] : "";
  const paths = (ready?.paths ?? []).map(({ path, up, since, advice }) =>
    h(
      "p",
      { class: `pill ${up ? "is-live" : "is-stale"}` },
      h("span", { class: "dot" }),
      ACCOUNT.path(path, up, since && ago(since), advice),
    ),
  );
  return [
    h("p", {}, bdi(info.name), info.address ? ` · ${info.address}:${info.port}` : ""),
    h("p", { class: "quiet" }, ACCOUNT.pairedAt(day(info.createdAt)), link ? ` · ${link}` : ""),
    paths,
    isOwner &&
      h(
        "div",
        { class: "actions" },
        button(ACCOUNT.drill, () => post(`/paired-servers/${id}/drill`), { name: "siren" }),
        sureButton(ACCOUNT.unpair, ACCOUNT.sure, () => remove(`/paired-servers/${id}`).then(loadServers).then(reload)),
      ),
  ];
}
