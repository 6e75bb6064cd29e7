// Flaws of a page as it is shown, which need no eye: what does not fit, what is cut off, what is too small to be hit, and
// what the rules of axe call serious.

import { readFileSync } from "node:fs";

const AXE = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Every flaw in a line. Axe looks at what is `within`, or at all of it if that is not shown. @returns {Promise<string[]>} */
export async function flawsOf(page, within = "body") {
  const seen = await page.evaluate(look);
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const { violations } = await page.evaluate(
    ([place, tags]) => {
      const part = document.querySelector(place);
      return globalThis.axe.run(part?.checkVisibility() ? part : document, {
        runOnly: tags,
        resultTypes: ["violations"],
      });
    },
    [within, RULES],
  );
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  return [...seen, ...serious.map(({ id, nodes }) => `axe ${id}: ${nodes[0].html.slice(0, 120)}`)];
}

/** Runs within the page. */
function look() {
  const flaws = [];
  const { innerWidth } = window;
  const name = (element) =>
    `<${element.tagName.toLowerCase()} ${element.className?.baseVal ?? element.className}> ${(element.getAttribute("aria-label") ?? element.textContent ?? "").trim().slice(0, 40)}`;
  if (document.scrollingElement.scrollWidth > innerWidth)
    flaws.push(`the page is ${document.scrollingElement.scrollWidth} wide`);
  const page = document.scrollingElement;
  if (document.querySelector(".shell") && page.scrollHeight > page.clientHeight)
    flaws.push(`the page is ${page.scrollHeight} high, and a focus may scroll it`);
  for (const element of document.body.querySelectorAll("*")) {
    if (
      !element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) ||
      element.closest(".hidden-text")
    )
      continue;
    const box = element.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    const style = getComputedStyle(element);
    // Content of a box that scrolls sideways is not lost.
    const scrolls = (one) => /auto|scroll/.test(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth;
    let holder = element;
    while (holder && !scrolls(holder)) holder = holder.parentElement;
    if (!holder && box.right > innerWidth + 1 && style.position !== "fixed")
      flaws.push(`beyond the edge: ${name(element)}`);
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const isCut =
      /hidden|clip/.test(style.overflowX) &&
      element.scrollWidth > element.clientWidth + 1 &&
      style.textOverflow !== "ellipsis";
    const isLow = /hidden|clip/.test(style.overflowY) && element.scrollHeight > element.clientHeight + 2;
    if (hasText && element.clientWidth > 0 && (isCut || isLow)) flaws.push(`cut off: ${name(element)}`);
    const isTarget = element.matches(
      "a[href], button, input, select, textarea, summary, [role=button], [tabindex='0']",
    );
    // A link within a sentence, and a box whose label can be hit, may be smaller.
    const isSpared = (element.tagName === "A" && style.display === "inline") || element.closest("label");
    if (isTarget && !isSpared && !element.disabled && (box.width < 24 || box.height < 24))
      flaws.push(`${box.width.toFixed(0)} × ${box.height.toFixed(0)} to hit: ${name(element)}`);
  }
  return flaws;
}
