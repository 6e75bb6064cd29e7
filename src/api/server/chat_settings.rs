//! Settings for commands in the team's chat: `/paired-servers/{id}/chat-settings`.

use actix::Addr;
use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            error::ApiError,
            fields::{given, is_platform_id},
        },
        context::ApiContext,
        extract::{
            json::Json,
            paired_server::{OwnedServer, PermittedWrite},
        },
    },
    db::{engine::pool::Db, paired_servers, team_chat_settings},
    domain::{
        ids::PlatformId,
        team_command::settings::{Announcements, Audience, CommandWord, MOST_BLOCKED, TeamChatSettings, is_prefix},
        time::Timestamp,
    },
    relay::hub::{DevicesChanged, Hub, ToConnection},
};

/// A SteamID64.
#[derive(ToSchema)]
#[schema(format = "steamid64")]
#[allow(dead_code, reason = "only its schema is used")]
struct BlockedAccount(String);

/// A change of the settings; absent fields stay.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "prefix": "!", "devices": "users", "announcements": { "raid": true } }))]
pub struct UpdateChatSettings {
    /// One or two ASCII punctuation characters, not `/` or `<`.
    #[garde(inner(custom(is_good_prefix)))]
    #[schema(min_length = 1, max_length = 2, pattern = r##"^[!-.:;=>?@\[-`{-~]{1,2}$"##)]
    prefix: Option<String>,
    /// The commands that are answered.
    #[garde(inner(length(max = 32)))]
    #[schema(max_items = 32)]
    commands: Option<Vec<CommandWord>>,
    /// Players who may ask questions, set timers and take notes.
    #[garde(skip)]
    questions: Option<Audience>,
    #[garde(skip)]
    devices: Option<Audience>,
    #[garde(skip)]
    leader: Option<Audience>,
    #[garde(skip)]
    pass_leadership: Option<bool>,
    /// Accounts whose commands are not answered.
    #[garde(inner(length(max = MOST_BLOCKED), inner(custom(is_platform_id))))]
    #[schema(max_items = 100, value_type = Option<Vec<BlockedAccount>>)]
    blocked: Option<Vec<String>>,
    /// Replaces all of them: kinds that are left out are off.
    #[garde(skip)]
    announcements: Option<Announcements>,
    /// RFC 3339; `null` ends the silence.
    #[garde(skip)]
    #[serde(default, deserialize_with = "given")]
    muted_until: Option<Option<Timestamp>>,
}

#[expect(clippy::ptr_arg, reason = "garde gives what is validated")]
fn is_good_prefix(text: &String, _: &()) -> garde::Result {
    match is_prefix(text) {
        true => Ok(()),
        false => Err(garde::Error::new("must be one or two punctuation characters, not `/` or `<`")),
    }
}

impl UpdateChatSettings {
    fn apply(self, settings: TeamChatSettings) -> TeamChatSettings {
        let mut commands = self.commands.unwrap_or(settings.commands);
        commands.sort_unstable();
        commands.dedup();
        let blocked = self.blocked.map(|accounts| {
            let mut accounts: Vec<_> = accounts.into_iter().map(PlatformId::from).collect();
            accounts.sort_unstable();
            accounts.dedup();
            accounts
        });
        TeamChatSettings {
            prefix: self.prefix.unwrap_or(settings.prefix),
            commands,
            questions: self.questions.unwrap_or(settings.questions),
            devices: self.devices.unwrap_or(settings.devices),
            leader: self.leader.unwrap_or(settings.leader),
            pass_leadership: self.pass_leadership.unwrap_or(settings.pass_leadership),
            blocked: blocked.unwrap_or(settings.blocked),
            announcements: self.announcements.unwrap_or(settings.announcements),
            muted_until: self.muted_until.unwrap_or(settings.muted_until),
        }
    }
}

/// The settings for commands in the team's chat.
#[utoipa::path(get, path = "/paired-servers/{id}/chat-settings", tag = "paired servers",
    params(("id" = String, Path)), responses(
    (status = 200, body = TeamChatSettings),
    (status = 403, description = "`owner_only`"),
))]
pub async fn get(
    OwnedServer { id, .. }: OwnedServer,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let settings = context.pool.read(move |db| team_chat_settings::get(db, &id)).await?;
    Ok(HttpResponse::Ok().json(settings))
}

/// Changes the settings for commands in the team's chat. They count at once.
#[utoipa::path(patch, path = "/paired-servers/{id}/chat-settings", tag = "paired servers",
    params(("id" = String, Path)), request_body = UpdateChatSettings, responses(
    (status = 200, body = TeamChatSettings),
    (status = 403, description = "`owner_only`"),
))]
pub async fn update(server: OwnedServer, Json(edit): Json<UpdateChatSettings>) -> Result<HttpResponse, ApiError> {
    if edit.muted_until.flatten().is_some_and(|until| !until.is_storable()) {
        return Err(ApiError::invalid("mutedUntil", "must be a time of the years 0 to 9999"));
    }
    let write = move |db: &mut Db, PermittedWrite { server, .. }: &PermittedWrite| {
        paired_servers::lock(db, server)?;
        let known = team_chat_settings::get(db, server)?;
        let settings = edit.apply(known.clone());
        team_chat_settings::put(db, server, &settings)?;
        let is_changed = settings != known;
        Ok((settings, is_changed))
    };
    let report = |hub: &Addr<Hub>, server| hub.do_send(ToConnection { server, message: DevicesChanged });
    Ok(HttpResponse::Ok().json(server.write_and_notify(write, report).await?))
}
