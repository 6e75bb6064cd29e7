//! The push service's end of a connection, for the tests of this room.

use bytes::{Bytes, BytesMut};
use secrecy::SecretBox;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use crate::push::{
    login::{LoginError, PushLogin, log_in},
    mcs::{Decoder, Frame, VERSION},
    session::{McsSession, Received},
    wire::{AppData, DataMessageStanza, Extension, HeartbeatPing, IqStanza, LoginResponse, iq_stanza},
};

pub const TOKEN: u64 = 1_234_567_890_123_456_789;

pub fn login() -> PushLogin {
    PushLogin {
        android_id: 5_000_000_000_000_000_001,
        security_token: SecretBox::new(Box::new(TOKEN)),
        received: vec!["0:1700000000000001%abc".to_owned()],
    }
}

/// The service's end of a connection: time is paused, so waiting for the other side takes no time.
#[derive(Debug)]
pub struct Service {
    pub stream: DuplexStream,
    decoder: Decoder,
    inbox: BytesMut,
}

impl Service {
    pub fn new(stream: DuplexStream) -> Self {
        Self { stream, decoder: Decoder::default(), inbox: BytesMut::new() }
    }

    pub async fn received(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.decoder.next(&mut self.inbox).expect("a frame") {
                return frame;
            }
            let read = self.stream.read_buf(&mut self.inbox).await.expect("bytes");
            assert_ne!(read, 0, "the session ended");
        }
    }

    /// Next frame of the session, which is polled meanwhile.
    pub async fn received_beside(&mut self, session: &mut McsSession<DuplexStream>) -> Frame {
        tokio::select! {
            frame = self.received() => frame,
            received = session.next() => panic!("{received:?}"),
        }
    }

    pub async fn send(&mut self, frames: &[Frame]) {
        let mut bytes = BytesMut::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        self.stream.write_all(&bytes).await.expect("a reader");
    }
}

pub fn message(id: u32) -> Frame {
    Frame::DataMessage(DataMessageStanza {
        persistent_id: Some(format!("0:{id}")),
        sent: Some(1_700_000_000_000 + i64::from(id)),
        app_data: vec![AppData { key: "title".into(), value: id.to_string() }],
        ..DataMessageStanza::default()
    })
}

pub fn ack(received: i32) -> Frame {
    Frame::IqStanza(IqStanza {
        r#type: iq_stanza::Type::Set.into(),
        extension: Some(Extension { id: 13, data: Bytes::new() }),
        last_stream_id_received: Some(received),
        ..IqStanza::default()
    })
}

pub fn ping(received: i32) -> Frame {
    Frame::HeartbeatPing(HeartbeatPing { last_stream_id_received: Some(received), ..HeartbeatPing::default() })
}

/// The outcome of a login that is answered with these bytes behind the version.
pub async fn answered(answer: &[u8]) -> Result<(McsSession<DuplexStream>, Service), LoginError> {
    let (ours, theirs) = duplex(4096);
    let mut service = Service::new(theirs);
    let answering = async {
        service.received().await;
        service.stream.write_all(&[&[VERSION], answer].concat()).await.expect("a reader");
    };
    let (session, ()) = tokio::join!(log_in(ours, login()), answering);
    Ok((session?, service))
}

pub fn bytes(frame: Frame) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out.to_vec()
}

pub async fn logged_in() -> (McsSession<DuplexStream>, Service) {
    answered(&bytes(Frame::LoginResponse(LoginResponse::default()))).await.expect("a session")
}

pub fn title(received: Received) -> String {
    let Received::Message(message, _) = received else { panic!("{received:?}") };
    message.app_data[0].1.clone()
}
