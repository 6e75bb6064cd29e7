//! Everything that is stored for the commands of a server, in one read; and the travels of ship and helicopter, which
//! are read when a player asks for them.

use std::sync::Arc;

use crate::{
    db::{
        access, device_groups,
        device_groups::DeviceGroup,
        engine::{error::DbError, pool::Db},
        smart_devices::{self, SmartDevice},
        switch_backs::{self, SwitchBack},
        team_chat_settings,
        team_timers::{self, StoredTimer},
        timeline,
    },
    domain::{
        ids::{ServerId, UserId},
        team_command::{
            settings::TeamChatSettings,
            vocabulary::{DeviceCommand, folded},
        },
        timeline::{TimelineEntry, TimelinePage},
        world_event::EventKind,
    },
};

/// Entries of the timeline in which the last ones of ship and helicopter are.
const RECALLED: usize = 50;

/// See the module.
#[derive(Default)]
pub struct StoredCommands {
    pub settings: TeamChatSettings,
    pub owner: Option<UserId>,
    /// SteamID64 of those who may watch.
    pub accounts: Vec<String>,
    pub devices: Vec<SmartDevice>,
    pub groups: Vec<DeviceGroup>,
    pub timers: Vec<StoredTimer>,
    pub switch_backs: Vec<SwitchBack>,
}

impl StoredCommands {
    /// Reads them.
    pub fn read(db: &mut Db, server: &ServerId) -> Result<Self, DbError> {
        let watchers = access::watchers(db, server)?;
        Ok(Self {
            settings: team_chat_settings::get(db, server)?,
            accounts: access::accounts(db, &watchers)?,
            owner: watchers.into_iter().next(),
            devices: smart_devices::list(db, server)?,
            groups: device_groups::list(db, server)?,
            timers: team_timers::list(db, server)?,
            switch_backs: switch_backs::list(db, server)?,
        })
    }

    /// The commands of devices and groups.
    pub fn device_commands(&self) -> Vec<DeviceCommand> {
        let own = self.devices.iter().filter_map(|device| {
            let word = folded(device.custom_command.as_ref()?);
            Some(DeviceCommand { word, group: None, devices: vec![device.device_id.as_str().into()] })
        });
        let grouped = self.groups.iter().filter_map(|group| {
            let word = folded(group.command.as_ref()?);
            let is_known = |id: &&String| self.devices.iter().any(|device| device.device_id == **id);
            let devices: Vec<Arc<str>> = group.devices.iter().filter(is_known).map(|id| id.as_str().into()).collect();
            (!devices.is_empty()).then(|| DeviceCommand { word, group: Some(group.name.clone()), devices })
        });
        own.chain(grouped).collect()
    }
}

/// The last entries of ship and helicopter, and of wipes, after which those before are of another world.
pub fn travels(db: &mut Db, server: &ServerId) -> Result<Vec<TimelineEntry>, DbError> {
    let kinds = [EventKind::Cargo, EventKind::Heli, EventKind::Wipe].map(|kind| kind.word().to_owned());
    let page = TimelinePage { since: None, before: None, kinds: Some(kinds.into()), limit: RECALLED };
    match timeline::list(db, server, &page) {
        // The server is being deleted.
        Err(DbError::NotFound) => Ok(Vec::new()),
        entries => entries,
    }
}
