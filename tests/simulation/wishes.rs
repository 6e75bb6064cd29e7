//! Requests of users on their sockets: alarms of which they took note, and switches that they turned.

use std::collections::{BTreeMap, BTreeSet};

use companion::{
    db::{
        engine::pool::Pool,
        schema::{incident_acks, incidents},
    },
    domain::time::Timestamp,
    simulator::world::{GATE_SWITCH, SimulatedDevice},
};
use diesel::{QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;
use tokio::time::{Duration, Instant};

use crate::{
    dashboard::Dashboard,
    judge::Judge,
    world::{USERS, World},
};

/// Frames sent before a user's note may still be on its way for so long: the longest lag, and a full budget of frames.
const QUIET_WITHIN: Duration = Duration::from_secs(15);

/// True if this state of a dashboard says that the next attempt to reach the game server is still to come. The pauses
/// grow up to five minutes while no link lasts for one, as one that came up soon before all were broken; a toggle is
/// refused meanwhile, which its user can see coming. An attempt that is due is no excuse.
pub fn is_between_attempts(state: &Value, now: Timestamp) -> bool {
    let server = &state["server"];
    let next = serde_json::from_value::<Timestamp>(server["nextAttemptAt"].clone());
    server["connection"] == "unreachable" && next.is_ok_and(|next| next > now)
}

#[derive(Default)]
pub struct Wishes {
    /// By incident and user: when the service said that it has the note.
    noted: BTreeMap<(String, usize), Instant>,
    /// By request: the game and the value that its gate is to have.
    wanted: BTreeMap<String, (usize, bool)>,
    fulfilled: BTreeSet<String>,
    /// Users whose notes may be gone.
    erased: BTreeSet<usize>,
}

impl Wishes {
    /// This user erases themselves.
    pub fn erase(&mut self, user: usize) {
        self.erased.insert(user);
    }

    pub fn want(&mut self, request: &str, game: usize, value: bool) {
        self.wanted.insert(request.to_owned(), (game, value));
    }
}

impl Judge {
    /// A dashboard's request was carried out.
    pub fn receive_ack(&mut self, dashboard: &Dashboard, request: &str) {
        if let Some(paired) = request.strip_prefix("turn ") {
            return self.check_may_turn(dashboard, paired.parse().expect("our own number"));
        }
        match request.strip_prefix("note ") {
            Some(incident) => {
                self.wishes.noted.entry((incident.to_owned(), dashboard.user)).or_insert_with(Instant::now);
            }
            None => _ = self.wishes.fulfilled.insert(request.to_owned()),
        }
    }

    /// False if this user's note of then is gone with them. One that waits for the database, as its alarm does, is stored
    /// only if its user may still watch.
    fn is_to_be_kept(&self, server: &str, user: usize, noted: Instant) -> bool {
        !self.wishes.erased.contains(&user) && !self.guests.may_have_left(server, user, noted)
    }

    /// A dashboard shows an incident of this server.
    pub fn check_is_wanted(&mut self, dashboard: &Dashboard, server: &str, incident: &str) {
        let noted = self.wishes.noted.get(&(incident.to_owned(), dashboard.user));
        let reads = dashboard.wire.borrow().as_ref().is_some_and(|(wire, _)| !wire.was_stalled.get());
        let is_quiet =
            |noted: &Instant| noted.elapsed() > QUIET_WITHIN && self.is_to_be_kept(server, dashboard.user, *noted);
        if reads && noted.is_some_and(is_quiet) {
            let number = dashboard.number;
            self.broken(
                "noted-is-quiet",
                format!("{incident} rings at dashboard {number}, whose user took note of it"),
            );
        }
    }

    /// Notes are stored, and shown in this state of a dashboard, which is of this server.
    pub fn check_notes_shown(&mut self, server: &str, state: &Value) {
        let lacks = |incident: &str, user: usize| {
            let shown = state["raids"].get(incident);
            shown.is_some_and(|raid| raid["acks"].get(USERS[user]).is_none())
        };
        let mut noted = self.wishes.noted.iter();
        let missing =
            noted.find(|((incident, user), at)| lacks(incident, *user) && self.is_to_be_kept(server, *user, **at));
        if let Some(((incident, user), _)) = missing {
            let details = format!("that of {} of {incident} is not shown", USERS[*user]);
            self.broken("notes-are-kept", details);
        }
    }

    /// After the healthy minutes.
    pub fn check_wishes(&mut self, world: &World, pool: &Pool) {
        type Incidents = Vec<(String, String, String)>;
        type Notes = Vec<(String, String)>;
        let (there, stored): (Incidents, Notes) = pool
            .read_blocking(|db| {
                let there =
                    incidents::table.select((incidents::id, incidents::server_id, incidents::state)).load(db)?;
                let notes = incident_acks::table.select((incident_acks::incident_id, incident_acks::user_id));
                Ok((there, notes.load(db)?))
            })
            .expect("the ledger can be read");
        let lost = self.wishes.noted.iter().find(|((incident, user), at)| {
            let known = there.iter().find(|(id, ..)| id == incident);
            let is_stored = stored.iter().any(|(id, by)| id == incident && by == USERS[*user]);
            known.is_some_and(|(_, server, state)| {
                (!is_stored || state != "acknowledged") && self.is_to_be_kept(server, *user, **at)
            })
        });
        if let Some(((incident, user), _)) = lost {
            let details = format!("that of {} of {incident} is not stored", USERS[*user]);
            self.broken("notes-are-kept", details);
        }
        for (request, (game, value)) in self.wishes.wanted.clone() {
            let is = world.games[game].world(|world| {
                let gate = world.devices().find(|(id, ..)| *id == GATE_SWITCH).map(|(.., device)| device.clone());
                matches!(gate, Some(SimulatedDevice::Switch { on: true }))
            });
            if is != value || !self.wishes.fulfilled.contains(&request) {
                self.broken("toggles-arrive", format!("{request} was to be {value}, is {is}"));
            }
        }
    }
}
