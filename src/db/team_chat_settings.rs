//! Settings of paired servers for commands in their team's chat; a server without a row has the default.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::team_chat_settings,
    },
    domain::{ids::ServerId, team_command::settings::TeamChatSettings},
};

/// The settings of the server.
pub fn get(db: &mut Db, server: &ServerId) -> Result<TeamChatSettings, DbError> {
    let row = team_chat_settings::table.find(server.as_str()).select(team_chat_settings::settings);
    let settings: Option<String> = row.first(db).optional()?;
    // A later version may have stored words that are not known here.
    Ok(settings.and_then(|settings| serde_json::from_str(&settings).ok()).unwrap_or_default())
}

/// Stores the settings of the server.
pub fn put(db: &mut Db, server: &ServerId, settings: &TeamChatSettings) -> Result<(), DbError> {
    let settings = serde_json::to_string(settings).expect("they are plain data");
    let stored = team_chat_settings::settings.eq(settings);
    let put = diesel::insert_into(team_chat_settings::table)
        .values((team_chat_settings::server_id.eq(server.as_str()), stored.clone()))
        .on_conflict(team_chat_settings::server_id)
        .do_update()
        .set(stored);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn settings_are_those_that_were_stored_last_or_the_default() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let read = || pool.read_blocking(|db| get(db, &server)).unwrap();
            assert_eq!(read(), TeamChatSettings::default());
            for prefix in ["?", "."] {
                let settings = TeamChatSettings { prefix: prefix.into(), ..Default::default() };
                pool.write_blocking(|db| put(db, &server, &settings)).unwrap();
                assert_eq!(read(), settings);
            }
        });
    }
}
