//! Switches that were turned for a time, and turn back.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::switch_backs,
    },
    domain::{ids::ServerId, time::Timestamp},
};

/// A switch with the value that it gets, and when.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = switch_backs)]
pub struct SwitchBack {
    pub device_id: String,
    pub value: bool,
    pub due_at: Timestamp,
}

/// The switches of the server that turn back.
pub fn list(db: &mut Db, server: &ServerId) -> Result<Vec<SwitchBack>, DbError> {
    let all = switch_backs::table.filter(switch_backs::server_id.eq(server.as_str()));
    Ok(all.order((switch_backs::due_at, switch_backs::device_id)).select(SwitchBack::as_select()).load(db)?)
}

/// Stores that a switch turns back; of one switch, the newest counts.
pub fn put(db: &mut Db, server: &ServerId, back: &SwitchBack) -> Result<(), DbError> {
    let given = (switch_backs::value.eq(back.value), switch_backs::due_at.eq(back.due_at));
    let key = (switch_backs::server_id.eq(server.as_str()), switch_backs::device_id.eq(&back.device_id));
    let put = diesel::insert_into(switch_backs::table)
        .values((key, given))
        .on_conflict((switch_backs::server_id, switch_backs::device_id))
        .do_update()
        .set(given);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// The switch does not turn back, or has.
pub fn delete(db: &mut Db, server: &ServerId, device: &str) -> Result<(), DbError> {
    diesel::delete(switch_backs::table.find((server.as_str(), device))).execute(db)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            smart_devices,
            testing::{self, later, now},
        },
        domain::device::DeviceKind,
    };

    #[test]
    fn of_one_switch_the_newest_counts_and_it_goes_with_the_switch() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let add =
                |id| pool.write_blocking(|db| smart_devices::upsert(db, &server, id, DeviceKind::Switch, "x", now()));
            let list = || pool.read_blocking(|db| list(db, &server)).unwrap();
            let back =
                |device: &str, value, seconds| SwitchBack { device_id: device.into(), value, due_at: later(seconds) };
            add("7").unwrap();
            add("8").unwrap();
            for back in [back("7", true, 60), back("8", false, 30), back("7", false, 10)] {
                pool.write_blocking(|db| put(db, &server, &back)).unwrap();
            }
            assert_eq!(list(), [back("7", false, 10), back("8", false, 30)]);
            pool.write_blocking(|db| delete(db, &server, "7")).unwrap();
            pool.write_blocking(|db| smart_devices::delete(db, &server, "8")).unwrap();
            assert_eq!(list(), []);
        });
    }
}
