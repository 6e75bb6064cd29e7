//! Members of the team who do not move: away from the keyboard.

use std::collections::HashMap;

use chrono::TimeDelta;

use crate::domain::{server_state::Member, time::Moment};

/// A member who was within a metre for this time is away.
const AFK_AFTER: TimeDelta = TimeDelta::minutes(5);
/// Metres.
const MOVED: f64 = 1.0;

/// Places of the members, and since when they are there.
#[derive(Debug, Default)]
pub struct Stillness(HashMap<u64, ((f64, f64), Moment)>);

impl Stillness {
    /// Nothing is known of the time in which the link was down.
    pub fn interrupt(&mut self) {
        self.0.clear();
    }

    /// Takes in a complete answer, and says of each member since when he is away.
    pub fn see(&mut self, members: &mut [(u64, Member)], now: Moment) {
        self.0.retain(|known, _| members.iter().any(|(id, _)| id == known));
        for (id, member) in members {
            let Some((x, y)) = member.x.zip(member.y).filter(|_| member.online && member.alive) else {
                self.0.remove(id);
                continue;
            };
            let (place, since) = self.0.entry(*id).or_insert(((x, y), now));
            if (x - place.0).hypot(y - place.1) >= MOVED {
                (*place, *since) = ((x, y), now);
            }
            member.afk_since = (now - *since >= AFK_AFTER).then_some(since.stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn member(x: f64, online: bool) -> (u64, Member) {
        let member = Member {
            name: "Bob".into(),
            x: Some(x),
            y: Some(0.0),
            grid: String::new(),
            online,
            alive: true,
            spawned_at: None,
            died_at: None,
            afk_since: None,
        };
        (7, member)
    }

    #[test]
    fn a_member_is_away_after_five_minutes_within_a_metre() {
        let at = |seconds| -> Moment { (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into() };
        let mut still = Stillness::default();
        let mut away = |seconds, x, online| {
            let mut members = [member(x, online)];
            still.see(&mut members, at(seconds));
            members[0].1.afk_since
        };
        assert_eq!((away(0, 10.0, true), away(299, 10.9, true)), (None, None));
        assert_eq!(away(300, 10.5, true), Some(at(0).stamp));
        assert_eq!((away(310, 11.2, true), away(609, 11.2, true)), (None, None));
        assert!(away(610, 11.2, true).is_some());
        assert_eq!((away(620, 11.2, false), away(630, 11.2, true)), (None, None));
        still.interrupt();
        assert!(still.0.is_empty());
    }
}
