//! Groups of devices of a paired server, which are switched as one.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::device_groups,
    },
    domain::{ids::ServerId, time::Timestamp},
};

/// Groups of one paired server.
pub const MOST_GROUPS: usize = 50;
/// Devices of one group.
pub const MOST_MEMBERS: usize = 32;

/// Devices of a paired server that are switched together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceGroup {
    pub id: String,
    pub name: String,
    /// The word that switches it in the team's chat.
    pub command: Option<String>,
    /// Device ids, in the order in which they are switched. A device may be gone.
    pub devices: Vec<String>,
    pub created_at: Timestamp,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = device_groups)]
pub(in crate::db) struct GroupRow {
    id: String,
    name: String,
    command: Option<String>,
    devices: String,
    created_at: Timestamp,
}

impl From<GroupRow> for DeviceGroup {
    fn from(GroupRow { id, name, command, devices, created_at }: GroupRow) -> Self {
        Self { id, name, command, devices: serde_json::from_str(&devices).unwrap_or_default(), created_at }
    }
}

/// The groups of the server, oldest first.
pub fn list(db: &mut Db, server: &ServerId) -> Result<Vec<DeviceGroup>, DbError> {
    let groups = device_groups::table.filter(device_groups::server_id.eq(server.as_str()));
    let groups = groups.order((device_groups::created_at, device_groups::id)).select(GroupRow::as_select());
    Ok(groups.load(db)?.into_iter().map(DeviceGroup::from).collect())
}

/// Adds the group, or replaces the one with its id.
pub fn put(db: &mut Db, server: &ServerId, group: &DeviceGroup) -> Result<(), DbError> {
    let devices = serde_json::to_string(&group.devices).expect("ids are plain text");
    let given = (
        device_groups::name.eq(&group.name),
        device_groups::command.eq(&group.command),
        device_groups::devices.eq(devices),
    );
    let row = (
        device_groups::id.eq(&group.id),
        device_groups::server_id.eq(server.as_str()),
        given.clone(),
        device_groups::created_at.eq(group.created_at),
    );
    let put =
        diesel::insert_into(device_groups::table).values(row).on_conflict(device_groups::id).do_update().set(given);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// Takes a device out of the groups of its server. A group that has no other device is deleted.
pub fn remove_device(db: &mut Db, server: &ServerId, device: &str) -> Result<(), DbError> {
    for mut group in list(db, server)? {
        let before = group.devices.len();
        group.devices.retain(|member| member != device);
        if group.devices.is_empty() {
            delete(db, server, &group.id)?;
        } else if group.devices.len() < before {
            put(db, server, &group)?;
        }
    }
    Ok(())
}

/// Deletes the group; false when there was none.
pub fn delete(db: &mut Db, server: &ServerId, id: &str) -> Result<bool, DbError> {
    let group = device_groups::table.find(id).filter(device_groups::server_id.eq(server.as_str()));
    Ok(diesel::delete(group).execute(db)? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn groups_are_listed_replaced_and_deleted_with_their_server() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let group = |id: &str, devices: &[&str], created_at| DeviceGroup {
                id: id.into(),
                name: "Gates".into(),
                command: Some("gates".into()),
                devices: devices.iter().map(|device| (*device).to_owned()).collect(),
                created_at,
            };
            let put = |group: &DeviceGroup| pool.write_blocking(|db| put(db, &server, group)).unwrap();
            let list = || pool.read_blocking(|db| list(db, &server)).unwrap();
            put(&group("b", &["7", "8"], now()));
            put(&group("a", &[], later(1)));
            put(&group("b", &["9"], now()));
            assert_eq!(list(), [group("b", &["9"], now()), group("a", &[], later(1))]);
            put(&group("a", &["8", "9"], later(1)));
            pool.write_blocking(|db| remove_device(db, &server, "9")).unwrap();
            assert_eq!(list(), [group("a", &["8"], later(1))]);
            put(&group("b", &["9"], now()));
            let delete = |server: &ServerId, id: &str| pool.write_blocking(|db| delete(db, server, id)).unwrap();
            assert!(!delete(&"other".into(), "a") && delete(&server, "a") && !delete(&server, "a"));
            assert_eq!(list().len(), 1);
        });
    }
}
