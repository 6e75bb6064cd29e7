//! The stored secrets: whether the keys that are set open them.

use std::sync::Arc;

use super::observation::Observation;
use crate::{config::Config, crypto::random::Random, db::engine::schema_steps::open_existing, rotation, vault::Vault};

const SUBJECT: &str = "keys";

/// Opens every stored secret. Nothing where there is no database to look at: others say so. Blocks.
pub(super) fn examine(config: &Config) -> Option<Observation> {
    let (lost, sealer) = (config.secrets.credentials_key_lost, config.secrets.sealer(0, Random::system()));
    let status = match rotation::status(&Vault::new(open_existing(&config.database).ok()?, Arc::new(sealer))) {
        Ok(status) => status,
        Err(error) => {
            let text = format!("the stored secrets cannot be read: {error}; see the database");
            return Some(Observation::broken(SUBJECT, text));
        }
    };
    let (stored, unreadable) = (status.by_key.values().sum::<usize>(), status.unreadable.len());
    let of_another_key = status.unreadable.iter().filter(|secret| secret.is_of_another_key()).count();
    Some(match (unreadable, lost) {
        (1.., _) if of_another_key == 0 => Observation::broken(
            SUBJECT,
            format!(
                "{unreadable} of {stored} stored secrets are damaged, and no key opens them: `companion keys status` names \
                 them; their users pair or upload again, or restore a backup"
            ),
        ),
        (0, true) => Observation::doubtful(
            SUBJECT,
            format!("all {stored} stored secrets open; take CREDS_ENCRYPTION_KEY_LOST out of the settings"),
        ),
        (0, false) => Observation::fine(SUBJECT, format!("all {stored} stored secrets open")),
        (_, true) => Observation::doubtful(
            SUBJECT,
            format!("{unreadable} of {stored} stored secrets do not open; their users pair and upload again"),
        ),
        (_, false) if unreadable == stored => Observation::broken(
            SUBJECT,
            format!(
                "none of {stored} stored secrets opens: CREDS_ENCRYPTION_KEY is another key than the one that sealed \
                 them; set that one, or the service does not start"
            ),
        ),
        (_, false) => Observation::broken(
            SUBJECT,
            format!(
                "{unreadable} of {stored} stored secrets do not open: set the key that sealed them as \
                 CREDS_ENCRYPTION_KEY_PREV; `companion keys status` names them"
            ),
        ),
    })
}
