//! docs/privacy.md says for how long things are kept; the numbers are the service's own.

use companion::{
    db::{guests, sessions},
    domain::{chat_link, limits, pairing},
};

#[test]
fn the_page_says_how_long_everything_is_kept() {
    assert_eq!(pairing::LIFETIME, chat_link::LIFETIME);
    let history = format!("{} days", limits::HISTORY_DAYS);
    let rows = [
        (
            "sessions",
            format!(
                "{} days after sign-in, {} days after the last use",
                sessions::LIFETIME.num_days(),
                sessions::IDLE_LIFETIME.num_days()
            ),
        ),
        ("pairing codes, codes that link chat accounts", format!("{} minutes", pairing::LIFETIME.num_minutes())),
        (
            "invitations by link",
            format!("{} days, and {} days as expired", limits::INVITE_DAYS, guests::EXPIRED_KEPT.num_days()),
        ),
        (
            "ids of received pushes",
            format!("{} days, the newest {} of a user", limits::PUSH_SEEN_DAYS, limits::PUSH_SEEN_PER_USER),
        ),
        (
            "pushes that could not be handled",
            format!("{history}, the newest {} of a user", limits::DEAD_LETTERS_PER_USER),
        ),
        ("alarms, incidents, timeline, sessions of tracked players", history.clone()),
        ("team chat", format!("{history}, the newest {} lines of a server", limits::CHAT_LINES_PER_SERVER)),
        ("shops that are gone, prices of shops", history.clone()),
        ("names at the player-statistics service", history),
        ("maps of game servers that are no longer paired", format!("{} day", limits::UNPAIRED_MAP_DAYS)),
        ("events of the payment provider", format!("{} days", limits::PAYMENT_EVENT_DAYS)),
        ("versions of stores and wiki pages", format!("the newest {}", limits::STORE_VERSIONS)),
        ("uploaded images that nothing uses", format!("{} hours", limits::UNUSED_IMAGE_HOURS)),
    ];
    assert_eq!(limits::STORE_VERSIONS, limits::WIKI_VERSIONS);
    let page = include_str!("../../docs/privacy.md");
    for (what, kept) in rows {
        let row = format!("| {what} | {kept} |");
        assert!(page.lines().any(|line| line == row), "{row}");
    }
}
