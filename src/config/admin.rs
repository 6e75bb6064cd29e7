//! Accounts that may use the admin routes.

use chrono::TimeDelta;

use crate::{
    config::check::{Check, given},
    domain::ids::PlatformId,
};

/// The admins, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminSettings {
    /// SteamID64s of the admins, separated by commas [default: none, and the admin routes are off]
    #[arg(long, env)]
    pub admin_platform_ids: Option<String>,
    /// Minutes after their sign-in in which admins may refund and delete; later they sign in again first [default: as long as they are signed in]
    #[arg(long, env)]
    pub fresh_sign_in_minutes: Option<String>,
}

/// The most minutes, a day.
const LONGEST_FRESH: i64 = 24 * 60;

impl AdminSettings {
    /// The admins, each once, and the longest age of the sign-in with which they refund and delete.
    pub(super) fn check(self, check: &mut Check) -> (Vec<PlatformId>, Option<TimeDelta>) {
        let text = given(self.admin_platform_ids).unwrap_or_default();
        if check.production && text.trim().is_empty() {
            check.warning("ADMIN_PLATFORM_IDS", "is missing: everything below /admin answers 503");
        }
        let mut admins = Vec::new();
        for account in text.split(',').map(str::trim).filter(|account| !account.is_empty()) {
            match PlatformId::parse(account) {
                Some(admin) if admins.contains(&admin) => {}
                Some(admin) => admins.push(admin),
                None => {
                    check.fault("ADMIN_PLATFORM_IDS", format!("names {account:?}, which is no SteamID64 of 17 digits"))
                }
            }
        }
        let minutes = given(self.fresh_sign_in_minutes).and_then(|minutes| {
            let minutes = check.parse("FRESH_SIGN_IN_MINUTES", &minutes, "a number of minutes")?;
            if !(1..=LONGEST_FRESH).contains(&minutes) {
                check.fault("FRESH_SIGN_IN_MINUTES", format!("is not from 1 to {LONGEST_FRESH}"));
            }
            Some(minutes)
        });
        (admins, minutes.and_then(TimeDelta::try_minutes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admins(text: &str) -> (Vec<PlatformId>, usize) {
        let mut check = Check::default();
        let settings = AdminSettings { admin_platform_ids: Some(text.into()), fresh_sign_in_minutes: None };
        (settings.check(&mut check).0, check.faults.len())
    }

    #[test]
    fn a_fresh_sign_in_is_some_minutes_old_or_may_be_of_any_age() {
        let fresh = |minutes: &str| {
            let mut check = Check::default();
            let settings = AdminSettings { admin_platform_ids: None, fresh_sign_in_minutes: Some(minutes.into()) };
            (settings.check(&mut check).1, check.faults.len())
        };
        assert_eq!(fresh(" 15 "), (Some(TimeDelta::minutes(15)), 0));
        assert_eq!(fresh(" "), (None, 0));
        assert_eq!(["0", "1441", "soon", "-1"].map(|minutes| fresh(minutes).1), [1; 4]);
    }

    #[test]
    fn admins_are_a_comma_list_of_accounts() {
        let [ada, bob] = ["76561198000000001", "76561198000000002"];
        assert_eq!(admins(&format!(" {ada},{bob} ,, {ada}")), (vec![ada.into(), bob.into()], 0));
        assert_eq!(admins(" "), (vec![], 0));
        assert_eq!(admins(&format!("{ada};{bob}, 7")).1, 2);
    }
}
