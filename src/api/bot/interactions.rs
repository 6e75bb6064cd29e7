//! The support bot: `/chat/interactions`, which the chat platform calls for every command of a user.
//!
//! The platform waits three seconds, so there is always an answer in time: it says so if a look-up fails.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    api::{
        answer::{chat_problem::ChatProblem, error::ApiError},
        caches::store_responses::{SHIPPED, content},
        context::ApiContext,
        intel::shops::MarketRead,
    },
    crypto::{digest::sha256_hex, interaction_signature, webhook_signature::SignatureFault},
    db::{
        access, bot_links,
        engine::{error::DbError, pool::Db},
        paired_servers::PairedServer,
        stores,
    },
    domain::{
        access::Role,
        bot::{
            bot_messages::BotMessages,
            bot_reply::BotReply,
            chat_commands::BotCommand,
            chat_interaction::{self, Interaction},
            chat_link::ChatLinkCode,
        },
        chat_answers,
        ids::{ChatUserId, GameServerId, UserId},
        items::Catalogue,
        shop::Shop,
        stores::StoreName,
        team_command::settings::CommandWord,
        time::Timestamp,
    },
    relay::hub::{AskServer, Markets},
};

const SIGNATURE: &str = "x-signature-ed25519";
const SIGNED_AT: &str = "x-signature-timestamp";
/// Longest time for an answer.
const ANSWER_DEADLINE: Duration = Duration::from_millis(2_500);
/// Game servers whose offers are looked at for one answer, the user's own first.
const PRICED_SERVERS: usize = 20;
/// Servers that are asked for one answer, the user's own first.
const ASKED_SERVERS: usize = 5;

/// Takes an interaction of the chat platform, at most 64 KiB, signed with Ed25519 in `X-Signature-Ed25519` over the text
/// of `X-Signature-Timestamp` and the body. A ping is answered with a pong (type 1), a command with a message (type 4).
#[utoipa::path(post, path = "/chat/interactions", tag = "chat platform",
    request_body(content = Object, content_type = "application/json", example = json!({ "type": 1 })), responses(
    (status = 200, body = Object, description = "`{ type: 1 }`, or `{ type: 4, data: { content, allowed_mentions, flags } }`"),
    (status = 401, description = "`invalid_interaction_signature`"),
    (status = 503, description = "`chat_disabled`"),
))]
pub async fn receive(
    req: HttpRequest,
    body: web::Bytes,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let bot = context.chat_bot()?;
    let header = |name: &str| {
        let mut values = req.headers().get_all(name);
        let value = values.next().and_then(|value| value.to_str().ok());
        // Two such header fields are ambiguous.
        value.filter(|_| values.next().is_none())
    };
    let checked = match (header(SIGNATURE), header(SIGNED_AT)) {
        (Some(signature), Some(time)) => {
            interaction_signature::verify(&bot.public_key, signature, time, &body, context.clock.now())
        }
        _ => Err(SignatureFault::Malformed),
    };
    checked.map_err(|fault| ApiError::Chat(ChatProblem::Unsigned(fault)))?;
    let body: Value = serde_json::from_slice(&body).map_err(|_| ApiError::MalformedJson)?;
    let interaction =
        Interaction::read(&body).map_err(|path| ApiError::invalid(path, "is missing or has another form"))?;
    Ok(HttpResponse::Ok().json(match interaction {
        Interaction::Ping => chat_interaction::pong(),
        Interaction::Command { by, command } => chat_interaction::message(&answer(&context, by, command).await),
    }))
}

/// The bot's reply to a command of this account.
async fn answer(context: &ApiContext, by: ChatUserId, command: Option<BotCommand>) -> BotReply {
    let Some(command) = command else { return BotMessages::default().unknown_command() };
    let asked = AskedCommand {
        code: ChatLinkCode::new(context.random.bytes()),
        frontend: context.settings.urls.frontend.to_string(),
        live: context.services.markets.clone(),
        catalogue: context.caches.catalogue.current(),
        now: context.clock.now(),
        by,
    };
    if let BotCommand::Ask(word) = command {
        return in_time(ask_servers(context, asked.by, word)).await;
    }
    let writes = command == BotCommand::Link;
    let answer = move |db: &mut Db| asked.answer_in(db, &command);
    in_time(async { if writes { context.pool.write(answer).await } else { context.pool.read(answer).await } }).await
}

/// The reply, or the news that there is none now.
async fn in_time(reply: impl Future<Output = Result<BotReply, DbError>>) -> BotReply {
    match timeout(ANSWER_DEADLINE, reply).await {
        Ok(Ok(reply)) => return reply,
        Ok(Err(error)) => log::warn!("the bot had no answer: {error}"),
        Err(_) => log::warn!("the bot had no answer in time"),
    }
    BotMessages::default().unavailable()
}

/// Answers of the servers that the user of this account may watch, each from its live state.
async fn ask_servers(context: &ApiContext, by: ChatUserId, command: CommandWord) -> Result<BotReply, DbError> {
    let read = move |db: &mut Db| {
        let messages = BotMessages::new(store(db, StoreName::Messages)?);
        let user = bot_links::user_of(db, &by)?;
        let servers = user.map(|user| access::servers_of(db, &user)).transpose()?;
        Ok((messages, servers))
    };
    let (messages, servers) = context.pool.read(read).await?;
    let Some(servers) = servers else { return Ok(messages.not_linked()) };
    let asked = servers.into_iter().take(ASKED_SERVERS).map(|(server, role)| {
        let name = server.name_for(role).to_owned();
        let lines = context.services.hub.send(AskServer { server: server.id, command, texts: messages.clone() });
        async move { (name, lines.await.ok().flatten().unwrap_or_default()) }
    });
    Ok(chat_answers::of_servers(&messages, &join_all(asked.collect::<Vec<_>>()).await))
}

/// The account that asks, and the sources of an answer.
struct AskedCommand {
    by: ChatUserId,
    /// A new code.
    code: ChatLinkCode,
    /// Address at which the code is entered.
    frontend: String,
    live: Arc<Markets>,
    catalogue: Arc<Catalogue>,
    now: Timestamp,
}

impl AskedCommand {
    fn answer_in(&self, db: &mut Db, command: &BotCommand) -> Result<BotReply, DbError> {
        let messages = BotMessages::new(store(db, StoreName::Messages)?);
        Ok(match command {
            BotCommand::Craft { item, amount } => {
                chat_answers::craft(&messages, &store(db, StoreName::Crafting)?, &self.catalogue, item, *amount)
            }
            BotCommand::Raid { target, amount } => {
                chat_answers::raid(&messages, &store(db, StoreName::Raid)?, target, *amount)
            }
            BotCommand::Faq { question } => {
                chat_answers::faq(&messages, &store(db, StoreName::Faq)?, question.as_deref())
            }
            BotCommand::Item { item } => chat_answers::item(&messages, &self.catalogue, item),
            BotCommand::Price { item } => match bot_links::user_of(db, &self.by)? {
                Some(user) => chat_answers::price(&messages, &self.catalogue, item, &self.offers(db, &user)?),
                None => messages.not_linked(),
            },
            // Answered by the game connections.
            BotCommand::Ask(_) => messages.unavailable(),
            BotCommand::Link => {
                bot_links::issue(db, &self.by, &sha256_hex(self.code.as_str().as_bytes()), self.now)?;
                messages.code(self.code.as_str(), &self.frontend)
            }
        })
    }

    /// The shops on the servers that the user may watch, each game server once.
    fn offers(&self, db: &mut Db, user: &UserId) -> Result<Vec<(String, Vec<Shop>)>, DbError> {
        let mut seen = BTreeSet::new();
        let mut servers = access::servers_of(db, user)?;
        // Among those of one game server, one that may read what is known of it.
        servers.sort_by_key(|(server, _)| !server.is_accepted());
        servers.retain(|(server, _)| seen.insert(GameServerId::at(&server.address, server.port)));
        let market = |(server, role): (PairedServer, Role)| {
            let read = MarketRead::load(db, &self.live, &server.id, self.now)?;
            Ok((server.name_for(role).to_owned(), read.stored.shops))
        };
        servers.into_iter().take(PRICED_SERVERS).map(market).collect()
    }
}

/// The present content of a store.
fn store(db: &mut Db, name: StoreName) -> Result<Value, DbError> {
    let version = stores::newest(db, name)?.map_or(SHIPPED, |newest| newest.version);
    let (data, _) = content(db, name, version)?;
    // Only JSON is ever written; and of anything else the bot says that it knows nothing.
    Ok(serde_json::from_str(&data).unwrap_or_default())
}
