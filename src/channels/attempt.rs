//! An attempt to send a message by a channel.

use std::sync::Arc;

use chrono::TimeDelta;

use crate::{
    channels::{figures, sender::Channels},
    clients::channels::{ChannelFailure, NOT_FOUND, TakenMessage},
    db::{
        alarms::{notice_messages::SendableMessage, notice_subjects::NoticeSubject},
        notices::{
            channels::StoredChannel,
            notice_queue::{DeliveryOutcome, EndedAttempt},
        },
    },
    domain::{
        backoff::jittered,
        channels::{
            channel_lane::ChannelLane,
            held_origins::{KindAtOrigin, OriginSign},
            user_channel::{ChannelFault, ChannelKind, pause_after},
        },
    },
    panics::{self, Part},
};

/// An attempt, and what it says about the origin of its channel.
pub struct Attempted {
    pub ended: EndedAttempt,
    pub origin: KindAtOrigin,
    pub sign: OriginSign,
}

/// The origin of a channel, for its kind.
pub fn kind_at_origin(channel: &StoredChannel) -> KindAtOrigin {
    KindAtOrigin { kind: channel.kind.clone(), origin: channel.origin.clone() }
}

/// Sends a message. A panic on the way is a transient fault.
pub async fn attempt(channels: Arc<Channels>, lane: ChannelLane, message: SendableMessage) -> Attempted {
    if message.delivery.is_acknowledgement() && !channels.says_acknowledged(&message.channel) {
        return ended(message, DeliveryOutcome::Unsaid, OriginSign::Unasked);
    }
    let sent = panics::caught(Part::Channels, &message.channel.id, send(&channels, lane, &message)).await;
    let sent = sent.unwrap_or(Err(ChannelFault::Unreadable.into()));
    if message.replaces.is_some() && matches!(sent, Err(ChannelFailure { status: Some(NOT_FOUND), .. })) {
        // Someone has deleted the message, not its channel.
        return ended(message, DeliveryOutcome::Unsaid, OriginSign::Answered);
    }
    let sign = match (&sent, message.channel.kind()) {
        // A link and a team of their own.
        (_, Ok(ChannelKind::TeamChat)) => OriginSign::Unasked,
        (Ok(_), _) => OriginSign::Answered,
        (Err(ChannelFailure { fault, status, retry_after }), Ok(kind)) => {
            OriginSign::of(kind, *fault, *status, retry_after.and_then(|pause| TimeDelta::from_std(pause).ok()))
        }
        (Err(_), Err(_)) => OriginSign::Unasked,
    };
    let outcome = outcome(&channels, &message, sent);
    ended(message, outcome, sign)
}

fn ended(message: SendableMessage, outcome: DeliveryOutcome, sign: OriginSign) -> Attempted {
    let SendableMessage { delivery, channel, .. } = message;
    let origin = kind_at_origin(&channel);
    let ended = EndedAttempt { delivery, channel, outcome };
    Attempted { ended, origin, sign }
}

async fn send(
    channels: &Channels,
    lane: ChannelLane,
    message: &SendableMessage,
) -> Result<TakenMessage, ChannelFailure> {
    let notice = channels.words(message);
    channels.deliver_unless_gone(lane, &message.delivery.id, &message.channel, &notice).await
}

/// Reports the end of an attempt, and decides when the next one is.
fn outcome(
    channels: &Channels,
    message: &SendableMessage,
    sent: Result<TakenMessage, ChannelFailure>,
) -> DeliveryOutcome {
    let SendableMessage { delivery, channel, subject, .. } = message;
    let (id, kind, incident, round) = (&*channel.id, &*channel.kind, &*delivery.incident_id, delivery.round);
    let now = channels.clock.now();
    match sent {
        Ok(TakenMessage { status, receipt }) => {
            log::info!(incident, channel = id, kind, round, status; "an alarm was sent by a channel");
            if let Ok(kind) = channel.kind() {
                let late = matches!(subject, NoticeSubject::Raid(incident) if incident.incident.late);
                let waited = (now - delivery.queued_at).num_milliseconds().max(0) as f64 / 1_000.0;
                figures::count_accepted(kind, (!late && !delivery.is_aside()).then_some(waited));
            }
            DeliveryOutcome::Accepted { status, receipt }
        }
        Err(ChannelFailure { fault, status, retry_after }) => {
            if let Ok(kind) = channel.kind() {
                figures::count_failed(kind, fault);
            }
            let attempts = u32::try_from(delivery.attempts).unwrap_or_default() + 1;
            let asked = retry_after.and_then(|pause| TimeDelta::from_std(pause).ok()).unwrap_or_default();
            let pause = pause_after(attempts).filter(|_| fault.is_transient()).map(|pause| {
                let pause = jittered(pause.to_std().unwrap_or_default(), channels.random.byte());
                TimeDelta::from_std(pause).unwrap_or_default().max(asked)
            });
            DeliveryOutcome::Failed { status, fault, retry_at: pause.map(|pause| now + pause) }
        }
    }
}
