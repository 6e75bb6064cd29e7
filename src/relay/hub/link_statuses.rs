//! The status of links, of this node and of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use actix::{fut::ready, prelude::*};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Hub, LinkStatus, LinkStatuses, remote_commands::READ_WITHIN};
use crate::{
    db::held_parts,
    domain::{
        ids::{PartId, ServerId},
        link_reason::LinkReason,
    },
    relay::remote::remote_question::{RemoteAnswer, RemoteQuestion},
};

impl Hub {
    /// The links of this node among those of these servers.
    pub(super) fn known_links(&self, servers: &[ServerId]) -> HashMap<ServerId, LinkStatus> {
        let known = servers.iter().filter_map(|server| Some((server.clone(), self.link_statuses.get(server)?.clone())));
        known.collect()
    }

    /// True if another node has this server, or none has.
    pub(super) fn is_elsewhere(&self, server: &ServerId) -> bool {
        self.owned.as_ref().is_some_and(|owned| owned.part(server).is_some() && owned.fence(server).is_none())
    }
}

impl Handler<LinkStatuses> for Hub {
    type Result = ResponseActFuture<Self, HashMap<ServerId, LinkStatus>>;

    fn handle(&mut self, LinkStatuses { servers }: LinkStatuses, _: &mut Self::Context) -> Self::Result {
        let mut known = self.known_links(&servers);
        let elsewhere = servers.into_iter().filter(|server| !known.contains_key(server) && self.is_elsewhere(server));
        let elsewhere: Vec<(ServerId, PartId)> =
            elsewhere.filter_map(|server| Some((server.clone(), self.owned.as_ref()?.part(&server)?))).collect();
        if elsewhere.is_empty() {
            return Box::pin(ready(known));
        }
        let parts: BTreeSet<PartId> = elsewhere.iter().map(|(_, part)| part.clone()).collect();
        let pool = self.context.pool.clone();
        let holders =
            async move { timeout(READ_WITHIN, pool.read(move |db| held_parts::holders_of(db, &parts))).await };
        Box::pin(holders.into_actor(self).then(move |holders, hub, _| {
            let unanswered = LinkStatus { reason: Some(LinkReason::NodeSilent), ..hub.connecting() };
            let mut by_process: BTreeMap<String, Vec<ServerId>> = BTreeMap::new();
            match holders {
                Ok(Ok(holders)) => {
                    for (server, part) in elsewhere {
                        if let Some(node) = holders.get(&part) {
                            by_process.entry(node.process().to_owned()).or_default().push(server);
                        }
                    }
                }
                Ok(Err(_)) | Err(_) => {
                    known.extend(elsewhere.into_iter().map(|(server, _)| (server, unanswered.clone())));
                }
            }
            let asked = by_process.into_iter().filter_map(|(process, servers)| {
                let question = RemoteQuestion::Links { servers: servers.clone() };
                let answer = hub.send_question(servers.first()?.clone(), &process, question)?;
                Some(async move { (servers, timeout(READ_WITHIN, answer).await) })
            });
            let asked: Vec<_> = asked.collect();
            async move {
                for (servers, answer) in join_all(asked).await {
                    match answer {
                        Ok(Ok(RemoteAnswer::Links(links))) => known.extend(links),
                        _ => known.extend(servers.into_iter().map(|server| (server, unanswered.clone()))),
                    }
                }
                known
            }
            .into_actor(hub)
        }))
    }
}
