//! Sessions: opening, keeping alive, ending, and what they have.

use std::time::Duration;

use epoch_core::{GrantsDigest, OpenId, Principal, Reason, SessionId};
use epoch_machine::{
    Command, Leadership, Outcome, Refusal, SessionItem, SessionKey, SessionState, State, Ttl,
};
use epoch_proto::{duration, v1};
use uuid::Uuid;

use super::access::{self, About, Call};
use super::failure::Failure;
use super::{Api, Result, Server, forward, not_leading, page, parse, position, unexpected};
use crate::clock;
use crate::node::{Leases, RenewError, Renewal};

impl Api {
    pub(super) async fn open(&self, request: v1::OpenRequest) -> Result<v1::Session> {
        let holder = parse::holder(&request.holder)?;
        let ttl = parse::ttl(request.ttl.as_ref())?;
        let stall_limit = parse::stall_limit(request.stall_limit.as_ref())?;
        let holder_key = parse::holder_key(request.holder_key.as_deref())?;
        let open_id = match &request.open_id {
            Some(text) => parse::open_id(text)?,
            None => OpenId(Uuid::new_v4()),
        };
        let arrived = clock::boot();
        if let Server::Leader(leader) = self.server()? {
            let request = v1::OpenRequest {
                open_id: Some(open_id.to_string()),
                ..request
            };
            return forward::open(leader, request).await;
        }
        let principal = self.admit(access::OPEN, About::Holder(&holder))?;
        let open = Command::Open {
            open_id,
            principal,
            holder,
            ttl,
            stall_limit,
            holder_key: holder_key.map(|key| *key.as_bytes()),
        };
        let opened = self.propose(open).await?;
        let Outcome::Opened {
            session,
            ttl,
            stall_limit,
            holder,
            ..
        } = opened
        else {
            return Err(unexpected(&opened));
        };
        // Its caller counts the TTL from when it asked, also where the session was opened before:
        // as a keepalive does, and one without a progress mark.
        let leadership = self.node.serving().ok_or_else(not_leading)?;
        let state = self.node.state.read();
        let mut leases = self.node.leases();
        renew(&state, &mut leases, leadership, session, None, arrived)?;
        Ok(v1::Session {
            session_id: session.to_string(),
            ttl: Some(duration_of(ttl)),
            holder: holder.to_string(),
            session: session.hash().to_string(),
            stall_limit: stall_limit.map(duration_of),
            holder_key: holder_key.map(|key| key.to_string()),
        })
    }

    pub(super) async fn keep_alive(
        &self,
        request: v1::KeepAliveRequest,
    ) -> Result<v1::KeepAliveResponse> {
        let answer = self.keep_alives(vec![request.try_into()?]).await.pop();
        answer.unwrap_or_else(|| Err(unanswered()))
    }

    /// Keepalives that have come together; their answers, in the same order.
    pub(super) async fn keep_alives(
        &self,
        keepalives: Vec<Keepalive>,
    ) -> Vec<Result<v1::KeepAliveResponse>> {
        if keepalives.is_empty() {
            return Vec::new();
        }
        let arrived = clock::boot();
        let refused = |failure: Failure| keepalives.iter().map(|_| Err(failure.clone())).collect();
        match self.server() {
            Ok(Server::Here) => {}
            Ok(Server::Leader(leader)) => {
                let requests = keepalives.into_iter().map(|keepalive| keepalive.request);
                return forward::keep_alives(leader, requests).await;
            }
            Err(failure) => return refused(failure),
        }
        let principal = match self.admit(access::KEEP_ALIVE, About::Nothing) {
            Ok(principal) => principal,
            Err(failure) => return refused(failure),
        };
        let leadership = match self.node.keepalives.confirm().await {
            Ok(leadership) => leadership,
            Err(error) => return refused(error.into()),
        };
        let state = self.node.state.read();
        let mut leases = self.node.leases();
        let mut queues = self.node.queues();
        keepalives
            .into_iter()
            .map(|keepalive| {
                let Keepalive {
                    session: id,
                    grants,
                    request,
                } = keepalive;
                let progress = request.progress;
                own(&state, principal.as_ref(), &id)?;
                let session = renew(&state, &mut leases, leadership, id, progress, arrived)?;
                let grants_differ = grants.map(|grants| grants != session.digest());
                if grants_differ == Some(false) {
                    queues.all_claimed(SessionKey::from(&id));
                }
                Ok(v1::KeepAliveResponse {
                    session_id: request.session_id,
                    ttl: Some(duration_of(session.ttl)),
                    reason: None,
                    message: None,
                    grants_differ: grants_differ.unwrap_or(false),
                })
            })
            .collect()
    }

    pub(super) async fn close(&self, request: v1::CloseRequest) -> Result<v1::CloseResponse> {
        let session = parse::session_id(&request.session_id)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::close(leader, request).await;
        }
        let principal = self.admit(access::CLOSE, About::Nothing)?;
        if own(&self.node.state.read(), principal.as_ref(), &session).is_err() {
            return Ok(v1::CloseResponse { closed: false });
        }
        match self.propose(Command::Close { session }).await? {
            Outcome::Closed { closed, .. } => Ok(v1::CloseResponse { closed }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn get_session(
        &self,
        request: v1::GetSessionRequest,
    ) -> Result<v1::SessionState> {
        let id = parse::session_id(&request.session_id)?;
        let limit = parse::limit(request.limit)?;
        let after = request
            .page
            .as_deref()
            .map(page::session_place)
            .transpose()?;
        if let Server::Leader(leader) = self.server()? {
            return forward::get_session(leader, request).await;
        }
        self.admit_in(access::GET_SESSION, About::Nothing, &id)?;
        self.node.reads.confirm().await?;
        let state = self.node.state.read();
        let session = state.session(&id).ok_or(Refusal::SessionExpired)?;
        let items = state
            .session_page(&id, after.as_ref(), limit)
            .ok_or(Refusal::SessionExpired)?;
        let mut answer = v1::SessionState {
            session: id.hash().to_string(),
            holder: session.holder.to_string(),
            ttl: Some(duration_of(session.ttl)),
            left: self.left(SessionKey::from(&id)),
            stall_limit: session.stall_limit.map(duration_of),
            grants: Vec::new(),
            waits: Vec::new(),
            next_page: items.next.as_ref().map(page::of_session_place),
        };
        for item in items.items {
            match item {
                SessionItem::Grant(grant) => {
                    self.claimed(&grant);
                    answer.grants.push(v1::SessionGrant {
                        scope: grant.scope.to_string(),
                        epoch: grant.epoch.get(),
                        request_id: grant.request_id.map_or(0, u64::from),
                        position: Some(position(grant.position)),
                        metadata: grant.terms.metadata.as_str().to_owned(),
                    });
                }
                SessionItem::Wait {
                    scope,
                    request_id,
                    ahead,
                } => answer.waits.push(v1::SessionWait {
                    scope: scope.to_string(),
                    request_id: request_id.get(),
                    ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
                }),
            }
        }
        Ok(answer)
    }

    pub(super) async fn list_sessions(
        &self,
        request: v1::ListSessionsRequest,
    ) -> Result<v1::ListSessionsResponse> {
        let holder = parse::optional_holder(&request.holder)?;
        let limit = parse::limit(request.limit)?;
        let after = request.page.as_deref().map(page::session_key).transpose()?;
        if let Server::Leader(leader) = self.server()? {
            return forward::list_sessions(leader, request).await;
        }
        let principal = self.admit(access::LIST_SESSIONS, About::Nothing)?;
        self.node.reads.confirm().await?;
        let state = self.node.state.read();
        // Others' sessions are an operator's to see.
        let own = principal.filter(|who| !state.may_operate(Some(who)));
        let wanted = |session: &SessionState| {
            holder
                .as_ref()
                .is_none_or(|holder| *holder == session.holder)
                && (own.is_none() || session.principal == own)
        };
        let (sessions, next) = state.list_sessions(wanted, after, limit);
        let sessions = sessions
            .into_iter()
            .map(|(key, session)| self.summary(key, session));
        Ok(v1::ListSessionsResponse {
            sessions: sessions.collect(),
            next_page: next.map(page::of_session_key),
        })
    }

    fn summary(&self, key: SessionKey, session: &SessionState) -> v1::SessionSummary {
        v1::SessionSummary {
            session: key.with(session.open_id).hash().to_string(),
            holder: session.holder.to_string(),
            ttl: Some(duration_of(session.ttl)),
            left: self.left(key),
            stall_limit: session.stall_limit.map(duration_of),
            grants: session.grants(),
            waits: session.waits(),
        }
    }

    fn left(&self, key: SessionKey) -> Option<prost_types::Duration> {
        let left = self.node.leases().left(key, clock::boot())?;
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Some(duration::from_ms(ms))
    }
}

impl Api {
    /// As [`admit`](Self::admit), for a call in a session.
    pub(super) fn admit_in(&self, call: Call, about: About<'_>, session: &SessionId) -> Result<()> {
        let principal = self.admit(call, about)?;
        own(&self.node.state.read(), principal.as_ref(), session)
    }
}

/// Another principal's session is none to the caller.
fn own(state: &State, principal: Option<&Principal>, session: &SessionId) -> Result<()> {
    let anothers =
        |session: &SessionState| principal.is_some() && session.principal.as_ref() != principal;
    match state.session(session).is_some_and(anothers) {
        true => Err(Refusal::SessionExpired.into()),
        false => Ok(()),
    }
}

/// Each keepalive is answered; this would be a mistake of ours.
pub(super) fn unanswered() -> Failure {
    Failure::new(Reason::Internal, "no answer was made")
}

/// A keepalive that is not malformed. Those that are go no further: what is malformed is so without
/// a leader, too, and may be long.
#[derive(Debug)]
pub(super) struct Keepalive {
    pub(super) session: SessionId,
    grants: Option<GrantsDigest>,
    request: v1::KeepAliveRequest,
}

impl TryFrom<v1::KeepAliveRequest> for Keepalive {
    type Error = Failure;
    fn try_from(request: v1::KeepAliveRequest) -> Result<Self> {
        Ok(Self {
            session: parse::session_id(&request.session_id)?,
            grants: request.grants.as_deref().map(parse::digest).transpose()?,
            request,
        })
    }
}

/// Renews a session's lease under a leadership that was confirmed after the keepalive arrived.
fn renew<'a>(
    state: &'a State,
    leases: &mut Leases,
    leadership: Leadership,
    id: SessionId,
    progress: Option<u64>,
    arrived: Duration,
) -> Result<&'a SessionState> {
    let session = state.session(&id).ok_or(Refusal::SessionExpired)?;
    let renewal = Renewal {
        ttl: session.ttl,
        stall_limit: session.stall_limit,
        progress,
        arrived,
    };
    match leases.renew(leadership, SessionKey::from(&id), renewal) {
        Ok(()) => Ok(session),
        Err(RenewError::NotLeader) => Err(not_leading()),
        Err(RenewError::Expiring) => Err(Failure::new(
            Reason::NoQuorum,
            "the session's expiry is under way",
        )),
        Err(RenewError::Stalled) => Err(Failure::new(
            Reason::SessionStalled,
            "the progress mark has not moved within the session's stall limit",
        )),
    }
}

fn duration_of(ttl: Ttl) -> prost_types::Duration {
    duration::from_ms(ttl.ms())
}
