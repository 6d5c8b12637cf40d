//! What anyone may ask of scopes and of the cluster.

use epoch_core::{Cursor, NodeId};
use epoch_machine::ScopeState;
use epoch_proto::v1;

use super::access::{self, About};
use super::{Api, Result, Server, forward, page, parse, position};

impl Api {
    pub(super) async fn get(&self, request: v1::GetRequest) -> Result<v1::ScopeState> {
        let scope = parse::scope(&request.scope)?;
        let queue_limit = parse::queue_limit(request.queue_limit)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::get(leader, request).await;
        }
        self.admit(access::GET, About::Scope(&scope))?;
        self.node.reads.confirm().await?;
        let state = self.node.state.read().scope(&scope, queue_limit);
        Ok(scope_state(state))
    }

    pub(super) async fn list(&self, request: v1::ListRequest) -> Result<v1::ListResponse> {
        let prefix = parse::prefix(&request.prefix)?;
        let holder = parse::optional_holder(&request.holder)?;
        let limit = parse::limit(request.limit)?;
        let after = request.page.as_deref().map(page::scope).transpose()?;
        if let Server::Leader(leader) = self.server()? {
            return forward::list(leader, request).await;
        }
        self.admit(access::LIST, About::Prefix(prefix))?;
        self.node.reads.confirm().await?;
        // Before the scopes are read: what happens in between is told twice rather than never.
        let index = self.node.consensus.view_now().applied;
        let state = self.node.state.read();
        let found = state.list(prefix, holder.as_ref(), after.as_ref(), limit);
        Ok(v1::ListResponse {
            scopes: found.scopes.into_iter().map(scope_state).collect(),
            next_page: found.next.as_ref().map(page::of_scope),
            cursor: Cursor {
                index,
                offset: u32::MAX,
            }
            .to_string(),
        })
    }

    /// Answered by the node asked, so that an operator sees each node's own view.
    pub(super) async fn status(&self) -> Result<v1::StatusResponse> {
        self.admit_here(access::STATUS, About::Nothing).await?;
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
        Ok(v1::StatusResponse {
            cluster_id: self.node.seed.cluster_id.to_string(),
            incarnation: self.node.seed.incarnation.to_string(),
            term: view.term,
            leader: view.leader,
            applied: view.applied,
            nodes: nodes.collect(),
            node: self.node.id,
        })
    }
}

fn scope_state(state: ScopeState) -> v1::ScopeState {
    let held = state.held;
    v1::ScopeState {
        scope: state.scope.to_string(),
        held: held.is_some(),
        epoch: held.as_ref().map(|held| held.epoch.get()),
        holder: held.as_ref().map(|held| held.holder.to_string()),
        session: held.as_ref().map(|held| held.session.to_string()),
        position: held.as_ref().map(|held| position(held.position)),
        metadata: held
            .map(|held| held.metadata.as_str().to_owned())
            .filter(|metadata| !metadata.is_empty()),
        delayed: state.delayed,
        waiting: u32::try_from(state.waiting).unwrap_or(u32::MAX),
        queue: state
            .queue
            .into_iter()
            .map(|wait| v1::QueuedWait {
                holder: wait.holder.to_string(),
                session: wait.session.to_string(),
            })
            .collect(),
    }
}
