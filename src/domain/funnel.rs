//! Progress of a member on the way to a watched base, and the step that is missing.

use utoipa::ToSchema;

use crate::domain::words::words;

words! {
    /// Stage of a member.
    #[derive(PartialOrd, Ord, ToSchema)]
    pub enum FunnelStage {
        NoSubscription = "no-subscription",
        NoCredentials = "no-credentials",
        NoPairedServer = "no-paired-server",
        Ready = "ready",
        /// A guest of another user's server, without one of their own: nothing else is needed.
        GuestReady = "guest-ready",
    }
}

/// Facts that decide the stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct FunnelFacts {
    /// By a subscription or as a beta tester.
    pub has_tier: bool,
    pub has_credential: bool,
    /// One of their own.
    pub has_paired_server: bool,
    pub is_guest: bool,
}

impl FunnelStage {
    /// Where members get stuck.
    pub const STUCK: [Self; 3] = [Self::NoSubscription, Self::NoCredentials, Self::NoPairedServer];

    /// The first step that is missing.
    pub fn of(facts: FunnelFacts) -> Self {
        match facts {
            FunnelFacts { is_guest: true, has_paired_server: false, .. } => Self::GuestReady,
            FunnelFacts { has_tier: false, .. } => Self::NoSubscription,
            FunnelFacts { has_credential: false, .. } => Self::NoCredentials,
            FunnelFacts { has_paired_server: false, .. } => Self::NoPairedServer,
            FunnelFacts { .. } => Self::Ready,
        }
    }

    /// The missing step, in words; `None` if none is missing.
    pub fn stuck_reason(self) -> Option<&'static str> {
        match self {
            Self::NoSubscription => Some("Has no subscription, and is no beta tester."),
            Self::NoCredentials => Some("Has not uploaded a push credential."),
            Self::NoPairedServer => Some("Has not paired a game server."),
            Self::Ready | Self::GuestReady => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_before_the_first_step_that_is_missing() {
        let stage = |facts: [bool; 4]| {
            let [has_tier, has_credential, has_paired_server, is_guest] = facts;
            FunnelStage::of(FunnelFacts { has_tier, has_credential, has_paired_server, is_guest })
        };
        let (no, yes) = (false, true);
        assert_eq!(stage([no, no, no, no]), FunnelStage::NoSubscription);
        assert_eq!(stage([no, yes, yes, no]), FunnelStage::NoSubscription, "the steps have an order");
        assert_eq!(stage([yes, no, yes, no]), FunnelStage::NoCredentials);
        assert_eq!(stage([yes, yes, no, no]), FunnelStage::NoPairedServer);
        assert_eq!(stage([yes, yes, yes, no]), FunnelStage::Ready);
        assert_eq!(stage([no, no, no, yes]), FunnelStage::GuestReady, "the host has done it all");
        assert_eq!(stage([yes, yes, no, yes]), FunnelStage::GuestReady);
        assert_eq!(stage([no, no, yes, yes]), FunnelStage::NoSubscription, "the own server is not watched");
        assert_eq!(stage([yes, yes, yes, yes]), FunnelStage::Ready);
    }

    #[test]
    fn only_who_is_stuck_has_a_reason_and_names_are_those_of_the_contract() {
        for stage in [FunnelStage::Ready, FunnelStage::GuestReady] {
            assert!(stage.stuck_reason().is_none());
        }
        for stage in FunnelStage::STUCK {
            assert!(stage.stuck_reason().is_some());
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.word());
        }
        assert_eq!(serde_json::to_value(FunnelStage::GuestReady).unwrap(), "guest-ready");
    }
}
