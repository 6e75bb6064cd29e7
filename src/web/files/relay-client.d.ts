// Types of relay-client.js, for those who copy it into a project of TypeScript. Messages and sections of the state are
// described in full by `/relay.schema.json` of a running service.

/** The state of a paired server: each section by its name. */
export interface RelayState {
  server: any;
  team: any;
  mapMarkers: Record<string, any>;
  devices: Record<string, any>;
  mapNotes: Record<string, any>;
  raids: Record<string, any>;
  timers: Record<string, any>;
  [section: string]: any;
}

export interface RelayStatus {
  state: "connecting" | "live" | "waiting" | "signed_out" | "stopped";
  reason?: string;
  /** When it tries again, milliseconds as of `Date.now()`. */
  retryAt?: number;
}

/** Called with what arrives; each may be absent. */
export interface Handlers {
  status?: (status: RelayStatus) => void;
  /** The whole state, and its keys that changed; the object is edited in place between snapshots. */
  state?: (serverId: string, state: RelayState, changed: Set<string>) => void;
  /** `missed`: it happened while away. */
  event?: (serverId: string, event: any, missed: boolean) => void;
  chat?: (serverId: string, line: any, missed: boolean) => void;
  /** The wake-up call of an incident; `state.raids` is the truth. */
  raid?: (serverId: string, raid: any) => void;
  /** This server is not watched, and asking again will not help. */
  lost?: (serverId: string, code: string, message: string) => void;
  /** Everything else. */
  message?: (message: any) => void;
}

export interface RelayOptions {
  /** URL of the service, without a slash at its end. */
  api: string;
  /** URL of the relay, without `/v1`: `urls.relay` of `/client-config`. */
  relay: string;
  handlers: Handlers;
  /** For the calls to the API, for example `Authorization`. */
  headers?: Record<string, string>;
  /** False: events and chat of the time away are not fetched. */
  history?: boolean;
  /** For tests: `fetch`, `WebSocket`, `setTimeout`, `clearTimeout`, `now`, `random`. */
  platform?: any;
}

/** One connection for any number of servers. */
export class RelayClient {
  constructor(options: RelayOptions);
  /** The socket is open. */
  readonly isOpen: boolean;
  /** Connects, and stays connected until `stop`. */
  start(): void;
  stop(): void;
  /** Watches a server: its state comes, and then what changes. Without `sections`: all of it. */
  watch(serverId: string, sections?: string[]): void;
  unwatch(serverId: string): void;
  /**
   * Switches a smart switch; without `value` it is flipped. Resolves when the game shows it; rejected with an `Error`
   * that has the `code` of the relay, or `no_answer` or `offline`.
   */
  toggle(serverId: string, deviceId: string, value?: boolean): Promise<any>;
  /** Takes note of an incident; rejected as `toggle` is. */
  acknowledge(serverId: string, incident: string): Promise<any>;
  /** Call it when the page becomes visible or the network is back: it tries at once. */
  wake(): void;
  /** The time of the service, milliseconds. */
  serviceTime(): number;
}
