// The service takes comments out of scripts by whole lines (`src/web/comments.rs`), so no text may have a line that looks
// like one.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import ts from "typescript";

const FILES = new URL("../../src/web/files/", import.meta.url).pathname;
const scripts = readdirSync(FILES, { recursive: true })
  .map(String)
  .filter((path) => path.endsWith(".js"));

/** Texts of a script that go over several lines. */
function longTexts(script) {
  const found = [];
  const visit = (node) => {
    if (ts.isTemplateLiteral(node) || ts.isStringLiteral(node)) found.push(node.getText(script));
    ts.forEachChild(node, visit);
  };
  visit(script);
  return found.filter((text) => text.includes("\n"));
}

const isComment = (line) => /^\s*(\/\/|\/\*\*)/.test(line);
const read = (text) => ts.createSourceFile("a.js", text, ts.ScriptTarget.ES2022, true, ts.ScriptKind.JS);

test("a line of a text that looks like a comment is found", () => {
  const [text] = longTexts(read("const a = `b\n  // c\n`;"));
  assert(text.split("\n").some(isComment));
});

test("no line of a text looks like a comment", () => {
  assert(scripts.length > 50);
  for (const path of scripts)
    for (const text of longTexts(read(readFileSync(FILES + path, "utf8"))))
      assert.deepEqual(text.split("\n").slice(1).filter(isComment), [], path);
});

test("a licence stays", () => {
  for (const path of scripts) {
    const text = readFileSync(FILES + path, "utf8");
    if (/copyright/i.test(text)) assert.match(text, /^\/\*![^*]*copyright/im, path);
  }
});
