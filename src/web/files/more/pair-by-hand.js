// A form for those who know the address and the token of their pairing.

import { post } from "../api.js";
import { live, loadServers } from "../dashboard/live.js";
import { h } from "../ui/dom.js";
import { field, form } from "../ui/form.js";
import { SET_UP } from "../words/set-up.js";

export function pairByHand() {
  const address = h("input", { required: true, autocomplete: "off", placeholder: "203.0.113.7" });
  const port = h("input", { required: true, inputmode: "numeric", pattern: "[0-9]{1,5}", value: "28082" });
  const player = h("input", { required: true, inputmode: "numeric", value: live.me?.platformId ?? "" });
  const token = h("input", { required: true, autocomplete: "off" });
  return form({
    fields: [
      field(SET_UP.address, address, "address"),
      field(SET_UP.port, port, "port"),
      field(SET_UP.playerId, player, "playerId"),
      field(SET_UP.playerToken, token, "playerToken"),
    ],
    submit: SET_UP.pair,
    send: (key) =>
      post(
        "/paired-servers",
        {
          address: address.value.trim(),
          port: Number(port.value),
          playerId: player.value.trim(),
          playerToken: token.value.trim(),
        },
        { "idempotency-key": key },
      ),
    done: () => loadServers(),
  });
}
