//! Alarms that come while the database takes nothing: the process ends, dies or starts again before they are stored.

use std::time::Duration;

use chrono::TimeDelta;
use companion::simulator::world::{BASE_ALARM, WALL_ALARM};

use crate::{
    oracle,
    run::Run,
    script::HEALTHY_FROM,
    world::{Fate, GAMES, JournalFate, PAIRED, PHONES},
};

/// The wall's alarm goes off once more.
pub fn ring_again(game: usize) {
    oracle::change(game, |world| world.release_alarm(WALL_ALARM));
    oracle::change(game, |world| world.fire_alarm(WALL_ALARM));
}

impl Run {
    /// A push that is not stored yet, while its session is asked what has arrived.
    pub fn push_unstored(&self, user: usize, is_killed: bool) {
        let world = &self.world;
        world.judge.borrow_mut().bad_disk = true;
        world.fate.set(Fate::Full);
        self.push_alarm(
            user,
            PAIRED.iter().find(|paired| paired.1 == user).expect("each has one").2,
            TimeDelta::zero(),
        );
        self.push_notice(user, 2);
        let pushes = world.pushes.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            // The answer says what has arrived, and what has not been stored has not.
            pushes.ping(PHONES[user].0);
        });
        if is_killed {
            self.lossy();
            let world = world.clone();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                world.kill("killed");
            });
        }
    }

    /// The process dies with a line of the journal that was not written in full.
    pub fn tear_journal(&self, game: usize) {
        let world = &self.world;
        self.lossy();
        world.judge.borrow_mut().bad_disk = true;
        world.fate.set(Fate::Full);
        world.journal_fate.set(JournalFate::Tear);
        let world = world.clone();
        tokio::task::spawn_local(async move {
            for alarm in [WALL_ALARM, BASE_ALARM] {
                oracle::change(game, |world| world.release_alarm(alarm));
                oracle::change(game, |world| world.fire_alarm(alarm));
                tokio::time::sleep(Duration::from_secs(3)).await;
                if world.millis() >= HEALTHY_FROM {
                    return;
                }
            }
            world.kill("killed");
        });
    }

    /// The process dies, and the next start fails.
    pub fn fail_start(&self, game: usize) {
        let world = &self.world;
        self.lossy();
        world.judge.borrow_mut().bad_disk = true;
        world.fate.set(Fate::Full);
        world.start_fails.set(true);
        ring_again(game);
        let world = world.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            world.kill("killed");
        });
    }

    /// The process dies, and the next one has a disk that takes some writes only.
    pub fn start_on_flaky_disk(&self, game: usize) {
        let world = &self.world;
        self.lossy();
        world.judge.borrow_mut().bad_disk = true;
        world.next_fate.set(Fate::Flaky(60));
        let world = world.clone();
        tokio::task::spawn_local(async move {
            for pulse in 0..12 {
                ring_again(game);
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                if world.millis() >= HEALTHY_FROM {
                    return;
                }
                if pulse == 0 {
                    world.kill("killed");
                }
            }
            world.fate.set(Fate::Run);
        });
    }

    /// The process ends while an alarm waits to be stored.
    pub fn end_at_alarm(&self, game: usize) {
        let world = &self.world;
        self.lossy();
        world.judge.borrow_mut().bad_disk = true;
        world.fate.set(Fate::Full);
        ring_again(game);
        // The alarm arrives before the end begins, and is not stored yet.
        let world = world.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.end();
        });
    }

    /// The process dies in the first writes that the database takes again.
    pub fn kill_at_recovery(&self, in_queries: u64) {
        let world = &self.world;
        self.lossy();
        world.judge.borrow_mut().bad_disk = true;
        world.fate.set(Fate::Full);
        for game in 0..GAMES.len() {
            ring_again(game);
        }
        let world = world.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            if world.millis() < HEALTHY_FROM {
                world.fate.set(Fate::Die { in_queries, committed: true });
            }
        });
    }
}
