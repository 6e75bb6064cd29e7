use super::*;
use crate::{net::Memory, relay::wire::frame::SharedFrame};

/// A socket whose peer takes `room` bytes without reading.
fn socket(room: usize) -> (Rc<Socket>, Memory) {
    let (ours, theirs) = Memory::pair(room);
    (Socket::new(SocketThread::new(Arc::default()), 0, "alice".into(), ours.into(), false), theirs)
}

fn read(peer: &Memory) -> BytesMut {
    let mut buffer = BytesMut::new();
    while peer.try_read_buf(&mut buffer).is_ok_and(|count| count > 0) {}
    buffer
}

#[tokio::test]
async fn a_frame_is_confirmed_when_the_kernel_has_all_of_it() {
    let (socket, peer) = socket(4);
    let (receipt, taken, mut finished) = Receipt::of_alarm(Default::default());
    socket.push_raid(QueuedFrame { receipt: Some(receipt), ..SharedFrame::from(Bytes::from_static(b"abcdef")).into() });
    assert_eq!(taken.get(), 0, "two bytes wait");
    assert!(finished.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty));
    assert_eq!(read(&peer), "abcd");
    socket.pump();
    assert_eq!((read(&peer), taken.get()), (BytesMut::from("ef"), 1));
    assert!(finished.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Closed));
}

#[tokio::test]
async fn a_socket_that_closes_confirms_nothing_that_still_waits() {
    let (socket, peer) = socket(4);
    socket.push(Lane::Raid, SharedFrame::from(Bytes::from_static(b"abcdef")));
    let (receipt, taken, mut finished) = Receipt::of_alarm(Default::default());
    socket.push(
        Lane::Raid,
        QueuedFrame { receipt: Some(receipt.clone()), ..SharedFrame::from(Bytes::from_static(b"second")).into() },
    );
    socket.close(Reason::Restarting);
    socket.push(
        Lane::Raid,
        QueuedFrame { receipt: Some(receipt), ..SharedFrame::from(Bytes::from_static(b"third")).into() },
    );
    assert!(finished.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Closed));
    assert_eq!(taken.get(), 0);
    let mut all = read(&peer);
    for _ in 0..100 {
        socket.pump();
        all.extend_from_slice(&read(&peer));
    }
    assert_eq!(all, [b"abcdef", &Reason::Restarting.frame()[..]].concat(), "the half frame, then the close frame");
}

#[tokio::test]
async fn a_raid_takes_no_frame_of_another_lane_along() {
    let (socket, peer) = socket(1 << 10);
    socket.put(Lane::Event, SharedFrame::from(Bytes::from_static(b"event")));
    socket.push_raid(SharedFrame::from(Bytes::from_static(b"raid")).into());
    assert_eq!(read(&peer), "raid");
    socket.pump();
    assert_eq!(read(&peer), "event");
}

#[tokio::test]
async fn a_raid_that_must_wait_holds_back_no_frame_of_another_lane() {
    let (socket, peer) = socket(1 << 10);
    let raid = || SharedFrame::from(Bytes::from_static(b"raid"));
    socket.push_raid(raid().into());
    while !read(&peer).is_empty() {
        socket.push_raid(raid().into());
    }
    socket.put(Lane::Event, SharedFrame::from(Bytes::from_static(b"event")));
    socket.push_raid(raid().into());
    assert_eq!(read(&peer), "event");
}

#[tokio::test]
async fn a_raid_goes_on_behind_the_rest_of_a_frame_and_when_there_is_room() {
    let (socket, peer) = socket(4);
    let (receipt, taken, _finished) = Receipt::of_alarm(Default::default());
    socket.push(Lane::Event, SharedFrame::from(Bytes::from_static(b"event")));
    socket.push_raid(QueuedFrame { receipt: Some(receipt), ..SharedFrame::from(Bytes::from_static(b"raid")).into() });
    let mut all = read(&peer);
    while taken.get() == 0 {
        socket.pump();
        all.extend_from_slice(&read(&peer));
    }
    assert_eq!(all, "eventraid");
}
