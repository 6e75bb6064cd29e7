//! Members as admins see them: how far each has come, and how many there are of what. Read together, because each of
//! these facts is in another table.

use std::collections::{BTreeMap, HashMap};

use diesel::dsl::count_star;

use crate::{
    db::{
        bot_links,
        engine::{error::DbError, pool::Db, prelude::*},
        money::{payment_customers, subscriptions, tiers},
        schema::{beta_testers, guests, paired_servers, push_credentials, users},
        users::{self as accounts, User},
    },
    domain::{
        funnel::{FunnelFacts, FunnelStage},
        ids::UserId,
        money::tier::EffectiveTier,
        player_name::NameKey,
        time::Timestamp,
    },
};

/// Numbers of members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberTotals {
    pub users: i64,
    /// With a subscription that entitles.
    pub paid: usize,
    /// Beta testers who have signed in.
    pub beta: usize,
    pub with_credential: usize,
    /// With a linked chat account.
    pub with_chat: i64,
    /// With an own server.
    pub with_paired_server: usize,
    /// By stage, those in which members get stuck.
    pub stuck: BTreeMap<&'static str, i64>,
}

/// Progress of a member.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    pub user: User,
    pub tier: EffectiveTier,
    /// A stored credential; and whether it has logged in.
    pub credential: Option<bool>,
    /// Own ones.
    pub paired_servers: i64,
    /// The servers of others.
    pub hosts: Vec<HostServer>,
    /// True if a chat account is linked.
    pub chat_linked: bool,
    pub stage: FunnelStage,
}

/// A server of which a member is a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostServer {
    pub server: String,
    pub server_name: String,
    pub host: UserId,
    pub host_name: String,
}

/// Total of the members that a search finds, and at most `limit` of them, the newest first: by account, by the words of
/// a name, or by the whole id of a subscription or customer at the payment provider. `None`: all of them.
pub fn search(
    db: &mut Db,
    text: Option<&str>,
    before: Option<&UserId>,
    limit: i64,
    offset: i64,
) -> Result<(i64, Vec<User>), DbError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else {
        return accounts::search(db, None, before, limit, offset);
    };
    let payer = match payment_customers::user_of(db, text)? {
        Some(user) => Some(user),
        None => subscriptions::get(db, text)?.map(|stored| stored.owned.user),
    };
    if let Some(payer) = payer {
        let found = accounts::find(db, &payer)?.filter(|found| before.is_none_or(|before| found.id < *before));
        return Ok((1, found.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)).collect()));
    }
    match NameKey::of(text) {
        Some(start) => accounts::search(db, Some(&start), before, limit, offset),
        // Nothing of it can be seen, so no name has it.
        None => Ok((0, Vec::new())),
    }
}

/// Numbers of all members. Reads everybody who has anything: not for every request.
pub fn totals(db: &mut Db, now: Timestamp) -> Result<MemberTotals, DbError> {
    let users: i64 = users::table.count().get_result(db)?;
    let paid = subscriptions::entitled(db, now)?;
    let active = beta_testers::expires_at.is_null().or(beta_testers::expires_at.gt(now));
    let accounts = beta_testers::table.filter(active).select(beta_testers::platform_id);
    let beta: Vec<String> = users::table.filter(users::platform_id.eq_any(accounts)).select(users::id).load(db)?;
    let credentials: Vec<String> = push_credentials::table.select(push_credentials::user_id).load(db)?;
    let owners: Vec<String> = paired_servers::table.select(paired_servers::owner_id).distinct().load(db)?;
    let guests: Vec<Option<String>> =
        guests::table.filter(guests::user_id.is_not_null()).select(guests::user_id).distinct().load(db)?;
    let mut totals = MemberTotals {
        users,
        paid: paid.len(),
        beta: beta.len(),
        with_credential: credentials.len(),
        with_chat: bot_links::count(db)?,
        with_paired_server: owners.len(),
        stuck: FunnelStage::STUCK.map(|stage| (stage.word(), 0)).into(),
    };

    let mut known = HashMap::<String, FunnelFacts>::with_capacity(credentials.len().max(paid.len()));
    let mut all = |users: Vec<String>, set: fn(&mut FunnelFacts)| {
        users.into_iter().for_each(|user| set(known.entry(user).or_default()));
    };
    all(paid.into_iter().collect(), |facts| facts.has_tier = true);
    all(beta, |facts| facts.has_tier = true);
    all(credentials, |facts| facts.has_credential = true);
    all(owners, |facts| facts.has_paired_server = true);
    all(guests.into_iter().flatten().collect(), |facts| facts.is_guest = true);
    let nothing = users - known.len() as i64;
    let counted = known.into_values().map(|facts| (facts, 1)).chain([(FunnelFacts::default(), nothing)]);
    for (facts, members) in counted {
        if let Some(count) = totals.stuck.get_mut(FunnelStage::of(facts).word()) {
            *count += members;
        }
    }
    Ok(totals)
}

/// Progress of each of these members, in their order.
pub fn statuses(db: &mut Db, members: Vec<User>, now: Timestamp) -> Result<Vec<MemberStatus>, DbError> {
    if members.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<String> = members.iter().map(|user| user.id.to_string()).collect();
    let mut tiers = tiers::effective_of_all(db, &members, now)?;
    let credentials: Vec<(String, Option<Timestamp>)> = push_credentials::table
        .filter(push_credentials::user_id.eq_any(&ids))
        .select((push_credentials::user_id, push_credentials::proven_at))
        .load(db)?;
    let credentials: HashMap<String, bool> = credentials.into_iter().map(|(user, at)| (user, at.is_some())).collect();
    let servers: Vec<(String, i64)> = paired_servers::table
        .filter(paired_servers::owner_id.eq_any(&ids))
        .group_by(paired_servers::owner_id)
        .select((paired_servers::owner_id, count_star()))
        .load(db)?;
    let servers: HashMap<String, i64> = servers.into_iter().collect();
    let mut hosts = hosts(db, &ids)?;
    let linked = bot_links::linked(db, &members.iter().map(|user| user.id.clone()).collect::<Vec<_>>())?;
    let status = |user: User| {
        let tier = tiers.remove(&user.id).unwrap_or_else(EffectiveTier::none);
        let id = user.id.as_str();
        let credential = credentials.get(id).copied();
        let paired_servers = servers.get(id).copied().unwrap_or_default();
        let hosts = hosts.remove(id).unwrap_or_default();
        let stage = FunnelStage::of(FunnelFacts {
            has_tier: tier.tier.is_some(),
            has_credential: credential.is_some(),
            has_paired_server: paired_servers > 0,
            is_guest: !hosts.is_empty(),
        });
        let chat_linked = linked.contains(&user.id);
        MemberStatus { user, tier, credential, paired_servers, hosts, chat_linked, stage }
    };
    Ok(members.into_iter().map(status).collect())
}

/// The servers of others, of these users.
fn hosts(db: &mut Db, users: &[String]) -> Result<HashMap<String, Vec<HostServer>>, DbError> {
    type HostRow = (Option<String>, String, String, String, String);
    let rows: Vec<HostRow> = guests::table
        .filter(guests::user_id.eq_any(users))
        .inner_join(paired_servers::table.inner_join(users::table))
        .order((guests::since, guests::id))
        .select((guests::user_id, paired_servers::id, paired_servers::name, users::id, users::display_name))
        .load(db)?;
    let mut hosts: HashMap<String, Vec<HostServer>> = HashMap::new();
    for (guest, server, server_name, host, host_name) in rows {
        let Some(guest) = guest else { continue };
        hosts.entry(guest).or_default().push(HostServer { server, server_name, host: host.into(), host_name });
    }
    Ok(hosts)
}

/// The servers of others of which this user is a guest.
pub fn hosts_of(db: &mut Db, user: &UserId) -> Result<Vec<HostServer>, DbError> {
    let user = user.to_string();
    Ok(hosts(db, std::slice::from_ref(&user))?.remove(&user).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            engine::pool::Pool,
            money::{
                beta_testers as testers,
                subscriptions::{OwnedSubscription, put},
            },
            push_credentials::{SealedBundle, upload},
            testing::{self, later, now},
        },
        domain::money::tier::{BetaEntry, SubscriptionStatus, Tier, TierSubscription},
    };

    fn subscribe(pool: &Pool, user: &str, status: SubscriptionStatus) {
        let subscription = TierSubscription {
            id: format!("sub_{user}"),
            tier: Some(Tier::Scout),
            interval: None,
            status,
            price: None,
            period_start: Some(now()),
            period_end: Some(later(if status == SubscriptionStatus::Canceled { 9 } else { 30 * 86_400 })),
            cancel_at_period_end: false,
            lapsed: false,
            started_at: now(),
            past_due_since: None,
            paid_tier: Some(Tier::Scout),
        };
        let owned = OwnedSubscription { user: user.into(), customer: user.into(), subscription };
        let mut active = owned.clone();
        active.subscription.status = SubscriptionStatus::Active;
        let known = (status == SubscriptionStatus::Canceled).then(|| {
            pool.write_blocking(|db| put(db, &active, None, now())).unwrap();
            1
        });
        pool.write_blocking(|db| put(db, &owned, known, now())).unwrap();
    }

    fn credential(pool: &Pool, user: &str) {
        let sealed = b"sealed".to_vec();
        let bundle =
            SealedBundle { sealed, key_version: 1, uploaded_at: now(), uploaded_by: None, expires_at: later(9) };
        pool.write_blocking(|db| upload(db, &user.into(), &bundle)).unwrap();
    }

    #[test]
    fn the_totals_and_the_status_of_each_member_agree() {
        testing::on_each_database(|pool| {
            for user in ["newcomer", "subscriber", "ended", "tester", "owner", "guest", "lapsed", "unpaid", "trial"] {
                testing::user(pool, user);
            }
            for user in ["subscriber", "owner"] {
                subscribe(pool, user, SubscriptionStatus::Active);
            }
            subscribe(pool, "lapsed", SubscriptionStatus::Unpaid);
            subscribe(pool, "ended", SubscriptionStatus::Canceled);
            subscribe(pool, "unpaid", SubscriptionStatus::PastDue);
            subscribe(pool, "trial", SubscriptionStatus::Trialing);
            let entry = BetaEntry { tier: Tier::Scout, expires_at: Some(later(5)) };
            pool.write_blocking(|db| testers::put(db, &"tester".into(), &entry, None, now())).unwrap();
            pool.write_blocking(|db| testers::put(db, &"stranger".into(), &entry, None, now())).unwrap();
            for user in ["tester", "owner"] {
                credential(pool, user);
            }
            testing::server(pool, "owner", "server");
            testing::guest(pool, "g", "server", "guest");

            let stages = |at| {
                pool.read_blocking(|db| {
                    let (total, all) = search(db, None, None, 99, 0)?;
                    let statuses = statuses(db, all, at)?;
                    assert_eq!(total, 9);
                    let counted = totals(db, at)?;
                    for stage in FunnelStage::STUCK {
                        let stuck = statuses.iter().filter(|status| status.stage == stage).count() as i64;
                        assert_eq!(counted.stuck[stage.word()], stuck, "{stage:?}");
                    }
                    let stages = statuses.iter().map(|status| (status.user.id.to_string(), status.stage));
                    Ok((stages.collect::<BTreeMap<_, _>>(), counted))
                })
                .unwrap()
            };
            let (early, totals) = stages(now());
            let MemberTotals { users, paid, beta, with_credential, with_paired_server, .. } = totals;
            assert_eq!((users, paid, beta, with_credential, with_paired_server), (9, 5, 1, 2, 1));
            for (user, stage) in [
                ("newcomer", FunnelStage::NoSubscription),
                ("lapsed", FunnelStage::NoSubscription),
                ("ended", FunnelStage::NoCredentials),
                ("subscriber", FunnelStage::NoCredentials),
                ("unpaid", FunnelStage::NoCredentials),
                ("trial", FunnelStage::NoCredentials),
                ("tester", FunnelStage::NoPairedServer),
                ("owner", FunnelStage::Ready),
                ("guest", FunnelStage::GuestReady),
            ] {
                assert_eq!(early[user], stage, "{user}");
            }
            let (late, totals) = stages(later(9));
            assert_eq!((late["ended"], late["tester"]), (FunnelStage::NoSubscription, FunnelStage::NoSubscription));
            assert_eq!((totals.paid, totals.beta), (4, 0));
            let (_, totals) = stages(later(7 * 86_400));
            assert_eq!(totals.paid, 3, "the days of grace are over");
        });
    }
}
