//! A link that is up: what is asked over it, in which order, and what it says by itself (protocol §3.2, §3.5).

mod devices;
mod map;
mod polls;

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use super::{
    link_end::LinkEnd,
    link_owner::{CredentialsVersion, LinkOwner, LinkPurpose, Unneeded},
    link_report::LinkReport,
};
use crate::{
    db::paired_servers,
    domain::{
        ids::GameServerId,
        link_reason::LinkReason,
        link_slots::SlotNumber,
        time::{Moment, Timestamp},
        waited_broadcasts::WaitedBroadcasts,
    },
    game::{
        acting_link::ActingLink,
        link::{AskError, Broadcasts, LinkEnded, Route},
        paced_link::PacedLink,
        reading_link::ReadingLink,
        wire::AppInfo,
    },
    relay::{shared::write_behind::Record, state::game_update::GameUpdate},
};

const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Other questions wait this long for the alarms to be asked first; there may be more of them than tokens.
const ALARMS_FIRST: Duration = Duration::from_secs(5);
/// Answers that may fail to come in a row before the link counts as dead.
const SILENT_ANSWERS: u32 = 2;
/// Longest wait for the database; one that takes longer gets the record later.
const STORED_IN_TIME: Duration = Duration::from_millis(500);

/// See the module.
pub struct LinkTalk<'a> {
    owner: &'a LinkOwner,
    purpose: LinkPurpose,
    link: ReadingLink,
    route: &'a Route,
    /// Its slot at the game server.
    slot: Option<SlotNumber>,
    credentials: CredentialsVersion,
    /// A game server has answered at this address.
    answered: &'a Cell<bool>,
    /// Answers that did not come, in a row.
    silent: Cell<u32>,
    /// An answer was refused, and the log says so.
    refused: Cell<bool>,
    map_wanted: Notify,
    /// A message could not be read: it may have said that a device changed.
    devices_wanted: Notify,
    /// A message could not be read: it may have been a line of chat.
    chat_wanted: Notify,
    waited: RefCell<WaitedBroadcasts>,
}

impl<'a> LinkTalk<'a> {
    /// Nothing asked yet.
    pub fn new(
        (owner, purpose): (&'a LinkOwner, LinkPurpose),
        link: ReadingLink,
        route: &'a Route,
        slot: Option<SlotNumber>,
        credentials: CredentialsVersion,
        answered: &'a Cell<bool>,
    ) -> Self {
        Self {
            owner,
            purpose,
            link,
            route,
            slot,
            credentials,
            answered,
            silent: Cell::new(0),
            refused: Cell::new(false),
            map_wanted: Notify::new(),
            devices_wanted: Notify::new(),
            chat_wanted: Notify::new(),
            waited: RefCell::new(WaitedBroadcasts::new(owner.context.clock.moment())),
        }
    }

    /// Talks until the link ends. Ok when it is no longer needed.
    pub async fn hold(&self, link: PacedLink, broadcasts: Broadcasts) -> Result<Unneeded, LinkEnd> {
        // Broadcasts go their own way: none waits behind a poll.
        let mut forwarded = pin!(self.forward(broadcasts));
        let talked = tokio::select! {
            ended = &mut forwarded => return Err(ended.into()),
            talked = self.talk(link) => talked,
        };
        match talked {
            // The link knows better why.
            Err(end) if end.reason == LinkReason::Closed => Err(forwarded.await.into()),
            talked => talked,
        }
    }

    async fn forward(&self, mut broadcasts: Broadcasts) -> LinkEnded {
        let mut known = None;
        loop {
            match broadcasts.next().await {
                Ok((_, None)) => {
                    self.devices_wanted.notify_one();
                    self.chat_wanted.notify_one();
                    if Box::pin(self.owner.report(LinkReport::Missed)).await.is_err() {
                        return LinkEnded::Unneeded;
                    }
                }
                Ok((number, Some(broadcast))) => {
                    if self.report_waited(&mut known).await.is_err() {
                        return LinkEnded::Unneeded;
                    }
                    // In a box, as they are seldom.
                    let update = GameUpdate::Broadcast(number, broadcast);
                    if Box::pin(self.owner.update(update)).await.is_err() {
                        return LinkEnded::Unneeded;
                    }
                }
                Err(ended) => return ended,
            }
        }
    }

    /// Reports since when what is read now may have waited, unless that is known.
    async fn report_waited(&self, known: &mut Option<Timestamp>) -> Result<(), Unneeded> {
        let (_, since) = self.look();
        if std::mem::replace(known, since) != since {
            if since.is_some() {
                log::info!(server = self.owner.server.as_str(); "the clock has leapt: broadcasts may have waited");
            }
            Box::pin(self.owner.update(GameUpdate::Waited(since))).await?;
        }
        Ok(())
    }

    /// Looks at the clocks: now, and since when broadcasts may have waited.
    fn look(&self) -> (Moment, Option<Timestamp>) {
        let now = self.owner.context.clock.moment();
        (now, self.waited.borrow_mut().look(now))
    }

    /// Resynchronises, then polls. Alarms come first; after them the map and the devices, which may take long, hold up
    /// nothing else.
    async fn talk(&self, link: PacedLink) -> Result<Unneeded, LinkEnd> {
        // No name for the answer, which would be held as long as the link.
        let (info, acting) = Box::pin(self.prove(link)).await?;
        Box::pin(self.note_accepted()).await;
        let (reading, slot, credentials) = (self.link.clone(), self.slot, self.credentials.version);
        let game_server = GameServerId::at(&self.route.host, self.route.port);
        match Box::pin(self.owner.report(LinkReport::Up { reading, acting, credentials, slot, game_server, info }))
            .await
        {
            Ok(true) => self.map_wanted.notify_one(),
            Ok(false) => {}
            Err(Unneeded) => return Ok(Unneeded),
        }
        let alarms_asked = Notify::new();
        let others = async {
            // Late is no failure: it is only the order that is lost.
            let _ = timeout(ALARMS_FIRST, alarms_asked.notified()).await;
            tokio::select! {
                end = self.keep_polling() => end,
                end = self.keep_map() => end,
            }
        };
        tokio::select! {
            end = others => end,
            end = self.keep_devices(&alarms_asked) => end,
            () = self.owner.wake.replaced.notified() => {
                Err(LinkEnd::unreachable(LinkReason::OtherCredentials, "the credentials were replaced"))
            }
        }
    }

    /// The first question, which a game server answers only to a player whose token it accepts.
    async fn prove(&self, link: PacedLink) -> Result<(AppInfo, ActingLink), LinkEnd> {
        let asked = ActingLink::prove(link, ANSWER_DEADLINE).await;
        if matches!(asked, Ok(_) | Err(AskError::Refused(_))) {
            self.answered.set(true);
        }
        let unsaid = || LinkEnd::unreachable(LinkReason::NoCompanion, "it does not say what it is");
        asked.map_err(LinkEnd::by)?.ok_or_else(unsaid)
    }

    /// Stores that these credentials were accepted, before the link is shown: a user who sees the link also sees what
    /// others learnt of the game server. A database that does not answer does not hold the link up.
    async fn note_accepted(&self) {
        let CredentialsVersion { version, is_accepted: false } = self.credentials else { return };
        let (context, server) = (&self.owner.context, self.owner.server.clone());
        let write = context.pool.write(move |db| paired_servers::set_accepted(db, &server, version));
        if !timeout(STORED_IN_TIME, write).await.is_ok_and(|stored| stored.is_ok()) {
            context.write_behind.store(Record::Accepted(self.owner.server.clone(), version));
        }
    }

    fn count_silence(&self, silent: bool) {
        self.silent.set(if silent { self.silent.get() + 1 } else { 0 });
    }

    /// Says it once a link, as a game server that sends too much does so at every poll.
    fn warn_of_refusal(&self, error: &AskError) {
        if !self.refused.replace(true) {
            log::warn!(server = self.owner.server.as_str(); "a game server's answer is refused: {error}");
        }
    }
}
