// Makes the types of the contract, contract/api.d.ts and contract/relay.d.ts: of the OpenAPI document and of the relay's
// schema, as the program prints them. Usage: COMPANION=PROGRAM node contract.mjs

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import openapiTypes, { astToString } from "openapi-typescript";

const print = (command) => execFileSync(process.env.COMPANION, [command], { encoding: "utf8", maxBuffer: 2 ** 27 });

async function write(name, document) {
  // A field with a default may be absent from a body.
  const types = await openapiTypes(document, { defaultNonNullable: false, silent: true });
  writeFileSync(new URL(`contract/${name}.d.ts`, import.meta.url), astToString(types));
}

/** A schema of the same dialect, as the components of a document. */
function documentOf(schema) {
  const schemas = JSON.parse(schema.replaceAll('"#/$defs/', '"#/components/schemas/')).$defs;
  return { openapi: "3.1.0", info: { title: "relay", version: "1" }, paths: {}, components: { schemas } };
}

await write("api", JSON.parse(print("openapi")));
await write("relay", documentOf(print("relay-schema")));
