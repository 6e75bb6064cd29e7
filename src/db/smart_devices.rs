//! Smart devices of paired servers, and the labels and commands that owners gave them.

use diesel::{
    backend::Backend,
    deserialize::{self, FromSql, FromSqlRow},
    dsl::exists,
    sql_types::Text,
};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{paired_servers, push_credentials, push_refusals, smart_devices},
    },
    domain::{device::DeviceKind, ids::ServerId, time::Timestamp},
};

/// A switch, alarm, storage monitor or camera of a paired server, as it is stored.
#[derive(Clone, Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = smart_devices)]
pub struct SmartDevice {
    #[diesel(deserialize_as = String)]
    pub server_id: ServerId,
    /// The game's entity id in decimal, or the identifier of a camera, which is never all digits.
    pub device_id: String,
    #[diesel(deserialize_as = StoredKind)]
    pub kind: DeviceKind,
    /// The name in the game.
    pub name: String,
    pub label: Option<String>,
    pub custom_command: Option<String>,
    pub on_message: Option<String>,
    pub off_message: Option<String>,
    pub created_at: Timestamp,
    /// An alarm's, as it was last seen.
    pub last_value: Option<bool>,
    /// Metres from the south-west corner; both or none.
    pub x: Option<f64>,
    pub y: Option<f64>,
    /// The facts that events have reported of it, as JSON.
    pub reported: Option<String>,
}

/// Change of a device by its owner; what is absent stays, `Some(None)` removes.
#[derive(Clone, Debug, Default, PartialEq, AsChangeset)]
#[diesel(table_name = smart_devices)]
pub struct DeviceChange {
    pub label: Option<Option<String>>,
    pub custom_command: Option<Option<String>>,
    pub on_message: Option<Option<String>>,
    pub off_message: Option<Option<String>>,
    pub x: Option<Option<f64>>,
    pub y: Option<Option<f64>>,
}

/// A stored kind: the same text as in the API.
#[derive(Debug, FromSqlRow)]
pub struct StoredKind(DeviceKind);

impl<DB: Backend> FromSql<Text, DB> for StoredKind
where
    String: FromSql<Text, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(DeviceKind::parse(&String::from_sql(bytes)?).unwrap_or(DeviceKind::Unknown)))
    }
}

impl From<StoredKind> for DeviceKind {
    fn from(stored: StoredKind) -> Self {
        stored.0
    }
}

/// True if alarms of the server come over its link alone: it has one, and its owner has no push credential that has neither
/// expired nor been refused.
pub fn has_unpushed_alarm(db: &mut Db, server: &ServerId, now: Timestamp) -> Result<bool, DbError> {
    let of_server = smart_devices::table.filter(smart_devices::server_id.eq(server.as_str()));
    let alarms = of_server.filter(smart_devices::kind.eq(DeviceKind::Alarm.word()));
    if !diesel::select(exists(alarms)).get_result::<bool>(db)? {
        return Ok(false);
    }
    let owner: Option<String> =
        paired_servers::table.find(server.as_str()).select(paired_servers::owner_id).first(db).optional()?;
    let Some(owner) = owner else { return Ok(false) };
    let credential = push_credentials::table.find(&owner).filter(push_credentials::expires_at.gt(now));
    let uploaded_at: Option<Timestamp> = credential.select(push_credentials::uploaded_at).first(db).optional()?;
    let Some(uploaded_at) = uploaded_at else { return Ok(true) };
    let refusal = push_refusals::table.find(&owner).filter(push_refusals::uploaded_at.eq(uploaded_at));
    Ok(diesel::select(exists(refusal)).get_result::<bool>(db)?)
}

/// The server's devices, oldest first.
pub fn list(db: &mut Db, server: &ServerId) -> Result<Vec<SmartDevice>, DbError> {
    let devices = smart_devices::table
        .filter(smart_devices::server_id.eq(server.as_str()))
        .order((smart_devices::created_at, smart_devices::device_id))
        .select(SmartDevice::as_select())
        .load(db)?;
    Ok(devices)
}

/// Adds the device, or updates its kind and name; what the owner wrote stays.
pub fn upsert(
    db: &mut Db,
    server: &ServerId,
    device_id: &str,
    kind: DeviceKind,
    name: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    let pushed = (smart_devices::kind.eq(kind.word()), smart_devices::name.eq(name));
    let row = (
        smart_devices::server_id.eq(server.as_str()),
        smart_devices::device_id.eq(device_id),
        smart_devices::created_at.eq(now),
        pushed,
    );
    let upsert = diesel::insert_into(smart_devices::table)
        .values(row)
        .on_conflict((smart_devices::server_id, smart_devices::device_id))
        .do_update()
        .set(pushed);
    on_backend!(db, |db| upsert.execute(db))?;
    Ok(())
}

/// Sets the owner's label for the device; false when there is no such device.
pub fn set_label(db: &mut Db, server: &ServerId, device_id: &str, label: &str) -> Result<bool, DbError> {
    let device = smart_devices::table.find((server.as_str(), device_id));
    Ok(diesel::update(device).set(smart_devices::label.eq(label)).execute(db)? == 1)
}

/// Places a device that has no place yet; false when it has one, or there is no such device.
pub fn set_first_place(db: &mut Db, server: &ServerId, device_id: &str, (x, y): (f64, f64)) -> Result<bool, DbError> {
    let unplaced = smart_devices::table.find((server.as_str(), device_id)).filter(smart_devices::x.is_null());
    let place = (smart_devices::x.eq(x), smart_devices::y.eq(y));
    Ok(diesel::update(unplaced).set(place).execute(db)? == 1)
}

/// Changes what the owner wrote, and gives the device as it now is. `NotFound` if there is none.
pub fn change(db: &mut Db, server: &ServerId, device_id: &str, change: &DeviceChange) -> Result<SmartDevice, DbError> {
    if *change != DeviceChange::default() {
        diesel::update(smart_devices::table.find((server.as_str(), device_id))).set(change).execute(db)?;
    }
    get(db, server, device_id)
}

/// The device, or `NotFound`.
pub fn get(db: &mut Db, server: &ServerId, device_id: &str) -> Result<SmartDevice, DbError> {
    let device = smart_devices::table.find((server.as_str(), device_id));
    Ok(device.select(SmartDevice::as_select()).first(db)?)
}

/// Keeps what events have said of the device, if it is still there.
pub fn set_reported(db: &mut Db, server: &ServerId, device_id: &str, reported: &str) -> Result<(), DbError> {
    let device = smart_devices::table.find((server.as_str(), device_id));
    diesel::update(device).set(smart_devices::reported.eq(reported)).execute(db)?;
    Ok(())
}

/// Deletes the device; false when there was none.
pub fn delete(db: &mut Db, server: &ServerId, device_id: &str) -> Result<bool, DbError> {
    Ok(diesel::delete(smart_devices::table.find((server.as_str(), device_id))).execute(db)? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            paired_servers,
            push_credentials::{self, SealedBundle},
            push_refusals::{self, PushRefusal},
            testing::{self, later, now},
        },
        domain::credential::RefusalReason,
    };

    #[test]
    fn an_alarm_is_unpushed_without_a_credential_and_with_one_that_has_expired_or_was_refused() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let is_unpushed = |at| pool.read_blocking(|db| has_unpushed_alarm(db, &server, at)).unwrap();
            assert!(!is_unpushed(now()), "there is no alarm");
            pool.write_blocking(|db| upsert(db, &server, "7", DeviceKind::Alarm, "Base", now())).unwrap();
            assert!(is_unpushed(now()));
            let upload = |uploaded_at| {
                let (sealed, expires_at) = (b"sealed".to_vec(), later(60));
                let bundle = SealedBundle { sealed, key_version: 1, uploaded_at, uploaded_by: None, expires_at };
                pool.write_blocking(|db| push_credentials::upload(db, &"owner".into(), &bundle)).unwrap();
            };
            upload(now());
            assert_eq!((is_unpushed(later(59)), is_unpushed(later(60))), (false, true));
            let (uploaded_at, refused_at) = (now(), later(1));
            let refusal =
                PushRefusal { uploaded_at, uploaded_by: None, reason: RefusalReason::LoginRefused, refused_at };
            pool.write_blocking(|db| push_refusals::put(db, &"owner".into(), &refusal)).unwrap();
            assert!(is_unpushed(later(2)));
            upload(later(3));
            assert!(!is_unpushed(later(4)), "the refusal was of another");
        });
    }

    #[test]
    fn pairing_a_device_again_renames_it_and_keeps_what_the_owner_wrote() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let upsert = |id: &str, kind, name: &str, at| {
                pool.write_blocking(|db| upsert(db, &server, id, kind, name, at)).unwrap();
            };
            let list = || pool.read_blocking(|db| list(db, &server)).unwrap();
            upsert("42", DeviceKind::Switch, "Door", now());
            upsert("7", DeviceKind::StorageMonitor, "Box", later(1));
            pool.write_blocking(|db| {
                let row = smart_devices::table.find((server.as_str(), "42"));
                Ok(diesel::update(row).set(smart_devices::label.eq("Front")).execute(db)?)
            })
            .unwrap();
            upsert("42", DeviceKind::Alarm, "Gate", later(2));
            let device = |id: &str, kind, name: &str, label: Option<&str>, created_at| SmartDevice {
                server_id: server.clone(),
                device_id: id.into(),
                kind,
                name: name.into(),
                label: label.map(Into::into),
                custom_command: None,
                on_message: None,
                off_message: None,
                created_at,
                last_value: None,
                x: None,
                y: None,
                reported: None,
            };
            let gate = device("42", DeviceKind::Alarm, "Gate", Some("Front"), now());
            let stored = device("7", DeviceKind::StorageMonitor, "Box", None, later(1));
            assert_eq!(list(), [gate, stored]);
            let delete = |id: &str| pool.write_blocking(|db| delete(db, &server, id)).unwrap();
            assert!(delete("42"));
            assert!(!delete("42"));
            assert_eq!(list().len(), 1);
        });
    }

    #[test]
    fn a_stored_kind_is_the_text_of_the_api() {
        use DeviceKind::*;
        for kind in [Switch, Alarm, StorageMonitor, Camera, Unknown] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
        }
    }

    #[test]
    fn devices_are_deleted_with_their_server_and_servers_with_their_owner() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let add = || pool.write_blocking(|db| upsert(db, &server, "42", DeviceKind::Switch, "Door", now()));
            add().unwrap();
            pool.write_blocking(|db| paired_servers::delete(db, &"owner".into(), &server)).unwrap();
            assert_eq!(pool.read_blocking(|db| list(db, &server)).unwrap(), []);
            assert!(matches!(add(), Err(DbError::Conflict)), "a device needs its server");

            testing::server(pool, "owner", "server");
            add().unwrap();
            pool.write_blocking(|db| Ok(diesel::delete(crate::db::schema::users::table).execute(db)?)).unwrap();
            assert_eq!(pool.read_blocking(paired_servers::list_ids).unwrap(), []);
            assert_eq!(pool.read_blocking(|db| list(db, &server)).unwrap(), []);
        });
    }
}
