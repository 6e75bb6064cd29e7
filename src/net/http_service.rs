//! HTTP service of both listeners: it accepts within the limits and lets no request take for ever.

use std::{
    cell::{Cell, RefCell},
    io,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use actix_http::{
    ConnectionType, Extensions, HttpMessage as _, HttpServiceBuilder, Payload, Protocol, Request, Response, StatusCode,
    body::{BodySize, BoxBody, MessageBody},
    error::{DispatchError, PayloadError},
};
use actix_server::GracefulShutdownSignal;
use actix_service::{Service, ServiceFactory, ServiceFactoryExt as _, apply_fn_factory, fn_service};
use bytes::Bytes;
use futures_util::Stream;
use socket2::SockRef;
use tokio::{net::TcpStream, time::Instant};

use crate::{
    domain::limits::{BODY_DEADLINE, HEAD_DEADLINE},
    net::{
        connections::{Connections, TooManyConnections},
        http_stream::{Exchanges, HttpStream, LINGER, UnderWay},
        timer::Timer,
    },
};

/// Bytes that the kernel may hold for a client that does not read, here and at the relay; it doubles this for its own
/// accounts. It reports that a client takes something once a third of them is free, and by itself it keeps megabytes: a
/// slow reader would look like one that takes nothing.
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of an answer's body that the server gets at once.
const ANSWER_PIECE: usize = 16 * 1024;

/// The settings of an HTTP service; `shutdown` ends idle connections.
pub fn builder<S>(shutdown: GracefulShutdownSignal) -> HttpServiceBuilder<HttpStream, S>
where
    S: ServiceFactory<Request, Config = ()>,
    S::Error: Into<Response<BoxBody>> + 'static,
    S::InitError: std::fmt::Debug,
    <S::Service as Service<Request>>::Future: 'static,
{
    HttpServiceBuilder::default()
        .client_request_timeout(HEAD_DEADLINE)
        .client_disconnect_timeout(LINGER)
        .graceful_shutdown_signal(move || {
            let shutdown = shutdown.clone();
            async move { shutdown.notified().await }
        })
        .on_connect_ext(|stream: &HttpStream, extensions| {
            extensions.insert(stream.exchanges());
            if stream.is_spare() {
                extensions.insert(SpareConnection);
            }
        })
}

/// Among the data of a connection that is only for the operator's questions: one, and then it is closed.
pub struct SpareConnection;

/// Accepts connections for this HTTP service, as long as they are not too many, and then spare ones; with `handshakes`, no
/// spare ones, and as long as they speak HTTP there must not be too many of those either.
pub fn accepting<S>(
    connections: Arc<Connections>,
    handshakes: Option<Arc<Connections>>,
    http: S,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = DispatchError, InitError = ()>
where
    S: ServiceFactory<
            (HttpStream, Protocol, Option<std::net::SocketAddr>),
            Config = (),
            Response = (),
            Error = DispatchError,
            InitError = (),
        >,
{
    fn_service(move |stream: TcpStream| {
        let (connections, handshakes) = (connections.clone(), handshakes.clone());
        async move {
            let peer = stream.peer_addr()?;
            let admitted = match handshakes {
                None => connections.admit_or_spare(peer.ip()).map(|permit| (permit, None)),
                Some(handshakes) => {
                    connections.admit(peer.ip()).and_then(|permit| Ok((permit, Some(handshakes.admit(peer.ip())?))))
                }
            };
            match admitted {
                Ok((permit, handshake)) => {
                    SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
                    let stream = HttpStream::new(stream, permit).during_handshake(handshake);
                    Ok((stream, Protocol::Http1, Some(peer)))
                }
                Err(crowded) => {
                    refuse(&stream, crowded, peer.ip());
                    Err(DispatchError::Io(io::ErrorKind::ConnectionRefused.into()))
                }
            }
        }
    })
    .and_then(http)
}

/// Says why, if the client listens; the connection ends here.
fn refuse(stream: &TcpStream, crowded: TooManyConnections, from: IpAddr) {
    crowded.count(from);
    let answer: &[u8] = match crowded {
        TooManyConnections::Service => {
            b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
        TooManyConnections::Household => {
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
    };
    let _ = SockRef::from(stream).send(answer);
}

/// Serves with this application, and gives every body [`BODY_DEADLINE`], if its handler gives no more: after it the body
/// ends with an error that [`is_late`] knows. A body that is not read to its end closes its connection; so does a request for
/// an upgrade that is answered without one.
pub fn with_deadlines<S, B>(
    app: S,
) -> impl ServiceFactory<
    Request,
    Config = (),
    Response = Response<TimedAnswer>,
    Error = S::Error,
    InitError = S::InitError,
    Service = impl Service<Request, Response = Response<TimedAnswer>, Error = S::Error, Future: 'static>,
    Future: 'static,
>
where
    S: ServiceFactory<Request, Config = ()> + 'static,
    S::Response: Into<Response<B>>,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    apply_fn_factory(app, |mut request: Request, app: &S::Service| {
        let body = match request.take_payload() {
            Payload::None => None,
            payload => Some(Rc::new(RefCell::new(payload))),
        };
        let exchanges = request.conn_data::<Rc<Exchanges>>().cloned();
        let under_way = exchanges.clone().map(Exchanges::begin);
        if let Some(body) = body.clone() {
            let due = BodyDeadline(Rc::new(Cell::new(Instant::now() + BODY_DEADLINE)));
            request.extensions_mut().insert(due.clone());
            *request.payload() =
                Payload::Stream { payload: Box::pin(TimedBody { body, exchanges, due, timer: Timer::default() }) };
        }
        let (wants_upgrade, is_spare) = (request.upgrade(), request.conn_data::<SpareConnection>().is_some());
        let answered = app.call(request);
        async move {
            let mut response: Response<B> = answered.await?.into();
            if is_spare || wants_upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                // To a request for an upgrade, the answer would repeat the `upgrade` of the request.
                response.head_mut().set_connection_type(ConnectionType::Close);
            }
            Ok(response.map_body(|_, answer| TimedAnswer {
                answer: answer.boxed(),
                rest: Bytes::new(),
                _request: AnsweredRequest { body, under_way },
            }))
        }
    })
}

/// True if a body was not there in time.
pub fn is_late(error: &PayloadError) -> bool {
    matches!(error, PayloadError::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

/// When the body of a request must be there. In the request's extensions.
#[derive(Clone)]
pub struct BodyDeadline(Rc<Cell<Instant>>);

impl BodyDeadline {
    /// From now on, the body of the request with these extensions may take so long.
    pub fn extend(request: &Extensions, time: Duration) {
        if let Some(Self(due)) = request.get() {
            due.set(Instant::now() + time);
        }
    }
}

/// The body of a request, until its deadline.
struct TimedBody {
    body: Rc<RefCell<Payload>>,
    exchanges: Option<Rc<Exchanges>>,
    due: BodyDeadline,
    timer: Timer,
}

impl Stream for TimedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut *this.body.borrow_mut()).poll_next(cx);
        if let Some(exchanges) = &this.exchanges {
            exchanges.want_body(polled.is_pending());
        }
        match polled {
            Poll::Pending => {
                let late = this.timer.poll(this.due.0.get(), cx);
                late.map(|()| Some(Err(PayloadError::Io(io::ErrorKind::TimedOut.into()))))
            }
            ready => ready,
        }
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        if let Some(exchanges) = &self.exchanges {
            exchanges.want_body(false);
        }
    }
}

/// The body of an answer. While it is written, its request is under way, and the request's body is not dropped: the
/// server would read the rest of a dropped one, however long that takes, instead of closing the connection. The server
/// copies what it gets, so it gets a large body in pieces: for a slow reader it holds one piece and not the whole.
pub struct TimedAnswer {
    answer: BoxBody,
    /// The rest of the part that is handed over.
    rest: Bytes,
    _request: AnsweredRequest,
}

/// A request until its answer is written.
struct AnsweredRequest {
    body: Option<Rc<RefCell<Payload>>>,
    under_way: Option<UnderWay>,
}

impl Drop for AnsweredRequest {
    fn drop(&mut self) {
        if let (Some(body), Some(under_way)) = (&self.body, &self.under_way)
            && !has_come(&mut body.borrow_mut())
        {
            under_way.linger();
        }
    }
}

/// True if all of this body was read from the connection.
fn has_come(body: &mut Payload) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *body).poll_next(&mut cx) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(_) => return true,
            Poll::Pending => return false,
        }
    }
}

impl MessageBody for TimedAnswer {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.answer).poll_next(cx)) {
                Some(Ok(part)) => this.rest = part,
                end_or_error => return Poll::Ready(end_or_error),
            }
        }
        let piece = this.rest.split_to(ANSWER_PIECE.min(this.rest.len()));
        Poll::Ready(Some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, stream};

    use super::*;

    #[test]
    fn a_connection_ends_after_an_answer_if_the_body_has_not_come_and_goes_on_if_it_has() {
        let of = |body: Option<Payload>| {
            let exchanges = Rc::<Exchanges>::default();
            let under_way = exchanges.clone().begin();
            let body = body.map(|body| Rc::new(RefCell::new(body)));
            drop(AnsweredRequest { body, under_way: Some(under_way) });
            exchanges.linger_due().is_some()
        };
        let part = || stream::once(async { Ok(Bytes::from_static(b"{")) });
        assert!(of(Some(Payload::Stream { payload: Box::pin(part().chain(stream::pending())) })));
        assert!(!of(Some(Payload::Stream { payload: Box::pin(part()) })));
        assert!(!of(None), "it has none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_can_give_a_body_more_time() {
        let started = Instant::now();
        let due = BodyDeadline(Rc::new(Cell::new(started + BODY_DEADLINE)));
        let mut extensions = Extensions::new();
        extensions.insert(due.clone());
        let endless: Payload = Payload::Stream { payload: Box::pin(stream::pending()) };
        let mut body =
            TimedBody { body: Rc::new(RefCell::new(endless)), exchanges: None, due, timer: Timer::default() };
        // The body waits already when the time is given.
        assert!(body.next().now_or_never().is_none());
        BodyDeadline::extend(&extensions, 3 * BODY_DEADLINE);
        assert!(body.next().await.is_some_and(|chunk| chunk.is_err_and(|error| is_late(&error))));
        assert_eq!(Instant::now() - started, 3 * BODY_DEADLINE);
    }
}
