//! Collects the events of one call, and has what all families need to write one.

use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::{
    grid,
    monument::Monument,
    rate::Window,
    time::Moment,
    world_event::{EventKind, WorldEvent},
};

/// Events of one call; a hostile server may change everything at once.
const MAX_EVENTS: usize = 100;
/// Events of any minute; it may do so all the time.
const EVENTS_A_MINUTE: usize = 300;
const MINUTE: Duration = Duration::from_secs(60);

/// The fixed map_context of events.
#[derive(Clone, Copy, Debug)]
pub struct MapContext<'a> {
    /// Edge length of the world, metres; 0 = not known.
    pub map_size: u32,
    /// All of the map.
    pub monuments: &'a [Monument],
}

impl MapContext<'_> {
    /// True if a position is further than `margin` metres beyond the edge; a negative margin lies inside.
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

/// The events of the last minute, of all detectors of one link.
#[derive(Debug)]
pub struct EventWindow(Window);

impl Default for EventWindow {
    fn default() -> Self {
        Self(Window::new(EVENTS_A_MINUTE, MINUTE))
    }
}

impl EventWindow {
    fn has_room(&self, now: Moment) -> bool {
        self.0.available_at(millis(now), EVENTS_A_MINUTE).is_none()
    }

    pub(super) fn record(&mut self, now: Moment) {
        self.0.record(millis(now));
    }
}

fn millis(now: Moment) -> u64 {
    u64::try_from(now.steady().num_milliseconds()).unwrap_or_default()
}

/// The events of one call.
pub(super) struct Events<'a> {
    pub(super) around: &'a MapContext<'a>,
    pub(super) now: Moment,
    /// The answer only sets the baseline: it gives no events.
    pub(super) priming: bool,
    window: &'a mut EventWindow,
    events: Vec<WorldEvent>,
    suppressed: u64,
}

impl<'a> Events<'a> {
    pub(super) fn new(around: &'a MapContext<'a>, now: Moment, priming: bool, window: &'a mut EventWindow) -> Self {
        Self { around, now, priming, window, events: Vec::new(), suppressed: 0 }
    }

    /// True if an event would not be suppressed.
    pub(super) fn has_room(&self) -> bool {
        self.events.len() < MAX_EVENTS && self.window.has_room(self.now)
    }

    /// Reports an event. `title` gets the place in words (`in D7`, or nothing); `data` is an object with further
    /// fields.
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
        if !self.has_room() {
            self.suppressed += 1;
            return;
        }
        self.window.record(self.now);
        let MapContext { map_size, monuments } = *self.around;
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
    fn a_game_server_on_which_something_happens_all_the_time_has_a_limit_of_events_a_minute() {
        let around = MapContext { map_size: 0, monuments: &[] };
        let mut window = EventWindow::default();
        let mut reported = |seconds| {
            let mut events = Events::new(&around, at(seconds), false, &mut window);
            (0..90).for_each(|_| events.report(EventKind::Death, "died", None, json!({}), |_| String::new()));
            events.finish().len()
        };
        assert_eq!([0, 1, 2, 3, 4, 60, 61].map(&mut reported), [90, 90, 90, 30, 0, 0, 90]);
    }
}
