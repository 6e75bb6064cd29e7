//! Sends messages by channels: to the push services of browsers, to webhooks, and to services for notifications. The URLs
//! are users' own: only addresses of the public internet are connected to, no redirect is followed, and of an answer
//! nothing but its status is read, and the name that Pushover and Discord give the message, so that no channel looks into a network.

mod formats;

use std::{fmt, io, net::IpAddr, sync::Arc, time::Duration};

use futures_util::future::LocalBoxFuture;
use reqwest::{
    StatusCode, Url,
    dns::{Name, Resolving},
    header::RETRY_AFTER,
};
use rustls::ClientConfig;
use serde::Deserialize;
use url::Host;

pub use self::formats::ChannelRequest;
use self::formats::Format;
use crate::{
    clients::http,
    crypto::{random::Random, vapid::VapidKey},
    domain::{
        channels::{
            alarm_notice::AlarmNotice,
            channel_lane::ChannelLane,
            channel_url,
            user_channel::{ChannelFault, ChannelKind, ChannelTarget},
        },
        time::Timestamp,
    },
    net::{Names, neighbour::Neighbour},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(8);
/// Largest answer that is read.
const ANSWER_BYTES: usize = 16 * 1024;
/// Characters of a receipt.
const RECEIPT: usize = 64;
/// Status of the answer to a message that edits one which is not there.
pub const NOT_FOUND: u16 = 404;
/// Longest pause that another side may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// True for an address that a channel may have.
pub type MayReach = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// A message that did not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelFailure {
    pub fault: ChannelFault,
    pub status: Option<u16>,
    /// A pause that the other side asks for.
    pub retry_after: Option<Duration>,
}

impl From<ChannelFault> for ChannelFailure {
    fn from(fault: ChannelFault) -> Self {
        Self { fault, status: None, retry_after: None }
    }
}

/// The answer of the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelAnswer {
    pub status: StatusCode,
    /// A pause that it asks for.
    pub retry_after: Option<Duration>,
    /// The receipt of an emergency, or the id of a message.
    pub receipt: Option<String>,
}

/// A message that the other side took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenMessage {
    /// Status of the answer; `None`: it was not asked by HTTP.
    pub status: Option<u16>,
    /// By this the repetitions of an emergency are ended, and a message at Discord is edited.
    pub receipt: Option<String>,
}

/// The part of Pushover's answer, and Discord's, that is read.
#[derive(Deserialize)]
struct MessageName {
    #[serde(alias = "id")]
    receipt: Option<String>,
}

/// Answers a request as the other side would; `None`: there is no answer.
pub type SimulatedReceiver =
    Arc<dyn Fn(ChannelRequest) -> LocalBoxFuture<'static, Option<ChannelAnswer>> + Send + Sync>;

/// The way of requests to the other side.
enum ChannelTransport {
    /// A client for each lane, with connections and look-ups of its own.
    Http {
        proven: reqwest::Client,
        unproven: reqwest::Client,
    },
    Simulated(SimulatedReceiver),
}

/// See the module.
pub struct ChannelClient {
    transport: ChannelTransport,
    may_reach: MayReach,
    allows_private: bool,
    /// `mailto:` or `https:` URI of the operator, for push services.
    contact: String,
    random: Random,
}

impl fmt::Debug for ChannelClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChannelClient")
    }
}

impl ChannelClient {
    /// With `allows_private`, URLs may be in the clear and name any host; `may_reach` decides on each address all the same.
    /// Each lane has look-ups of its own.
    pub fn new(
        names: fn() -> Names,
        tls: ClientConfig,
        may_reach: MayReach,
        allows_private: bool,
        contact: String,
        random: Random,
    ) -> io::Result<Self> {
        let lane = |tls| lane_client(tls, PermittedNames { names: names(), may_reach: may_reach.clone() });
        let (proven, unproven) = (lane(tls.clone())?, lane(tls)?);
        let transport = ChannelTransport::Http { proven, unproven };
        Ok(Self { transport, may_reach, allows_private, contact, random })
    }

    /// A client whose requests this receiver answers, with no network at all.
    pub fn simulated(receiver: SimulatedReceiver, random: Random) -> Self {
        let contact = "mailto:operator@example.com".to_owned();
        Self {
            transport: ChannelTransport::Simulated(receiver),
            may_reach: Arc::new(|_| true),
            allows_private: true,
            contact,
            random,
        }
    }

    /// True if URLs of private hosts are taken.
    pub fn allows_private(&self) -> bool {
        self.allows_private
    }

    /// Sends a message. `id` is the same in every attempt; only a browser's push
    /// service is shown `vapid`.
    pub async fn send(
        &self,
        lane: ChannelLane,
        id: &str,
        target: &ChannelTarget,
        notice: &AlarmNotice,
        vapid: Option<&VapidKey>,
        now: Timestamp,
    ) -> Result<TakenMessage, ChannelFailure> {
        let format = Format { id, notice, vapid, contact: &self.contact, salt: self.random.bytes(), now };
        let request = format.message(target).ok_or(ChannelFault::Rejected)?;
        let failure = match self.post(lane, id, target.kind(), request).await {
            // Someone has deleted the message that is to be edited, and not its channel.
            Err(failure) if notice.replaces.is_some() && failure.status == Some(NOT_FOUND) => {
                return Err(ChannelFailure { fault: ChannelFault::Refused, ..failure });
            }
            Err(failure) if !failure.fault.is_transient() => failure,
            done => return done,
        };
        // A second address that has ended does not end the channel, which brings alarms.
        match format.message_beside_alarms(target) {
            Some(request) => self.post(lane, id, target.kind(), request).await,
            None => Err(failure),
        }
    }

    /// Ends the repetitions of an emergency with this receipt. `id` is that of its message.
    pub async fn cancel(
        &self,
        lane: ChannelLane,
        id: &str,
        target: &ChannelTarget,
        receipt: &str,
    ) -> Result<(), ChannelFailure> {
        let request = formats::cancellation(target, receipt).ok_or(ChannelFault::Rejected)?;
        self.post(lane, id, target.kind(), request).await.map(drop)
    }

    async fn post(
        &self,
        lane: ChannelLane,
        id: &str,
        kind: ChannelKind,
        request: ChannelRequest,
    ) -> Result<TakenMessage, ChannelFailure> {
        let url = self.permitted(&request.url)?;
        let http = match (&self.transport, lane) {
            (ChannelTransport::Http { proven, .. }, ChannelLane::Proven) => proven.request(request.method, url),
            (ChannelTransport::Http { unproven, .. }, ChannelLane::Unproven) => unproven.request(request.method, url),
            (ChannelTransport::Simulated(receiver), _) => {
                return outcome(kind, receiver(request).await.ok_or(ChannelFault::Unavailable)?);
            }
        };
        let http = request.headers.into_iter().fold(http, |http, (name, value)| http.header(&*name, value));
        let answer = http::send_outside(Neighbour::Channels, http.body(request.body)).await.map_err(|error| {
            log::debug!(kind = kind.word(), delivery = id; "a channel does not answer: {}", http::reason(&error));
            ChannelFault::Unavailable
        })?;
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let (status, retry_after) = (answer.status(), retry_after.map(Duration::from_secs));
        let is_named = matches!(kind, ChannelKind::Pushover | ChannelKind::Discord) && status.is_success();
        let receipt = if is_named { receipt(answer).await } else { None };
        outcome(kind, ChannelAnswer { status, retry_after, receipt })
    }

    /// A literal address never reaches the resolver.
    fn permitted(&self, text: &str) -> Result<Url, ChannelFault> {
        let url = Url::parse(text).map_err(|_| ChannelFault::NotAllowed)?;
        channel_url::check(&url, self.allows_private).map_err(|_| ChannelFault::NotAllowed)?;
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address).to_canonical()),
            _ => None,
        };
        if address.is_none_or(|address| (self.may_reach)(address)) { Ok(url) } else { Err(ChannelFault::NotAllowed) }
    }
}

fn lane_client(tls: ClientConfig, names: PermittedNames) -> io::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(names)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TOTAL_TIMEOUT)
        .user_agent(concat!("companion/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(io::Error::other)
}

/// The name of the message in an answer. It is taken without one, too.
async fn receipt(answer: reqwest::Response) -> Option<String> {
    let body = http::read_capped(answer, ANSWER_BYTES).await.ok()?;
    let receipt = serde_json::from_slice::<MessageName>(&body).ok()?.receipt?;
    let is_receipt = (1..=RECEIPT).contains(&receipt.len()) && receipt.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_receipt.then_some(receipt)
}

/// The meaning of an answer.
fn outcome(kind: ChannelKind, answer: ChannelAnswer) -> Result<TakenMessage, ChannelFailure> {
    let ChannelAnswer { status, retry_after, receipt } = answer;
    if status.is_success() {
        return Ok(TakenMessage { status: Some(status.as_u16()), receipt });
    }
    let retry_after = retry_after.map(|pause| pause.min(LONGEST_PAUSE));
    Err(ChannelFailure { fault: fault(kind, status), status: Some(status.as_u16()), retry_after })
}

/// The meaning of a status that is no success.
fn fault(kind: ChannelKind, status: StatusCode) -> ChannelFault {
    match (kind, status.as_u16()) {
        (ChannelKind::WebPush | ChannelKind::Discord, 404) | (_, 410) => ChannelFault::Gone,
        (_, 401 | 403 | 404) => ChannelFault::Refused,
        // Edge's push service throttles with 406.
        (ChannelKind::WebPush, 406) | (_, 429) => ChannelFault::Throttled,
        (_, 408 | 425 | 500..) => ChannelFault::Unavailable,
        _ => ChannelFault::Rejected,
    }
}

/// The look-ups: a name with an address that may not be reached has none.
struct PermittedNames {
    names: Names,
    may_reach: MayReach,
}

impl reqwest::dns::Resolve for PermittedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, may_reach) = (self.names.clone(), self.may_reach.clone());
        Box::pin(async move {
            // The client sets the port.
            let found = names.look_up(name.as_str(), 0).await?;
            if !found.iter().all(|address| may_reach(address.ip().to_canonical())) {
                return Err(
                    io::Error::new(io::ErrorKind::PermissionDenied, "an address that may not be reached").into()
                );
            }
            let addresses: reqwest::dns::Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests;
