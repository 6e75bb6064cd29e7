//! Others: whether each service that the settings name can be looked up and answers, and what time it is there.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use futures_util::future::join_all;
use tokio::time::timeout;
use url::Url;

use super::{claims, observation::Observation};
use crate::{
    clients::http,
    clock::Clock,
    config::{Config, ImageStorage},
    domain::{clock_skew::ClockSkew, time::Timestamp},
    net::{Names, Network, NetworkError, tls_config},
    push::login::is_untrusted,
};

/// Deadline of one question, with the look-up of its name.
const DEADLINE: Duration = Duration::from_secs(10);

/// A service that this one calls.
struct NeighbourAddress {
    what: &'static str,
    variable: &'static str,
    url: Url,
}

fn neighbours(config: &Config) -> Vec<NeighbourAddress> {
    let mut all = Vec::new();
    let mut add =
        |what, variable, url: Option<Url>| all.extend(url.map(|url| NeighbourAddress { what, variable, url }));
    add("sign-in", "IDENTITY_LOGIN_URL", Url::parse(&config.identity.provider.endpoint).ok());
    add("profiles", "PLATFORM_API_URL", config.identity.profiles.as_ref().map(|api| Url::clone(&api.base_url)));
    add("player stats", "PLAYER_STATS_URL", config.player_stats.as_ref().map(|stats| Url::clone(&stats.base_url)));
    add("payments", "PAYMENT_API_URL", config.payments.as_ref().map(|payments| Url::clone(&payments.base_url)));
    add("chat", "CHAT_API_URL", config.chat.as_ref().map(|chat| Url::clone(&chat.base_url)));
    if let Some(registration) = &config.registration {
        for (variable, url) in [
            ("REGISTRATION_GOOGLE_URL", &registration.google_url),
            ("REGISTRATION_INSTALLATIONS_URL", &registration.installations_url),
            ("REGISTRATION_EXPO_URL", &registration.expo_url),
            ("REGISTRATION_GAME_URL", &registration.game_url),
        ] {
            add("registration", variable, Some(Url::clone(url)));
        }
    }
    if let ImageStorage::S3(bucket) = &config.images {
        let amazon = || Url::parse(&format!("https://s3.{}.amazonaws.com", bucket.region)).ok();
        add("images", "IMAGES_S3_ENDPOINT", bucket.endpoint.as_deref().cloned().or_else(amazon));
    }
    all
}

/// Asks all of them at once, first without a secret. The clock is compared with theirs, or with the database's.
pub(super) async fn examine(config: &Config, clock: &Clock, database_clock: Option<TimeDelta>) -> Vec<Observation> {
    let tls = tls_config(config.extra_ca_file.as_deref());
    let (tls, client) = match tls.and_then(|tls| Ok((tls.clone(), http::client(tls)?))) {
        Ok(made) => made,
        Err(error) => return vec![Observation::broken("trust", format!("{error}; correct EXTRA_CA_FILE"))],
    };
    let asked = join_all(neighbours(config).into_iter().map(|neighbour| ask(neighbour, &client, clock))).await;
    let (mut findings, skews): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    findings.push(push(config, tls).await);
    if let Some(proxy) = &config.game.proxy_url {
        findings.push(proxied(proxy).await);
    }
    findings.extend(claims::examine(config, &client).await);
    findings.push(compared(skews.into_iter().flatten().collect(), database_clock));
    findings
}

/// Any answer will do: its content does not matter here. Also returns how far its clock is ahead of ours, if it says.
async fn ask(neighbour: NeighbourAddress, client: &reqwest::Client, clock: &Clock) -> (Observation, Option<TimeDelta>) {
    let NeighbourAddress { what, variable, url } = neighbour;
    let shown = url.origin().ascii_serialization();
    if let Some(unknown) = unresolved(what, variable, &url).await {
        return (unknown, None);
    }
    let before = clock.now();
    match timeout(DEADLINE, client.get(url).send()).await {
        Ok(Ok(answer)) => {
            let halfway = before + (clock.now() - before) / 2;
            let date = http::date(&answer);
            let status = answer.status();
            let finding = match status.is_server_error() {
                true => {
                    Observation::doubtful(what, format!("{shown} answers {status}; see its status page ({variable})"))
                }
                false => Observation::fine(what, format!("{shown} answers")),
            };
            (finding, date.map(|date| Timestamp::from(date.to_utc()) - halfway))
        }
        Ok(Err(error)) => {
            let reason = http::reason(&error);
            (
                Observation::broken(what, format!("{shown}: {reason}; see firewall and proxy, or correct {variable}")),
                None,
            )
        }
        Err(_) => (
            Observation::broken(what, format!("{shown}: no answer in time; see firewall, or correct {variable}")),
            None,
        ),
    }
}

/// Reason for which the name of this host leads nowhere.
async fn unresolved(what: &'static str, variable: &str, url: &Url) -> Option<Observation> {
    let Some(url::Host::Domain(name)) = url.host() else { return None };
    let failure = Names::system().look_up(name, 0).await.err()?;
    Some(Observation::broken(
        what,
        format!(
            "the name {name} is not found ({failure}); see the machine's DNS (/etc/resolv.conf), or correct {variable}"
        ),
    ))
}

async fn push(config: &Config, tls: rustls::ClientConfig) -> Observation {
    const SUBJECT: &str = "push";
    let (host, port) = (&config.push.host, config.push.port);
    let network = Network::system();
    match timeout(DEADLINE, network.connect_secure(host, port, Arc::new(tls))).await {
        Ok(Ok(_)) => Observation::fine(SUBJECT, format!("{host}:{port} answers, and its certificate is right")),
        Ok(Err(error)) => {
            let remedy = match &error {
                NetworkError::Unreachable(cause) if is_untrusted(cause) => {
                    "See what answers there and this machine's clock; a CA of your own goes into EXTRA_CA_FILE"
                }
                _ => "See DNS and firewall, or PUSH_ADDRESS",
            };
            Observation::broken(
                SUBJECT,
                format!("{host}:{port}: {error}; without it no pushed alarm arrives. {remedy}"),
            )
        }
        Err(_) => Observation::broken(
            SUBJECT,
            format!("{host}:{port}: no answer in time; without it no pushed alarm arrives. See the firewall"),
        ),
    }
}

async fn proxied(proxy: &Url) -> Observation {
    const SUBJECT: &str = "game proxy";
    let (host, port) = (proxy.host_str().unwrap_or_default(), proxy.port_or_known_default().unwrap_or_default());
    match timeout(DEADLINE, Network::system().connect(host, port, |_| true)).await {
        Ok(Ok(_)) => Observation::fine(SUBJECT, format!("{host}:{port} accepts connections")),
        Ok(Err(error)) => Observation::broken(SUBJECT, format!("{host}:{port}: {error}; correct GAME_PROXY_URL")),
        Err(_) => Observation::broken(SUBJECT, format!("{host}:{port}: no answer in time; correct GAME_PROXY_URL")),
    }
}

/// The clocks of others are rarely all wrong: the one in the middle counts.
fn compared(mut skews: Vec<TimeDelta>, database_clock: Option<TimeDelta>) -> Observation {
    const SUBJECT: &str = "clock";
    skews.sort();
    let (skew, whose) = match (skews.get(skews.len() / 2), database_clock) {
        (Some(skew), _) => (*skew, "that of others"),
        (None, Some(skew)) => (skew, "that of the database"),
        (None, None) => {
            return Observation::doubtful(
                SUBJECT,
                "there is nothing to compare it with; see that the machine keeps time (NTP)",
            );
        }
    };
    let skew = ClockSkew(skew);
    if skew.agrees() {
        Observation::fine(SUBJECT, format!("it agrees with {whose}"))
    } else if skew.refuses_sign_ins() {
        let text = format!("it {skew} {whose}: no user can sign in; set it by NTP (chrony, systemd-timesyncd)");
        Observation::broken(SUBJECT, text)
    } else {
        Observation::doubtful(SUBJECT, format!("it {skew} {whose}; set it by NTP (chrony, systemd-timesyncd)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::observation::Diagnosis;

    #[test]
    fn one_wrong_clock_among_others_does_not_count_and_the_database_comes_last() {
        let judged = |skews: &[i64], database: Option<i64>| {
            let found =
                compared(skews.iter().map(|s| TimeDelta::seconds(*s)).collect(), database.map(TimeDelta::seconds));
            (found.diagnosis, found.text)
        };
        assert_eq!(judged(&[1, 90_000, 0], None).0, Diagnosis::Fine);
        let (behind, text) = judged(&[20, 21, 20], Some(0));
        assert_eq!(behind, Diagnosis::Doubtful);
        assert!(text.contains("20 s behind that of others"), "{text}");
        let (ahead, text) = judged(&[], Some(-600));
        assert_eq!(ahead, Diagnosis::Broken);
        assert!(text.contains("600 s ahead of that of the database"), "{text}");
        assert_eq!(judged(&[], None).0, Diagnosis::Doubtful);
    }
}
