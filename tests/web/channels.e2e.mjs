// Rules for the channels, and the messages about the newest alarm.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, demo, openPage, useDemo } from "./lib.mjs";
import { until } from "./push-lib.mjs";

useDemo();

const rulesPath = () => `/paired-servers/${demo.serverId}/alarm-rules`;
const rulesOf = (page) => page.locator("details details", { hasText: "What wakes me on" });
const lastAlarmOf = (page) => page.getByRole("region", { name: /^The last alarm on/ });

async function opened() {
  const { page, faults, close } = await openPage(browser, demo);
  const open = async () => {
    await page.getByRole("tab", { name: "More" }).click();
    await page.locator("summary", { hasText: "Alarms on your phone" }).press("Enter");
    await lastAlarmOf(page).waitFor();
    await page.locator("summary", { hasText: "What wakes me on" }).press("Enter");
    await rulesOf(page).getByRole("button", { name: "Save" }).waitFor();
  };
  await open();
  const reopen = () => page.reload().then(open);
  return { page, faults, close, reopen };
}

test("rules are chosen, kept, and said to be wrong where they are", async () => {
  const { channels } = await demo.call("GET", "/channels");
  const [phone, program] = ["Phone", "Own program"].map((name) => channels.find((channel) => channel.name === name));
  assert.ok(phone && program, "the demo has a phone, and a program that takes webhooks");
  const { page, faults, close, reopen } = await opened();
  const rules = () => rulesOf(page);
  const save = async () => {
    await rules().getByRole("button", { name: "Save" }).click();
    await rules().getByText("Saved.").waitFor();
    return demo.call("GET", rulesPath());
  };
  const before = await demo.call("GET", rulesPath());
  assert.deepEqual(await save(), before, "what is shown is what is stored");

  await rules().getByLabel("Deaths of the team").check();
  await rules().getByLabel("Order").selectOption("own");
  await rules().getByLabel(phone.name).selectOption("after 2 min");
  await rules().getByLabel(program.name).selectOption("not used");
  await rules().getByText(`No alarm of this server comes by: ${program.name}.`).waitFor();
  await rules().getByLabel("Repeat, if I do not acknowledge it,").selectOption("after 5 min");
  await rules().getByLabel("Send it at most").selectOption("3 times");
  await rules().getByLabel("Quiet hours").check();
  await rules().getByLabel("From").fill("22:30");
  await rules().getByLabel("Until", { exact: true }).fill("06:15");
  await rules().getByLabel("Time zone").selectOption("Europe/Berlin");
  await rules().getByLabel("A raid wakes me all the same").uncheck();
  const chosen = {
    enabled: true,
    steps: [{ afterSeconds: 120, channels: [phone.id] }],
    repeatSeconds: 300,
    rounds: 3,
    kinds: ["death", "raid"],
    quiet: { from: "22:30", to: "06:15", timeZone: "Europe/Berlin", raidsPierce: false },
  };
  assert.deepEqual({ ...(await save()), kinds: (await demo.call("GET", rulesPath())).kinds.sort() }, chosen);
  await reopen();
  assert.equal(await rules().getByLabel("Order").inputValue(), "own");
  assert.deepEqual({ ...(await save()), kinds: chosen.kinds }, chosen, "the page shows them again");

  await rules().getByLabel(phone.name).selectOption("not used");
  await rules()
    .getByText(/^No alarm of this server comes by: .*Phone/)
    .waitFor();
  await rules().getByRole("button", { name: "Save" }).click();
  await rules().getByRole("alert").filter({ hasText: "Choose a time for at least one channel" }).waitFor();
  await rules().getByLabel("Quiet hours").uncheck();
  await rules().getByLabel("Send it to me by the channels above").uncheck();
  assert.deepEqual(await save(), { ...chosen, enabled: false, quiet: null }, "and can be switched off all the same");
  await rules().getByLabel("Send it to me by the channels above").check();
  await rules().getByLabel("Quiet hours").check();
  await rules().getByLabel("Until", { exact: true }).fill("06:15");
  await rules().getByLabel("Order").selectOption("usual");
  await rules().getByLabel("From").fill("06:15");
  await rules().getByRole("button", { name: "Save" }).click();
  await rules().getByRole("alert").filter({ hasText: "begins and ends at the same time" }).waitFor();
  await rules().getByLabel("Quiet hours").uncheck();
  assert.deepEqual((await save()).quiet, null);
  await rules().getByLabel("Send it to me by the channels above").uncheck();
  assert.equal((await save()).enabled, false);
  assert.equal(await rules().getByLabel("Order").isVisible(), false);
  await demo.call("PUT", rulesPath(), before);
  assert.deepEqual(
    faults.filter((fault) => !fault.includes("400")),
    [],
  );
  await close();
});

test("the team's chat is added as a channel, tried in the game, and given a time", async () => {
  const { page, faults, close, reopen } = await opened();
  const section = page.locator("details", { hasText: "Alarms on your phone" }).last();
  await section.getByRole("combobox", { name: /^Service/ }).selectOption("Team chat in the game");
  await section.getByText("A line in the game for your team").waitFor();
  await section.getByLabel("Name", { exact: true }).fill("Our team");
  await section.getByRole("button", { name: "Add", exact: true }).click();
  const row = page.getByRole("listitem").filter({ hasText: "Our team" });
  await row.getByText("Team chat in the game").waitFor();
  await row.getByRole("button", { name: "Test" }).click();
  await page.getByText("It was said in the game.").waitFor();
  const { channels } = await demo.call("GET", "/channels");
  const { id, host } = channels.find(({ kind }) => kind === "teamChat");
  assert.equal(host, "");
  const before = await demo.call("GET", rulesPath());
  await reopen();
  await rulesOf(page).getByLabel("Order").selectOption("own");
  await rulesOf(page).getByLabel("Our team").selectOption("after 3 min");
  await rulesOf(page).getByRole("button", { name: "Save" }).click();
  await rulesOf(page).getByText("Saved.").waitFor();
  const { steps } = await demo.call("GET", rulesPath());
  assert.deepEqual(steps.at(-1), { afterSeconds: 180, channels: [id] });
  await demo.call("PUT", rulesPath(), before);
  await row.getByRole("button", { name: "Delete" }).click();
  await row.getByRole("button", { name: "Sure?" }).click();
  await row.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
  await close();
});

test("a drill shows how an alarm reaches each channel, and that it was acknowledged", async () => {
  const { page, faults, close } = await opened();
  const last = lastAlarmOf(page);
  // The raid of the demo may be the newest alarm at any moment; here it is the drill.
  await page.route(/\/alarms\?limit=1$/, async (route) => {
    const { alarms } = await demo.call("GET", `/paired-servers/${demo.serverId}/alarms`);
    await route.fulfill({ json: { alarms: alarms.filter(({ drill }) => drill).slice(0, 1), next: null } });
  });
  await last.getByRole("button", { name: "Start a drill" }).click();
  await last.getByText("Drill.").waitFor();
  const row = last.getByRole("listitem").filter({ hasText: "Phone" });
  await row.getByText(/was taken (at once|after \d+ s)/).waitFor();
  await last.getByText("You have not acknowledged it.").waitFor();
  const path = `/paired-servers/${demo.serverId}/alarms`;
  const { incident } = (await demo.call("GET", path)).alarms.find(({ drill }) => drill);
  await demo.call("POST", `${path}/${incident}/ack`);
  await last.getByText(/^You acknowledged it/).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("without a channel there are no rules to choose", async () => {
  const { page, close } = await opened();
  await page.route("**/channels", (route) => route.fulfill({ json: { channels: [] } }));
  const summary = page.locator("summary", { hasText: "Alarms on your phone" });
  await summary.press("Enter");
  await summary.press("Enter");
  await page.getByText("Nothing wakes you while no dashboard is open.").waitFor();
  await until(
    () => rulesOf(page).count(),
    (count) => count === 0,
  );
  await close();
});

test("a webhook in the form of another service says what is wrong with it, and is added", async () => {
  const { page, faults, close } = await opened();
  const section = page.locator("details", { hasText: "Alarms on your phone" });
  await section.getByLabel(/^Service/).selectOption("webhook");
  await section.getByLabel(/^Name/).fill("Gateway");
  await section.getByLabel(/^URL/).fill("https://gateway.example/call");
  assert.equal(await section.getByLabel(/^Body/).isVisible(), false);
  await section.getByLabel("Form of its messages").selectOption("application/json");
  await section.getByLabel(/^Headers/).fill("X-Api-Key: secret");
  await section.getByLabel(/^Body/).fill('{"to":"+49123","text":{title}}');
  await section.getByRole("button", { name: "Add", exact: true }).click();
  await section.getByText("is no JSON once it is filled").waitFor();
  await section.getByLabel(/^Body/).fill('{"to":"+49123","text":"{title}"}');
  await section.getByRole("button", { name: "Add", exact: true }).click();
  await section.getByText("Copy it now").waitFor();
  await section.getByRole("button", { name: "Done" }).click();
  const row = section.getByRole("listitem").filter({ hasText: "Gateway" }).first();
  await row.getByText("Webhook").waitFor();
  const { channels } = await demo.call("GET", "/channels");
  const gateway = channels.find(({ name }) => name === "Gateway");
  assert.equal(JSON.stringify(channels).includes("secret"), false, "what is typed is not shown again");
  await demo.call("DELETE", `/channels/${gateway.id}`);
  assert.deepEqual(
    faults.filter((fault) => !fault.includes("400")),
    [],
  );
  await close();
});

test("a channel by which nothing is sent is named at once, and a step of the set-up is left until one works", async () => {
  const lost = { id: "c1", kind: "ntfy", name: "Old phone", proof: "disabled", acceptedAt: null, inRules: true };
  let channels = [{ ...lost, advice: "Nothing got through for a day. Test it to use it again." }];
  const prepare = (page) =>
    page.route("**/readiness", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, json: { ...(await answer.json()), channels } });
    });
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  const notice = page.getByRole("status").filter({ hasText: "Old phone: no alarm is sent by it." });
  await notice.waitFor();
  await page.getByRole("button", { name: /^Set-up: \d+ left$/ }).waitFor();
  await notice.getByRole("button", { name: "See what wakes you" }).click();
  const step = page.getByRole("listitem").filter({ hasText: "A second way besides this page" });
  await step.getByText("Test it to use it again.").waitFor();

  channels = [];
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await notice.waitFor({ state: "detached" });
  await step.getByText("Add your phone or this browser").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("the owner chooses announcements, commands and audiences of the team chat", async () => {
  const path = `/paired-servers/${demo.serverId}/chat-settings`;
  const before = await demo.call("GET", path);
  await demo.call("PATCH", path, { mutedUntil: new Date(Date.now() + 3_600_000).toISOString() });
  const { page, faults, close } = await openPage(browser, demo);
  const settings = page.locator("details.fold", { hasText: "Team chat in the game" });
  const open = async () => {
    await page.getByRole("tab", { name: "More" }).click();
    await settings.locator("summary").press("Enter");
    await settings.getByRole("button", { name: "Save" }).waitFor();
  };
  const save = async () => {
    await settings.getByRole("button", { name: "Save" }).click();
    await settings.getByText("Saved.").waitFor();
    return demo.call("GET", path);
  };
  await open();
  await settings.getByText(/^Nothing but alarms is said until/).waitFor();
  await settings.getByRole("button", { name: "Say everything again" }).click();
  await until(
    () => demo.call("GET", path),
    ({ mutedUntil }) => mutedUntil === null,
  );
  await settings.getByText(/^Nothing but alarms/).waitFor({ state: "detached" });
  assert.deepEqual(await save(), { ...before, mutedUntil: null }, "what is shown is what is stored");
  assert.equal(await settings.getByLabel(/^![a-z]+$/).count(), before.commands.length, "every command is offered");

  await settings.getByLabel("A smart alarm goes off").check();
  await settings.getByLabel("Who may switch devices").selectOption("only the paired player");
  await settings.getByLabel("Pass leadership on").check();
  await settings.getByLabel("Sign before a command").fill(".");
  await settings.getByLabel(".cargo").uncheck();
  await settings.getByLabel("Never answer these players").fill("76561198000000003\n76561198000000004");
  const chosen = {
    ...before,
    announcements: { ...before.announcements, raid: true },
    devices: "owner",
    passLeadership: true,
    prefix: ".",
    commands: before.commands.filter((word) => word !== "cargo"),
    blocked: ["76561198000000003", "76561198000000004"],
    mutedUntil: null,
  };
  assert.deepEqual(await save(), chosen);
  await page.reload();
  await open();
  assert.deepEqual(await save(), chosen, "the page shows them again");
  await settings.getByLabel("A member dies").check();
  await settings.locator("summary").press("Enter");
  await settings.locator("summary").press("Enter");
  await demo.call("PATCH", path, { devices: "everyone" });
  const both = { ...chosen, devices: "everyone", announcements: { ...chosen.announcements, death: true } };
  assert.deepEqual(await save(), both, "what is typed stays, and nothing else is sent");
  await settings.getByLabel("Sign before a command").fill("a");
  await settings.getByLabel("Never answer these players").fill("Nox");
  await settings.getByRole("button", { name: "Save" }).click();
  await settings.getByText("must be one or two punctuation characters").waitFor();
  await demo.call("PATCH", path, before);
  assert.deepEqual(
    faults.filter((fault) => !fault.includes("400")),
    [],
  );
  await close();
});
