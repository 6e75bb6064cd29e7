// The payment provider's own library against the demo and its simulated provider.
// Usage: node payments_peer.js DEMO_JSON CHECKOUT_URL; the package is found through NODE_PATH.
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const Stripe = require('stripe');

const [demoFile, checkoutUrl] = process.argv.slice(2);
const demo = JSON.parse(fs.readFileSync(demoFile, 'utf8'));
const provider = new URL(checkoutUrl);
const SECRET = 'whsec_simulated';
const options = { host: provider.hostname, port: provider.port, protocol: 'http', maxNetworkRetries: 0 };
const stripe = new Stripe('sk_test_simulated', options);

const me = async () => {
  const answer = await fetch(`${demo.apiUrl}/me`, { headers: { cookie: demo.cookie } });
  assert.equal(answer.status, 200);
  return answer.json();
};
const until = async (holds, what) => {
  for (let tries = 0; tries < 400; tries++) {
    const { subscription } = await me();
    if (holds(subscription)) return subscription;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  throw new Error(`/me never shows ${what}`);
};
const deliver = (body, header) =>
  fetch(`${demo.apiUrl}/billing/webhook`, { method: 'POST', body, headers: header === undefined ? {} : { 'stripe-signature': header } });
const press = (url, fields) =>
  fetch(url, { method: 'POST', redirect: 'manual', body: new URLSearchParams(fields) });

async function checkoutAndPortal() {
  // The demo's own page: from nothing to OPERATOR by one click on it.
  assert.equal((await me()).subscription.tier, null);
  assert.match(await (await fetch(checkoutUrl)).text(), /Pay \$7\.00/);
  assert.equal((await press(checkoutUrl, {})).status, 303);
  await until(({ tier, status }) => tier === 'OPERATOR' && status === 'ACTIVE', 'OPERATOR');

  const { id: userId } = await me();
  const { data: [subscription] } = await stripe.subscriptions.list({ status: 'all', limit: 1 });
  assert.equal(subscription.metadata.userId, userId);
  assert.ok(subscription.items.data[0].current_period_end > subscription.created);
  assert.equal((await stripe.subscriptions.retrieve(subscription.id)).status, 'active');

  // The objects that the service makes, made by the library.
  const customer = await stripe.customers.create({ metadata: { userId: 'somebody' } });
  const session = await stripe.checkout.sessions.create({
    mode: 'subscription', customer: customer.id, client_reference_id: 'somebody',
    line_items: [{ price: 'price_scout', quantity: 1 }], subscription_data: { metadata: { userId: 'somebody' } },
    success_url: 'http://127.0.0.1/done?session={CHECKOUT_SESSION_ID}', cancel_url: 'http://127.0.0.1/',
  });
  assert.equal(session.status, 'open');
  const paid = await press(session.url, {});
  assert.equal(paid.headers.get('location'), `http://127.0.0.1/done?session=${session.id}`);
  const portal = await stripe.billingPortal.sessions.create({ customer: customer.id, return_url: 'http://127.0.0.1/' });
  assert.match(await (await fetch(portal.url)).text(), /SCOUT/);
  await assert.rejects(stripe.checkout.sessions.create({ mode: 'subscription', customer: 'cus_none',
    line_items: [{ price: 'price_scout', quantity: 1 }], success_url: 'http://127.0.0.1/' }), { code: 'resource_missing', param: 'customer' });

  const { data: [charge] } = await stripe.charges.list({ customer: customer.id });
  const refund = await stripe.refunds.create({ charge: charge.id, amount: 100, reason: 'duplicate', metadata: { issuedBy: 'a' } });
  assert.deepEqual([refund.amount, refund.status, refund.metadata.issuedBy], [100, 'succeeded', 'a']);
  await assert.rejects(stripe.refunds.create({ payment_intent: charge.payment_intent, amount: 1000 }), { code: 'amount_too_large' });
  assert.equal((await stripe.refunds.list({ limit: 1 })).data[0].id, refund.id);
  return subscription;
}

async function signatures() {
  const payload = JSON.stringify({ id: `evt_${Date.now()}`, object: 'event', type: 'product.created', data: { object: { name: 'ü' } } });
  const header = secret => stripe.webhooks.generateTestHeaderString({ payload, secret });
  const now = Math.floor(Date.now() / 1000);
  const right = header(SECRET);
  const [time, signature] = right.split(',');
  const refused = {
    'no signature': [payload, undefined],
    'another secret': [payload, header('whsec_other')],
    'an added byte': [`${payload} `, right],
    'a changed byte': [payload.replace('product', 'produce'), right],
    'the same JSON, written otherwise': [JSON.stringify(JSON.parse(payload), null, 1), right],
    'another time': [payload, `t=${now + 1},${signature}`],
    'an old time': [payload, stripe.webhooks.generateTestHeaderString({ payload, secret: SECRET, timestamp: now - 301 })],
    'no time': [payload, signature],
    'two times': [payload, `${time},${time},${signature}`],
    'another scheme': [payload, stripe.webhooks.generateTestHeaderString({ payload, secret: SECRET, scheme: 'v0' })],
    'half a signature': [payload, right.slice(0, -32)],
    'an empty header': [payload, ''],
  };
  for (const [what, [body, sent]] of Object.entries(refused)) {
    const answer = await deliver(body, sent);
    assert.equal(answer.status, 400, what);
    assert.equal((await answer.json()).code, 'invalid_signature', what);
  }
  const both = `${right},${header('whsec_other').split(',')[1]}`;
  for (const [sent, outcome] of [[both, 'ignored'], [right, 'duplicate']]) {
    const answer = await deliver(payload, sent);
    assert.deepEqual([answer.status, await answer.json()], [200, { received: true, outcome }]);
  }
}

// An event of the library's making about the demo's own subscription.
async function ends(subscription) {
  const payload = JSON.stringify({ id: `evt_end_${Date.now()}`, object: 'event', type: 'customer.subscription.deleted',
    livemode: false, data: { object: { ...subscription, status: 'canceled' } } });
  const answer = await deliver(payload, stripe.webhooks.generateTestHeaderString({ payload, secret: SECRET }));
  assert.deepEqual(await answer.json(), { received: true, outcome: 'applied' });
  assert.equal((await me()).subscription.status, 'CANCELED');
}

(async () => {
  const subscription = await checkoutAndPortal();
  await signatures();
  await ends(subscription);
  console.log('payments_peer.js: ok');
})().catch(error => {
  console.error('payments_peer.js: FAILED:', error);
  process.exit(1);
});
