//! Count of the data frames that one socket was sent lately, by lane, and which lane may send now. Pure.
//!
//! The limit is a true sliding window: no 10 seconds ever hold more than 60 data frames, nor more than 20 lines of
//! chat. Every lane has a floor of the window that no other lane can use, except that a handful of raids can use all of
//! it. Thus a lane that never ends slows the others and stops none: many raids leave room for the patches that show all
//! of them at once. Room outside the floors goes to the first that asks.

use std::collections::VecDeque;

use crate::{domain::limits, relay::wire::publication::Lane};

/// Milliseconds on a monotonic clock.
pub type Millis = u64;

const LANES: [Lane; 5] = [Lane::Raid, Lane::Event, Lane::Chat, Lane::Reply, Lane::State];
/// Frames of the window that are kept for each lane.
const FLOORS: [usize; LANES.len()] = [3, 3, 2, 7, 20];
/// The length of the window.
pub const SPAN: Millis = limits::OUTBOUND_SPAN.as_millis() as Millis;
/// Bits of a send that say its lane; the others are the lower ones of its time.
const LANE_BITS: u32 = 3;

/// See the module. Small, because there is one per connection: it holds four bytes for every frame of the window.
#[derive(Default)]
pub struct FrameBudget {
    /// The last sends, oldest first, none older than the span before the newest, so that the lower bits of their times
    /// are unambiguous.
    sent: VecDeque<u32>,
    /// Number of them in each lane.
    used: [u8; LANES.len()],
    newest: Millis,
}

impl FrameBudget {
    /// When a frame of this lane may go out if no other does before; none = now.
    pub fn available_at(&mut self, now: Millis, lane: Lane) -> Option<Millis> {
        self.expire(now);
        let (mut used, mut free) = (self.used, None);
        for sent in &self.sent {
            if usize::from(used[lane as usize]) < room(&used, lane) {
                break;
            }
            used[lane_of(*sent)] -= 1;
            free = Some(self.time(*sent) + SPAN + 1);
        }
        free
    }

    /// Reads some of what the others will read.
    pub fn read_ahead(&self) -> impl Sized {
        (self.newest, self.sent.front().copied(), self.sent.back().copied())
    }

    /// Counts a frame that goes out.
    pub fn record(&mut self, now: Millis, lane: Lane) {
        let now = now.max(self.newest);
        self.expire(now);
        self.newest = now;
        self.sent.push_back(in_ring(now) | lane as u32);
        self.used[lane as usize] += 1;
    }

    /// Time between two frames of this lane, if those that it may still send are to last until its oldest expires.
    pub fn spread(&mut self, now: Millis, lane: Lane) -> Millis {
        self.expire(now);
        let left = room(&self.used, lane).saturating_sub(usize::from(self.used[lane as usize]));
        let oldest =
            self.sent.iter().find(|sent| lane_of(**sent) == lane as usize).map_or(now, |sent| self.time(*sent));
        (oldest + SPAN).saturating_sub(now) / (left + 1) as Millis
    }

    /// A send expires when **more** than the span has passed: times are whole milliseconds, and two that differ by the
    /// span may be just short of it.
    fn expire(&mut self, now: Millis) {
        if now.saturating_sub(self.newest) > SPAN {
            self.sent.clear();
            self.used = Default::default();
        }
        while let Some(oldest) = self.sent.front().filter(|oldest| now.saturating_sub(self.time(**oldest)) > SPAN) {
            self.used[lane_of(*oldest)] -= 1;
            self.sent.pop_front();
        }
    }

    fn time(&self, sent: u32) -> Millis {
        let ago = in_ring(self.newest).wrapping_sub(sent - lane_of(sent) as u32) >> LANE_BITS;
        self.newest - Millis::from(ago)
    }
}

fn room(used: &[u8; LANES.len()], lane: Lane) -> usize {
    let is_handful = lane == Lane::Raid && usize::from(used[lane as usize]) < limits::HANDFUL_OF_RAIDS;
    let others = LANES.into_iter().filter(|other| *other != lane).map(|other| {
        let used = usize::from(used[other as usize]);
        if is_handful { used } else { used.max(FLOORS[other as usize]) }
    });
    let room = limits::OUTBOUND_FRAMES.saturating_sub(others.sum());
    if lane == Lane::Chat { room.min(limits::CHAT_LINES) } else { room }
}

fn in_ring(time: Millis) -> u32 {
    (time << LANE_BITS) as u32
}

fn lane_of(sent: u32) -> usize {
    (sent & ((1 << LANE_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends of this lane until it must wait.
    fn fill(budget: &mut FrameBudget, now: Millis, lane: Lane) -> usize {
        let next = || budget.available_at(now, lane).is_none().then(|| budget.record(now, lane));
        std::iter::from_fn(next).count()
    }

    #[test]
    fn a_lane_may_use_what_no_floor_keeps_for_others() {
        for (lane, room) in LANES.into_iter().zip([28, 28, 20, 32, 45]) {
            let mut budget = FrameBudget::default();
            assert_eq!(fill(&mut budget, 5, lane), room, "{lane:?}");
            assert_eq!(budget.available_at(5, lane), Some(5 + SPAN + 1));
            assert_eq!(fill(&mut budget, 5 + SPAN, lane), 0, "it may be just short of the span");
            assert_eq!(fill(&mut budget, 5 + SPAN + 1, lane), room);
        }
    }

    #[test]
    fn whatever_the_others_but_raids_have_sent_the_floor_is_free() {
        for lane in LANES {
            let mut budget = FrameBudget::default();
            for other in LANES.into_iter().filter(|other| ![lane, Lane::Raid].contains(other)) {
                fill(&mut budget, 0, other);
            }
            assert!(fill(&mut budget, 1, lane) >= FLOORS[lane as usize], "{lane:?}");
        }
    }

    #[test]
    fn a_handful_of_raids_may_use_every_floor_and_more_of_them_none() {
        let mut budget = FrameBudget::default();
        (0..limits::OUTBOUND_FRAMES - limits::HANDFUL_OF_RAIDS).for_each(|_| budget.record(0, Lane::State));
        assert_eq!(fill(&mut budget, 1, Lane::Raid), limits::HANDFUL_OF_RAIDS);

        let mut budget = FrameBudget::default();
        [Lane::Event, Lane::Chat, Lane::Reply].iter().for_each(|other| _ = fill(&mut budget, 0, *other));
        assert_eq!(fill(&mut budget, 1, Lane::Raid), limits::HANDFUL_OF_RAIDS);
        let beyond = limits::HANDFUL_OF_RAIDS - FLOORS[Lane::Raid as usize];
        assert_eq!(fill(&mut budget, 2, Lane::State), FLOORS[Lane::State as usize] - beyond);
    }

    #[test]
    fn an_unused_budget_is_small_and_allocates_nothing() {
        assert_eq!(FrameBudget::default().sent.capacity(), 0);
        assert!(size_of::<FrameBudget>() <= 48);
    }

    proptest! {
        #[test]
        fn no_span_holds_more_than_sixty_frames_or_twenty_lines_and_the_time_to_wait_is_exact(
            start in prop_oneof![Just(0_u64), Just((1 << 29) - 5_000), Just((1 << 32) - 5_000), any::<u32>().prop_map(u64::from)],
            steps in prop::collection::vec(
                (prop_oneof![5 => 0_u64..30, 3 => 0_u64..900, 1 => Just(5_000_000_000)], 0..LANES.len()), 1..500
            ),
        ) {
            let mut budget = FrameBudget::default();
            let (mut now, mut sent) = (start, Vec::new());
            for (advance, lane) in steps {
                now += advance;
                let lane = LANES[lane];
                match budget.available_at(now, lane) {
                    None => {
                        budget.record(now, lane);
                        sent.push((now, lane));
                    }
                    Some(free) => {
                        prop_assert!(free > now);
                        prop_assert!(budget.available_at(free - 1, lane) == Some(free));
                        prop_assert!(budget.available_at(free, lane).is_none());
                        now = free;
                    }
                }
                let held = |lane: Option<Lane>| {
                    let recent = sent.iter().rev().take_while(|(at, _)| now - at <= SPAN);
                    recent.filter(|(_, other)| lane.is_none_or(|lane| lane == *other)).count()
                };
                prop_assert!(held(None) <= limits::OUTBOUND_FRAMES);
                prop_assert!(held(Some(Lane::Chat)) <= limits::CHAT_LINES);
                for lane in LANES {
                    prop_assert_eq!(usize::from(budget.used[lane as usize]), held(Some(lane)));
                }
            }
        }
    }
}
