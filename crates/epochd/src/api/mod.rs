//! The public API: one implementation, reached over gRPC and JSON, on any node.

mod access;
mod body;
mod certify;
mod credential;
mod failure;
mod forward;
mod grants;
mod grpc;
mod http;
mod lockout;
mod page;
mod parse;
mod permissions;
mod reads;
mod records;
mod sessions;
mod trust;
mod watches;

use std::sync::Arc;

use axum::http::Extensions;
use epoch_core::Reason;
use epoch_machine::{Command, Outcome};
use epoch_proto::v1;
pub(crate) use grpc::{admit_peer_calls, public_routes};
pub(crate) use http::{admin_router, identify_by_peer, router};

use self::credential::Credential;
use self::failure::Failure;
use self::forward::Leader;
use crate::connections::Place;
use crate::node::Node;
use crate::raft::Line;
use crate::tls::TlsIdentity;

type Result<T> = std::result::Result<T, Failure>;

/// Where a call came from: one passed on by another node is not passed on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Client,
    Peer,
}

/// Who answers a call.
enum Server {
    Here,
    Leader(Leader),
}

/// The calls, on this node, by one caller.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    node: Arc<Node>,
    origin: Origin,
    credential: Credential,
    /// What the call came over, if that was a client's connection.
    connection: Option<Arc<Place>>,
}

impl Api {
    pub(crate) fn new(node: Arc<Node>, origin: Origin) -> Self {
        Self {
            node,
            origin,
            credential: Credential::None,
            connection: None,
        }
    }

    /// For the caller of a request, as its credential was put beside it when it came in.
    fn asked_by(&self, extensions: &Extensions) -> Self {
        Self {
            node: Arc::clone(&self.node),
            origin: self.origin,
            credential: extensions.get().cloned().unwrap_or_default(),
            connection: extensions
                .get::<TlsIdentity>()
                .map(|identity| Arc::clone(&identity.place)),
        }
    }

    /// This node if it serves as the leader, else the leader as far as this node knows.
    fn server(&self) -> Result<Server> {
        self.server_by(Line::Calls)
    }

    fn server_by(&self, line: Line) -> Result<Server> {
        if self.node.serving().is_some() {
            return Ok(Server::Here);
        }
        let no_leader = |why: &str| Failure::new(Reason::NoLeader, why);
        if self.origin == Origin::Peer {
            return Err(no_leader("this node does not lead any more"));
        }
        let leader = self.node.consensus.leader();
        let Some((leader, addresses)) = leader.filter(|(leader, _)| *leader != self.node.id) else {
            return Err(no_leader("no leader is known"));
        };
        let channel = self.node.consensus.channel(leader, &addresses.peer, line);
        let channel = channel.map_err(|_address| no_leader("the leader's address is not one"))?;
        self.prove_if_known();
        Ok(Server::Leader(Leader {
            channel,
            credential: self.credential.clone(),
        }))
    }

    /// The client address of the leader, to be named in every answer.
    pub(crate) fn leader_address(&self) -> Option<String> {
        let (_, addresses) = self.node.consensus.leader()?;
        Some(addresses.client)
    }

    async fn propose(&self, command: Command) -> Result<Outcome> {
        match self.node.proposer.propose(command).await? {
            Outcome::Refused(refusal) => Err(refusal.into()),
            outcome => Ok(outcome),
        }
    }

    /// Counts a refusal where it is made; one that is passed on was counted by the leader.
    fn counted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(failure) = &result {
            self.node.metrics.refused(failure.reason);
        }
        result
    }
}

fn not_leading() -> Failure {
    Failure::new(Reason::NoLeader, "this node does not lead any more")
}

fn unexpected(outcome: &Outcome) -> Failure {
    tracing::error!(?outcome, "the outcome is not of the command's kind");
    Failure::new(Reason::Internal, "the outcome is not of the command's kind")
}

fn position(position: epoch_core::Position) -> v1::Position {
    let epoch_core::Position {
        group,
        term,
        leader,
        index,
        offset,
    } = position;
    v1::Position {
        group,
        term,
        leader,
        index,
        offset,
    }
}
