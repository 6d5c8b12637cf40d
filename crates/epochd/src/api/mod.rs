//! The public API: one implementation, reached over gRPC and JSON, on any node.

mod body;
mod certify;
mod failure;
mod forward;
mod grpc;
mod http;
mod parse;

use std::sync::Arc;

use epoch_core::{NodeId, OpenId, Reason, Scope, VerifyingKey};
use epoch_machine::{Command, Grant, Outcome, ScopeState, SessionKey};
use epoch_proto::{duration, v1};
use tonic::transport::Channel;
use uuid::Uuid;

pub(crate) use grpc::{admit_peer_calls, public_routes};
pub(crate) use http::router;

use self::failure::Failure;
use crate::clock;
use crate::node::{Node, RenewError};

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
    Leader(Channel),
}

/// The calls, on this node.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    node: Arc<Node>,
    origin: Origin,
}

impl Api {
    pub(crate) fn new(node: Arc<Node>, origin: Origin) -> Self {
        Self { node, origin }
    }

    /// This node if it serves as the leader, else the leader as far as this node knows.
    fn server(&self) -> Result<Server> {
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
        let channel = self.node.consensus.channel(leader, &addresses.peer);
        channel
            .map(Server::Leader)
            .map_err(|_address| no_leader("the leader's address is not one"))
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

    async fn open(&self, request: v1::OpenRequest) -> Result<v1::Session> {
        let holder = parse::holder(&request.holder)?;
        let ttl = parse::ttl(request.ttl.as_ref())?;
        let open_id = match &request.open_id {
            Some(text) => parse::open_id(text)?,
            None => OpenId(Uuid::new_v4()),
        };
        if let Server::Leader(channel) = self.server()? {
            let request = v1::OpenRequest {
                open_id: Some(open_id.to_string()),
                ..request
            };
            return forward::open(channel, request).await;
        }
        match self
            .propose(Command::Open {
                open_id,
                holder,
                ttl,
            })
            .await?
        {
            Outcome::Opened {
                session,
                ttl,
                holder,
                ..
            } => Ok(v1::Session {
                session_id: session.to_string(),
                ttl: Some(duration::from_ms(ttl.ms())),
                holder: holder.to_string(),
                session: session.hash().to_string(),
                ..v1::Session::default()
            }),
            other => Err(unexpected(&other)),
        }
    }

    async fn keep_alive(&self, session_id: &str) -> Result<v1::KeepAliveResponse> {
        let arrived = clock::boot();
        let session = parse::session_id(session_id)?;
        if let Server::Leader(channel) = self.server()? {
            return forward::keep_alive(channel, session_id).await;
        }
        let leadership = self.node.keepalives.confirm().await?;
        let ttl = match self.node.state.read().session(&session) {
            Some(state) => state.ttl,
            None => return Err(epoch_machine::Refusal::SessionExpired.into()),
        };
        let renewed =
            self.node
                .leases()
                .renew(leadership, SessionKey::from(&session), ttl, arrived);
        match renewed {
            Ok(()) => Ok(v1::KeepAliveResponse {
                session_id: session_id.to_owned(),
                ttl: Some(duration::from_ms(ttl.ms())),
                reason: None,
                message: None,
                ..v1::KeepAliveResponse::default()
            }),
            Err(RenewError::NotLeader) => Err(Failure::new(
                Reason::NoLeader,
                "this node does not lead any more",
            )),
            Err(RenewError::Expiring) => Err(Failure::new(
                Reason::NoQuorum,
                "the session's expiry is under way",
            )),
        }
    }

    async fn close(&self, request: v1::CloseRequest) -> Result<v1::CloseResponse> {
        let session = parse::session_id(&request.session_id)?;
        if let Server::Leader(channel) = self.server()? {
            return forward::close(channel, request).await;
        }
        match self.propose(Command::Close { session }).await? {
            Outcome::Closed { closed, .. } => Ok(v1::CloseResponse { closed }),
            other => Err(unexpected(&other)),
        }
    }

    async fn acquire(&self, request: v1::AcquireRequest) -> Result<v1::Grant> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let request_id = parse::request_id(request.request_id)?;
        parse::audience(&request.audience)?;
        parse::not_offered(&request)?;
        if let Server::Leader(channel) = self.server()? {
            return forward::acquire(channel, request).await;
        }
        match self
            .propose(Command::Acquire {
                scope,
                session,
                request_id,
            })
            .await?
        {
            Outcome::Granted { grant, .. } => self.granted(&grant, &request.audience),
            other => Err(unexpected(&other)),
        }
    }

    fn granted(&self, grant: &Grant, audience: &[String]) -> Result<v1::Grant> {
        Ok(v1::Grant {
            scope: grant.scope.to_string(),
            epoch: grant.epoch.get(),
            holder: grant.holder.to_string(),
            session_id: grant.session.to_string(),
            certificate: certify::grant(&self.node, grant, audience)?,
            incarnation: self.node.seed.incarnation.to_string(),
            position: Some(position(grant.position)),
        })
    }

    async fn release(&self, request: v1::ReleaseRequest) -> Result<v1::ReleaseResponse> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let epoch = parse::epoch(request.epoch)?;
        if let Server::Leader(channel) = self.server()? {
            return forward::release(channel, request).await;
        }
        match self
            .propose(Command::Release {
                scope,
                session,
                epoch,
            })
            .await?
        {
            Outcome::Released { released } => Ok(v1::ReleaseResponse { released }),
            other => Err(unexpected(&other)),
        }
    }

    async fn revoke(&self, request: v1::RevokeRequest) -> Result<v1::RevokeResponse> {
        let scope = parse::scope(&request.scope)?;
        let epoch = request.epoch.map(parse::epoch).transpose()?;
        if let Server::Leader(channel) = self.server()? {
            return forward::revoke(channel, request).await;
        }
        match self.propose(Command::Revoke { scope, epoch }).await? {
            Outcome::Revoked {
                scope,
                epoch,
                position,
                ended,
            } => {
                tracing::info!(%scope, %epoch, ended, "revoked by an operator");
                Ok(v1::RevokeResponse {
                    scope: scope.to_string(),
                    epoch: epoch.get(),
                    certificate: certify::holderless(&self.node, &scope, epoch, position)?,
                })
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn certify(&self, request: v1::CertifyRequest) -> Result<v1::CertifyResponse> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let epoch = parse::epoch(request.epoch)?;
        parse::audience(&request.audience)?;
        if let Server::Leader(channel) = self.server()? {
            return forward::certify(channel, request).await;
        }
        self.node.reads.confirm().await?;
        let grant = self
            .node
            .state
            .read()
            .current_grant(&scope, &session, epoch)?;
        Ok(v1::CertifyResponse {
            certificate: certify::grant(&self.node, &grant, &request.audience)?,
        })
    }

    async fn get(&self, request: v1::GetRequest) -> Result<v1::ScopeState> {
        let scope = parse::scope(&request.scope)?;
        if let Server::Leader(channel) = self.server()? {
            return forward::get(channel, request).await;
        }
        self.node.reads.confirm().await?;
        let held = self.node.state.read().scope(&scope);
        Ok(held.map_or_else(
            || v1::ScopeState {
                scope: scope.to_string(),
                ..v1::ScopeState::default()
            },
            scope_state,
        ))
    }

    async fn list(&self, request: v1::ListRequest) -> Result<v1::ListResponse> {
        let prefix = parse::prefix(&request.prefix)?;
        let limit = parse::limit(request.limit)?;
        let after = request.page.as_deref().map(page_to_scope).transpose()?;
        if let Server::Leader(channel) = self.server()? {
            return forward::list(channel, request).await;
        }
        self.node.reads.confirm().await?;
        let page = self.node.state.read().list(prefix, after.as_ref(), limit);
        Ok(v1::ListResponse {
            scopes: page.scopes.into_iter().map(scope_state).collect(),
            next_page: page.next.map(|scope| page_of(&scope)),
            ..v1::ListResponse::default()
        })
    }

    /// Answered by the node asked, so that an operator sees each node's own view.
    fn status(&self) -> v1::StatusResponse {
        let view = self.node.consensus.view_now();
        let role = |id: NodeId, voter: bool| match (view.leader == Some(id), voter) {
            (true, _) => "leader",
            (false, true) => "voter",
            (false, false) => "learner",
        };
        let nodes = view.members.iter().map(|(id, member)| v1::Node {
            id: *id,
            client: member.addresses.client.clone(),
            peer: member.addresses.peer.clone(),
            admin: member.addresses.admin.clone(),
            role: role(*id, member.voter).to_owned(),
        });
        v1::StatusResponse {
            cluster_id: self.node.seed.cluster_id.to_string(),
            incarnation: self.node.seed.incarnation.to_string(),
            term: view.term,
            leader: view.leader,
            applied: view.applied,
            nodes: nodes.collect(),
            node: self.node.id,
        }
    }

    /// The public keys of all nodes, as this node has applied them.
    fn jwks(&self) -> serde_json::Value {
        let mut keys = epoch_core::KeySet::default();
        for (_, key) in self.node.state.read().keys() {
            keys.insert(VerifyingKey::new(*key));
        }
        keys.to_jwks()
    }

    /// Counts a refusal where it is made; one that is passed on was counted by the leader.
    fn counted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(failure) = &result {
            self.node.metrics.refused(failure.reason);
        }
        result
    }
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

fn scope_state(state: ScopeState) -> v1::ScopeState {
    v1::ScopeState {
        scope: state.scope.to_string(),
        held: true,
        epoch: Some(state.epoch.get()),
        holder: Some(state.holder.to_string()),
        session: Some(state.session.to_string()),
        position: Some(position(state.position)),
        ..v1::ScopeState::default()
    }
}

/// A page is the scope it goes on after, hidden so that nobody builds on its form.
fn page_of(scope: &Scope) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(scope.as_str())
}

fn page_to_scope(page: &str) -> Result<Scope> {
    use base64::Engine as _;
    let refused = || Failure::field("page", "it is not a next_page of an earlier answer");
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(page)
        .map_err(|_not_base64| refused())?;
    let text = String::from_utf8(bytes).map_err(|_not_text| refused())?;
    Scope::parse(&text).map_err(|_not_a_scope| refused())
}
