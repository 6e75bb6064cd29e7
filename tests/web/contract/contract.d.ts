// The types of the contract, by the names that the pages use: `Api["Me"]` is a schema of the API's document,
// `Relay["Incident"]` one of the relay's. A call of `api.js` has the types of the route that its path is of.

import type { components, paths } from "./api.d.ts";
import type { components as relay } from "./relay.d.ts";

type Method = "get" | "post" | "put" | "patch" | "delete";
type Segments<Path extends string> = Path extends `${infer Head}/${infer Tail}` ? [Head, ...Segments<Tail>] : [Path];
type WithoutQuery<Path extends string> = Path extends `${infer Before}?${string}` ? Before : Path;

/** True if each segment of a path is that of the route, or in the place of one of its parameters. */
type IsOf<Path, Route> = [Path, Route] extends [[infer Here, ...infer Rest], [infer There, ...infer Others]]
  ? There extends `{${string}}`
    ? IsOf<Rest, Others>
    : Here extends There
      ? IsOf<Rest, Others>
      : false
  : [Path, Route] extends [[], []]
    ? true
    : false;

type Match<Path extends string, Route extends keyof paths = keyof paths> = Path extends Route
  ? Path
  : Route extends Route
    ? IsOf<Segments<Path>, Segments<Route>> extends true
      ? Route
      : never
    : never;

type Operation<M extends Method, Route extends keyof paths> = Route extends Route
  ? Extract<paths[Route][M], object>
  : never;

type Content<Answer> = Answer extends { content: { "application/json": infer Body } }
  ? Body
  : Answer extends { content: { "image/png": unknown } | { "image/jpeg": unknown } | { "image/webp": unknown } }
    ? Blob
    : null;

declare global {
  /** Schemas of the API, by name. */
  type Api = components["schemas"];
  /** Schemas of the relay, by name. */
  type Relay = relay["schemas"];

  /** The route that a path is of; none: never. */
  type RouteOf<M extends Method, Path extends string> = Operation<M, Match<WithoutQuery<Path>>>;

  /** The body of an answer that is no fault. */
  type Answer<M extends Method, Path extends string> = RouteOf<M, Path> extends { responses: infer Answers }
    ? { [Status in keyof Answers & (200 | 201 | 204)]: Content<Answers[Status]> }[keyof Answers & (200 | 201 | 204)]
    : never;

  /** Arguments after the path: the body, if the route has one, and headers. A path of no route takes none that there are. */
  type Given<M extends Method, Path extends string> = [RouteOf<M, Path>] extends [never]
    ? ["no route has this path", never]
    : RouteOf<M, Path> extends { requestBody: { content: { "application/json": infer Body } } }
      ? [body: Body, headers?: Record<string, string>]
      : RouteOf<M, Path> extends { requestBody?: { content: { "application/json": infer Body } } }
        ? [body?: Body, headers?: Record<string, string>]
        : [body?: undefined, headers?: Record<string, string>];
}
