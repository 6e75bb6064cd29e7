//! Every way in which a request can fail, as its client sees it: one table for the answers of both listeners, the
//! OpenAPI document and the pages at `/problems`.

use std::fmt;

/// A code of problem documents (RFC 9457), and what its page says.
#[derive(PartialEq, Eq)]
pub struct ProblemCode {
    /// Stable, snake_case: what programs compare.
    pub code: &'static str,
    /// The statuses with which it comes, the usual one first.
    pub statuses: &'static [u16],
    pub title: &'static str,
    /// Description of the failure.
    pub meaning: &'static str,
    /// Advice for the client.
    pub remedy: &'static str,
}

impl ProblemCode {
    /// The status with which it usually comes.
    pub const fn status(&self) -> u16 {
        self.statuses[0]
    }

    /// Its page, below the public URL of the API.
    pub fn path(&self) -> String {
        format!("/problems/{}", self.code)
    }
}

impl fmt::Debug for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

/// The code of this name.
pub fn find(code: &str) -> Option<&'static ProblemCode> {
    ALL.iter().copied().find(|known| known.code == code)
}

/// One line for the name, code, statuses and title; one for the meaning, one for the remedy.
macro_rules! problem_codes {
    ($($name:ident $code:literal $statuses:tt $title:literal $meaning:literal $remedy:literal)*) => {
        $(pub static $name: ProblemCode = ProblemCode {
            code: $code,
            statuses: &$statuses,
            title: $title,
            meaning: $meaning,
            remedy: $remedy,
        };)*

        /// All codes, by the kind of their cause.
        pub static ALL: &[&ProblemCode] = &[$(&$name),*];
    };
}

problem_codes! {
    MALFORMED_JSON "malformed_json" [400] "Malformed JSON"
        "The body is not well-formed JSON (RFC 8259)."
        "Correct the body. The same request fails again."
    INVALID_REQUEST "invalid_request" [400] "Invalid request"
        "A value in the body or in the query is missing, has the wrong type or is not allowed. `errors` names each by its path."
        "Correct the values that `errors` names. The same request fails again."
    BAD_REQUEST "bad_request" [400] "Bad request"
        "The request could not be read as HTTP, or a part of it is not in the form that it needs."
        "Correct the request. The same one fails again."
    SIGN_IN_REJECTED "sign_in_rejected" [400] "Sign-in rejected"
        "What the identity provider sent back could not be verified: it is too old, was used before, was altered, or belongs to a sign-in that another browser began."
        "Begin again at `/auth/platform`."
    MISMATCHED_PLATFORM_ID "mismatched_platform_id" [400] "Mismatched platform id"
        "The push credential belongs to another account than the user whose helper device uploads it."
        "Log in to the game's companion login with the account of that user, and upload again."
    INVALID_LOGIN_ADDRESS "invalid_login_address" [400] "Not the end of a login"
        "The pasted text is not the address at which the login at the game's site ended: it has no token, is cut off, or belongs to another login."
        "Open `loginUrl`, sign in, and paste the whole address at which the browser ends. That it shows no page there is right."
    LOGIN_EXPIRED "login_expired" [400] "The login has ended"
        "The token in the pasted address is valid for 14 days, and they are over."
        "Open `loginUrl` and sign in once more."
    INVALID_IMAGE "invalid_image" [400] "Invalid image"
        "The file is no PNG or WebP, is broken, or has too many pixels. `detail` says which."
        "Choose or make another image."
    INVALID_SIGNATURE "invalid_signature" [400] "Invalid signature"
        "A payment event was not signed with the webhook's secret, or its signature is too old."
        "For operators: compare `PAYMENT_WEBHOOK_SECRET` with the secret that the payment provider shows, and the clocks."
    UNAUTHENTICATED "unauthenticated" [401] "Not authenticated"
        "The request carries no valid session, or no valid device token. `WWW-Authenticate` says which of them is wanted."
        "In a browser: sign in at `/auth/platform`. As a helper device: pair again, with a new pairing code."
    INVALID_PAIRING_CODE "invalid_pairing_code" [401] "Invalid pairing code"
        "The code was never given out, was used, has expired (after 10 minutes), or was replaced by three newer ones."
        "Ask for a new code with `POST /pairing/device/code` and type it again."
    INVALID_INTERACTION_SIGNATURE "invalid_interaction_signature" [401] "Invalid signature"
        "An interaction was not signed by the chat platform, or its signature is too old."
        "For operators: compare `CHAT_PUBLIC_KEY` with the application's public key at the chat platform."
    INVALID_RELAY_TOKEN "invalid_relay_token" [401] "Invalid relay token"
        "The relay's token is missing, has expired or is not valid."
        "Ask for a new one with `POST /relay/token` and connect again."
    FRESH_SIGN_IN_REQUIRED "fresh_sign_in_required" [401] "Sign in again"
        "This cannot be undone, and the last sign-in of this session was too long ago. The session goes on for everything else."
        "Sign in again at `/auth/platform`, and send the request again."
    CROSS_SITE_REQUEST "cross_site_request" [403] "Cross-site request"
        "A request that changes something came with a cookie, but not from a page of this service."
        "Send it from the dashboard's or the admin pages' own origin. Other programs use a bearer token, or send no `Origin`, `Referer` or `Sec-Fetch-Site`."
    FOREIGN_ORIGIN "foreign_origin" [403] "Foreign origin"
        "A page of another origin than this service's own tried to open a socket at the relay."
        "Open it from the dashboard or the admin pages, from a program that sends no `Origin`, or with a relay token that a device token minted."
    NOT_ADMIN "not_admin" [403] "Not an admin"
        "The signed-in account is not on the list of admins."
        "Sign in with the account of an admin. Operators add one to `ADMIN_PLATFORM_IDS`."
    OWNER_ONLY "owner_only" [403] "Owner only"
        "A guest tried what only the owner of the paired server may do."
        "Ask the owner."
    INSUFFICIENT_SCOPE "insufficient_scope" [403] "Insufficient scope"
        "The token is valid, and was not made for this: that of an overlay, for example, mints relay tokens and reads the map of its server."
        "Use a token of the right kind and scope, or a session."
    NOT_FOUND "not_found" [404] "Not found"
        "There is nothing at this path, or nothing that this user may see."
        "Check the path and its ids. What was deleted, and what belongs to others, is not found either."
    UNKNOWN_INVITE "unknown_invite" [404] "Unknown invitation"
        "There is no such invitation, or the owner took it back."
        "Ask the owner of the server for a new link."
    UNKNOWN_CHARGE "unknown_charge" [404] "Unknown charge"
        "The payment provider knows no such charge or payment intent."
        "Choose one from `GET /admin/users/{id}/charges`."
    UNKNOWN_CAMERA "unknown_camera" [404] "Unknown camera"
        "The game server knows no camera by this identifier, or it is out of range."
        "Check the identifier at a computer station in the game."
    UNKNOWN_CHAT_CODE "unknown_chat_code" [404] "Unknown code"
        "The code that links a chat account is unknown, was used, or has expired."
        "Ask the bot for a new one with /link."
    MAP_UNKNOWN "map_unknown" [404] "Map unknown"
        "The map of the server's world has not come yet."
        "Try again once the server is connected; it comes with the first link."
    METHOD_NOT_ALLOWED "method_not_allowed" [405] "Method not allowed"
        "The path exists, but does not support this method."
        "Use one of the methods in `Allow`."
    REQUEST_TIMEOUT "request_timeout" [408] "Request timeout"
        "The body of the request did not arrive in time."
        "Send it again, over a faster connection or in a smaller size."
    CONFLICT "conflict" [409, 412] "Conflict"
        "It exists already, or another request changed it at the same time. With 412: its version is not the one in `If-Match`."
        "Read it again, and decide then."
    LIMIT_REACHED "limit_reached" [409] "Limit reached"
        "The user or the server has as many of this as there may be. `detail` names the limit."
        "Delete one that is not needed, or choose a tier that allows more."
    ALREADY_SUBSCRIBED "already_subscribed" [409] "Already subscribed"
        "The user has a subscription already."
        "Change or cancel it in the portal: `POST /billing/portal`."
    SUBSCRIPTION_RUNS "subscription_runs" [409] "Subscription runs"
        "A subscription of the user is still to be paid for."
        "Cancel it in the portal (`POST /billing/portal`), and ask again."
    CHECKOUT_CLOSED "checkout_closed" [409] "Checkout closed"
        "The page that was opened with this `Idempotency-Key` can no longer be paid."
        "Open another one: send the request with a new key."
    IDEMPOTENCY_KEY_IN_USE "idempotency_key_in_use" [409] "Idempotency key in use"
        "The first request with this `Idempotency-Key` is still under way."
        "Wait as long as `Retry-After` says, and send the same request again."
    IDEMPOTENCY_KEY_REUSED "idempotency_key_reused" [422] "Idempotency key reused"
        "Another request came with this `Idempotency-Key` before."
        "Send every request that is a new one with a new key."
    NO_CUSTOMER "no_customer" [409] "No customer"
        "The user never was at the checkout, so that there is nothing to manage."
        "Subscribe first: `POST /billing/checkout`."
    ALREADY_REFUNDED "already_refunded" [409] "Already refunded"
        "All of this charge was paid back before."
        "Nothing: the money is back already."
    CHARGE_DISPUTED "charge_disputed" [409] "Charge disputed"
        "The payer disputes this charge at their bank, so that the payment provider pays nothing back."
        "Wait for the end of the dispute, or accept it at the payment provider: that pays the charge back."
    REFUND_OPEN "refund_open" [409] "Another refund is open"
        "Another refund of this charge is under way, or its outcome is not known yet."
        "Look at the entry of the audit log that `detail` names, and ask again once it is over."
    REGISTRATION_RUNNING "registration_running" [409] "Registration is under way"
        "A step of the user's registration for the game's pushes is being made."
        "Wait, and look at `GET /credentials/push/registrations/{id}`."
    NOT_A_SWITCH "not_a_switch" [409] "Not a switch"
        "Only smart switches can be toggled."
        "Choose a device whose `kind` is `switch`."
    DEVICE_REMOVED "device_removed" [409] "Device removed"
        "The device is gone from the game, or the paired player is no longer authorised at its tool cupboard."
        "Look in the game; pair the device again once it is placed."
    NOT_A_CAMERA "not_a_camera" [409] "Not a camera"
        "This device has no camera frames."
        "Choose a device whose `kind` is `camera`."
    PLAYER_ONLINE "player_online" [409] "Player is online"
        "The paired player is in the game, which then shows no cameras to companions."
        "Try again once the player has left the game."
    NO_PLAYER "no_player" [409] "Player has no body"
        "The paired player is dead in the game."
        "Wake up in the game first, then leave it."
    CAMERA_ACCESS_DENIED "camera_access_denied" [409] "Camera access denied"
        "The game server does not show this camera."
        "Choose another camera."
    CAMERAS_DISABLED "cameras_disabled" [409] "Cameras are disabled"
        "This game server shows no cameras."
        "Nothing: the server's operator decides."
    NO_TEAM "no_team" [409] "No team"
        "The paired player is in no team, so that there is no team chat."
        "Join or make a team in the game."
    MESSAGE_NOT_SENT "message_not_sent" [409] "Message not sent"
        "The game server did not take the line: the player is muted, or it was filtered."
        "Change the words, or wait until the mute ends."
    CHAT_ACCOUNT_TAKEN "chat_account_taken" [409] "Chat account taken"
        "The chat account is linked with another user."
        "End that link first: `DELETE /chat/link`, signed in as that user."
    REGISTRATION_CLOSED "registration_closed" [410] "Registration is closed"
        "The login did not come back within an hour of the registration's begin."
        "Begin another one: `POST /credentials/push/registrations`."
    INVITE_USED "invite_used" [410] "Invitation used"
        "Another user has accepted the invitation."
        "Ask the owner of the server for a new link."
    INVITE_EXPIRED "invite_expired" [410] "Invitation expired"
        "The invitation was not accepted in time."
        "Ask the owner of the server for a new link."
    BODY_TOO_LARGE "body_too_large" [413] "Body too large"
        "The body, or the uploaded file, is larger than this route takes."
        "Send less."
    UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" [415] "Unsupported media type"
        "The body does not have the content type that this route takes, or its `Content-Encoding` is none that is read."
        "Send JSON with `Content-Type: application/json`; a file as `multipart/form-data`. Of encodings, gzip is read."
    UPGRADE_REQUIRED "upgrade_required" [426] "Upgrade required"
        "The relay speaks WebSocket at this path, and the request was plain HTTP."
        "Connect with a WebSocket client."
    RATE_LIMITED "rate_limited" [429] "Too many requests"
        "This address or this user has spent what it may ask in a minute."
        "Wait as many seconds as `Retry-After` says; `RateLimit-Policy` describes the limit."
    CONFIRMATION_NEEDED "confirmation_needed" [429] "Confirmation needed"
        "Many wrong pairing codes are tried at the moment, and the code was given out to another network than this device's. Its user has to say that the device is theirs."
        "Confirm it in the session that asked for the code (`GET /pairing/device` lists it under `requests`, `POST /pairing/device/requests/{id}` confirms), then send the same code again."
    TOO_MANY_CONNECTIONS "too_many_connections" [429] "Too many connections"
        "This address has too many requests or sockets open, or this user too many sockets."
        "Close what is not needed, and try again as `Retry-After` says."
    INTERNAL_ERROR "internal_error" [500] "Internal error"
        "Something failed inside the service. Its log has the reason, under the `requestId`."
        "Try again later. Give the operator the `requestId` if it stays."
    UNREADABLE_ROW "unreadable_row" [500] "Stored data cannot be read"
        "A row of the database that this needs was changed or damaged, and cannot be read."
        "Nothing to do: the operator has to repair it. For operators: `companion doctor` names the row."
    CAMERA_UNREADABLE "camera_unreadable" [502] "Camera frame unreadable"
        "What the game server sent as a camera's frame is no picture."
        "Try again; or choose another camera."
    MAP_UNREADABLE "map_unreadable" [502] "Map unreadable"
        "What the game server sent as the picture of its map is none."
        "Draw without it; it is asked for again after the next wipe."
    PAYMENT_PROVIDER_REFUSED "payment_provider_refused" [502] "Payment provider refused"
        "The payment provider did not do what it was asked. Nothing was charged or paid back."
        "For operators: the log says why; it is a setting, here or there."
    CHAT_PLATFORM_REFUSED "chat_platform_refused" [502] "Chat platform refused"
        "The chat platform did not take the bot's token or its commands. `errors` names the values, if the platform did."
        "For operators: compare `CHAT_BOT_TOKEN` and `CHAT_APPLICATION_ID` with the chat platform."
    REGISTRATION_DISABLED "registration_disabled" [503] "Registration is off"
        "This service does not register for the game's pushes itself."
        "Upload the file of a registration tool with a paired helper device (`PUT /credentials/push`). For operators: set `REGISTRATION_API_KEY`."
    ADMIN_DISABLED "admin_disabled" [503] "Administration is off"
        "This service has no admins."
        "For operators: name one in `ADMIN_PLATFORM_IDS`."
    PAYMENTS_DISABLED "payments_disabled" [503] "Payments are off"
        "No payment provider is configured: nothing can be bought here."
        "For operators: set `PAYMENT_SECRET_KEY` and the prices."
    CHAT_DISABLED "chat_disabled" [503] "Support bot is off"
        "No support bot is configured."
        "For operators: set `CHAT_BOT_TOKEN`, `CHAT_APPLICATION_ID` and `CHAT_PUBLIC_KEY`."
    GAME_SERVER_UNAVAILABLE "game_server_unavailable" [503] "Game server unavailable"
        "There is no link to the game server right now, or it refused."
        "Try again once the server's connection is `connected`."
    IDENTITY_PROVIDER_UNAVAILABLE "identity_provider_unavailable" [503] "Identity provider unavailable"
        "The identity provider does not answer, so that no one can sign in."
        "Try again as `Retry-After` says. Sessions that exist go on."
    PLAYER_STATS_UNAVAILABLE "player_stats_unavailable" [503] "Player statistics unavailable"
        "The player-statistics service is not configured, does not answer or its budget is spent, and no earlier answer is kept."
        "Try again as `Retry-After` says."
    PAYMENT_PROVIDER_UNAVAILABLE "payment_provider_unavailable" [503] "Payment provider unavailable"
        "The payment provider does not answer. Nothing was charged; of a refund, `detail` says what is known."
        "Try again as `Retry-After` says. A refund that is asked for again within 23 hours is made at most once."
    CHAT_PLATFORM_BUSY "chat_platform_busy" [503] "Chat platform is busy"
        "The chat platform had too many requests of this service."
        "Try again as `Retry-After` says."
    CHAT_PLATFORM_UNAVAILABLE "chat_platform_unavailable" [503] "Chat platform unavailable"
        "The chat platform does not answer."
        "Try again as `Retry-After` says."
    UNAVAILABLE "unavailable" [503] "Service unavailable"
        "The database or another part of the service does not answer in time."
        "Try again as `Retry-After` says. A change may have been made all the same: read before repeating one."
    AWAITS_KEY "awaits_key" [503] "Stored secret waits for its key"
        "What is stored here was sealed with a key that the service does not have, so that it is not replaced either."
        "Nothing to do: the operator is repairing this. For operators: `companion keys status`."
    NOT_READY "not_ready" [503] "Not ready"
        "Parts of the service have not started yet, or do not answer. `errors` names them."
        "Send no traffic here yet, and ask again as `Retry-After` says."
    GAME_SERVER_TIMEOUT "game_server_timeout" [504] "Game server timeout"
        "The game server did not answer in time. What was asked may still happen."
        "Look at the state of the device before trying again."
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_there_once_and_says_what_to_do() {
        let codes: BTreeSet<&str> = ALL.iter().map(|known| known.code).collect();
        assert_eq!(codes.len(), ALL.len());
        for known in ALL {
            assert!(known.code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{known:?}");
            assert!(known.statuses.iter().all(|status| (400..600).contains(status)), "{known:?}");
            for text in [known.title, known.meaning, known.remedy] {
                assert!(text.starts_with(|c: char| c.is_ascii_uppercase() || c == '`'), "{known:?}: {text}");
            }
            assert!(known.meaning.ends_with('.') && known.remedy.ends_with('.'), "{known:?}");
            assert_eq!(find(known.code), Some(*known));
        }
        assert_eq!(find("nothing"), None);
    }
}
