//! Grants: acquiring, waiting, and every way in which they end.

use epoch_core::{Reason, RequestId, Scope, SessionId};
use epoch_machine::{Command, Grant, Outcome, Refusal, Requested, SessionKey, Terms, Wait};
use epoch_proto::v1;

use super::access::{self, About};
use super::failure::Failure;
use super::{Api, Result, Server, certify, forward, not_leading, parse, position, unexpected};
use crate::node::Attached;
use crate::raft::Line;

impl Api {
    pub(super) async fn acquire(&self, request: v1::AcquireRequest) -> Result<v1::Grant> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let request_id = parse::request_id(request.request_id)?;
        let wait = parse::wait(request.wait.as_ref())?;
        let terms = parse::terms(request.lock_delay.as_ref(), &request.metadata)?;
        parse::audience(&request.audience)?;
        let signatures = self.signatures(request.signatures)?;
        let line = match wait.is_zero() {
            true => Line::Calls,
            false => Line::Waits,
        };
        if let Server::Leader(leader) = self.server_by(line)? {
            return forward::acquire(leader, request, wait).await;
        }
        self.admit_in(access::ACQUIRE, About::Scope(&scope), &session)?;
        let acquire = Command::Acquire {
            scope: scope.clone(),
            session,
            request_id,
            terms: terms.clone(),
            wait,
            reissue: request.reissue,
        };
        let grant = loop {
            match self.propose(acquire.clone()).await? {
                Outcome::Granted { grant, .. } => {
                    if self.claimed(&grant) {
                        break grant;
                    }
                    // It waited for a caller, and is being given back. To ask again is to hear
                    // what comes of that.
                }
                Outcome::Waiting => {
                    let wait = self.wait(&scope, &session, request_id, &terms, wait);
                    break wait.await?;
                }
                other => return Err(unexpected(&other)),
            }
        };
        self.granted(&grant, &request.audience, signatures).await
    }

    /// Stands behind a wait until it is over. A call that is cut off here leaves the place in the
    /// queue to the one that comes for it next.
    async fn wait(
        &self,
        scope: &Scope,
        session: &SessionId,
        request_id: RequestId,
        terms: &Terms,
        wait: Wait,
    ) -> Result<Grant> {
        let leadership = self.node.serving();
        let id = (SessionKey::from(session), request_id);
        let attached = Attached::new(&self.node, id, wait);
        loop {
            let mut woken = std::pin::pin!(attached.woken());
            woken.as_mut().enable();
            if leadership.is_none() || self.node.serving() != leadership {
                return Err(not_leading());
            }
            let requested = self
                .node
                .state
                .read()
                .request(scope, session, request_id, terms);
            match requested {
                Ok(Requested::Granted(grant)) => {
                    attached.heard();
                    return Ok(*grant);
                }
                Ok(Requested::Waiting) => woken.await,
                // A wait that has ended leaves its request id spent.
                Ok(Requested::New) => {
                    attached.heard();
                    return Err(Refusal::WaitExpired.into());
                }
                Err(refusal) => {
                    attached.heard();
                    return Err(refusal.into());
                }
            }
        }
    }

    /// Its session knows of this grant: it is not given back for want of a caller. False when it is
    /// too late for that.
    pub(super) fn claimed(&self, grant: &Grant) -> bool {
        grant.request_id.is_none_or(|request_id| {
            let id = (SessionKey::from(&grant.session), request_id);
            self.node.queues().claimed(&id)
        })
    }

    async fn granted(
        &self,
        grant: &Grant,
        audience: &[String],
        signatures: usize,
    ) -> Result<v1::Grant> {
        Ok(v1::Grant {
            scope: grant.scope.to_string(),
            epoch: grant.epoch.get(),
            holder: grant.holder.to_string(),
            session_id: grant.session.to_string(),
            certificate: certify::grant(&self.node, grant, audience, signatures).await?,
            incarnation: self.node.seed.incarnation.to_string(),
            position: Some(position(grant.position)),
        })
    }

    pub(super) async fn acquire_many(
        &self,
        request: v1::AcquireManyRequest,
    ) -> Result<v1::AcquireManyResponse> {
        let scopes = parse::scopes(&request.scopes)?;
        let session = parse::session_id(&request.session_id)?;
        let request_id = parse::request_id(request.request_id)?;
        let terms = parse::terms(request.lock_delay.as_ref(), &request.metadata)?;
        parse::audience(&request.audience)?;
        let signatures = self.signatures(request.signatures)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::acquire_many(leader, request).await;
        }
        let all: Vec<_> = scopes.iter().collect();
        self.admit_in(access::ACQUIRE_MANY, About::Scopes(&all), &session)?;
        let acquire = Command::AcquireMany {
            scopes,
            session,
            request_id,
            terms,
        };
        let grants = loop {
            match self.propose(acquire.clone()).await? {
                Outcome::GrantedMany { grants, .. } => {
                    // One may have waited for a caller, as with a single acquire.
                    if grants.iter().all(|grant| self.claimed(grant)) {
                        break grants;
                    }
                }
                Outcome::RefusedMany { scope, refusal } => {
                    let mut failure = Failure::from(refusal);
                    failure.message = format!("{scope}: {}", failure.message);
                    let scope = ("scope".to_owned(), scope.to_string());
                    failure.details.push(scope);
                    return Err(failure);
                }
                other => return Err(unexpected(&other)),
            }
        };
        let certified = grants
            .iter()
            .map(|grant| self.granted(grant, &request.audience, signatures));
        Ok(v1::AcquireManyResponse {
            grants: futures::future::try_join_all(certified).await?,
        })
    }

    pub(super) async fn cancel_wait(
        &self,
        request: v1::CancelWaitRequest,
    ) -> Result<v1::CancelWaitResponse> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let request_id = parse::request_id(request.request_id)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::cancel_wait(leader, request).await;
        }
        self.admit_in(access::CANCEL_WAIT, About::Nothing, &session)?;
        let cancel = Command::CancelWait {
            scope,
            session,
            request_id,
        };
        match self.propose(cancel).await? {
            Outcome::WaitCancelled { cancelled, granted } => {
                let id = (SessionKey::from(&session), request_id);
                self.node.queues().claimed(&id);
                Ok(v1::CancelWaitResponse {
                    cancelled,
                    epoch: granted.map(u64::from),
                })
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn release(&self, request: v1::ReleaseRequest) -> Result<v1::ReleaseResponse> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let epoch = parse::epoch(request.epoch)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::release(leader, request).await;
        }
        self.admit_in(access::RELEASE, About::Nothing, &session)?;
        let release = Command::Release {
            scope,
            session,
            epoch,
        };
        match self.propose(release).await? {
            Outcome::Released { released } => Ok(v1::ReleaseResponse { released }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn transfer(
        &self,
        request: v1::TransferRequest,
    ) -> Result<v1::TransferResponse> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let epoch = parse::epoch(request.epoch)?;
        let to = parse::session_hash(&request.to)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::transfer(leader, request).await;
        }
        self.admit_in(access::TRANSFER, About::Nothing, &session)?;
        let transfer = Command::Transfer {
            scope,
            session,
            epoch,
            to,
        };
        match self.propose(transfer).await? {
            Outcome::Transferred { epoch, .. } => Ok(v1::TransferResponse {
                scope: request.scope,
                epoch: epoch.get(),
            }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn revoke(&self, request: v1::RevokeRequest) -> Result<v1::RevokeResponse> {
        let scope = parse::scope(&request.scope)?;
        let epoch = request.epoch.map(parse::epoch).transpose()?;
        let signatures = self.signatures(request.signatures)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::revoke(leader, request).await;
        }
        let by = self.admit(access::REVOKE, About::Scope(&scope))?;
        let revoked = self.propose(Command::Revoke { by, scope, epoch }).await;
        // What it says to workers is no help to an operator.
        let revoked = revoked.map_err(|failure| match failure.reason {
            Reason::EpochSuperseded => Failure {
                message: "the scope is not at this epoch any more; get the scope, and see whether \
                          what it is at now has to be revoked"
                    .to_owned(),
                ..failure
            },
            _ => failure,
        });
        match revoked? {
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
                    certificate: certify::holderless(
                        &self.node, &scope, epoch, position, signatures,
                    )
                    .await?,
                })
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn certify(&self, request: v1::CertifyRequest) -> Result<v1::CertifyResponse> {
        let scope = parse::scope(&request.scope)?;
        let session = parse::session_id(&request.session_id)?;
        let epoch = parse::epoch(request.epoch)?;
        parse::audience(&request.audience)?;
        let signatures = self.signatures(request.signatures)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::certify(leader, request).await;
        }
        self.admit_in(access::CERTIFY, About::Scope(&scope), &session)?;
        self.node.reads.confirm().await?;
        let grant = self
            .node
            .state
            .read()
            .current_grant(&scope, &session, epoch)?;
        self.claimed(&grant);
        Ok(v1::CertifyResponse {
            certificate: certify::grant(&self.node, &grant, &request.audience, signatures).await?,
        })
    }
}
