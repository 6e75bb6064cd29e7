//! Who may use the admin routes.

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
}

impl AdminSettings {
    /// Each once.
    pub(super) fn check(self, check: &mut Check) -> Vec<PlatformId> {
        let text = given(self.admin_platform_ids).unwrap_or_default();
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
        admins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admins(text: &str) -> (Vec<PlatformId>, usize) {
        let mut check = Check::default();
        let admins = AdminSettings { admin_platform_ids: Some(text.into()) }.check(&mut check);
        (admins, check.faults.len())
    }

    #[test]
    fn admins_are_a_comma_list_of_accounts() {
        let [ada, bob] = ["76561198000000001", "76561198000000002"];
        assert_eq!(admins(&format!(" {ada},{bob} ,, {ada}")), (vec![ada.into(), bob.into()], 0));
        assert_eq!(admins(" "), (vec![], 0));
        assert_eq!(admins(&format!("{ada};{bob}, 7")).1, 2);
    }
}
