//! Limits as numbers, named as in the specification where that has them. What only one file needs is in that file.

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
/// Span of the sliding window of [`INBOUND_MESSAGES`].
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
/// Deadline for the head of the one request of a spare connection, from its accept.
pub const SPARE_HEAD_DEADLINE: Duration = Duration::from_secs(1);
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

/// Largest data of a store, bytes of JSON.
pub const STORE_BYTES: usize = 1024 * 1024;
/// Versions of a store that are kept, the newest.
pub const STORE_VERSIONS: i64 = 20;

/// Largest body of a wiki page, bytes.
pub const WIKI_BODY: usize = 256 * 1024;
/// Largest frontmatter of a wiki page, bytes.
pub const WIKI_FRONTMATTER: usize = 16 * 1024;
/// Versions of a wiki page that are kept, the newest.
pub const WIKI_VERSIONS: i64 = 20;
/// Most wiki pages.
pub const WIKI_PAGES: i64 = 1_000;

/// Largest JSON body with a store or a wiki page: JSON escapes some characters.
pub const CONTENT_BODY: usize = STORE_BYTES + 64 * 1024;

/// Most items that admins have edited or added.
pub const EDITED_ITEMS: i64 = 5_000;
/// Most rows of the conveyor map.
pub const CONVEYOR_ROWS: i64 = 5_000;

/// Largest image file that is taken, bytes.
pub const IMAGE_BYTES: usize = 5_000_000;
/// Longest edge of an icon, pixels.
pub const ICON_EDGE: u32 = 1_024;
/// Longest edge of an image of the wiki, pixels.
pub const WIKI_IMAGE_EDGE: u32 = 4_096;
/// Most pixels of an icon or an image of the wiki.
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

/// Hours for which a request is known by its `Idempotency-Key`.
pub const IDEMPOTENCY_HOURS: i64 = 24;
/// Longest `Idempotency-Key`, characters of visible ASCII.
pub const IDEMPOTENCY_KEY_LENGTH: usize = 255;
/// Keys that one caller has at once.
pub const IDEMPOTENCY_KEYS_PER_CALLER: i64 = 2_000;
/// Least characters of a key under which the answer to an activation is given again: with the code, which may be seen
/// on a stream, the key is all that protects the token.
pub const ACTIVATION_KEY_LENGTH: usize = 16;
/// Minutes for which the answer to an activation is given again.
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

/// Steps of a user in registrations for the game's pushes, at once: logins that are begun, and addresses that are brought.
/// Each may make the service call Google, Expo and the game.
pub const REGISTRATIONS_PER_USER: u32 = 20;
/// In which [`REGISTRATIONS_PER_USER`] come back.
pub const REGISTRATION_SPAN: Duration = Duration::from_secs(3_600);

/// Addresses of game servers that one user pairs and had not paired, in any minute: each makes the service connect
/// there.
pub const NEW_GAME_SERVERS_PER_USER: u32 = 10;

/// Attempts to reach a game server that did not answer, in any minute, because its user asks for them.
pub const ASKED_ATTEMPTS: usize = 5;

/// Questions to the identity provider whether it signed a user in, of all users together, at once.
pub const CONFIRMATIONS: u32 = 300;
/// Confirmations that come back per second, of [`CONFIRMATIONS`].
pub const CONFIRMATIONS_PER_SECOND: u32 = 10;

/// For how many minutes a sign-in that has begun may last.
pub const LOGIN_MINUTES: i64 = 10;

/// Servers that one user may have paired at once.
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

/// Helpers and overlays that one user may have paired at once.
pub const HELPER_DEVICES_PER_USER: usize = 50;

/// Channels of one user, by which alarms reach them.
pub const CHANNELS_PER_USER: usize = 20;
/// Tests of channels by one user, at once. Each makes the service call what the user names.
pub const CHANNEL_TESTS_PER_USER: u32 = 10;
/// In which [`CHANNEL_TESTS_PER_USER`] come back.
pub const CHANNEL_TEST_SPAN: Duration = Duration::from_secs(3_600);
/// Drills of one user at once: each calls every channel of everybody who watches the server.
pub const DRILLS_PER_USER: u32 = 5;
/// In which [`DRILLS_PER_USER`] come back: twenty an hour.
pub const DRILL_SPAN: Duration = Duration::from_secs(900);

/// Events, raids aside, of which one user is sent messages within an hour; further ones are in the timeline only.
pub const EVENT_NOTICES_PER_HOUR: i64 = 60;

/// API tokens that one user may have at once, expired ones included.
pub const API_TOKENS_PER_USER: usize = 50;

/// Largest push credential bundle, bytes.
pub const BUNDLE_BYTES: usize = 64 * 1024;

/// Push messages of one user that are remembered as received.
pub const PUSH_SEEN_PER_USER: usize = 1_000;
/// Days for which a push message is remembered as received.
pub const PUSH_SEEN_DAYS: i64 = 30;

/// A push that fails by itself this often becomes a dead letter, and the next one is taken.
pub const PUSH_ATTEMPTS: i32 = 3;

/// Dead letters of one user that are kept, the newest.
pub const DEAD_LETTERS_PER_USER: usize = 100;

/// Days for which history is kept: `HISTORY` of [`retention`](crate::domain::retention).
pub const HISTORY_DAYS: i64 = 90;

/// Days for which the map of a game server without any pairing is kept.
pub const UNPAIRED_MAP_DAYS: i64 = 1;

/// Tracked players of one paired server.
pub const TRACKED_PLAYERS_PER_SERVER: usize = 100;

/// Questions of one user for the aliases of a player: burst, and how many come back per minute.
pub const ALIASES_PER_USER: u32 = 10;
