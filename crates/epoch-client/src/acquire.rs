//! Taking scopes, and the request ids by which a retry is recognised.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use epoch_core::Scope;
use epoch_proto::v1;

use crate::error::Error;
use crate::grant::Grant;
use crate::session::Session;

/// Acquires of unknown outcome whose request id is remembered: as many as the cluster keeps ids
/// for a session at least.
const PENDING_MAX: usize = 1_024;

impl Session {
    /// Takes a scope if it is free.
    ///
    /// After an error whose outcome is unknown, or when this was not waited for, the next acquire of the same scope asks with the
    /// same request id, and so returns the grant that the first may have made.
    ///
    /// # Errors
    /// As for every call; [`crate::ErrorKind::SessionLost`] once the session is lost.
    pub async fn acquire(&self, scope: &Scope) -> Result<Grant, Error> {
        self.acquire_for(scope, &[]).await
    }

    /// Takes a scope if it is free, with a certificate for the resources `audience` only.
    ///
    /// # Errors
    /// As for [`Session::acquire`].
    pub async fn acquire_for(&self, scope: &Scope, audience: &[String]) -> Result<Grant, Error> {
        self.check()?;
        let mut request_id = RequestId::take(self.request_ids(), scope, audience);
        let request = v1::AcquireRequest {
            scope: scope.as_str().to_owned(),
            session_id: self.id().to_string(),
            request_id: request_id.id,
            audience: audience.to_vec(),
            ..v1::AcquireRequest::default()
        };
        let answer = self.until_lost(self.client().acquire(request)).await;
        request_id.settled = answer
            .as_ref()
            .map_or_else(|error| !error.outcome_unknown(), |_| true);
        let granted = answer?;
        self.check()?;
        Grant::new(self.clone(), scope, audience, granted)
    }
}

/// The request ids of a session, and those whose outcome is unknown.
#[derive(Debug)]
pub(crate) struct RequestIds {
    next: AtomicU64,
    pending: Mutex<BTreeMap<(Scope, Vec<String>), u64>>,
}

impl RequestIds {
    /// Of a new session: from 1.
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            pending: Mutex::new(BTreeMap::new()),
        }
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<(Scope, Vec<String>), u64>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request id of an acquire. When the outcome stays unknown, or nobody waits for it any more,
/// the next acquire of the same scope gets it again.
struct RequestId<'a> {
    ids: &'a RequestIds,
    key: (Scope, Vec<String>),
    id: u64,
    settled: bool,
}

impl<'a> RequestId<'a> {
    fn take(ids: &'a RequestIds, scope: &Scope, audience: &[String]) -> Self {
        let key = (scope.clone(), audience.to_vec());
        let pending = ids.pending().remove(&key);
        // 2^53 ids are not used up in a session's life.
        let id = pending.unwrap_or_else(|| ids.next.fetch_add(1, Ordering::Relaxed));
        Self {
            ids,
            key,
            id,
            settled: false,
        }
    }
}

impl Drop for RequestId<'_> {
    fn drop(&mut self) {
        let mut pending = self.ids.pending();
        if !self.settled && pending.len() < PENDING_MAX {
            pending.insert(self.key.clone(), self.id);
        }
    }
}
