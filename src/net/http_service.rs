//! What both listeners serve HTTP with: they accept within the limits and let no request take for ever.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_http::{
    HttpServiceBuilder, Payload, Protocol, Request, Response,
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
        connections::{Connections, Crowded},
        http_stream::{Exchanges, HttpStream, UnderWay},
        timer::Timer,
    },
};

/// How long a client whose request is not read to its end may take to read the answer.
const LINGER: Duration = Duration::from_secs(1);

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
        })
}

/// Accepts connections for this HTTP service, as long as they are not too many; with `handshakes`, as long as they speak
/// HTTP there must not be too many of those either.
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
            let admitted = connections
                .admit(peer.ip())
                .and_then(|permit| Ok((permit, handshakes.map(|handshakes| handshakes.admit(peer.ip())).transpose()?)));
            match admitted {
                Ok((permit, handshake)) => {
                    let stream = HttpStream::new(stream, permit).during_handshake(handshake);
                    Ok((stream, Protocol::Http1, Some(peer)))
                }
                Err(crowded) => {
                    refuse(&stream, crowded);
                    Err(DispatchError::Io(io::ErrorKind::ConnectionRefused.into()))
                }
            }
        }
    })
    .and_then(http)
}

/// Says why, if the client listens; the connection ends here.
fn refuse(stream: &TcpStream, crowded: Crowded) {
    let answer: &[u8] = match crowded {
        Crowded::Service => {
            b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
        Crowded::Household => {
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
    };
    let _ = SockRef::from(stream).send(answer);
}

/// Serves with this application, and gives every body [`BODY_DEADLINE`]: after it the body ends with an error that
/// [`is_late`] knows. A body that is not read to its end closes its connection.
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
        let under_way = request.conn_data::<Rc<Exchanges>>().cloned().map(Exchanges::begin);
        let body = match request.take_payload() {
            Payload::None => None,
            payload => Some(Rc::new(RefCell::new(payload))),
        };
        if let Some(body) = body.clone() {
            let due = Instant::now() + BODY_DEADLINE;
            *request.payload() =
                Payload::Stream { payload: Box::pin(TimedBody { body, due, timer: Timer::default() }) };
        }
        let answered = app.call(request);
        async move {
            let response: Response<B> = answered.await?.into();
            Ok(response.map_body(|_, answer| TimedAnswer { answer: answer.boxed(), _request: (body, under_way) }))
        }
    })
}

/// Whether a body was not there in time.
pub fn is_late(error: &PayloadError) -> bool {
    matches!(error, PayloadError::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

/// The body of a request, until its deadline.
struct TimedBody {
    body: Rc<RefCell<Payload>>,
    due: Instant,
    timer: Timer,
}

impl Stream for TimedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        match Pin::new(&mut *this.body.borrow_mut()).poll_next(cx) {
            Poll::Pending => {
                this.timer.poll(this.due, cx).map(|()| Some(Err(PayloadError::Io(io::ErrorKind::TimedOut.into()))))
            }
            ready => ready,
        }
    }
}

/// The body of an answer. While it is written, its request is under way, and the request's body is not dropped: the
/// server would read the rest of a dropped one, however long that takes, instead of closing the connection.
pub struct TimedAnswer {
    answer: BoxBody,
    _request: (Option<Rc<RefCell<Payload>>>, Option<UnderWay>),
}

impl MessageBody for TimedAnswer {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().answer).poll_next(cx)
    }
}
