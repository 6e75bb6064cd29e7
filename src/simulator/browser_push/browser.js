// A browser that subscribes at the simulated push service, decrypts what comes (RFC 8291) and shows it as a notification
// would be shown. No library: keys, derivation and cipher are the browser's own.

const list = document.querySelector("ul");
const bytes = (...texts) => texts.map((text) => (typeof text === "string" ? new TextEncoder().encode(text) : text));
const joined = (...parts) => new Uint8Array(bytes(...parts).flatMap((part) => [...part]));
const encode = (data) => btoa(String.fromCharCode(...new Uint8Array(data))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decode = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));

async function derive(secret, salt, info, length) {
  const key = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  const how = { name: "HKDF", hash: "SHA-256", salt, info };
  return new Uint8Array(await crypto.subtle.deriveBits(how, key, 8 * length));
}

async function decrypt({ privateKey, point, auth }, body) {
  const [salt, sender, record] = [body.subarray(0, 16), body.subarray(21, 86), body.subarray(86)];
  const key = await crypto.subtle.importKey("raw", sender, { name: "ECDH", namedCurve: "P-256" }, false, []);
  const shared = new Uint8Array(await crypto.subtle.deriveBits({ name: "ECDH", public: key }, privateKey, 256));
  const secret = await derive(shared, auth, joined("WebPush: info\0", point, sender), 32);
  const raw = await derive(secret, salt, joined("Content-Encoding: aes128gcm\0"), 16);
  const iv = await derive(secret, salt, joined("Content-Encoding: nonce\0"), 12);
  const cipher = await crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["decrypt"]);
  const padded = new Uint8Array(await crypto.subtle.decrypt({ name: "AES-GCM", iv }, cipher, record));
  return JSON.parse(new TextDecoder().decode(padded.subarray(0, padded.lastIndexOf(2))));
}

function show({ notification, ackUrl }) {
  const item = document.createElement("li");
  item.dataset.tag = notification.tag;
  for (const [name, text] of [["h2", notification.title], ["p", notification.body]]) {
    item.append(Object.assign(document.createElement(name), { textContent: text }));
  }
  for (const [href, text] of [[ackUrl, "Acknowledge"], [notification.navigate, "Dashboard"]]) {
    if (href) item.append(Object.assign(document.createElement("a"), { href, textContent: text, target: "_blank" }), " ");
  }
  // The same tag: an update takes the place of what is shown.
  list.querySelector(`[data-tag="${CSS.escape(notification.tag)}"]`)?.remove();
  list.prepend(item);
}

const pair = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, false, ["deriveBits"]);
const point = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
const keys = { privateKey: pair.privateKey, point, auth: crypto.getRandomValues(new Uint8Array(16)) };
const joining = { p256dh: encode(point), auth: encode(keys.auth) };
const headers = { "content-type": "application/json" };
const { id } = await (await fetch("/browsers", { method: "POST", headers, body: JSON.stringify(joining) })).json();
document.querySelector("p").textContent = "Subscribed. An alarm shows here.";
setInterval(async () => {
  for (const message of await (await fetch(`/subscriptions/${id}/messages`)).json()) {
    const removed = await fetch(`/messages/${message.id}`, { method: "DELETE" });
    if (removed.ok) show(await decrypt(keys, decode(message.body)));
  }
}, 1000);
