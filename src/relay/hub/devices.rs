//! Questions about devices, through the hub.

use std::{collections::HashMap, sync::Arc};

use actix::prelude::*;

use super::Hub;
use crate::{
    domain::device::DeviceReport,
    relay::game::commands::{PlaceDevice, ReadDevices},
};

impl Handler<ReadDevices> for Hub {
    type Result = ResponseFuture<HashMap<Arc<str>, DeviceReport>>;

    fn handle(&mut self, ReadDevices { server }: ReadDevices, _: &mut Self::Context) -> Self::Result {
        let connection = self.connections.get(&server).map(|known| known.address.clone());
        Box::pin(async move {
            let Some(connection) = connection else { return HashMap::new() };
            connection.send(ReadDevices { server }).await.unwrap_or_default()
        })
    }
}

impl Handler<PlaceDevice> for Hub {
    type Result = ();

    fn handle(&mut self, place: PlaceDevice, _: &mut Self::Context) {
        // Only a connection knows where the player is.
        if let Some(connection) = self.connections.get(&place.server) {
            connection.address.do_send(place);
        }
    }
}
