//! Words that switch devices from the team's chat.

use crate::{
    api::answer::error::ApiError,
    domain::team_command::{settings::CommandWord, vocabulary::folded},
};

/// Validates such a word.
#[expect(clippy::ptr_arg, reason = "garde gives what is validated")]
pub fn chat_word(text: &String, _: &()) -> garde::Result {
    match text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-')) {
        true => Ok(()),
        false => Err(garde::Error::new("must be letters, digits, `_` and `-`")),
    }
}

/// Checks that a command of a device or group is none of ours, and of no other device or group.
pub fn check_free(command: Option<&str>, mut taken: impl Iterator<Item = String>) -> Result<(), ApiError> {
    let Some(command) = command.map(folded) else { return Ok(()) };
    if CommandWord::typed(&command).is_some() {
        return Err(ApiError::invalid("customCommand", "is a command of every server"));
    }
    match taken.any(|other| folded(&other) == command) {
        true => Err(ApiError::invalid("customCommand", "is the command of another device or group")),
        false => Ok(()),
    }
}
