//! The request ids by which the retry of an acquire is recognised.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use epoch_core::{Reason, Scope};
use epoch_proto::v1;

use crate::error::Error;
use crate::session::Session;

/// Acquires of unknown outcome whose request id is remembered: as many as the cluster keeps ids
/// for a session at least.
const PENDING_MAX: usize = 1_024;

/// What an acquire asks for: a request id stands for exactly this. How long to wait is no part
/// of it, since that is less with every attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Payload {
    pub(crate) scopes: Vec<Scope>,
    pub(crate) many: bool,
    pub(crate) terms: Terms,
    pub(crate) reissue: bool,
}

/// What an acquire of one scope or of many may say of its grants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Terms {
    pub(crate) audience: Vec<String>,
    pub(crate) lock_delay_ms: Option<u64>,
    pub(crate) metadata: String,
    /// How many nodes sign the certificate; one when 0.
    pub(crate) signatures: u32,
}

impl Payload {
    pub(crate) fn scope_names(&self) -> Vec<String> {
        let names = self.scopes.iter().map(|scope| scope.as_str().to_owned());
        names.collect()
    }

    /// How many request ids it uses: one a scope.
    fn ids(&self) -> u64 {
        u64::try_from(self.scopes.len()).unwrap_or(u64::MAX).max(1)
    }
}

/// The request ids of a session: those not used yet, and the first ids of the requests whose
/// outcome is unknown.
#[derive(Debug)]
pub(crate) struct RequestIds {
    next: AtomicU64,
    /// Several of one payload where it was asked for several times at once.
    pending: Mutex<BTreeSet<(Payload, u64)>>,
}

impl RequestIds {
    /// Of a new session: from 1.
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            pending: Mutex::new(BTreeSet::new()),
        }
    }

    fn pending(&self) -> MutexGuard<'_, BTreeSet<(Payload, u64)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The earliest of a payload, which is not pending any more.
    fn take_pending(&self, payload: &Payload) -> Option<u64> {
        let mut pending = self.pending();
        let found = pending.range((payload.clone(), 0)..).next();
        let found = found.filter(|(of, _)| of == payload).cloned()?;
        pending.remove(&found);
        Some(found.1)
    }
}

/// The request ids of an acquire that is under way.
///
/// When the outcome stays unknown, the next acquire of the same gets them again. So it is when
/// nobody waits for the answer any more; but a wait is cancelled then, and its id not used again.
#[derive(Debug)]
pub(crate) struct RequestId<'a> {
    session: &'a Session,
    payload: &'a Payload,
    first: u64,
    is_wait: bool,
    answer: Answer,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    None,
    Settled,
    Unknown,
}

impl<'a> RequestId<'a> {
    pub(crate) fn take(session: &'a Session, payload: &'a Payload, is_wait: bool) -> Self {
        let ids = session.request_ids();
        let pending = ids.take_pending(payload);
        // 2^53 ids are not used up in a session's life.
        let unused = || ids.next.fetch_add(payload.ids(), Ordering::Relaxed);
        Self {
            session,
            payload,
            first: pending.unwrap_or_else(unused),
            is_wait,
            answer: Answer::None,
        }
    }

    /// The first of them; the others follow.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Takes note of the answer, and returns it.
    pub(crate) fn settle<T>(mut self, answer: Result<T, Error>) -> Result<T, Error> {
        self.answer = match is_settled(&answer) {
            true => Answer::Settled,
            false => Answer::Unknown,
        };
        answer
    }

    fn remember(&self) {
        let mut pending = self.session.request_ids().pending();
        if pending.len() < PENDING_MAX {
            pending.insert((self.payload.clone(), self.first));
        }
    }

    /// Cancels the wait as well as that can be done without waiting. A session that is lost has
    /// no waits; and without a runtime, the cluster ends this one once its connection is gone.
    fn cancel(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.session.loss().is_some() {
            return;
        }
        let request = v1::CancelWaitRequest {
            scope: self.payload.scope_names().concat(),
            session_id: self.session.id().to_string(),
            request_id: self.first,
        };
        let client = self.session.client().clone();
        runtime.spawn(async move {
            if let Err(error) = client.give_up_wait(request).await {
                tracing::debug!(%error, "a wait was not cancelled; it ends soon after its connection");
            }
        });
    }
}

impl Drop for RequestId<'_> {
    fn drop(&mut self) {
        match self.answer {
            Answer::Settled => {}
            Answer::None if self.is_wait => self.cancel(),
            Answer::None | Answer::Unknown => self.remember(),
        }
    }
}

/// Whether the cluster has said for good what became of a request. A wait that has ended is one
/// of these also after a lost answer: its id stands for that wait, and is of no use for another.
fn is_settled<T>(answer: &Result<T, Error>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => {
            let ended = matches!(
                error.reason(),
                Some(Reason::WaitExpired | Reason::WaitCancelled)
            );
            ended || !error.outcome_unknown()
        }
    }
}
