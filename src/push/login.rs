//! The login at Google's MCS: the request, and how a login can fail.

use std::{io, sync::Arc, time::Duration};

use rustls::ClientConfig;
use secrecy::{ExposeSecret as _, SecretBox};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use crate::{
    config::PushAddress,
    net::{Network, NetworkError, SecureStream},
    push::{
        mcs::Frame,
        session::{McsSession, SessionEnd},
        session_status::SessionFault,
        wire::{LoginRequest, LoginResponse, Setting},
    },
};

/// Resolving, connecting and TLS together; then the login.
const DEADLINE: Duration = Duration::from_secs(15);
/// Ids that one login names.
const RECEIVED_IDS: usize = 1000;
/// Kind of login: by an Android id and its token.
const ANDROID_ID: i32 = 2;

/// The account whose pushes are received.
pub struct PushLogin {
    pub android_id: u64,
    pub security_token: SecretBox<u64>,
    /// Persistent ids that need not be delivered again, the newest first; at most 1000 of them are sent.
    pub received: Vec<String>,
}

/// Failure of a login.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("no connection: {0}")]
    Unreachable(String),
    #[error("no answer in time")]
    TimedOut,
    /// The credential no longer works; its owner has to register again.
    #[error("the login is refused (code {0})")]
    Refused(i32),
    /// A fault of the push service (5xx); the credential may still be good.
    #[error("the push service has a fault (code {0})")]
    ServiceFault(i32),
    #[error("the answer is not the protocol: {0}")]
    Protocol(String),
}

impl LoginError {
    /// The failure in fixed words.
    pub fn fault(&self) -> SessionFault {
        match self {
            Self::Network(NetworkError::Unresolved(_)) => SessionFault::Unresolved,
            Self::Network(NetworkError::Unreachable(error)) if is_untrusted(error) => {
                SessionFault::UntrustedCertificate
            }
            Self::Network(_) | Self::Unreachable(_) => SessionFault::NoConnection,
            Self::TimedOut => SessionFault::TimedOut,
            Self::Refused(_) => SessionFault::LoginRefused,
            Self::ServiceFault(_) => SessionFault::ServiceFault,
            Self::Protocol(_) => SessionFault::Protocol,
        }
    }
}

/// True for a connection that ended because of the other end's certificate.
pub fn is_untrusted(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

/// Connects, in 15 seconds or not at all.
pub async fn connect(
    network: &Network,
    address: &PushAddress,
    tls: Arc<ClientConfig>,
) -> Result<SecureStream, LoginError> {
    let connected = network.connect_secure(&address.host, address.port, tls);
    Ok(timeout(DEADLINE, connected).await.map_err(|_| LoginError::TimedOut)??)
}

/// Logs in over a connection that is up, in 15 seconds or not at all.
pub async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    login: PushLogin,
) -> Result<McsSession<S>, LoginError> {
    let mut session = McsSession::new(stream);
    let asked = session.ask(Frame::LoginRequest(request(login)));
    match timeout(DEADLINE, asked).await.map_err(|_| LoginError::TimedOut)? {
        Ok(Frame::LoginResponse(LoginResponse { error: None, .. })) => Ok(session),
        Ok(Frame::LoginResponse(LoginResponse { error: Some(error), .. })) => Err(match error.code {
            500..=599 => LoginError::ServiceFault(error.code),
            code => LoginError::Refused(code),
        }),
        Ok(Frame::Close | Frame::StreamError(_)) => Err(LoginError::Unreachable(SessionEnd::Closed.to_string())),
        Ok(_) => Err(LoginError::Protocol("the login is not answered first".to_owned())),
        Err(SessionEnd::Protocol(error)) => Err(LoginError::Protocol(error.to_string())),
        Err(end) => Err(LoginError::Unreachable(end.to_string())),
    }
}

/// The login as Chrome's own client sends it.
fn request(login: PushLogin) -> LoginRequest {
    let android_id = login.android_id.to_string();
    LoginRequest {
        id: "chrome-63.0.3234.0".to_owned(),
        domain: "mcs.android.com".to_owned(),
        user: android_id.clone(),
        resource: android_id,
        auth_token: login.security_token.expose_secret().to_string(),
        device_id: Some(format!("android-{:x}", login.android_id)),
        setting: vec![Setting { name: "new_vc".to_owned(), value: "1".to_owned() }],
        received_persistent_id: login.received.into_iter().take(RECEIVED_IDS).collect(),
        adaptive_heartbeat: Some(false),
        use_rmq2: Some(true),
        auth_service: Some(ANDROID_ID),
        network_type: Some(1),
        ..LoginRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;
    use crate::push::{
        testing::{TOKEN, answered, bytes, login, message},
        wire::ErrorInfo,
    };

    #[tokio::test(start_paused = true)]
    async fn the_login_is_byte_for_byte_what_others_send() {
        let (ours, mut theirs) = duplex(4096);
        let logging_in = tokio::spawn(log_in(ours, login()));
        let mut sent = vec![0; 177];
        theirs.read_exact(&mut sent).await.expect("the login");
        let mut expected = vec![0x29, 2, 0xad, 1];
        expected.extend(b"\x0a\x12chrome-63.0.3234.0\x12\x0fmcs.android.com\x1a\x135000000000000000001");
        expected.extend(b"\x22\x135000000000000000001\x2a\x131234567890123456789\x32\x18android-4563918244f40001");
        expected.extend(
            b"\x42\x0b\x0a\x06new_vc\x12\x011\x52\x160:1700000000000001%abc\x60\0\x70\x01\x80\x01\x02\x88\x01\x01",
        );
        assert_eq!(sent, expected);
        drop(theirs);
        assert!(matches!(logging_in.await.expect("no panic"), Err(LoginError::Unreachable(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_fails_for_its_own_reason() {
        let refused = |code| {
            let error = Some(ErrorInfo { code, message: Some(TOKEN.to_string()), ..ErrorInfo::default() });
            bytes(Frame::LoginResponse(LoginResponse { error, ..LoginResponse::default() }))
        };
        let failed = async |answer: &[u8]| answered(answer).await.expect_err("no session");
        assert!(matches!(failed(&refused(401)).await, LoginError::Refused(401)));
        assert!(matches!(failed(&refused(503)).await, LoginError::ServiceFault(503)));
        assert!(matches!(failed(&bytes(Frame::Close)).await, LoginError::Unreachable(_)));
        assert!(matches!(failed(&bytes(message(1))).await, LoginError::Protocol(_)));
        assert!(matches!(failed(&[3, 0xff, 0xff, 0xff, 0xff, 0xff]).await, LoginError::Protocol(_)));
        assert!(!failed(&refused(401)).await.to_string().contains(&TOKEN.to_string()));
    }
}
