// The house of the pages: imports without circles and only where docs/web.md says, words in `words/`, nothing in the overlay
// that a browser of 2022 lacks, and vendored files that are what their list says.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { test } from "node:test";
import ts from "typescript";
import { SHAPES } from "../../src/web/files/icons/shapes.js";

const FILES = new URL("../../src/web/files/", import.meta.url);
const textOf = (path) => readFileSync(new URL(path, FILES), "utf8");
const PATHS = readdirSync(FILES, { recursive: true })
  .map((path) => path.replaceAll("\\", "/"))
  .filter((path) => /\.(js|css)$/.test(path));
const SCRIPTS = PATHS.filter((path) => path.endsWith(".js"));

/** The tree of a script, with the parent of each node. @param {string} path @param {string} [text] */
const parsed = (path, text = textOf(path)) => ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);

/** Calls `does` for each node. @param {ts.Node} node @param {(node: ts.Node) => void} does */
function walk(node, does) {
  does(node);
  ts.forEachChild(node, (child) => walk(child, does));
}

/** Modules that a script imports at once, and those that it imports later. @returns {{ first: string[], later: string[] }} */
function importsOf(path, text = undefined) {
  const found = { first: [], later: [] };
  const add = (list, { text = "" }) => text.startsWith(".") && list.push(posix.join(posix.dirname(path), text));
  walk(parsed(path, text), (node) => {
    if ((ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) && node.moduleSpecifier)
      add(found.first, node.moduleSpecifier);
    if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      add(found.later, node.arguments[0]);
  });
  return found;
}

/** The first circle of imports, as the paths along it; null for none. @param {Map<string, string[]>} graph */
function circleIn(graph) {
  const done = new Set();
  const visit = (path, above) => {
    if (above.includes(path)) return [...above.slice(above.indexOf(path)), path];
    if (done.has(path)) return null;
    for (const next of graph.get(path) ?? []) {
      const circle = visit(next, [...above, path]);
      if (circle) return circle;
    }
    done.add(path);
    return null;
  };
  for (const path of graph.keys()) {
    const circle = visit(path, []);
    if (circle) return circle;
  }
  return null;
}

test("no imports lead back to where they began, also those of what is loaded later", () => {
  const all = SCRIPTS.map((path) => [path, importsOf(path)]);
  assert.equal(circleIn(new Map(all.map(([path, { first, later }]) => [path, [...first, ...later]]))), null);
  const circle = [
    ["a.js", 'import { b } from "./b.js";'],
    ["b.js", 'export const c = () => import("./c.js");'],
    ["c.js", 'export { a } from "./a.js";'],
  ].map(([path, text]) => [path, Object.values(importsOf(path, text)).flat()]);
  assert.deepEqual(circleIn(new Map(circle)), ["a.js", "b.js", "c.js", "a.js"]);
});

/** Folders, and the folders that each of them may import from besides itself; a file of the root is a folder of its own. */
const ROOMS = {
  words: [],
  icons: [],
  ui: ["words", "icons", "api.js"],
  map: ["ui", "words", "icons", "api.js", "raid.js", "dashboard/live.js", "dashboard/items.js"],
  overlay: ["ui", "words", "relay-client.js"],
};

test("folders import what is beneath them", () => {
  for (const [room, beneath] of Object.entries(ROOMS)) {
    for (const path of SCRIPTS.filter((path) => path.startsWith(`${room}/`))) {
      for (const other of Object.values(importsOf(path)).flat()) {
        const isBeneath = [room, ...beneath].some((one) => other === one || other.startsWith(`${one}/`));
        assert.ok(isBeneath, `${path} imports ${other}`);
      }
    }
  }
});

/** Functions whose texts no player reads. */
const UNREAD =
  /^(on|attribute|toggle|split|Error|TypeError|warn|error|querySelector|querySelectorAll|closest|matches|matchMedia|has)$/;
/** Proper names: of browsers and systems, fonts, methods and keys. */
const NAMES =
  /^(GET|POST|PUT|PATCH|DELETE|Notification|Promise|KeyA|Escape|Enter|Arrow(Up|Down|Left|Right)|Bearer |DejaVu.*|UTC|Retry-After|Edge|Opera|Firefox|Chrome|Safari|Android|Windows|Mac|Linux)$/;
/** A word with a capital, three small ones, the middle or the end of a sentence, the word of an alarm. */
const WORDS = /^[ ,;:.!()]*[A-Z][a-z]+\b(?![-/])|[a-z]{2,} [a-z]{2,} [a-z]{2,}|^, [a-z]|RAID|[a-z]\.$/;

/** Texts of a script that look as if a player was to read them. @param {string} path @param {string} [text] */
function wordsIn(path, text = undefined) {
  const found = [];
  walk(parsed(path, text), (node) => {
    const isTemplate = ts.isTemplateExpression(node);
    if (!isTemplate && !ts.isStringLiteralLike(node)) return;
    const parts = isTemplate ? [node.head, ...node.templateSpans.map(({ literal }) => literal)] : [node];
    const words = parts.map(({ text }) => text).filter((part) => WORDS.test(part) && !NAMES.test(part));
    if (words.length === 0) return;
    for (let above = node.parent; above; above = above.parent) {
      if (ts.isImportDeclaration(above) || ts.isExportDeclaration(above)) return;
      if (ts.isPropertyAssignment(above) && above.name.getText() === "class") return;
      const called = (ts.isCallExpression(above) || ts.isNewExpression(above)) && above.expression;
      if (called && UNREAD.test(ts.isPropertyAccessExpression(called) ? called.name.text : called.getText())) return;
    }
    found.push(`${path}: ${words.join(" … ")}`);
  });
  return found;
}

test("texts for players are in words/, but of the files that stand alone", () => {
  const alone = /^relay-|^sw\.js$/;
  assert.deepEqual(
    SCRIPTS.filter((path) => !/^(words|icons)\//.test(path) && !alone.test(path)).flatMap((path) => wordsIn(path)),
    [],
  );
  const said = ['button("Done", reload)', "h(`The map`)", 'h("span", {}, ", to do")', 'text("It is off.")'];
  for (const text of said) assert.equal(wordsIn("a.js", text).length, 1, text);
  for (const text of [
    'h("li", { class: "row is plain now" })',
    'on("team map notes now", f)',
    'throw new Error("No one.")',
  ])
    assert.deepEqual(wordsIn("a.js", text), [], text);
});

/** Names of methods and of CSS that came to Chromium after 103, which streaming programs had for long. */
const NEWER = {
  js: [
    /\.(toSorted|toReversed|toSpliced|with|fromAsync|groupBy|withResolvers|isWellFormed|toWellFormed|checkVisibility)\(/,
    /\.(union|intersection|difference|symmetricDifference|isSubsetOf|isSupersetOf|isDisjointFrom)\(/,
    /\.(values|keys|entries)\(\)\s*\.(map|filter|take|drop|flatMap|reduce|toArray|forEach|some|every|find)\(/,
    /\b(Promise\.try|URL\.(canParse|parse)|AbortSignal\.any|RegExp\.escape|Error\.isError|Iterator\.|Math\.sumPrecise)/,
    /\b(Temporal|DurationFormat|Float16Array|DisposableStack|URLPattern|CloseWatcher|ViewTransition)\b/,
    /\.(showPopover|hidePopover|togglePopover|setHTML|getHTML|moveBefore|startViewTransition|toBase64|toHex|transfer)\(/,
    /\bscheduler\.|\bnavigator\.(preferences|locks\.query)|^\s*(await )?using |\bwith \{ ?type|^\s*@[a-z]/m,
    /\/[dgimsuy]*v[dgimsuy]*\.(test|exec)\(/,
  ],
  css: [
    /:(has|dir|nth-child\([^)]* of |user-(in)?valid|popover-open|open|modal|state)\b.*\{/,
    /@(container|scope|starting-style|view-transition|position-try|font-palette-values)\b/,
    /\b(color-mix|light-dark|oklch|oklab|lch|lab|color|linear|round|mod|rem|sin|cos|tan|pow|sqrt|abs|sign|anchor|if)\(/,
    /[0-9](s|d|l)v(h|w|min|max|b|i)\b|[0-9](r?lh|rcap|ric|rex|rch|cq(w|h|i|b|min|max))\b/,
    /@media[^{]*[<>=]/,
    /^\s*(translate|rotate|scale|text-wrap(-[a-z]+)?|field-sizing|interpolate-size|view-transition-name|anchor-name|container(-[a-z]+)?)\s*:/m,
    /\bsubgrid\b|^\s*&|\{[^{}]*[a-z)\]"]\s*\{[^{}]*:[^{}]*;/m,
  ],
};

/** All that the overlay loads. */
function overlayFiles() {
  const html = textOf("overlay.html");
  const files = [...html.matchAll(/\{root\}\/([a-z/-]+\.(js|css))"/g)].map(([, path]) => path);
  for (const path of files) {
    if (!path.endsWith(".js")) continue;
    for (const other of Object.values(importsOf(path)).flat()) if (!files.includes(other)) files.push(other);
  }
  return files;
}

/** Lines without comments that have something newer. */
function newerIn(text, kind) {
  const bare = text
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .replace(/^\s*\/\/.*$/gm, "")
    .replace(/@keyframes [^{]*\{(\s*(from|to|[0-9]+%)\s*\{[^{}]*\})*\s*\}/g, "");
  // Rules in `@media` are as the others.
  const media = /(@media[^{]*)\{((?:[^{}]*\{[^{}]*\})*)[^{}]*\}/g;
  const rules = kind === "css" ? bare.replace(media, "$1{}\n$2") : bare;
  return NEWER[kind].flatMap((one) => rules.match(one)?.[0].trim() ?? []);
}

test("the overlay has nothing that a browser of 2022 lacks", () => {
  const files = overlayFiles();
  for (const path of ["overlay/view.js", "relay-patch.js", "style/base.css"]) assert.ok(files.includes(path), path);
  const found = files.flatMap((path) => newerIn(textOf(path), path.split(".").at(-1)).map((one) => `${path}: ${one}`));
  assert.deepEqual(found, []);
  for (const [kind, text] of [
    ["js", "const b = a.toSorted();"],
    ["js", "const b = map.values().map(f);"],
    ["js", "Promise.withResolvers()"],
    ["css", "p:has(b) {\n  margin: 0;\n}"],
    ["css", "p {\n  color: color-mix(in srgb, red, blue);\n}"],
    ["css", "p {\n  & b {\n    margin: 0;\n  }\n}"],
    ["css", "p {\n  margin: 0;\n  b {\n    margin: 0;\n  }\n}"],
    ["css", "@media (width >= 40em) {\n  p {\n    margin: 0;\n  }\n}"],
    ["css", "p {\n  height: 100dvh;\n}"],
  ])
    assert.equal(newerIn(text, kind).length, 1, text);
});

test("vendored shapes are what their list says, with their licence", () => {
  const list = JSON.parse(textOf("icons/lucide.json"));
  const hashes = Object.fromEntries(
    Object.entries(SHAPES).map(([name, path]) => [name, createHash("sha256").update(path).digest("hex")]),
  );
  const listed = Object.fromEntries(Object.entries(list.shapes).map(([name, { sha256 }]) => [name, sha256]));
  assert.deepEqual(hashes, listed);
  assert.ok(textOf(`icons/${list.file}`).includes(`From lucide ${list.version}`));
  assert.match(textOf(`icons/${list.licenceText}`), /^ISC License\n\nCopyright \(c\) 2026 Lucide/);
});
