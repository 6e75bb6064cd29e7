// Types of what the dashboard knows; no code, and loaded by none.

/** @typedef {Api["WorldEvent"] & { missed?: boolean, isNew?: boolean }} Entry of the feed */
/** @typedef {Api["ChatLineSchema"] & { missed?: boolean }} Line of the chat */
/** @typedef {{ x: number, y: number, at: number }} Footprint */
/**
 * @typedef {{ map: ReturnType<typeof import("./map-frame.js").mapFrame>, raids: ReturnType<typeof import("./raids.js").raidBars>,
 *   siren: import("../attention.js").Siren, notices: HTMLElement, addToBar: (element: HTMLElement) => void }} Parts of the frame
 */
/**
 * @typedef {object} Server
 * @property {string} id
 * @property {Api["PairedServerView"]} info
 * @property {Relay["StateDocument"] | null} state
 * @property {Entry[]} feed newest first, as `chat`
 * @property {string | null} olderFeed the `next` of the last page; null: there are no older ones; empty: some were dropped
 *   again
 * @property {"" | "loading" | "loaded" | "failed"} past feed, chat and map from before
 * @property {number} feedRoom
 * @property {Line[]} chat
 * @property {Map<string, Footprint[]>} trails
 * @property {Api["MapView"] | null} map
 * @property {number} mapPause
 * @property {boolean} isMapAsked
 * @property {number} heardAt
 */

/**
 * @typedef {{ config: Api["ClientConfig"], me: Api["Me"], servers: Api["PairedServerView"][], relay: Api["RelayToken"],
 *   now: string }} FirstAnswers
 */

export {};
