//! The demo user's phone and browser, as channels.

use secrecy::ExposeSecret as _;

use crate::{
    api::context::ApiContext,
    crypto::signed_webhook,
    db::{
        engine::{error::DbError, pool::Db},
        notices::channels,
    },
    domain::{channels::user_channel::ChannelTarget, ids::UserId, limits::CHANNELS_PER_USER},
    simulator::{
        browser_push::{BrowserPushService, JoinedBrowser},
        phone::SimulatedPhone,
    },
};

/// Name of the channel to the simulated phone.
const PHONE: &str = "Phone";
/// Name of the channel to a program of the user, whose messages the phone shows as well.
const PROGRAM: &str = "Own program";
/// Name of the channel to the page of the simulated push service.
const BROWSER: &str = "Simulated browser";

/// Adds the phone as a channel of the demo user, in place of one of an earlier run, whose port may be another, and its
/// receiver of webhooks as another.
pub async fn add(context: &ApiContext, user: &UserId, phone: &SimulatedPhone) -> Result<(), DbError> {
    let app = ChannelTarget::Ntfy { url: phone.url(), topic: "demo".to_owned(), token: None };
    add_channel(context, user, PHONE, &app).await?;
    let secret = signed_webhook::fresh_secret(&context.random);
    let url = phone.take_webhooks(secret.expose_secret());
    let program = ChannelTarget::Webhook { url, secrets: vec![secret.expose_secret().to_owned()], template: None };
    add_channel(context, user, PROGRAM, &program).await
}

/// Adds each browser that opens the page of the push service as a channel of the demo user, in place of the one before.
pub async fn add_browsers(context: &ApiContext, user: &UserId, browsers: &mut BrowserPushService) {
    while let Some(JoinedBrowser { endpoint, keys }) = browsers.next_browser().await {
        let target = ChannelTarget::WebPush { endpoint, p256dh: keys.p256dh, auth: keys.auth };
        if let Err(error) = add_channel(context, user, BROWSER, &target).await {
            log::warn!("a browser was not added as a channel: {error}");
        }
    }
}

async fn add_channel(context: &ApiContext, user: &UserId, name: &str, target: &ChannelTarget) -> Result<(), DbError> {
    let channel = context.services.channels.new_channel(user, name.to_owned(), target);
    let user = user.clone();
    let add = move |db: &mut Db| {
        let known = channels::list(db, &user)?;
        for known in known.iter().filter(|known| known.name == channel.name && known.host == channel.host) {
            channels::delete(db, &user, &known.id())?;
        }
        channels::insert(db, &channel, CHANNELS_PER_USER)
    };
    context.pool.write(add).await.map(drop)
}
