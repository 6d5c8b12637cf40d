//! Taking scopes.

use std::time::Duration;

use epoch_core::Scope;
use epoch_proto::{duration, v1};

use crate::error::Error;
use crate::grant::{Grant, malformed};
use crate::request_id::{Payload, RequestId, Terms};
use crate::session::Session;

impl Session {
    /// Takes a scope if it is free.
    ///
    /// After an error whose outcome is unknown, or when this was not waited for, the next acquire
    /// of the same scope asks with the same request id, and so returns the grant that the first
    /// may have made.
    ///
    /// # Errors
    /// As for every call; [`crate::ErrorKind::SessionLost`] once the session is lost.
    pub async fn acquire(&self, scope: &Scope) -> Result<Grant, Error> {
        self.request(scope).send().await
    }

    /// Takes a scope if it is free, with a certificate for the resources `audience` only.
    ///
    /// # Errors
    /// As for [`Session::acquire`].
    pub async fn acquire_for(&self, scope: &Scope, audience: &[String]) -> Result<Grant, Error> {
        self.request(scope).audience(audience).send().await
    }

    /// An acquire with more to say than the scope: how long to wait, say.
    pub fn request(&self, scope: &Scope) -> Acquire {
        Acquire::new(self, scope.clone())
    }

    /// Takes from 1 to 64 scopes, all or none, without waiting. The grants come in the order of
    /// `scopes`.
    ///
    /// As with [`Session::acquire`], the next call with the same scopes asks with the same request
    /// ids when the outcome of this one is unknown.
    ///
    /// # Errors
    /// As for [`Session::acquire`].
    pub async fn acquire_many(&self, scopes: &[Scope]) -> Result<Vec<Grant>, Error> {
        self.request_many(scopes).send().await
    }

    /// An acquire of many scopes with more to say than which: it holds for each of the grants.
    pub fn request_many(&self, scopes: &[Scope]) -> Acquire<Vec<Scope>> {
        Acquire::new(self, scopes.to_vec())
    }
}

/// An acquire of one scope, or of many, that has not been sent yet. It tries once; that of one
/// scope may be told to [`wait`](Acquire::wait).
#[derive(Debug, Clone)]
#[must_use = "nothing is asked for until it is sent"]
pub struct Acquire<Of = Scope> {
    session: Session,
    of: Of,
    terms: Terms,
    wait: Duration,
    reissue: bool,
}

impl<Of> Acquire<Of> {
    fn new(session: &Session, of: Of) -> Self {
        Self {
            session: session.clone(),
            of,
            terms: Terms::default(),
            wait: Duration::ZERO,
            reissue: false,
        }
    }

    /// For so long nobody else is granted the scope should this session expire while it holds it,
    /// for resources that cannot compare epochs. Up to 24 h.
    pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.terms.lock_delay_ms = Some(ms(lock_delay)).filter(|ms| *ms > 0);
        self
    }

    /// Text that others are shown with the grant, at most 1 KiB.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.terms.metadata = metadata.into();
        self
    }

    /// The resources the certificate is for, and no others.
    pub fn audience(mut self, audience: &[String]) -> Self {
        self.terms.audience = audience.to_vec();
        self
    }

    /// How many nodes sign the certificate, and those that follow it, each after it has checked the
    /// grant against its own state: from 1 to as many as there are; one when this is not called.
    pub fn signatures(mut self, nodes: u32) -> Self {
        self.terms.signatures = nodes;
        self
    }
}

impl Acquire {
    /// Waits so long while another holds the scope, in the scope's queue, first come, first
    /// served. Up to 24 h.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Takes the next epoch if the session holds the scope already, which ends the grant it has:
    /// to fence one's own stale threads.
    pub fn reissue(mut self) -> Self {
        self.reissue = true;
        self
    }

    /// Asks for the scope.
    ///
    /// When the future is dropped while it waits, the wait is cancelled in the background, and a
    /// grant that was made all the same is given back. The outcome of an error is as with
    /// [`Session::acquire`]; while it is unknown the place in the queue is kept for 10 s.
    ///
    /// # Errors
    /// As for [`Session::acquire`]; `WAIT_EXPIRED` when the scope was not free in time.
    pub async fn send(self) -> Result<Grant, Error> {
        let session = &self.session;
        session.check()?;
        let wait_ms = ms(self.wait);
        let payload = Payload {
            scopes: vec![self.of.clone()],
            many: false,
            terms: self.terms.clone(),
            reissue: self.reissue,
        };
        let id = RequestId::take(session, &payload, wait_ms > 0);
        let request = v1::AcquireRequest {
            scope: self.of.as_str().to_owned(),
            session_id: session.id().to_string(),
            request_id: id.first(),
            wait: (wait_ms > 0).then(|| duration::from_ms(wait_ms)),
            reissue: self.reissue,
            lock_delay: self.terms.lock_delay_ms.map(duration::from_ms),
            audience: self.terms.audience.clone(),
            metadata: self.terms.metadata.clone(),
            signatures: self.terms.signatures,
        };
        let granted = id.settle(session.until_lost(session.client().acquire(request)).await)?;
        session.check()?;
        Grant::new(session.clone(), &self.of, &self.terms, granted)
    }
}

impl Acquire<Vec<Scope>> {
    /// Asks for the scopes. The grants come in their order.
    ///
    /// # Errors
    /// As for [`Session::acquire_many`].
    pub async fn send(self) -> Result<Vec<Grant>, Error> {
        let session = &self.session;
        session.check()?;
        let payload = Payload {
            scopes: self.of,
            many: true,
            terms: self.terms,
            reissue: false,
        };
        let terms = &payload.terms;
        let id = RequestId::take(session, &payload, false);
        let request = v1::AcquireManyRequest {
            scopes: payload.scope_names(),
            session_id: session.id().to_string(),
            request_id: id.first(),
            lock_delay: terms.lock_delay_ms.map(duration::from_ms),
            audience: terms.audience.clone(),
            metadata: terms.metadata.clone(),
            signatures: terms.signatures,
        };
        let call = session.client().acquire_many(request);
        let granted = id.settle(session.until_lost(call).await)?;
        session.check()?;
        if granted.grants.len() != payload.scopes.len() {
            return Err(malformed("it has another number of grants"));
        }
        let grants = payload.scopes.iter().zip(granted.grants);
        grants
            .map(|(scope, granted)| Grant::new(session.clone(), scope, terms, granted))
            .collect()
    }
}

/// Whole milliseconds, rounded up: a wait that was asked for is never none.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
