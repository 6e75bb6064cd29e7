//! Messages and changes of incidents on their way to the sockets, and the record of those that take them.

use std::{rc::Rc, sync::Arc};

use futures_util::future::{FutureExt as _, LocalBoxFuture, join_all};
use tokio::{
    pin, select,
    time::{Duration, Instant, timeout},
};

use super::{
    AlarmDelivery,
    incident_line::IncidentLine,
    incident_news::{FollowedNews, IncidentNews, SentAlarm},
};
use crate::{
    db::alarms::incidents::{HeardBy, LedgerWrite},
    domain::{ids::UserId, raid::IncidentChange, time::Moment},
    relay::{alarms::received_at::ReceivedAt, state::live_state::LiveState, wire::publisher::Publisher},
};

/// The line of the log about an incident waits this long for more sockets after the first.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
/// And no longer than this for the first.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

impl AlarmDelivery {
    /// Sends the messages and shows the changes.
    pub fn publish(
        self: &Rc<Self>,
        news: IncidentNews,
        live: &mut LiveState,
        publisher: &mut Publisher,
        now: Moment,
    ) -> FollowedNews {
        let IncidentNews { changes, again, received_at, mut opened, undelivered, .. } = news;
        let changes: Vec<IncidentChange> = changes.into_iter().map(|change| self.of_the_whole(change)).collect();
        if let Some(line) = &mut opened {
            line.note_merged(self.whole_of(line.incident()));
        }
        let send = |IncidentChange { incident, message }: &IncidentChange| {
            let raid = message.as_ref()?;
            log::debug!(server = self.server.as_str(), incident = incident.as_str(), count = raid.count;
                "a message of a raid is sent");
            let acknowledged: Vec<UserId> =
                self.raids.borrow().get(incident).into_iter().flat_map(|known| known.acks.keys().cloned()).collect();
            let (taken, all) = publisher.deliver_alarm(raid, again, &acknowledged, received_at.map(ReceivedAt::at));
            Some(SentAlarm { incident: incident.clone(), at: Instant::now(), taken, all: all.boxed() })
        };
        let sent: Vec<SentAlarm> = changes.iter().filter_map(send).collect();
        self.show(&changes, live, publisher, now);
        let mut taken = Arc::default();
        let mut hearing = Vec::new();
        for sent in sent {
            match opened.take_if(|line| line.incident() == sent.incident) {
                Some(mut line) => {
                    taken = sent.taken.clone();
                    line.note_sent(sent.at, sent.taken.clone());
                    hearing.push(self.clone().hear(sent, Some(line)).boxed_local());
                }
                None => hearing.push(self.follow(sent)),
            }
        }
        // The alarm's own message is the last.
        let all = join_all(hearing).map(|sockets| {
            drop(undelivered);
            sockets.last().copied().unwrap_or_default()
        });
        FollowedNews { taken, all: all.boxed_local() }
    }

    /// Shows these incidents as they are now, in one step of the state.
    fn show(&self, changes: &[IncidentChange], live: &mut LiveState, publisher: &mut Publisher, now: Moment) {
        let raids = self.raids.borrow();
        let mut edits = Vec::new();
        for IncidentChange { incident, .. } in changes {
            live.show_incident(incident, raids.get(incident), &mut edits);
        }
        publisher.advance(edits, now);
        let mut unheard = self.unheard.borrow_mut();
        for IncidentChange { incident, .. } in changes {
            if raids.get(incident).is_none() {
                unheard.remove(incident);
            } else if let Some(since) = unheard.get_mut(incident) {
                since.get_or_insert(publisher.position());
            }
        }
    }

    /// Waits for the sockets that take this message of an incident; records them if it reached no one before.
    fn follow(self: &Rc<Self>, sent: SentAlarm) -> LocalBoxFuture<'static, usize> {
        match self.unheard.borrow().contains_key(&sent.incident) {
            true => self.clone().hear(sent, None).boxed_local(),
            false => sent.all.boxed_local(),
        }
    }

    /// Waits for the sockets that take this message. The ledger knows of the first at once: another may not read.
    async fn hear(self: Rc<Self>, sent: SentAlarm, mut line: Option<IncidentLine>) -> usize {
        let SentAlarm { incident, taken, all, .. } = sent;
        let all = all.shared();
        let first = async {
            select! {
                biased;
                sockets = all.clone() => sockets,
                () = taken.first() => taken.sockets(),
            }
        };
        pin!(first);
        let first = match timeout(WRITTEN_WITHIN, &mut first).await {
            Ok(first) => first,
            Err(_) => {
                self.settle(line.take());
                first.await
            }
        };
        self.heard(&incident, first);
        if line.is_some() {
            // The line is written either way.
            let _ = timeout(SETTLED_WITHIN, all.clone()).await;
            self.settle(line);
        }
        let sockets = all.clone().await;
        if sockets > first {
            self.heard(&incident, sockets);
        }
        sockets
    }

    /// Writes the line of an incident.
    fn settle(&self, line: Option<IncidentLine>) {
        if let Some(mut line) = line
            && let Some(known) = self.raids.borrow().get(line.incident())
        {
            line.note_paths(&known.paths);
        }
    }

    /// This number of sockets took the message of the incident.
    fn heard(&self, incident: &str, sockets: usize) {
        if sockets > 0 {
            self.unheard.borrow_mut().remove(incident);
            let heard = HeardBy { sockets, at: self.context.clock.now() };
            let heard = [(incident.to_owned(), heard)].into();
            self.ledger.write_later(LedgerWrite { heard, ..Default::default() });
        }
    }
}
