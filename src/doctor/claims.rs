//! Claims of the settings: that services take their keys and tokens, that prices are sold, that the bucket can be
//! written, and that the public URLs lead here.

use std::{future::Future, time::Duration};

use reqwest::{
    RequestBuilder, StatusCode,
    header::{AUTHORIZATION, USER_AGENT},
};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::time::timeout;

use super::observation::{Diagnosis, Observation};
use crate::{
    clients::{
        http::{self, read_capped},
        payments::{PaymentsClient, PaymentsError},
        registration,
    },
    config::{ChatPlatform, Config, Environment, ImageStorage, Payments, PlayerStats, ProfileApi, Registration},
    crypto::{digest::from_hex, random::Random},
    domain::money::plan::{Plan, SoldPlan},
    uploads::ImageStore,
};

/// The longest that one question takes.
const DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer that is read, bytes.
const MAX_ANSWER: usize = 256 * 1024;
/// A public profile of the platform.
const PUBLIC_PROFILE: &str = "76561197960287930";

/// Asks every service for which there is a key. Nothing is changed there, except that a small object is written to the
/// bucket and deleted again.
pub(super) async fn examine(config: &Config, client: &reqwest::Client) -> Vec<Observation> {
    let payments = maybe(config.payments.as_ref(), |payments| prices(payments, config.environment, client));
    let chat = maybe(config.chat.as_ref(), |chat| async { vec![bot(chat, client).await] });
    let profiles = maybe(config.identity.profiles.as_ref(), |api| async { vec![profile_key(api, client).await] });
    let stats =
        maybe(config.player_stats.as_ref(), |stats| async { stats_token(stats, client).await.into_iter().collect() });
    let registration = maybe(config.registration.as_ref(), |registration| async {
        vec![registration_key(registration, client).await]
    });
    let bucket = maybe(Some(&config.images), |images| async { bucket(images, client).await.into_iter().collect() });
    let urls = public_urls(config, client);
    let (payments, chat, profiles, stats, registration, bucket, urls) =
        tokio::join!(payments, chat, profiles, stats, registration, bucket, urls);
    [payments, chat, profiles, stats, registration, bucket, urls].concat()
}

async fn maybe<'a, T, F: Future<Output = Vec<Observation>>>(
    given: Option<&'a T>,
    ask: impl FnOnce(&'a T) -> F,
) -> Vec<Observation> {
    match given {
        Some(given) => ask(given).await,
        None => Vec::new(),
    }
}

/// The status and the JSON of an answer; on failure, why there is none.
async fn asked(request: RequestBuilder) -> Result<(StatusCode, Value), String> {
    let answered = async {
        let answer = request.send().await.map_err(|error| http::reason(&error))?;
        let status = answer.status();
        let body = read_capped(answer, MAX_ANSWER).await.map_err(|error| error.to_string())?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    };
    timeout(DEADLINE, answered).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

/// The finding about a key, by the status of the answer to it.
fn key(subject: &'static str, variable: &str, status: StatusCode, remedy: &str) -> Observation {
    match status.as_u16() {
        200..300 => Observation::fine(subject, format!("{variable} is taken")),
        401 | 403 => Observation::broken(subject, format!("{variable} is not taken (status {status}); {remedy}")),
        _ => Observation::doubtful(subject, format!("{variable} could not be tried: status {status}; try again later")),
    }
}

fn untried(subject: &'static str, variable: &str, reason: &str) -> Observation {
    Observation::doubtful(subject, format!("{variable} could not be tried: {reason}"))
}

async fn prices(payments: &Payments, environment: Environment, client: &reqwest::Client) -> Vec<Observation> {
    const SUBJECT: &str = "payment key";
    let provider = PaymentsClient::new(client.clone(), payments.clone(), Random::system());
    let mut findings = Vec::new();
    if environment == Environment::Production && payments.livemode() == Some(false) {
        findings.push(Observation::doubtful(SUBJECT, "PAYMENT_SECRET_KEY is one for tests: no payment is real"));
    }
    // The client takes a refused key for a transient fault.
    let sold = &payments.prices.monthly[0].sold;
    let request = client.get(payments.base_url.at(&format!("/v1/prices/{sold}")));
    let taken = match asked(request.bearer_auth(payments.key.expose_secret())).await {
        Ok((status @ StatusCode::UNAUTHORIZED, _)) => {
            key(SUBJECT, "PAYMENT_SECRET_KEY", status, "make a new one there")
        }
        Ok((status @ StatusCode::FORBIDDEN, _)) => {
            key(SUBJECT, "PAYMENT_SECRET_KEY", status, "it needs read access to prices")
        }
        Ok(_) => Observation::fine(SUBJECT, "PAYMENT_SECRET_KEY is taken"),
        Err(reason) => untried(SUBJECT, "PAYMENT_SECRET_KEY", &reason),
    };
    let is_taken = taken.diagnosis == Diagnosis::Fine;
    findings.push(taken);
    if !is_taken {
        return findings;
    }
    for SoldPlan { plan, price } in Plan::all().filter_map(|plan| payments.prices.sold(plan)) {
        let variable = plan.variable();
        findings.push(match provider.price(&price).await {
            Ok(found) if !found.is_active => Observation::broken(
                "price",
                format!("{variable}: {price} is archived at the provider; set one that is sold"),
            ),
            Ok(found) if !found.is_recurring || found.interval != Some(plan.interval) => Observation::broken(
                "price",
                format!("{variable}: {price} is not charged by the {}; set one that is", plan.interval.word()),
            ),
            Ok(found) => {
                let amount =
                    found.amount.map_or_else(String::new, |amount| format!("{}.{:02} ", amount / 100, amount % 100));
                Observation::fine("price", format!("{variable} is sold for {amount}{}", found.currency))
            }
            Err(PaymentsError::Unknown { .. }) => Observation::broken(
                "price",
                format!("{variable}: the provider knows no {price}; is it of another account, or of test mode?"),
            ),
            Err(error) => {
                findings.push(untried(SUBJECT, "PAYMENT_SECRET_KEY", &error.to_string()));
                return findings;
            }
        });
    }
    findings
}

async fn bot(chat: &ChatPlatform, client: &reqwest::Client) -> Observation {
    const SUBJECT: &str = "bot token";
    let request = client.get(chat.base_url.at("/applications/@me"));
    let request =
        request.header(USER_AGENT, concat!("DiscordBot (https://localhost, ", env!("CARGO_PKG_VERSION"), ")"));
    let (status, answer) =
        match asked(request.header(AUTHORIZATION, format!("Bot {}", chat.token.expose_secret()))).await {
            Ok(answered) => answered,
            Err(reason) => return untried(SUBJECT, "CHAT_BOT_TOKEN", &reason),
        };
    if status != StatusCode::OK {
        return key(SUBJECT, "CHAT_BOT_TOKEN", status, "make a new one on the page of the bot");
    }
    let verified_with = answer["verify_key"].as_str().and_then(from_hex);
    if answer["id"] != chat.application_id.as_str() {
        Observation::broken(
            SUBJECT,
            "CHAT_BOT_TOKEN is of another application than CHAT_APPLICATION_ID; set both of one",
        )
    } else if verified_with.is_some_and(|key| key != chat.public_key) {
        Observation::broken(
            SUBJECT,
            "CHAT_PUBLIC_KEY is not that of the application: no command would be believed; copy it from its page",
        )
    } else {
        Observation::fine(SUBJECT, "CHAT_BOT_TOKEN is taken, and of CHAT_APPLICATION_ID")
    }
}

async fn profile_key(api: &ProfileApi, client: &reqwest::Client) -> Observation {
    const SUBJECT: &str = "profile key";
    const REMEDY: &str = "users have no names; see steamcommunity.com/dev/apikey";
    let request = client.get(api.base_url.at("/ISteamUser/GetPlayerSummaries/v0002/"));
    match asked(request.query(&[("key", api.key.expose_secret()), ("steamids", PUBLIC_PROFILE)])).await {
        Ok((status, _)) => key(SUBJECT, "PLATFORM_API_KEY", status, REMEDY),
        Err(reason) => untried(SUBJECT, "PLATFORM_API_KEY", &reason),
    }
}

async fn stats_token(stats: &PlayerStats, client: &reqwest::Client) -> Option<Observation> {
    const SUBJECT: &str = "stats token";
    let token = stats.token.as_ref()?;
    let query = [("filter[game]", "rust"), ("page[size]", "1")];
    let request = client.get(stats.base_url.at("/servers")).query(&query).bearer_auth(token.expose_secret());
    Some(match asked(request).await {
        Ok((status, _)) => key(SUBJECT, "PLAYER_STATS_TOKEN", status, "make a new one there, or do without"),
        Err(reason) => untried(SUBJECT, "PLAYER_STATS_TOKEN", &reason),
    })
}

async fn registration_key(settings: &Registration, client: &reqwest::Client) -> Observation {
    const SUBJECT: &str = "registration key";
    const VARIABLE: &str = "REGISTRATION_API_KEY";
    const REMEDY: &str =
        "set the one of the game's app as it is now; REGISTRATION_PACKAGE and _CERTIFICATE belong to it";
    let (status, answer) = match asked(registration::key_question(client, settings)).await {
        Ok(answered) => answered,
        Err(reason) => return untried(SUBJECT, VARIABLE, &reason),
    };
    match registration::refusal(&answer) {
        Some(word) if word.starts_with("API_KEY") => {
            Observation::broken(SUBJECT, format!("{VARIABLE} is not taken ({word}); {REMEDY}"))
        }
        // The key is looked at before the rest, of which nothing is there.
        None if status == StatusCode::BAD_REQUEST => Observation::fine(SUBJECT, format!("{VARIABLE} is taken")),
        _ => key(SUBJECT, VARIABLE, status, REMEDY),
    }
}

async fn bucket(images: &ImageStorage, client: &reqwest::Client) -> Option<Observation> {
    const SUBJECT: &str = "image bucket";
    let ImageStorage::S3(bucket) = images else { return None };
    let tried = match ImageStore::open(images, client.clone()) {
        Ok(store) => store.try_out().await,
        Err(error) => Err(error),
    };
    Some(match tried {
        Ok(()) => Observation::fine(SUBJECT, format!("{} can be written and deleted from", bucket.name)),
        Err(error) => Observation::broken(
            SUBJECT,
            format!(
                "{} cannot be written: {error}; see IMAGES_S3_BUCKET and _REGION, and that the access key may put and \
                 delete objects",
                bucket.name
            ),
        ),
    })
}

/// Each URL that the settings name, as clients would ask it.
async fn public_urls(config: &Config, client: &reqwest::Client) -> Vec<Observation> {
    let mut findings = Vec::new();
    for (variable, url) in config.urls.given() {
        let Some(url) = url else { continue };
        // A relay answers HTTP there, too.
        let health = url.at("/health").replacen("ws", "http", usize::from(url.scheme().starts_with("ws")));
        findings.push(match asked(client.get(&health)).await {
            Ok((StatusCode::OK, answer)) if answer["ok"] == true => listener(variable, &answer),
            Ok((status, _)) => Observation::doubtful(
                "public URL",
                format!(
                    "{health} answers {status}, and no companion does; see that the service runs, and where the reverse \
                     proxy leads, or correct {variable}"
                ),
            ),
            Err(reason) => Observation::doubtful(
                "public URL",
                format!("{health}: {reason}; see DNS and the reverse proxy, or correct {variable}"),
            ),
        });
    }
    findings
}

/// The finding about a URL that leads to a companion, by what is said at `/health` there: only the relay counts its clients.
/// One that waits answers on both listeners alike.
fn listener(variable: &str, answer: &Value) -> Observation {
    const SUBJECT: &str = "public URL";
    let (wanted, is_relay) = (variable == "RELAY_URL", answer.get("activeConnections").is_some());
    let named = |is_relay: bool| if is_relay { "relay (RELAY_LISTEN)" } else { "API (API_LISTEN)" };
    if answer["serving"] == false {
        return Observation::fine(SUBJECT, format!("{variable} leads to a companion that waits"));
    }
    match wanted == is_relay {
        true => Observation::fine(SUBJECT, format!("{variable} leads to the {} of a companion", named(wanted))),
        false => Observation::broken(
            SUBJECT,
            format!(
                "{variable} leads to the {} of a companion, and must lead to the {}; correct the reverse proxy, or \
                 {variable}",
                named(is_relay),
                named(wanted)
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_url_must_lead_to_its_own_listener() {
        let api = json!({ "ok": true, "serving": true, "uptime": 1 });
        let relay = json!({ "ok": true, "serving": true, "activeConnections": 0, "uptime": 1 });
        let waiting = json!({ "ok": true, "serving": false, "activeConnections": 0, "uptime": 1 });
        for (variable, answer, expected) in [
            ("BASE_URL", &api, Diagnosis::Fine),
            ("RELAY_URL", &relay, Diagnosis::Fine),
            ("BASE_URL", &relay, Diagnosis::Broken),
            ("RELAY_URL", &api, Diagnosis::Broken),
            ("BASE_URL", &waiting, Diagnosis::Fine),
            ("RELAY_URL", &waiting, Diagnosis::Fine),
        ] {
            assert_eq!(listener(variable, answer).diagnosis, expected, "{variable}: {answer}");
        }
    }
}
