//! The status of links, of this node and of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use actix::{fut::ready, prelude::*};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{
    Hub, LinkStatus, LinkStatuses,
    nodes::{online::of_none, remote_commands::READ_WITHIN},
};
use crate::{
    db::held_parts::{self, PartHolder},
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

    /// The links of these servers for another node, which takes this one for theirs: some may have passed on.
    pub(super) fn links_for_another(&self, servers: &[ServerId]) -> HashMap<ServerId, LinkStatus> {
        let is_here = |server: &ServerId| self.nodes.as_ref().is_some_and(|nodes| nodes.owned.fence(server).is_some());
        let elsewhere = servers.iter().filter(|server| !is_here(server));
        let mut links: HashMap<_, _> = elsewhere.map(|server| (server.clone(), self.unknown_link())).collect();
        links.extend(self.known_links(servers));
        links
    }

    /// The link of a server whose node does not say how it is, or is not there yet.
    fn unknown_link(&self) -> LinkStatus {
        LinkStatus { reason: Some(LinkReason::NodeSilent), ..self.connecting() }
    }

    /// True if another node has this server, or none has.
    pub(super) fn is_elsewhere(&self, server: &ServerId) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.part_elsewhere(server).is_some())
    }
}

impl Handler<LinkStatuses> for Hub {
    type Result = ResponseActFuture<Self, HashMap<ServerId, LinkStatus>>;

    fn handle(&mut self, LinkStatuses { servers }: LinkStatuses, _: &mut Self::Context) -> Self::Result {
        let mut known = self.known_links(&servers);
        let part_elsewhere = |server: &ServerId| self.nodes.as_ref()?.part_elsewhere(server);
        let unknown = servers.into_iter().filter(|server| !known.contains_key(server));
        let elsewhere: Vec<(ServerId, PartId)> =
            unknown.filter_map(|server| part_elsewhere(&server).map(|part| (server, part))).collect();
        if elsewhere.is_empty() {
            return Box::pin(ready(known));
        }
        let parts: BTreeSet<PartId> = elsewhere.iter().map(|(_, part)| part.clone()).collect();
        let pool = self.context.pool.clone();
        let holders =
            async move { timeout(READ_WITHIN, pool.read(move |db| held_parts::holders_of(db, &parts))).await };
        Box::pin(holders.into_actor(self).then(move |holders, hub, _| {
            let unanswered = hub.unknown_link();
            let mut by_process: BTreeMap<String, Vec<ServerId>> = BTreeMap::new();
            match holders {
                Ok(Ok(holders)) => {
                    for (server, part) in elsewhere {
                        match holders.get(&part) {
                            Some(PartHolder::Node(node)) => {
                                by_process.entry(node.process().to_owned()).or_default().push(server);
                            }
                            // The part is on its way to a node.
                            Some(PartHolder::Free) => drop(known.insert(server, unanswered.clone())),
                            None => {}
                        }
                    }
                }
                Ok(Err(_)) | Err(_) => {
                    known.extend(elsewhere.into_iter().map(|(server, _)| (server, unanswered.clone())));
                }
            }
            let mut asked = Vec::new();
            for (process, servers) in by_process {
                let question = RemoteQuestion::Links { servers: servers.clone() };
                match hub.send_question(of_none(), &process, question) {
                    Some(answer) => asked.push(async move { (servers, timeout(READ_WITHIN, answer).await) }),
                    // They are on their way to this node.
                    None => known.extend(servers.into_iter().map(|server| (server, unanswered.clone()))),
                }
            }
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
