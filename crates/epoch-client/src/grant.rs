//! One scope held by a session.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use epoch_core::{Epoch, Incarnation, Position, Scope};
use epoch_proto::v1;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::certificate_life::CertificateLife;
use crate::error::Error;
use crate::refresh;
use crate::registry::Key;
use crate::request_id::Terms;
use crate::session::{Loss, Session};

/// Why a grant is lost. There is no way back from any of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantLoss {
    /// With its session.
    Session(Loss),
    /// The cluster has ended it: it was revoked, or followed by a higher epoch.
    Superseded,
    /// It was given to another session here, or may have been.
    Transferred,
    /// It was released here.
    Released,
}

impl fmt::Display for GrantLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(loss) => write!(f, "its session is lost: {loss}"),
            Self::Superseded => f.write_str("the cluster has ended it"),
            Self::Transferred => f.write_str("it was given to another session"),
            Self::Released => f.write_str("it was released"),
        }
    }
}

/// One scope held by a session, with the certificate to attach to each write, which is kept fresh
/// in the background.
///
/// It keeps its session open. Clones stand for the same grant; when the last is dropped, the scope
/// is released as well as that can be done without waiting (in the background if there is a tokio
/// runtime, else at the session's end). Prefer [`Grant::release`]; [`Grant::keep`] leaves the scope
/// held.
///
/// Until the release in the background is through, the session still holds the scope in the cluster:
/// an acquire of it in the same session may be answered `ALREADY_HELD`. `release().await` first.
#[derive(Debug, Clone)]
pub struct Grant {
    handle: Arc<Handle>,
}

#[derive(Debug)]
pub(crate) struct Handle {
    session: Session,
    held: Arc<Held>,
    kept: AtomicBool,
}

/// What the handles and the session's background work share.
#[derive(Debug)]
pub(crate) struct Held {
    scope: Scope,
    epoch: Epoch,
    incarnation: Incarnation,
    position: Position,
    audience: Vec<String>,
    /// How many nodes sign the next certificate; one when 0.
    signatures: AtomicU32,
    certificate: Mutex<Certificate>,
    lost: CancellationToken,
    loss: OnceLock<GrantLoss>,
}

#[derive(Debug, Clone)]
struct Certificate {
    token: Arc<str>,
    /// When it was asked for.
    asked_ms: u64,
}

impl Grant {
    /// The answer to an acquire.
    pub(crate) fn new(
        session: Session,
        scope: &Scope,
        terms: &Terms,
        granted: v1::Grant,
    ) -> Result<Self, Error> {
        if granted.scope != scope.as_str() || granted.session_id != session.id().to_string() {
            return Err(malformed("it is for another scope or session"));
        }
        let position = granted
            .position
            .ok_or_else(|| malformed("it has no position"))?;
        let held = Held {
            scope: scope.clone(),
            epoch: Epoch::new(granted.epoch).map_err(|error| malformed(&error.to_string()))?,
            incarnation: granted
                .incarnation
                .parse()
                .map_err(|error| malformed(&format!("{error}")))?,
            position: Position {
                group: position.group,
                term: position.term,
                leader: position.leader,
                index: position.index,
                offset: position.offset,
            },
            audience: terms.audience.clone(),
            signatures: AtomicU32::new(terms.signatures),
            certificate: Mutex::new(Certificate {
                token: granted.certificate.into(),
                asked_ms: session.shared().clock().now_ms(),
            }),
            lost: session.lost_token().child_token(),
            loss: OnceLock::new(),
        };
        Ok(Self::of(session, held))
    }

    /// The grant with its handle: the one that there is already, if any.
    fn of(session: Session, held: Held) -> Self {
        let mut registry = session.shared().registry();
        let (held, handle) = match registry.live(&held.key()) {
            Some((live, handle)) => {
                live.replace(held.certificate().clone());
                (live, handle)
            }
            None => (Arc::new(held), None),
        };
        if let Some(handle) = handle {
            return Self { handle };
        }
        let handle = Arc::new(Handle {
            session: session.clone(),
            held: Arc::clone(&held),
            kept: AtomicBool::new(false),
        });
        registry.adopt(&held, Arc::downgrade(&handle));
        drop(registry);
        refresh::plan(session.shared(), &held);
        Self { handle }
    }

    /// The scope.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.handle.held.scope
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.handle.held.epoch
    }

    /// The incarnation of the cluster that granted it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.handle.held.incarnation
    }

    /// Where the grant stands in the log.
    #[must_use]
    pub fn position(&self) -> Position {
        self.handle.held.position
    }

    /// The newest certificate: a compact JWT, or several with commas between if more signatures were
    /// asked for. A fresh one is asked for by itself when three quarters of its life are over.
    #[must_use]
    pub fn certificate(&self) -> Arc<str> {
        Arc::clone(&self.handle.held.certificate().token)
    }

    /// The session that holds it.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.handle.session
    }

    /// Returns once the grant is known to be lost: with its session, when the cluster said that
    /// it has ended, or when it was released.
    pub async fn lost(&self) {
        // The clock may know it already.
        if self.loss().is_none() {
            self.handle.held.lost.cancelled().await;
        }
    }

    /// Cancelled once the grant is known to be lost, to be handed to what must stop then.
    #[must_use]
    pub fn lost_token(&self) -> CancellationToken {
        self.handle.held.lost.clone()
    }

    /// Whether the grant is known to be lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the grant is lost; `None` while it is not known to be. It reads the clock, as
    /// [`Session::loss`] does.
    #[must_use]
    pub fn loss(&self) -> Option<GrantLoss> {
        let own = self.handle.held.loss.get().copied();
        own.or_else(|| self.session().loss().map(GrantLoss::Session))
    }

    /// How many nodes sign the certificates that are asked for from now on: as
    /// [`Acquire::signatures`](crate::Acquire::signatures) says.
    pub fn set_signatures(&self, nodes: u32) {
        self.held().signatures.store(nodes, Ordering::Relaxed);
    }

    /// Asks for a fresh certificate, and returns it.
    ///
    /// # Errors
    /// As for every call. After `EPOCH_SUPERSEDED` the grant is lost. Of a lost grant nothing is
    /// asked.
    pub async fn certify(&self) -> Result<Arc<str>, Error> {
        let fresh = refresh::certify(
            self.session().client(),
            self.session().shared(),
            self.held(),
        );
        self.ask(fresh).await
    }

    /// Gives the scope back; it is lost here at once. Whether it was still held. May be called
    /// again after an error.
    ///
    /// # Errors
    /// As for every call. Of a grant that was lost otherwise nothing is asked.
    pub async fn release(&self) -> Result<bool, Error> {
        self.check_but_for(GrantLoss::Released)?;
        // Nobody may go on working under it while the call is on its way.
        let key = self.held().key();
        let shared = self.session().shared();
        shared.registry().give_up(&key, GrantLoss::Released);
        let request = self.held().release_request(self.session());
        let released = self.session().client().release(request).await;
        shared.release_answered(&key, &released);
        Ok(released?.released)
    }

    /// Leaves the scope held, until the session ends: the grant is not released when its last clone
    /// is dropped. Its [`lost_token`](Self::lost_token) goes on telling of its loss.
    pub fn keep(self) {
        self.handle.kept.store(true, Ordering::Relaxed);
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.handle.held
    }

    /// The result of a call in this grant, unless its session is lost first. Nothing is asked of a
    /// lost grant; and once the cluster says that it was superseded, it is lost.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if let Some(loss) = self.loss() {
            return Err(Error::grant_lost(self.scope(), loss));
        }
        let result = self.session().until_lost(call).await;
        if let Err(error) = &result {
            self.session().shared().refused(&self.held().key(), error);
        }
        result
    }

    /// An error once the grant is lost by anything but `own`: the call that loses it so may be
    /// made again.
    pub(crate) fn check_but_for(&self, own: GrantLoss) -> Result<(), Error> {
        match self.loss() {
            Some(loss) if loss != own => Err(Error::grant_lost(self.scope(), loss)),
            Some(_) | None => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        let key = self.held.key();
        let shared = Arc::clone(self.session.shared());
        let is_left = shared.registry().dropped(&key, self);
        // A session that ends with this handle is closed, which frees the scope as well.
        if !is_left || shared.current_loss().is_some() || self.session.is_last_handle() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.session.client().clone();
            let request = self.held.release_request(&self.session);
            runtime.spawn(async move {
                let released = client.release(request).await;
                if let Err(error) = &released {
                    tracing::debug!(%error, "a dropped grant was not released");
                }
                shared.release_answered(&key, &released);
            });
        }
    }
}

impl Held {
    pub(crate) fn key(&self) -> Key {
        (self.scope.clone(), self.epoch)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Ends the grant here, for good. The first cause stays.
    pub(crate) fn lose(&self, loss: GrantLoss) {
        if self.loss.set(loss).is_ok() {
            tracing::debug!(scope = %self.scope, epoch = %self.epoch, %loss, "grant lost");
        }
        self.lost.cancel();
    }

    /// The life of the certificate, if that can be read.
    pub(crate) fn certificate_life(&self) -> Option<CertificateLife> {
        let certificate = self.certificate().clone();
        CertificateLife::of(&certificate.token, certificate.asked_ms)
    }

    /// Takes a certificate that was asked for at `asked_ms`, unless there is a newer one.
    pub(crate) fn renew(&self, token: Arc<str>, asked_ms: u64) {
        self.replace(Certificate { token, asked_ms });
    }

    fn replace(&self, fresh: Certificate) {
        let mut certificate = self.certificate();
        if certificate.asked_ms <= fresh.asked_ms {
            *certificate = fresh;
        }
    }

    pub(crate) fn certify_request(&self, session_id: String) -> v1::CertifyRequest {
        v1::CertifyRequest {
            scope: self.scope.as_str().to_owned(),
            epoch: self.epoch.get(),
            session_id,
            audience: self.audience.clone(),
            signatures: self.signatures.load(Ordering::Relaxed),
        }
    }

    fn release_request(&self, session: &Session) -> v1::ReleaseRequest {
        v1::ReleaseRequest {
            scope: self.scope.as_str().to_owned(),
            epoch: self.epoch.get(),
            session_id: session.id().to_string(),
        }
    }

    fn certificate(&self) -> MutexGuard<'_, Certificate> {
        // Every state of it is usable.
        self.certificate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn malformed(what: &str) -> Error {
    let message = format!("the node's answer to Acquire is malformed: {what}");
    Error::protocol(Code::Internal, message).with_outcome_unknown(true)
}
