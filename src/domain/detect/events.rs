//! Collects the events of one call, and holds what all families need to write one.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::domain::{
    grid,
    monument::Monument,
    time::Moment,
    world_event::{EventKind, WorldEvent},
};

/// Events of one call; a hostile server may change everything at once.
const MAX_EVENTS: usize = 100;
/// Events of a minute; it may do so all the time.
const EVENTS_A_MINUTE: usize = 300;

/// What does not move around the events.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Edge length of the world, metres; 0 = not known.
    pub map_size: u32,
    /// All of the map.
    pub monuments: &'a [Monument],
}

impl Surroundings<'_> {
    /// Whether a position is further than `margin` metres beyond the edge; a negative margin lies inside.
    pub(super) fn is_beyond(&self, margin: f64, x: f64, y: f64) -> bool {
        let inside = -margin..=f64::from(self.map_size) + margin;
        self.map_size > 0 && !(inside.contains(&x) && inside.contains(&y))
    }

    /// The nearest monument of a kind within `reach` metres.
    pub(super) fn nearest(&self, reach: f64, x: f64, y: f64, kind: impl Fn(&Monument) -> bool) -> Option<&Monument> {
        self.monuments
            .iter()
            .filter(|monument| kind(monument))
            .map(|monument| (monument.distance(x, y), monument))
            .filter(|(distance, _)| *distance <= reach)
            .min_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, monument)| monument)
    }
}

/// The events of the minute that began with the first of them.
#[derive(Debug, Default)]
pub(super) struct EventMinute {
    began: Option<Moment>,
    count: usize,
}

/// The events of one call.
pub(super) struct Events<'a> {
    pub(super) around: &'a Surroundings<'a>,
    pub(super) now: Moment,
    /// The answer only shows how things stand: nothing in it is events.
    pub(super) priming: bool,
    minute: &'a mut EventMinute,
    events: Vec<WorldEvent>,
    suppressed: u64,
}

impl<'a> Events<'a> {
    pub(super) fn new(around: &'a Surroundings<'a>, now: Moment, priming: bool, minute: &'a mut EventMinute) -> Self {
        if minute.began.is_none_or(|began| now - began >= TimeDelta::minutes(1)) {
            *minute = EventMinute { began: Some(now), count: 0 };
        }
        Self { around, now, priming, minute, events: Vec::new(), suppressed: 0 }
    }

    /// Reports an event. `title` gets the place in words (`in D7`, or nothing); `data` is an object with further fields.
    pub(super) fn report(
        &mut self,
        kind: EventKind,
        action: &'static str,
        at: Option<(f64, f64)>,
        data: Value,
        title: impl FnOnce(&str) -> String,
    ) {
        if self.priming {
            return;
        }
        if self.events.len() >= MAX_EVENTS || self.minute.count >= EVENTS_A_MINUTE {
            self.suppressed += 1;
            return;
        }
        self.minute.count += 1;
        let Surroundings { map_size, monuments } = *self.around;
        let place = at.map(|(x, y)| grid::place(map_size, monuments, x, y)).unwrap_or_default();
        let Value::Object(data) = data else { unreachable!("the data of an event is an object") };
        self.events.push(WorldEvent {
            kind,
            action,
            grid: at.map(|(x, y)| grid::label(Default::default(), map_size, x, y)).unwrap_or_default(),
            x: at.map(|(x, _)| x),
            y: at.map(|(_, y)| y),
            ts: self.now.stamp,
            title: title(&place).trim_end().to_owned(),
            data,
        });
    }

    /// The events; the last one says in `suppressed` how many more there would have been.
    pub(super) fn finish(mut self) -> Vec<WorldEvent> {
        if self.suppressed > 0
            && let Some(last) = self.events.last_mut()
        {
            last.data.insert("suppressed".to_owned(), json!(self.suppressed));
        }
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::detect::testing::at;

    #[test]
    fn a_game_server_on_which_something_happens_all_the_time_has_so_many_events_a_minute() {
        let around = Surroundings { map_size: 0, monuments: &[] };
        let mut minute = EventMinute::default();
        let mut told = |seconds| {
            let mut events = Events::new(&around, at(seconds), false, &mut minute);
            (0..90).for_each(|_| events.report(EventKind::Death, "died", None, json!({}), |_| String::new()));
            events.finish().len()
        };
        assert_eq!([0, 1, 2, 3, 4, 59, 60].map(&mut told), [90, 90, 90, 30, 0, 0, 90]);
    }
}
