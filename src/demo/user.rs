//! Users who are set up without an identity provider or a helper device: for the demo, tests and benchmarks.

use chrono::TimeDelta;
use serde_json::json;

use crate::{
    api::context::ApiContext,
    db::{
        engine::error::DbError,
        push_credentials::{self, SealedBundle},
        sessions,
        users::{self, StoredProfile},
    },
    domain::ids::{PlatformId, SessionId, UserId},
};

const CREDENTIAL_LIFE: TimeDelta = TimeDelta::days(14);

/// A user with a session.
#[derive(Clone, Debug)]
pub struct SignedInUser {
    pub id: UserId,
    /// `rp_sess=…`, for the `Cookie` header.
    pub cookie: String,
}

/// Signs a player in, as a sign-in that the identity provider has confirmed.
pub async fn sign_in(context: &ApiContext, platform_id: u64, name: &str) -> Result<SignedInUser, DbError> {
    let now = context.clock.now();
    let (new_user, session) = (context.random.id::<UserId>(now), context.random.id::<SessionId>(now));
    let cookie =
        format!("{}={}", context.keys.session_cookie.name(), context.keys.session_cookie.seal(session.as_str()));
    let platform_id = PlatformId::from(platform_id.to_string());
    let profile = StoredProfile { display_name: name.to_owned(), avatar_url: None };
    let user = context.pool.write(move |db| -> Result<_, DbError> {
        let user = users::sign_in(db, &new_user, &platform_id, Some(&profile), now)?;
        sessions::insert(db, &session, &user.id, now)?;
        Ok(user.id)
    });
    Ok(SignedInUser { id: user.await?, cookie })
}

/// Stores a push credential of the user for this phone (Android id and security token), as a helper device uploads it.
/// The push worker does not know of it yet.
pub async fn upload_push_credential(
    context: &ApiContext,
    user: &UserId,
    platform_id: u64,
    (android_id, security_token): (u64, u64),
) -> Result<(), DbError> {
    let bundle = json!({
        "platformId": platform_id.to_string(),
        "fcm_credentials": { "gcm": {
            "androidId": android_id.to_string(), "securityToken": security_token.to_string(),
        } },
    });
    let (user, vault, now) = (user.clone(), context.keys.vault.clone(), context.clock.now());
    let upload = context.pool.write(move |db| {
        let bundle = SealedBundle {
            sealed: vault.seal_push_bundle(&user, bundle.to_string().as_bytes()),
            key_version: vault.key_version(),
            uploaded_at: now,
            uploaded_by: None,
            expires_at: now + CREDENTIAL_LIFE,
        };
        push_credentials::upload(db, &user, &bundle)
    });
    upload.await?;
    Ok(())
}
