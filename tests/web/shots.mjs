// Pictures of every screen in every state, to be looked at: `node shots.mjs DIRECTORY [WORD...]`, of which only those whose
// name has all of the words. What needs no eye is looked for as well; the flaws are printed, and the exit code is 1 if there
// are any. The demo is one of our own.

import { mkdirSync } from "node:fs";
import { flawsOf } from "./flaws.mjs";
import { launch, openPage, startDemo } from "./lib.mjs";
import { FAILING, PAGES, STATES, TABBED, TABS, WITH_TABS } from "./states.mjs";

const [directory, ...words] = process.argv.slice(2);
const SIZES = [
  ["phone", 390, 844],
  ["laptop", 1366, 768],
  ["4k", 3840, 2160],
];
mkdirSync(directory, { recursive: true });
const [demo, browser] = await Promise.all([startDemo(), launch()]);
let found = 0;

async function take(page, name, faults) {
  await page.waitForFunction(
    () => document.querySelector("#panel")?.closest("[hidden]") || !document.querySelector("#panel:empty"),
  );
  // For what moves in and for the picture of the map; nothing depends on it.
  await page.waitForTimeout(1500);
  await page.screenshot({ path: `${directory}/${name}.png` });
  const scrolled = await page.evaluate(() => {
    const panel = document.querySelector("#panel");
    if (panel) panel.scrollTop = panel.scrollHeight;
    return panel !== null && panel.scrollTop > 0;
  });
  if (scrolled && !TABBED.test(name)) await page.screenshot({ path: `${directory}/${name}-end.png` });
  const isExpected = FAILING.some((state) => name.startsWith(state));
  const flaws = [
    ...(await flawsOf(page)),
    ...faults.splice(0).filter((fault) => !(isExpected && /Failed to load/.test(fault))),
  ];
  found += flaws.length;
  console.log([name, ...new Set(flaws)].join("\n    "));
}

/** One state, and each of its tabs. */
async function takeState(nameOf, [state, [prepare, then]], tabs, looks) {
  const { page, faults, close } = await openPage(browser, demo, { ...looks, prepare });
  try {
    await page.locator(".shell, .sheet, .starting").first().waitFor();
    await then?.(page);
    for (const tab of tabs) {
      const element = page.getByRole("tab", { name: new RegExp(`^${tab || "Team"}`) });
      if (tab && (await element.getAttribute("aria-selected")) === "false") await element.click();
      await take(page, nameOf(state, tab), faults);
    }
  } catch (error) {
    found += 1;
    console.log(`${nameOf(state)} cannot be shown: ${error.message.split("\n")[0]}`);
  }
  await page.context().setOffline(false);
  await close();
}

// The service asks the game for the map once its link is up.
while (!(await demo.call("GET", `/paired-servers/${demo.serverId}/map`).catch(() => null)))
  await new Promise((resolve) => setTimeout(resolve, 500));
for (const [size, width, height] of SIZES) {
  for (const colorScheme of ["dark", "light"]) {
    const nameOf = (...parts) => [...parts.filter(Boolean), size, colorScheme].join("-").toLowerCase();
    const isWanted = (name) => words.every((word) => name.includes(word));
    for (const [state, does] of Object.entries(STATES)) {
      const tabs = (WITH_TABS.includes(state) ? TABS : [""]).filter((tab) => isWanted(nameOf(state, tab)));
      if (tabs.length > 0) await takeState(nameOf, [state, does], tabs, { width, height, colorScheme });
    }
    for (const [state, path] of Object.entries(PAGES).filter(([state]) => isWanted(nameOf(state)))) {
      const { page, faults, close } = await openPage(browser, demo, {
        width,
        height,
        colorScheme,
        signedIn: false,
        path,
      });
      await take(page, nameOf(state), faults);
      await close();
    }
  }
}
await browser.close();
await demo.stop();
process.exitCode = found > 0 ? 1 : 0;
