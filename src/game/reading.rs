//! A game server's answers in the domain's words. Tolerant: what makes no sense is left out, nothing fails.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::{
    domain::{
        detect::wipe::World,
        device::{Device, DeviceKind, Item, Reachable, Storage},
        grid::{self, GridStyle},
        map::{MapNote, MapPlace, Marker, MarkerDetails, MarkerKind, SellOrder},
        monument::Monument,
        plain_text::plain_text,
        server_state::Member,
        time::Timestamp,
    },
    game::wire::{
        AppEntityPayload, AppEntityType, AppInfo, AppMap, AppMapMarkers, AppMarker, AppMarkerType, AppTeamInfo,
        app_team_info,
    },
};

/// Markers beyond this many are left out: no game server has them, and every one costs memory here.
pub const MARKERS: usize = 20_000;
const MEMBERS: usize = 64;
/// Notes of one player, or of a player and the leader together.
pub const NOTES: usize = 128;
const SELL_ORDERS: usize = 32;
const STACKS: usize = 128;
const MONUMENTS: usize = 1_024;
/// Characters of a name; the game's own limits are lower.
const TEXT: usize = 128;

/// Rounds to centimetres, so that equal places stay equal. `None` for a value that is no place.
fn metres(value: f32) -> Option<f64> {
    (value.is_finite() && value.abs() < 1e6).then(|| (f64::from(value) * 100.0).round() / 100.0)
}

/// The leader's SteamID, and the members by theirs.
pub fn team(team: AppTeamInfo, map_size: u32) -> (Option<String>, Vec<(u64, Member)>) {
    let leader = (team.leader_steam_id != 0).then(|| team.leader_steam_id.to_string());
    let members = team.members.into_iter().take(MEMBERS).map(|member| {
        // Dead and offline: the game sends 0 or where the body once was.
        let known = member.is_alive || member.is_online;
        let place = metres(member.x).zip(metres(member.y)).filter(|_| known);
        let read = Member {
            name: plain_text(&member.name, TEXT),
            x: place.map(|(x, _)| x),
            y: place.map(|(_, y)| y),
            grid: place.map(|(x, y)| grid::label(GridStyle::InGame, map_size, x, y)).unwrap_or_default(),
            online: member.is_online,
            alive: member.is_alive,
            spawned_at: Timestamp::from_unix(member.spawn_time),
            died_at: Timestamp::from_unix(member.death_time),
            afk_since: None,
        };
        (member.steam_id, read)
    });
    (leader, members.collect())
}

/// Notes that a player has placed in the game, keyed by what they are: the game gives them no ids. A team answer has
/// those of the player who asks, and those of the leader, which the whole team sees.
pub fn notes(placed: &[app_team_info::Note]) -> Vec<(Arc<str>, MapNoteSeen)> {
    let mut seen: HashSet<Arc<str>> = HashSet::new();
    let notes = placed.iter().take(NOTES).filter_map(|note| {
        let (x, y) = metres(note.x).zip(metres(note.y))?;
        // The place is part of the id, so a note that moves is another note.
        let id: Arc<str> = format!("game:{}:{x:.0}:{y:.0}", note.r#type).into();
        let is_first = seen.insert(id.clone());
        is_first.then(|| (id, MapNoteSeen { x, y, category: category(note), label: label(note) }))
    });
    notes.collect()
}

/// A note as the game shows it; since when it is there, the game does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct MapNoteSeen {
    x: f64,
    y: f64,
    category: &'static str,
    label: Option<String>,
}

impl MapNoteSeen {
    /// The note, first seen at `at` on a map of this size.
    pub fn since(&self, at: Timestamp, map_size: u32) -> MapNote {
        MapNote {
            x: self.x,
            y: self.y,
            grid: grid::label(GridStyle::InGame, map_size, self.x, self.y),
            category: self.category.to_owned(),
            label: self.label.clone(),
            source: "game",
            author: None,
            created_at: at,
            expires_at: None,
        }
    }
}

/// The contract's category for a note of the game: its icon is all there is to go by.
fn category(note: &app_team_info::Note) -> &'static str {
    match (note.r#type, note.icon) {
        (0, _) => "death",
        (_, Some(4 | 9)) => "enemy",
        (_, Some(6)) => "warning",
        (_, Some(11 | 1)) => "stash",
        (_, Some(10)) => "farm",
        _ => "friendly",
    }
}

fn label(note: &app_team_info::Note) -> Option<String> {
    note.label.as_deref().map(|text| plain_text(text, TEXT)).filter(|label| !label.is_empty())
}

/// The markers by id.
pub fn markers(markers: AppMapMarkers, map_size: u32) -> Vec<(u64, Marker)> {
    markers
        .markers
        .into_iter()
        .take(MARKERS)
        .filter_map(|marker| Some((marker.id, self::marker(marker, map_size)?)))
        .collect()
}

fn marker(marker: AppMarker, map_size: u32) -> Option<Marker> {
    let (x, y) = metres(marker.x).zip(metres(marker.y))?;
    let kind = match AppMarkerType::try_from(marker.r#type) {
        Ok(AppMarkerType::PlayerMarker) => MarkerKind::Player,
        Ok(AppMarkerType::ExplosionMarker) => MarkerKind::Explosion,
        Ok(AppMarkerType::VendingMachineMarker) => MarkerKind::VendingMachine,
        Ok(AppMarkerType::Ch47Marker) => MarkerKind::Chinook,
        Ok(AppMarkerType::CargoShipMarker) => MarkerKind::CargoShip,
        Ok(AppMarkerType::CrateMarker) => MarkerKind::Crate,
        Ok(AppMarkerType::GenericRadiusMarker) => MarkerKind::GenericRadius,
        Ok(AppMarkerType::PatrolHelicopterMarker) => MarkerKind::PatrolHelicopter,
        Ok(AppMarkerType::TravellingVendorMarker) => MarkerKind::TravellingVendor,
        Ok(AppMarkerType::UndefinedMarker) | Err(_) => MarkerKind::Other,
    };
    let channel = |value: Option<f32>| (value.unwrap_or_default().clamp(0.0, 1.0) * 255.0) as u8;
    let color = marker.color1.map(|c| [channel(c.x), channel(c.y), channel(c.z), channel(c.w.or(Some(1.0)))]);
    let orders = marker.sell_orders.into_iter().take(SELL_ORDERS).map(|order| SellOrder {
        item_id: order.item_id,
        quantity: order.quantity,
        currency_id: order.currency_id,
        cost: order.cost_per_item,
        in_stock: order.amount_in_stock,
        item_is_blueprint: order.item_is_blueprint,
        currency_is_blueprint: order.currency_is_blueprint,
        condition: order.item_condition.zip(order.item_condition_max).and_then(|(now, full)| condition(now, full)),
    });
    let details = MarkerDetails {
        rotation: marker.rotation.and_then(metres),
        steam_id: marker.steam_id.filter(|id| *id != 0),
        radius: marker.radius.and_then(metres),
        color,
    };
    Some(Marker {
        kind,
        place: MapPlace::at(x, y),
        map_size,
        details: (details != MarkerDetails::default()).then(|| details.into()),
        name: marker.name.map(|text| plain_text(&text, TEXT)).filter(|name| !name.is_empty()).map(Box::from),
        out_of_stock: marker.out_of_stock,
        sell_orders: orders.collect(),
    })
}

/// Hundredths of the full condition; `None` for what makes no sense.
fn condition(now: f32, full: f32) -> Option<u8> {
    let part = f64::from(now) / f64::from(full);
    (full > 0.0 && part.is_finite()).then(|| (part.clamp(0.0, 1.0) * 100.0).round() as u8)
}

/// The monuments of a map.
pub fn monuments(map: &AppMap) -> Vec<Monument> {
    let known = map.monuments.iter().take(MONUMENTS);
    let mut monuments: Vec<Monument> =
        known.filter_map(|monument| Monument::new(&monument.token, metres(monument.x)?, metres(monument.y)?)).collect();
    monuments.shrink_to_fit();
    monuments
}

/// Reads the facts that differ from world to world.
pub fn world(info: &AppInfo) -> World {
    World {
        wiped_at: Timestamp::from_unix(info.wipe_time),
        seed: info.seed,
        salt: info.salt,
        map_size: Some(info.map_size).filter(|size| *size != 0),
        level: Some(plain_text(&info.map, TEXT)).filter(|level| !level.is_empty()),
    }
}

/// Kind of the device that answered.
pub fn device_kind(kind: i32) -> DeviceKind {
    match AppEntityType::try_from(kind) {
        Ok(AppEntityType::Switch) => DeviceKind::Switch,
        Ok(AppEntityType::Alarm) => DeviceKind::Alarm,
        Ok(AppEntityType::StorageMonitor) => DeviceKind::StorageMonitor,
        Ok(AppEntityType::Unknown) | Err(_) => DeviceKind::Unknown,
    }
}

/// Writes a device's payload into what is known of it. A storage monitor that says `value = true` is in the middle of
/// a change: its contents follow in a second message (protocol §3.4).
pub fn read_payload(device: &mut Device, payload: AppEntityPayload) {
    device.reachable = Reachable::Ok;
    if device.kind != DeviceKind::StorageMonitor {
        device.value = payload.value.or(device.value);
        return;
    }
    if payload.value == Some(true) && device.storage.is_some() {
        return;
    }
    let used = payload.items.len().min(STACKS) as i32;
    let mut stacks: BTreeMap<(i32, bool), i32> = BTreeMap::new();
    for item in payload.items.into_iter().take(STACKS) {
        let quantity = stacks.entry((item.item_id, item.item_is_blueprint)).or_default();
        *quantity = quantity.saturating_add(item.quantity);
    }
    let items = stacks.into_iter().map(|((item_id, is_blueprint), quantity)| Item { item_id, quantity, is_blueprint });
    device.storage = Some(Storage {
        capacity: payload.capacity.unwrap_or_default(),
        used,
        items: items.collect(),
        has_protection: payload.has_protection.unwrap_or_default(),
        protection_expires_at: payload.protection_expiry.and_then(Timestamp::from_unix),
    });
}
