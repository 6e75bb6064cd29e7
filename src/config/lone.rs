//! Settings that are of no use without another one: a value that an operator gave would be ignored in silence.

use clap::{ArgMatches, Command};

/// Each setting, and the one without which it is of no use. Those that are refused then are not here.
const NEEDS: &[(&str, &str)] = &[
    ("ALLOW_PLAIN_DATABASE", "DATABASE_URL"),
    ("ADMIN_ORIGIN", "ADMIN_PLATFORM_IDS"),
    ("FRESH_SIGN_IN_MINUTES", "ADMIN_PLATFORM_IDS"),
    ("PLATFORM_API_URL", "PLATFORM_API_KEY"),
    ("PLATFORM_AVATAR_URL", "PLATFORM_API_KEY"),
    ("REGISTRATION_GOOGLE_URL", "REGISTRATION_API_KEY"),
    ("REGISTRATION_INSTALLATIONS_URL", "REGISTRATION_API_KEY"),
    ("REGISTRATION_EXPO_URL", "REGISTRATION_API_KEY"),
    ("REGISTRATION_GAME_URL", "REGISTRATION_API_KEY"),
    ("REGISTRATION_PROJECT", "REGISTRATION_API_KEY"),
    ("REGISTRATION_SENDER_ID", "REGISTRATION_API_KEY"),
    ("REGISTRATION_APP_ID", "REGISTRATION_API_KEY"),
    ("REGISTRATION_PACKAGE", "REGISTRATION_API_KEY"),
    ("REGISTRATION_CERTIFICATE", "REGISTRATION_API_KEY"),
    ("REGISTRATION_EXPO_PROJECT", "REGISTRATION_API_KEY"),
    ("PLAYER_STATS_DAILY_REQUESTS", "PLAYER_STATS_URL"),
    ("PLAYER_STATS_POLL_SECONDS", "PLAYER_STATS_URL"),
    ("PAYMENT_API_URL", "PAYMENT_SECRET_KEY"),
    ("PAYMENT_API_VERSION", "PAYMENT_SECRET_KEY"),
    ("PAYMENT_AUTOMATIC_TAX", "PAYMENT_SECRET_KEY"),
    ("PAYMENT_PROMOTION_CODES", "PAYMENT_SECRET_KEY"),
    ("PAYMENT_TRIAL_DAYS", "PAYMENT_SECRET_KEY"),
    ("CHAT_API_URL", "CHAT_BOT_TOKEN"),
    ("IMAGES_S3_REGION", "IMAGES_S3_BUCKET"),
];

/// A warning for each setting of the command that was called which has another value than its default, and is of no use
/// without one that has none. The command is the one that was parsed.
pub fn lone_settings(command: &Command, matches: &ArgMatches) -> Vec<String> {
    if let Some((name, matches)) = matches.subcommand() {
        let subcommand = command.find_subcommand(name);
        return subcommand.map_or_else(Vec::new, |command| lone_settings(command, matches));
    }
    let lone =
        |(setting, needed): &&(&str, &str)| is_changed(command, matches, setting) && value(matches, needed).is_none();
    let warning =
        |(setting, needed): &(&str, &str)| format!("{setting} is set without {needed}, and is of no use alone");
    NEEDS.iter().filter(lone).map(warning).collect()
}

/// The value of a variable, wherever it comes from; `None` if it is blank.
fn value(matches: &ArgMatches, variable: &str) -> Option<String> {
    let given = matches.try_get_raw(&id(variable)).ok().flatten()?.next()?.to_string_lossy().trim().to_owned();
    (!given.is_empty()).then_some(given)
}

fn is_changed(command: &Command, matches: &ArgMatches, variable: &str) -> bool {
    let id = id(variable);
    let argument = command.get_arguments().find(|argument| argument.get_id() == id.as_str());
    let default = argument.and_then(|argument| argument.get_default_values().first()?.to_str());
    value(matches, variable).is_some_and(|value| Some(value.as_str()) != default)
}

/// The argument of a variable.
fn id(variable: &str) -> String {
    variable.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Args as _;

    use super::*;
    use crate::config::Settings;

    fn command() -> Command {
        Command::new("companion").subcommand(Settings::augment_args(Command::new("serve")))
    }

    fn warnings(flags: &[&str]) -> Vec<String> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(["companion", "serve"].iter().chain(flags)).unwrap();
        lone_settings(&command, &matches)
    }

    #[test]
    fn what_was_set_and_does_nothing_is_named_with_what_it_needs() {
        assert_eq!(warnings(&[]), [""; 0]);
        let alone = ["--payment-trial-days=7", "--images-s3-region=eu", "--fresh-sign-in-minutes=15"];
        assert_eq!(
            warnings(&alone),
            [
                "FRESH_SIGN_IN_MINUTES is set without ADMIN_PLATFORM_IDS, and is of no use alone",
                "PAYMENT_TRIAL_DAYS is set without PAYMENT_SECRET_KEY, and is of no use alone",
                "IMAGES_S3_REGION is set without IMAGES_S3_BUCKET, and is of no use alone",
            ]
        );
        let needed = ["--payment-secret-key=sk_test_1", "--images-s3-bucket=icons", "--admin-platform-ids=1"];
        assert_eq!(warnings(&[&alone[..], &needed].concat()), [""; 0]);
    }

    #[test]
    fn a_value_that_is_the_default_or_blank_is_none_and_so_is_a_blank_neighbour() {
        let as_they_are = ["--payment-trial-days=0", "--registration-project=rust-companion-app", "--admin-origin= "];
        assert_eq!(warnings(&as_they_are), [""; 0]);
        assert_eq!(warnings(&["--chat-api-url=http://127.0.0.1:9", "--chat-bot-token= "]).len(), 1);
    }

    #[test]
    fn every_setting_of_the_table_is_one() {
        let command = Settings::augment_args(Command::new("serve"));
        let known: BTreeSet<(String, String)> = command
            .get_arguments()
            .filter_map(|argument| Some((argument.get_env()?.to_str()?.to_owned(), argument.get_id().to_string())))
            .collect();
        for variable in NEEDS.iter().flat_map(|(setting, needed)| [setting, needed]) {
            assert!(known.contains(&((*variable).to_owned(), id(variable))), "{variable}");
        }
        for (_, needed) in NEEDS {
            let argument = command.get_arguments().find(|argument| argument.get_id() == id(needed).as_str()).unwrap();
            assert!(argument.get_default_values().is_empty(), "{needed} always has a value");
        }
    }
}
