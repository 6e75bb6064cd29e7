//! The answers to requests that need nothing but the world.

use bytes::Bytes;

use crate::{
    game::wire::{AppFlag, AppRequest, AppResponse, AppSuccess},
    simulator::{
        map_picture,
        world::{GameError, SimulatedWorld},
    },
};

/// The answer to a request of a player who may make it; `map_picture` is sent instead of a drawn one.
pub fn answer(
    request: &AppRequest,
    world: &mut SimulatedWorld,
    map_picture: Option<&Bytes>,
) -> Result<AppResponse, GameError> {
    let player = request.player_id;
    let response = AppResponse { seq: request.seq, ..Default::default() };
    let success = AppResponse { success: Some(AppSuccess {}), ..response.clone() };
    if watches_entity(request) {
        world.may_use(player, request.entity_id())?;
    }
    Ok(if request.get_map.is_some() {
        let terrain = world.terrain();
        let picture = map_picture.cloned().unwrap_or_else(|| map_picture::picture(terrain));
        AppResponse { map: Some(map_picture::app_map(terrain, picture)), ..response }
    } else if request.get_info.is_some() {
        AppResponse { info: Some(world.info()), ..response }
    } else if request.get_time.is_some() {
        AppResponse { time: Some(world.time()), ..response }
    } else if request.get_team_info.is_some() {
        AppResponse { team_info: Some(world.team_info(player)), ..response }
    } else if request.get_team_chat.is_some() {
        AppResponse { team_chat: Some(world.team_chat(player)?), ..response }
    } else if let Some(line) = &request.send_team_message {
        world.team_of(player).ok_or("no_team")?;
        world.say(player, &line.message);
        success
    } else if request.get_entity_info.is_some() {
        AppResponse { entity_info: Some(world.entity_info(request.entity_id())?), ..response }
    } else if let Some(wanted) = request.set_entity_value {
        world.set_switch(request.entity_id(), wanted.value)?;
        success
    } else if request.check_subscription.is_some() {
        let flag = AppFlag { value: world.subscription(request.entity_id(), player)? };
        AppResponse { flag: Some(flag), ..response }
    } else if let Some(wanted) = request.set_subscription {
        world.set_subscription(request.entity_id(), player, wanted.value)?;
        success
    } else if request.get_map_markers.is_some() {
        AppResponse { map_markers: Some(world.map_markers(player)), ..response }
    } else if let Some(target) = request.promote_to_leader {
        world.promote(player, target.steam_id)?;
        success
    } else if let Some(target) = request.kick_from_team {
        world.kick(player, target.steam_id)?;
        success
    } else if request.get_clan_info.is_some()
        || request.get_clan_chat.is_some()
        || request.set_clan_motd.is_some()
        || request.send_clan_message.is_some()
    {
        return Err("no_clan");
    } else if request.get_nexus_auth.is_some() {
        return Err("server_error"); // this server belongs to no nexus
    } else {
        return Err("unhandled");
    })
}

/// True if this is a request about one entity: a client that makes it gets the entity's broadcasts from then on.
pub fn watches_entity(request: &AppRequest) -> bool {
    request.get_entity_info.is_some()
        || request.set_entity_value.is_some()
        || request.check_subscription.is_some()
        || request.set_subscription.is_some()
}
