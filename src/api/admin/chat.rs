//! The support bot's commands at the chat platform: `/admin/chat/register-commands`.

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{chat_problem::ChatProblem, error::ApiError},
        context::ApiContext,
        extract::{admin::Admin, query::Query},
    },
    clients::chat::ChatPlatformError,
    domain::{
        audit::{AdminAction, Written},
        bot::{
            chat_commands::{self, CommandScope},
            chat_interaction::is_platform_number,
        },
    },
};

/// Where to register.
#[derive(Deserialize, IntoParams, Validate)]
#[serde(rename_all = "camelCase")]
#[into_params(rename_all = "camelCase")]
pub struct RegistrationQuery {
    /// A guild of the platform, in which the commands are there at once; absent: everywhere, after a while.
    #[garde(custom(is_group))]
    #[param(pattern = "^[0-9]{1,20}$")]
    group_id: Option<String>,
}

fn is_group(group: &Option<String>, _: &()) -> garde::Result {
    match group {
        Some(group) if !is_platform_number(group) => Err(garde::Error::new("must be 1 to 20 digits")),
        _ => Ok(()),
    }
}

#[derive(Serialize, ToSchema)]
struct RegisteredCommands {
    /// Number of commands that the platform has now.
    registered: usize,
    /// `global` or `guild`.
    #[schema(format = "command-scope")]
    scope: &'static str,
}

impl From<ChatPlatformError> for ApiError {
    fn from(error: ChatPlatformError) -> Self {
        let cause = error.to_string();
        Self::Chat(match error {
            ChatPlatformError::Client(error) => ChatProblem::Unavailable(error),
            ChatPlatformError::Busy(pause) => ChatProblem::Busy(pause),
            ChatPlatformError::TokenRefused => ChatProblem::TokenRefused,
            ChatPlatformError::Refused { values, .. } => ChatProblem::Refused(cause, values),
            ChatPlatformError::NoGuild => {
                return Self::invalid("groupId", "is no guild in which the bot's application may have commands");
            }
        })
    }
}

/// Puts the support bot's commands in place of all that the platform has, everywhere or in one guild. Run it after each
/// change of `src/domain/data/chat_commands.json`.
#[utoipa::path(post, path = "/admin/chat/register-commands", tag = "admin",
    params(RegistrationQuery), responses(
    (status = 200, body = RegisteredCommands),
    (status = 400, description = "`groupId` is no number, or no guild with the bot's application in it"),
    (status = 502, description = "`chat_platform_refused`: the token, or the commands named in `errors`"),
    (status = 503,
        description = "`chat_disabled`; `chat_platform_busy`, with `Retry-After`; `chat_platform_unavailable`"),
))]
pub async fn register_commands(
    admin: Admin,
    Query(RegistrationQuery { group_id }): Query<RegistrationQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    context.chat_bot()?;
    let scope = if group_id.is_some() { CommandScope::Guild } else { CommandScope::Global }.word();
    let target = group_id.clone().unwrap_or_else(|| scope.to_owned());
    let asked = json!({ "scope": scope, "groupId": group_id });
    let register = async move {
        let bot = context.chat_bot()?;
        let registered = bot.client.register_commands(group_id.as_deref(), chat_commands::SCHEMA).await?;
        Ok(Written::new(registered, (), json!({ "registered": registered })))
    };
    let registered = admin.effect(AdminAction::RegisterChatCommands, &target, asked, register).await?;
    Ok(HttpResponse::Ok().json(RegisteredCommands { registered, scope }))
}
