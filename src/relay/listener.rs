//! The relay's listener: `GET /v1`, which becomes a WebSocket, and `GET /health`.
//!
//! `/v1` is an ordinary route: token, origin and limits are checked there and the handshake is made there. A request
//! that wants an upgrade runs through the same App; when the answer is a 101, its head is written and the socket
//! leaves HTTP for good: a [`ClientSocket`] owns it. Any other answer is sent as it is.

use std::{
    io, net,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use actix::Addr;
use actix_codec::Framed;
use actix_http::{
    ConnectionType, Request,
    body::{BodySize, MessageBody as _},
    h1,
};
use actix_server::ServerBuilder;
use actix_service::{IntoServiceFactory as _, Service, ServiceFactory, fn_factory, fn_service, map_config};
use actix_web::{
    App, HttpRequest, HttpResponse, Route,
    dev::{AppConfig, Payload, ServiceRequest, ServiceResponse},
    http::header::{self, HeaderMap, HeaderValue},
    middleware::DefaultHeaders,
    web,
};
use actix_web_actors::ws;
use futures_util::SinkExt as _;
use serde::Serialize;
use tokio::time::Instant;
use url::form_urlencoded;

use crate::{
    catalogue::SharedCatalogue,
    clock::Clock,
    config::BaseUrl,
    crypto::{
        random::Random,
        relay_token::{RelayClaims, RelayTokens},
    },
    domain::{
        ids::UserId,
        problem::{self, ProblemCode},
    },
    net::{
        HttpStream, Stream,
        budgets::ToggleBudgets,
        connections::Connections,
        http_service,
        refusals::{NotedRefusal, RefusalLog},
    },
    relay::{
        client::{
            admission::{Admission, Admit, AdmitRefused},
            client_socket::ClientSocket,
            relay_worker::RelayWorker,
            sockets::Sockets,
        },
        hub::{Hub, RelayHealth},
        wire::deflate,
    },
};

/// Sub-protocol under which the token may come instead of the query.
const BEARER: &str = "bearer.";

/// Parts of the service that the listener uses.
pub struct ListenerContext {
    pub clock: Clock,
    pub catalogue: SharedCatalogue,
    pub random: Random,
    pub tokens: Arc<RelayTokens>,
    /// Browser origins that may open a socket.
    pub origins: Vec<String>,
    /// permessage-deflate is agreed with clients that offer it.
    pub deflate: bool,
    /// The public URL of the API, where the pages of problems are.
    pub base: BaseUrl,
    pub toggles: ToggleBudgets,
    pub connections: Arc<Connections>,
    /// The `connections` that are no sockets yet.
    pub handshakes: Arc<Connections>,
    pub hub: Addr<Hub>,
    pub health: Arc<RelayHealth>,
    pub started: Instant,
    pub refusals: Arc<RefusalLog>,
}

/// Binds the relay to a listening socket.
pub fn bind(builder: ServerBuilder, socket: net::TcpListener, context: ListenerContext) -> io::Result<ServerBuilder> {
    let context = Arc::new(context);
    let shutdown = builder.graceful_shutdown_signal();
    builder.listen("relay", socket, move || {
        let for_upgrades = context.clone();
        let app = map_config(app(context.clone()), |()| AppConfig::default());
        let http = http_service::builder(shutdown.clone())
            .upgrade(fn_factory(move || upgrade_service(for_upgrades.clone())))
            .finish(http_service::with_deadlines(app));
        http_service::accepting(context.connections.clone(), Some(context.handshakes.clone()), http)
    })
}

fn app(
    context: Arc<ListenerContext>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<actix_web::body::BoxBody>,
        Error = actix_web::Error,
        InitError = (),
    >,
> {
    let headers = DefaultHeaders::new()
        .add((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .add((header::REFERRER_POLICY, "no-referrer"))
        .add((header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"))
        .add((header::CACHE_CONTROL, "no-store"));
    App::new()
        .wrap(headers)
        .app_data(web::Data::from(context.clone()))
        .service(web::resource("/v1").route(web::get().to(open)).default_service(wrong_method("GET")))
        .service(
            web::resource("/health")
                .route(web::get().to(health))
                .route(web::head().to(health))
                .default_service(wrong_method("GET, HEAD")),
        )
        .default_service(web::to(
            |context: web::Data<ListenerContext>| async move { refusal(Refused::NotFound, &context) },
        ))
}

/// Answers a method that is not one of these.
fn wrong_method(allowed: &'static str) -> Route {
    web::to(move |context: web::Data<ListenerContext>| async move { refusal(Refused::WrongMethod(allowed), &context) })
}

/// The service of one worker thread that takes requests which want another protocol.
async fn upgrade_service(
    context: Arc<ListenerContext>,
) -> Result<impl Service<(Request, Framed<HttpStream, h1::Codec>), Response = (), Error = actix_web::Error>, ()> {
    let sockets = Sockets::start(context.health.sent.of_new_thread());
    let (clock, catalogue, hub) = (context.clock.clone(), context.catalogue.clone(), context.hub.clone().into());
    let worker = RelayWorker::new(clock, catalogue, hub, context.toggles.clone(), sockets);
    let service = map_config(app(context), |()| AppConfig::default()).into_factory().new_service(()).await?;
    let service = Rc::new(service);
    Ok(fn_service(move |(request, framed): (Request, Framed<HttpStream, h1::Codec>)| {
        let (service, worker) = (service.clone(), worker.clone());
        async move {
            let response = service.call(request).await?;
            hand_over(response, framed, worker).await.map_err(actix_web::Error::from)
        }
    }))
}

/// Writes the answer; after a 101 the socket becomes a [`ClientSocket`].
async fn hand_over(
    response: ServiceResponse,
    mut framed: Framed<HttpStream, h1::Codec>,
    worker: Rc<RelayWorker>,
) -> io::Result<()> {
    let (request, response) = response.into_parts();
    // actix keeps some requests to use them again: with the headers, each would keep the buffer that they were read
    // into. No one else holds this request by now.
    *ServiceRequest::from_parts(request, Payload::None).headers_mut() = HeaderMap::new();
    let (mut response, body) = response.into_parts();
    let opening = response.extensions_mut().remove::<Opening>();
    let mut head = actix_http::Response::from(response.set_body(()).map_into_boxed_body()).drop_body();
    match opening {
        Some(Opening { user, mut admission, deflates }) => {
            framed.send(h1::Message::Item((head, BodySize::None))).await?;
            let parts = framed.into_parts();
            // Frames are small, and an alarm waits for no other; without it they are only slower.
            let (stream, permit) = parts.io.into_parts();
            let _ = stream.set_nodelay(true);
            admission.hold(permit);
            ClientSocket::start(worker, user, admission, Stream::from(stream), parts.read_buf, deflates);
        }
        None => {
            head.head_mut().set_connection_type(ConnectionType::Close);
            let body = body.try_into_bytes().unwrap_or_default();
            framed.feed(h1::Message::Item((head, BodySize::Sized(body.len() as u64)))).await?;
            framed.feed(h1::Message::Chunk(Some(body))).await?;
            framed.send(h1::Message::Chunk(None)).await?;
        }
    }
    Ok(())
}

/// Rides on the 101 from the route to the upgrade.
struct Opening {
    user: UserId,
    admission: Admission,
    /// permessage-deflate is agreed.
    deflates: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HealthReport {
    ok: bool,
    /// `false` at a process that waits for another one to end.
    serving: bool,
    active_connections: usize,
    /// Seconds.
    uptime: u64,
}

async fn health(context: web::Data<ListenerContext>) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(HealthReport {
        ok: true,
        serving: true,
        active_connections: context.health.active.load(Ordering::Relaxed),
        uptime: context.started.elapsed().as_secs(),
    })
}

/// `GET /v1?token=<JWT>`. The query is never logged.
async fn open(request: HttpRequest, context: web::Data<ListenerContext>) -> HttpResponse {
    match admit(&request, &context).await {
        Ok((mut response, user, admission)) => {
            let deflates = context.deflate && deflate::is_offered(request.headers());
            if deflates {
                let agreed = HeaderValue::from_static(deflate::ACCEPTED);
                response.headers_mut().insert(header::SEC_WEBSOCKET_EXTENSIONS, agreed);
            }
            response.extensions_mut().insert(Opening { user, admission, deflates });
            response
        }
        Err(refused) => {
            note(refused, &request, &context);
            refusal(refused, &context)
        }
    }
}

async fn admit(request: &HttpRequest, context: &ListenerContext) -> Result<(HttpResponse, UserId, Admission), Refused> {
    let protocol = bearer_protocol(request.headers());
    let mut tokens = form_urlencoded::parse(request.query_string().as_bytes()).filter(|(name, _)| name == "token");
    let in_query = tokens.next();
    if tokens.next().is_some() {
        return Err(Refused::BadToken);
    }
    let in_protocol = || protocol.as_deref().map(|protocol| &protocol[BEARER.len()..]);
    let token = in_query.as_ref().map(|(_, token)| &**token).or_else(in_protocol);
    let now = context.clock.now();
    let RelayClaims { user, session, access } =
        token.and_then(|token| context.tokens.verify(token, now).ok()).ok_or(Refused::BadToken)?;
    if access.is_session() {
        check_origin(request.headers(), &context.origins)?;
    }
    let protocols: Vec<&str> = protocol.as_deref().into_iter().collect();
    let response = ws::handshake_with_protocols(request, &protocols).map_err(|_| Refused::NotAnUpgrade)?.finish();
    let behind_proxy = match request.peer_addr() {
        Some(peer) => {
            context.connections.note_forwarding(peer.ip(), request.headers(), context.clock.moment());
            context.connections.admit_forwarded(peer.ip(), request.headers())
        }
        None => Ok(None),
    };
    let permit = behind_proxy.map_err(|_| Refused::CrowdedAddress)?;
    let admission =
        context.hub.send(Admit { user: user.clone(), session, access }).await.map_err(|_| Refused::Unavailable)?;
    let mut admission = admission.map_err(|refused| match refused {
        AdmitRefused::SignedOut => Refused::BadToken,
        AdmitRefused::TooManyConnections => Refused::TooManyConnections,
        AdmitRefused::Unavailable => Refused::Unavailable,
    })?;
    permit.into_iter().for_each(|permit| admission.hold(permit));
    Ok((response, user, admission))
}

/// Browsers say where a page comes from. A token that a cookie minted is for our pages only; a token that another token
/// minted was given to its page by hand, so that page may be anywhere.
fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), Refused> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let known = origin.to_str().is_ok_and(|origin| allowed.iter().any(|allowed| allowed == origin));
    if known { Ok(()) } else { Err(Refused::ForeignOrigin) }
}

fn bearer_protocol(headers: &HeaderMap) -> Option<String> {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).filter_map(|value| value.to_str().ok());
    let mut offered = offered.flat_map(|list| list.split(',').map(str::trim));
    offered.find(|protocol| protocol.starts_with(BEARER)).map(str::to_owned)
}

/// Reasons against a WebSocket.
#[derive(Clone, Copy)]
enum Refused {
    NotFound,
    /// The methods that are right.
    WrongMethod(&'static str),
    BadToken,
    ForeignOrigin,
    NotAnUpgrade,
    TooManyConnections,
    CrowdedAddress,
    Unavailable,
}

impl Refused {
    /// Its code, and a sentence.
    fn words(self) -> (&'static ProblemCode, &'static str) {
        match self {
            Self::NotFound => (&problem::NOT_FOUND, "there is nothing at this path"),
            Self::WrongMethod(_) => (&problem::METHOD_NOT_ALLOWED, "this path does not support this method"),
            Self::BadToken => (&problem::INVALID_RELAY_TOKEN, "the relay token is missing, expired or not valid"),
            Self::ForeignOrigin => (&problem::FOREIGN_ORIGIN, "pages of this origin may not open a socket"),
            Self::NotAnUpgrade => (&problem::UPGRADE_REQUIRED, "this path speaks WebSocket"),
            Self::TooManyConnections => (&problem::TOO_MANY_CONNECTIONS, "this user has too many open sockets"),
            Self::CrowdedAddress => (&problem::TOO_MANY_CONNECTIONS, "this address has too many open sockets"),
            Self::Unavailable => (&problem::UNAVAILABLE, "the relay takes no sockets now, try again"),
        }
    }
}

/// Counts and logs what may be an attack.
fn note(refused: Refused, request: &HttpRequest, context: &ListenerContext) {
    let is_notable = matches!(
        refused,
        Refused::BadToken | Refused::ForeignOrigin | Refused::TooManyConnections | Refused::CrowdedAddress
    );
    if let Some(peer) = request.peer_addr().filter(|_| is_notable) {
        let from = context.connections.client(peer.ip(), request.headers());
        let code = refused.words().0.code;
        let refusal = NotedRefusal { code, limit: None, from, method: "GET", route: "/v1" };
        context.refusals.note(&refusal);
    }
}

/// A problem document (RFC 9457), as the API answers too.
fn refusal(refused: Refused, context: &ListenerContext) -> HttpResponse {
    let (code, detail) = refused.words();
    let status = actix_web::http::StatusCode::from_u16(code.status()).expect("the table holds valid statuses");
    let mut response = HttpResponse::build(status);
    if let Refused::WrongMethod(allowed) = refused {
        response.insert_header((header::ALLOW, allowed));
    }
    if matches!(refused, Refused::BadToken) {
        response.insert_header((header::WWW_AUTHENTICATE, "Bearer realm=\"companion\", error=\"invalid_token\""));
    }
    if matches!(refused, Refused::NotAnUpgrade) {
        response.insert_header((header::UPGRADE, "websocket"));
        response.insert_header((header::SEC_WEBSOCKET_VERSION, "13"));
    }
    if matches!(refused, Refused::Unavailable | Refused::TooManyConnections | Refused::CrowdedAddress) {
        response.insert_header((header::RETRY_AFTER, "5"));
    }
    let body = serde_json::json!({
        "type": context.base.at(&code.path()),
        "title": code.title,
        "status": status.as_u16(),
        "detail": detail,
        "code": code.code,
        "requestId": context.random.id::<String>(context.clock.now()),
    });
    response.content_type("application/problem+json").body(body.to_string())
}
