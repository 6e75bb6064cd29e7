//! Failures of a registration for the game's pushes that its user learns at once.

use crate::domain::{
    game_login::LoginFault,
    ids::PlatformId,
    problem::{self, ProblemCode},
};

/// Every way in which the login of a registration is not taken, as its user sees it.
#[derive(Debug)]
pub enum RegistrationProblem {
    /// The operator has not set the key.
    Disabled,
    /// A step is being made.
    Running,
    /// The login came back too late.
    Closed,
    Login(LoginFault),
    /// Another account signed in than the user's.
    OtherAccount {
        signed_in: PlatformId,
        user: PlatformId,
    },
}

impl RegistrationProblem {
    /// Code, statuses and title of the answer.
    pub fn code(&self) -> &'static ProblemCode {
        match self {
            Self::Disabled => &problem::REGISTRATION_DISABLED,
            Self::Running => &problem::REGISTRATION_RUNNING,
            Self::Closed => &problem::REGISTRATION_CLOSED,
            Self::Login(LoginFault::Expired) => &problem::LOGIN_EXPIRED,
            Self::Login(_) => &problem::INVALID_LOGIN_ADDRESS,
            Self::OtherAccount { .. } => &problem::MISMATCHED_PLATFORM_ID,
        }
    }

    /// A sentence for the client's user.
    pub fn detail(&self) -> String {
        match self {
            Self::Disabled => {
                "This service does not register itself. Run a registration tool on your computer, and upload its file \
                 with a paired helper device."
                    .into()
            }
            Self::Running => "A step of your registration is being made. Please wait for its end.".into(),
            Self::Closed => "The login took longer than an hour. Please begin another registration.".into(),
            Self::Login(fault) => format!("This does not work: {fault}."),
            Self::OtherAccount { signed_in, user } => format!(
                "The account {signed_in} signed in at the game's site, and you are {user} here. Please sign out there, and \
                 sign in as {user}."
            ),
        }
    }
}
