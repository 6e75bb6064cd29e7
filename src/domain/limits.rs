//! Every limit as a number, named as in the specification where that has it.

use std::time::Duration;

/// Data frames from the relay to one connection in any [`OUTBOUND_SPAN`].
pub const OUTBOUND_FRAMES: usize = 60;
/// Ten seconds and a tenth of a second: frames sent evenly may arrive in bursts, and the client counts arrivals.
pub const OUTBOUND_SPAN: Duration = Duration::from_millis(10_100);
/// Lines of chat from the relay to one connection in any [`OUTBOUND_SPAN`], and the most that wait for their turn.
pub const CHAT_LINES: usize = 20;
/// One snapshot per server and connection in this time.
pub const SNAPSHOT_SPAN_MS: u64 = 5_000;
/// Messages that may not be dropped and wait for one connection.
pub const WAITING_MESSAGES: usize = 1_000;
/// At most this many raids go before anything else, both of those sent in ten seconds and of those that wait.
pub const HANDFUL_OF_RAIDS: usize = 8;
/// Messages from one client in any [`INBOUND_SPAN`].
pub const INBOUND_MESSAGES: usize = 30;
pub const INBOUND_SPAN: Duration = Duration::from_secs(10);
/// Frames from one client that begin no message (pings, pongs, further fragments), between two pings of the relay.
pub const INBOUND_PARTS: u16 = 2_000;
/// Bytes of one message from a client.
pub const INBOUND_BYTES: usize = 64 * 1024;
/// Bytes of one message from a client as it is compressed: much input that says nothing would cost much to read.
pub const INBOUND_DEFLATED_BYTES: usize = 4 * 1024;
/// Servers that one connection watches.
pub const SUBSCRIPTIONS: usize = 100;
/// Connections from one client address (an IPv6 /64 is one), as far as the limit of open files allows.
pub const CONNECTIONS_PER_ADDRESS: usize = 1_024;

/// Deadline for the head of a request, from its first byte.
pub const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Deadline for the body of a request, from the end of its head.
pub const BODY_DEADLINE: Duration = Duration::from_secs(10);
/// Time that a connection to the API stays open without a request. Longer than proxies keep theirs (60 s in nginx and
/// at AWS), or now and then a request would meet a connection that is just being closed.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(75);
/// Time that an answer waits for a client that takes nothing of it.
pub const ANSWER_STALL: Duration = Duration::from_secs(10);

/// Open relay connections of one user.
pub const CONNECTIONS_PER_USER: usize = 20;

/// Largest difference between the clock of the identity provider and ours.
pub const PROVIDER_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// Largest number of a version, of rows to leave out or of an amount that can be asked for: any client's integers hold
/// it.
pub const LARGEST_NUMBER: i64 = 2_147_483_647;
/// Largest JSON body, bytes.
pub const JSON_BODY: usize = 64 * 1024;

/// Largest data of a store, bytes of JSON, and how many versions of it are kept.
pub const STORE_BYTES: usize = 1024 * 1024;
pub const STORE_VERSIONS: i64 = 20;

/// Largest body of a wiki page and largest frontmatter, bytes; how many versions of a page are kept, and how many
/// pages.
pub const WIKI_BODY: usize = 256 * 1024;
pub const WIKI_FRONTMATTER: usize = 16 * 1024;
pub const WIKI_VERSIONS: i64 = 20;
pub const WIKI_PAGES: i64 = 1_000;

/// Largest JSON body with a store or a wiki page: JSON escapes some characters.
pub const CONTENT_BODY: usize = STORE_BYTES + 64 * 1024;

/// Items that admins have edited or added, and rows of the conveyor map.
pub const EDITED_ITEMS: i64 = 5_000;
pub const CONVEYOR_ROWS: i64 = 5_000;

/// Largest image file that is taken, bytes.
pub const IMAGE_BYTES: usize = 5_000_000;
/// Longest edge of an icon and of an image of the wiki, pixels; most pixels of either.
pub const ICON_EDGE: u32 = 1_024;
pub const WIKI_IMAGE_EDGE: u32 = 4_096;
pub const IMAGE_PIXELS: u64 = 8_000_000;
/// Largest image as it is kept, bytes: what was compressed with losses grows.
pub const KEPT_IMAGE_BYTES: usize = 16 * 1024 * 1024;
/// Deadline for an upload, from the end of its head.
pub const UPLOAD_DEADLINE: Duration = Duration::from_secs(30);
/// For how many hours an uploaded image may wait to be used.
pub const UNUSED_IMAGE_HOURS: i64 = 24;

/// Largest event of the payment provider, bytes.
pub const WEBHOOK_BODY: usize = 1024 * 1024;

/// For how many days a payment event is known to have been taken: the provider sends one again for 30.
pub const PAYMENT_EVENT_DAYS: i64 = 90;

/// For how many hours a request is known by its `Idempotency-Key`; how long a key is, in visible ASCII; and how many
/// one caller has at once.
pub const IDEMPOTENCY_HOURS: i64 = 24;
pub const IDEMPOTENCY_KEY_LENGTH: usize = 255;
pub const IDEMPOTENCY_KEYS_PER_CALLER: i64 = 2_000;
/// Least characters of a key under which the answer to an activation is given again, and for how many minutes it is:
/// with the code, which may be seen on a stream, the key is all that protects the token.
pub const ACTIVATION_KEY_LENGTH: usize = 16;
pub const ACTIVATION_REPLAY_MINUTES: i64 = 10;
/// Largest answer that is kept for a key, bytes.
pub const IDEMPOTENT_ANSWER: usize = 64 * 1024;

/// Requests to the sign-in routes per client address: burst, and how many come back per minute.
pub const SIGN_IN_PER_ADDRESS: u32 = 30;

/// Requests of one client address, all routes and users together: burst, and how many come back per minute. Generous:
/// a hundred dashboards behind one address are fine.
pub const REQUESTS_PER_ADDRESS: u32 = 6_000;

/// Requests of one signed-in user: burst, and how many come back per minute.
pub const REQUESTS_PER_USER: u32 = 300;

/// Requests with one API token: burst, and how many come back per minute.
pub const REQUESTS_PER_TOKEN: u32 = 120;

/// Camera frames of one user: burst, and how many come back per minute. Four cameras every two seconds.
pub const CAMERA_FRAMES_PER_USER: u32 = 120;

/// Toggles of smart switches by one user: burst, and how many come back per minute.
pub const TOGGLES_PER_USER: u32 = 60;

/// Exports of all data stored about one user: burst, and how many come back per minute.
pub const EXPORTS_PER_USER: u32 = 3;

/// Addresses of game servers that one user pairs and had not paired, in any minute: each makes the service connect
/// there.
pub const NEW_GAME_SERVERS_PER_USER: u32 = 10;

/// Attempts to reach a game server that did not answer, in any minute, because its user asks for them.
pub const ASKED_ATTEMPTS: usize = 5;

/// Questions to the identity provider whether it signed a user in, of all users together: at once, and how many come
/// back per second.
pub const CONFIRMATIONS: u32 = 300;
pub const CONFIRMATIONS_PER_SECOND: u32 = 10;

/// For how many minutes a sign-in that has begun may last.
pub const LOGIN_MINUTES: i64 = 10;

/// Paired servers of one user.
pub const PAIRED_SERVERS_PER_USER: usize = 50;

/// Guests and open invitations of one paired server.
pub const GUESTS_PER_SERVER: usize = 20;

/// For how many days an invitation by link can be accepted.
pub const INVITE_DAYS: i64 = 7;

/// Open invitations by account that one user is shown, the newest.
pub const INVITES_SHOWN: i64 = 200;

/// Users whose invitations one user blocks.
pub const BLOCKED_INVITERS_PER_USER: usize = 500;

/// Servers of which one user can be a guest.
pub const SHARED_SERVERS_PER_USER: usize = 50;

/// Smart devices of one paired server.
pub const DEVICES_PER_SERVER: usize = 200;

/// Watched shops of one paired server; the highest tier has as many for all servers together.
pub const SHOP_WATCHES_PER_SERVER: usize = 200;

/// Lines of team chat of one paired server that are kept, the newest.
pub const CHAT_LINES_PER_SERVER: usize = 1_000;

/// Lines that one user says in team chats: burst, and how many come back per minute.
pub const CHAT_LINES_PER_USER: u32 = 20;

/// Stored map notes of one paired server.
pub const MAP_NOTES_PER_SERVER: usize = 500;

/// Pairing codes of one user that are valid at once; one more invalidates the oldest.
pub const ACTIVE_PAIRING_CODES: usize = 3;

/// Helper devices of one user.
pub const HELPER_DEVICES_PER_USER: usize = 50;

/// API tokens of one user.
pub const API_TOKENS_PER_USER: usize = 50;

/// Largest push credential bundle, bytes.
pub const BUNDLE_BYTES: usize = 64 * 1024;

/// Push messages of one user that are remembered as received, and for how many days.
pub const PUSH_SEEN_PER_USER: usize = 1_000;
pub const PUSH_SEEN_DAYS: i64 = 30;

/// A push that fails by itself this often becomes a dead letter, and the next one is taken.
pub const PUSH_ATTEMPTS: i32 = 3;

/// Dead letters of one user that are kept, the newest.
pub const DEAD_LETTERS_PER_USER: usize = 100;

/// For how many days the timeline, the ledger of alarms and dead letters can be looked up.
pub const HISTORY_DAYS: i64 = 90;

/// Days for which the map of a game server without any pairing is kept.
pub const UNPAIRED_MAP_DAYS: i64 = 1;

/// Tracked players of one paired server.
pub const TRACKED_PLAYERS_PER_SERVER: usize = 100;

/// Questions of one user for the aliases of a player: burst, and how many come back per minute.
pub const ALIASES_PER_USER: u32 = 10;
