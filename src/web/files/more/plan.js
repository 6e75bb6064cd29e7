// The plan: what it unlocks, until when, and how it is paid.

import { get, newKey, post } from "../api.js";
import { live } from "../dashboard/live.js";
import { button, h } from "../ui/dom.js";
import { day } from "../ui/time.js";
import { ACCOUNT } from "../words/account.js";

export async function planSection() {
  // The configuration that the page came with has no prices.
  [live.me, live.config] = await Promise.all([get("/me"), get("/client-config")]);
  const { subscription } = live.me;
  const { tier, status, currentPeriodEnd, cancelAtPeriodEnd, why, entitlements } = subscription;
  const when =
    currentPeriodEnd &&
    (cancelAtPeriodEnd || status === "CANCELED"
      ? ACCOUNT.until(day(currentPeriodEnd))
      : ACCOUNT.renews(day(currentPeriodEnd)));
  const head = [
    h(
      "p",
      {},
      h("b", {}, ACCOUNT.tier[tier ?? "null"]),
      status ? ` · ${ACCOUNT.status[status] ?? status}` : "",
      when ? ` · ${when}` : "",
    ),
    why.map((words) => h("p", { class: "quiet" }, words)),
    !entitlements.enforced && h("p", { class: "quiet" }, ACCOUNT.free),
  ];
  if (!live.config.features.payments) return [head, h("p", { class: "quiet" }, ACCOUNT.noPayments)];
  if (subscription.paymentSubscriptionId && status !== "CANCELED") {
    return [
      head,
      h(
        "div",
        { class: "actions" },
        button(ACCOUNT.portal, () => go(post("/billing/portal")), { name: "external" }),
      ),
    ];
  }
  return [head, h("ul", { class: "plans" }, live.config.tiers.filter(({ price }) => price).map(offer))];
}

/** @param {Api["TierOffer"]} offered */
function offer({ tier, price, yearlyPrice, guestsPerServer, watchedShops }) {
  /** @param {NonNullable<Api["TierOffer"]["price"]>} price */
  const money = ({ amount, currency }) => (amount / 100).toLocaleString(undefined, { style: "currency", currency });
  /** @param {Api["CreateCheckout"]["interval"]} interval */
  const buy = (interval) => () => go(post("/billing/checkout", { tier, interval }, { "idempotency-key": newKey() }));
  return h(
    "li",
    {},
    h("b", {}, ACCOUNT.tier[tier]),
    h("span", { class: "quiet" }, ACCOUNT.unlocks(guestsPerServer, watchedShops)),
    h(
      "div",
      { class: "actions" },
      price && button(`${money(price)} ${ACCOUNT.month}`, buy("month")),
      yearlyPrice && button(`${money(yearlyPrice)} ${ACCOUNT.year}`, buy("year")),
    ),
  );
}

/** Leaves for the page of the payment provider. @param {Promise<Api["PaymentPage"]>} asked */
async function go(asked) {
  const { url } = await asked;
  location.assign(url);
}
