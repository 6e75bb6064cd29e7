//! Members, as admin routes show them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    db::{
        members::{HostServer, MemberStatus},
        users::User,
    },
    domain::{
        credential::CredentialState,
        funnel::FunnelStage,
        money::{
            billing_interval::BillingInterval,
            tier::{EffectiveTier, SubscriptionStatus, Tier, TierSource},
        },
        time::Timestamp,
    },
};

/// A user of the service, as admins see them.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    id: String,
    /// The account at the identity provider (SteamID64).
    platform_id: String,
    display_name: String,
    /// https.
    avatar_url: Option<String>,
    subscription: MemberTierView,
    created_at: Timestamp,
    last_seen_at: Timestamp,
}

/// Always an object; tier and status are null without a subscription.
#[derive(Serialize, ToSchema)]
struct MemberTierView {
    /// By a subscription, or else as a beta tester.
    tier: Option<Tier>,
    /// Source of the tier: `paid`, `beta` or null.
    #[schema(value_type = Option<String>, pattern = "^(paid|beta)$")]
    source: Option<TierSource>,
    /// Status of the subscription.
    status: Option<SubscriptionStatus>,
    /// The interval at which the subscription is charged.
    interval: Option<BillingInterval>,
}

impl MemberView {
    pub(crate) fn new(user: User, tier: Option<EffectiveTier>) -> Self {
        let User { id, platform_id, display_name, avatar_url, created_at, last_seen_at, .. } = user;
        let EffectiveTier { tier, source, subscription, .. } = tier.unwrap_or_else(EffectiveTier::none);
        let (status, interval) = subscription.map(|one| (one.status, one.interval)).unzip();
        let subscription = MemberTierView { tier, source, status, interval: interval.flatten() };
        let (id, platform_id) = (id.to_string(), platform_id.to_string());
        Self { id, platform_id, display_name, avatar_url, subscription, created_at, last_seen_at }
    }
}

/// Progress of a member.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusUser {
    id: String,
    platform_id: String,
    display_name: String,
    avatar_url: Option<String>,
    /// At least one dashboard or overlay is open.
    online: bool,
    tier: Option<Tier>,
    /// Source of the tier: `paid`, `beta` or null.
    #[schema(value_type = Option<String>, pattern = "^(paid|beta)$")]
    source: Option<TierSource>,
    status: Option<SubscriptionStatus>,
    /// The interval at which the subscription is charged.
    interval: Option<BillingInterval>,
    has_credential: bool,
    #[schema(value_type = String, format = "credential-state")]
    credential_state: CredentialState,
    /// Number of own servers.
    paired_servers: i64,
    /// The servers of others.
    guest_of: Vec<HostView>,
    /// True if a chat account is linked.
    chat_linked: bool,
    last_seen_at: Timestamp,
    funnel_stage: FunnelStage,
    /// The missing step, in words.
    stuck_reason: Option<&'static str>,
}

/// A server of which a member is a guest.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    server_id: String,
    server_name: String,
    host_id: String,
    host_name: String,
}

impl From<HostServer> for HostView {
    fn from(HostServer { server, server_name, host, host_name }: HostServer) -> Self {
        Self { server_id: server, server_name, host_id: host.to_string(), host_name }
    }
}

impl StatusUser {
    pub(crate) fn new(status: MemberStatus, online: bool) -> Self {
        let MemberStatus { user, tier, credential, paired_servers, hosts, chat_linked, stage } = status;
        let (subscribed, interval) = tier.subscription.map(|one| (one.status, one.interval)).unzip();
        Self {
            id: user.id.to_string(),
            platform_id: user.platform_id.to_string(),
            display_name: user.display_name,
            avatar_url: user.avatar_url,
            online,
            tier: tier.tier,
            source: tier.source,
            status: subscribed,
            interval: interval.flatten(),
            has_credential: credential.is_some(),
            credential_state: match credential {
                None => CredentialState::Missing,
                Some(false) => CredentialState::Unproven,
                Some(true) => CredentialState::Proven,
            },
            paired_servers,
            guest_of: hosts.into_iter().map(HostView::from).collect(),
            chat_linked,
            last_seen_at: user.last_seen_at,
            funnel_stage: stage,
            stuck_reason: stage.stuck_reason(),
        }
    }
}
