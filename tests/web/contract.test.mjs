// A field that the service renames is a fault of the pages: here it is renamed in the types, and the compiler must say so.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const TSC = join(HERE, "node_modules/typescript-7/bin/tsc");

/** Fields by schema, and routes. */
const RENAMED = {
  relay: {
    Incident: ["alarmName", "lastAt"],
    Member: ["spawnedAt"],
    Device: ["turnsBack"],
    Marker: ["sellOrders", "rotation"],
    MapNote: ["expiresAt"],
    NamedSellOrder: ["inStock"],
    ServerHead: ["queuedPlayers", "nextAttemptAt"],
    TeamTimer: ["endsAt"],
    Refusal: ["code"],
  },
  api: {
    Me: ["displayName"],
    PairedServerView: ["openIncidents"],
    ChannelView: ["acceptedAt"],
    WatchView: ["expectedPrice"],
    AlarmRules: ["repeatSeconds"],
    PathReadiness: ["advice"],
    TrackedPlayerView: ["lastSeenAt"],
    CreateMapNote: ["category"],
    CreateTracking: ["trackerName"],
  },
};
const ROUTES = ["/paired-servers/{id}/drill", "/pairing/device/requests/{id}"];

/** These types with fields of other names, and the name of each that was found. */
function renamed(types, fields) {
  let schema = "";
  const found = [];
  const lines = types.split("\n").map((line) => {
    schema = /^ {8}(\w+): /.exec(line)?.[1] ?? schema;
    const field = /^ {12}(\w+)\??: /.exec(line)?.[1];
    if (!field || !fields[schema]?.includes(field)) return line;
    found.push(`${schema}.${field}`);
    return line.replace(field, `${field}Renamed`);
  });
  return { text: lines.join("\n"), found };
}

test("a field or a route that the service renames is a fault of the pages", async (context) => {
  const place = mkdtempSync(join(tmpdir(), "companion-types-"));
  context.after(() => rmSync(place, { recursive: true }));
  cpSync(join(HERE, "contract"), place, { recursive: true });
  for (const [name, fields] of Object.entries(RENAMED)) {
    const { text, found } = renamed(readFileSync(join(place, `${name}.d.ts`), "utf8"), fields);
    const wanted = Object.entries(fields).flatMap(([schema, names]) => names.map((field) => `${schema}.${field}`));
    assert.deepEqual(found.sort(), wanted.sort(), "the fields are still of these names");
    const paths = ROUTES.reduce((all, route) => all.replace(`"${route}": {`, `"${route}/renamed": {`), text);
    writeFileSync(join(place, `${name}.d.ts`), paths);
  }
  const pages = join(HERE, "../../src/web/files/**/*.js");
  const config = { extends: join(HERE, "tsconfig.json"), include: [pages, join(place, "*.d.ts")] };
  writeFileSync(join(place, "tsconfig.json"), JSON.stringify(config));
  const faults = await new Promise((resolve) =>
    execFile(process.execPath, [TSC, "-p", place, "--pretty", "false"], (_, output) => resolve(output)),
  );
  const all = Object.values(RENAMED).flatMap((fields) => Object.values(fields).flat());
  assert.deepEqual(
    all.filter((field) => !faults.includes(`'${field}'`)),
    [],
    faults,
  );
  assert.equal(faults.match(/Expected 3 arguments/g)?.length >= 4, true, faults);
});
