//! The last alarms of a subscription, so that none is announced twice to a socket: a node that lost its feed gets an alarm
//! again that its sockets have had, and the owner that takes a dead one's place announces again what no one is known to have
//! heard.

use std::{cell::Cell, collections::VecDeque, rc::Rc, sync::Arc};

use futures_util::future::{LocalBoxFuture, Shared, join_all};

use crate::relay::wire::{publication::Announcement, receipt::DeliveryCount};

/// Messages that are remembered.
const REMEMBERED: usize = 1_000;

/// The number of sockets that took a message, once all have or are gone.
pub type AllTaken = Shared<LocalBoxFuture<'static, usize>>;

/// See the module.
#[derive(Default)]
pub struct AnnouncedAlarms(VecDeque<AnnouncedAlarm>);

/// A message that the sockets of a subscription have been sent.
pub struct AnnouncedAlarm {
    pub about: Announcement,
    /// Its number, if another node has sent it.
    pub number: Option<u64>,
    /// The place of the last of the sockets, in the order in which they began to watch.
    pub to: u64,
    /// Sockets that took it so far.
    pub taken: Rc<Cell<usize>>,
    pub all: AllTaken,
}

/// Earlier messages that said the same as one that has come.
#[derive(Default)]
pub struct EarlierMessages {
    /// Sockets up to this place have been sent one.
    pub to: u64,
    taken: usize,
    all: Vec<AllTaken>,
}

impl AnnouncedAlarm {
    fn is_same(&self, about: &Announcement, number: Option<u64>) -> bool {
        let has_come_again = number.is_some() && number == self.number;
        // The node before may have announced more triggers than it has stored.
        let is_announced_again =
            about.again && about.incident == self.about.incident && about.count <= self.about.count;
        has_come_again || is_announced_again
    }
}

impl AnnouncedAlarms {
    /// Remembers a message.
    pub fn add(&mut self, alarm: AnnouncedAlarm) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(alarm);
    }

    /// The messages before that said the same as this one.
    pub fn earlier(&self, about: &Announcement, number: Option<u64>) -> EarlierMessages {
        let mut earlier = EarlierMessages::default();
        for known in self.0.iter().filter(|known| known.is_same(about, number)) {
            earlier.to = earlier.to.max(known.to);
            earlier.taken += known.taken.get();
            earlier.all.push(known.all.clone());
        }
        earlier
    }
}

impl EarlierMessages {
    /// Counts the sockets that took one of these for the message that has come; resolves to their number.
    pub fn count(self, for_it: Arc<DeliveryCount>) -> impl Future<Output = usize> {
        let Self { taken, all, .. } = self;
        (0..taken).for_each(|_| for_it.add());
        async move {
            let sockets = join_all(all).await.into_iter().sum();
            (taken..sockets).for_each(|_| for_it.add());
            sockets
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt as _;

    use super::*;

    fn about(incident: &str, count: u32, again: bool) -> Announcement {
        Announcement { incident: incident.into(), count, update: again, again }
    }

    /// A message to sockets up to this place, of which this number have taken it, and this number will have.
    fn sent(incident: &str, number: Option<u64>, to: u64, taken: (usize, usize)) -> AnnouncedAlarm {
        let all = ready(taken.1).boxed_local().shared();
        AnnouncedAlarm { about: about(incident, 2, false), number, to, taken: Rc::new(Cell::new(taken.0)), all }
    }

    #[tokio::test]
    async fn a_message_that_says_the_same_as_earlier_ones_is_for_later_sockets_and_counts_the_others() {
        let mut announced = AnnouncedAlarms::default();
        announced.add(sent("a", Some(7), 3, (1, 2)));
        announced.add(sent("a", Some(8), 5, (0, 1)));
        announced.add(sent("b", None, 9, (9, 9)));
        for (about, number, to, sockets) in [
            (about("a", 2, false), Some(7), 3, (1, 2)),
            (about("a", 2, true), Some(11), 5, (1, 3)),
            (about("a", 2, true), None, 5, (1, 3)),
            (about("a", 1, true), None, 5, (1, 3)),
            (about("a", 3, true), None, 0, (0, 0)),
            // News: a second trigger may have been taken for the first.
            (about("b", 2, false), None, 0, (0, 0)),
            (about("b", 2, false), Some(9), 0, (0, 0)),
        ] {
            let (earlier, count) = (announced.earlier(&about, number), DeliveryCount::since(None));
            assert_eq!(earlier.to, to, "{about:?}");
            let all = earlier.count(count.clone());
            assert_eq!(count.sockets(), sockets.0, "{about:?}");
            assert_eq!((all.await, count.sockets()), (sockets.1, sockets.1), "{about:?}");
        }
    }

    #[test]
    fn the_oldest_messages_are_forgotten() {
        let mut announced = AnnouncedAlarms::default();
        (0..=REMEMBERED as u64).for_each(|number| announced.add(sent("a", Some(number), 1, (0, 0))));
        let to = |number| announced.earlier(&about("a", 2, false), Some(number)).to;
        assert_eq!((announced.0.len(), to(0), to(1)), (REMEMBERED, 0, 1));
    }
}
