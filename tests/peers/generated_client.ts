// A client against the types that openapi-typescript makes: it compiles, and a wrong word does not.
import type { components, paths } from "./api";

type Schemas = components["schemas"];

export const tiers: Schemas["Tier"][] = ["SCOUT", "OPERATOR", "OVERLORD"];
export const state: Schemas["WatchState"] = "undercut";
export const stage: Schemas["FunnelStage"] = "guest-ready";
export const reachable: Schemas["Reachable"] = "no_response";

// @ts-expect-error: there is no such tier
export const wrong: Schemas["Tier"] = "ADMIRAL";

type Entries = paths["/intel/{serverId}/timeline"]["get"]["responses"][200]["content"]["application/json"];

/// Events are told apart by their kind and action.
export function when(timeline: Entries): string | undefined {
  for (const entry of timeline.entries) {
    if (entry.kind === "oilrig" && entry.action === "called") return entry.data.unlocksAt;
  }
  return timeline.next ?? undefined;
}
