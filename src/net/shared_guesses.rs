//! Wrong guesses on their way between the limits of this node and those of others. They are lost where too many wait: by then
//! all of them together have passed their ceiling.

use std::{
    mem,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

/// Guesses that wait on each way.
const WAITING: usize = 10_000;

/// A wrong guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongGuess {
    /// The kind of its secret, in a word.
    pub what: String,
    /// The client, as it shares budgets.
    pub from: IpAddr,
}

/// See the module.
#[derive(Debug, Default)]
pub struct SharedGuesses {
    made: Mutex<Vec<WrongGuess>>,
    heard: Mutex<Vec<WrongGuess>>,
}

impl SharedGuesses {
    /// A client of this node has guessed.
    pub fn made(&self, guess: WrongGuess) {
        add(&self.made, guess);
    }

    /// The guesses at this node since the last time.
    pub fn take_made(&self) -> Vec<WrongGuess> {
        take(&self.made)
    }

    /// A client of another node has guessed.
    pub fn heard(&self, guess: WrongGuess) {
        add(&self.heard, guess);
    }

    /// The guesses at other nodes since the last time.
    pub fn take_heard(&self) -> Vec<WrongGuess> {
        take(&self.heard)
    }
}

fn add(waiting: &Mutex<Vec<WrongGuess>>, guess: WrongGuess) {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.len() < WAITING {
        waiting.push(guess);
    }
}

fn take(waiting: &Mutex<Vec<WrongGuess>>) -> Vec<WrongGuess> {
    mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner))
}
