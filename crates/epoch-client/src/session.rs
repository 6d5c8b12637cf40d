//! A session that keeps itself alive, and tells when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use epoch_core::{Holder, Reason, SessionId};
use epoch_proto::{duration, v1};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use uuid::Uuid;

use crate::boottime::Clock;
use crate::client::Client;
use crate::error::Error;
use crate::grant::GrantLoss;
use crate::holdings::Holding;
use crate::keepalive::Keeper;
use crate::lease::Lease;
use crate::opening;
use crate::options::OpenOptions;
use crate::registry::{Key, Registry};
use crate::request_id::RequestIds;

/// Why a session is lost. There is no way back from any of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The cluster has no such session any more.
    Expired,
    /// No keepalive was acknowledged for a TTL: another may hold the scopes by now. Or none can be
    /// sent any more, since what sent them has ended.
    Lapsed,
    /// The cluster did not renew it within its TTL, since [`Session::progress`] was not called
    /// within the stall limit: the work in it was stuck.
    Stalled,
    /// It was closed here.
    Closed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the cluster has no such session any more",
            Self::Lapsed => "no keepalive was acknowledged within its TTL",
            Self::Stalled => "it was not renewed within its TTL, for want of progress",
            Self::Closed => "it was closed",
        })
    }
}

/// A session that keeps itself alive in the background.
///
/// The keepalives of all sessions of a [`Client`] are sent by one thread of their own. They go on
/// whatever the tasks that use the session do, also while these block their threads; a stall limit
/// ([`OpenOptions`]) ends a session whose work is stuck. [`Session::loss`] reads the clock, so that
/// it is right at once also after the machine was suspended; [`Session::lost`] then tells those
/// that wait within a quarter of a second.
///
/// It lives as long as any clone of it and any of its grants; when the last is dropped it is
/// closed as well as that can be done without waiting. Prefer [`Session::close`].
#[derive(Debug, Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

/// What the handles and the background task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: SessionId,
    clock: Clock,
    lease: Mutex<Lease>,
    lost: CancellationToken,
    loss: OnceLock<Loss>,
    /// Whether the cluster is known to have no such session.
    ended: AtomicBool,
    registry: Mutex<Registry>,
    /// The progress mark, if the session has a stall limit.
    progress: Option<AtomicU64>,
    /// Whether the cluster last said that no progress was made.
    stalled: AtomicBool,
    keeper: Keeper,
}

#[derive(Debug)]
struct Handle {
    client: Client,
    shared: Arc<Shared>,
    request_ids: RequestIds,
}

impl Session {
    pub(crate) async fn open(
        client: Client,
        holder: &Holder,
        options: OpenOptions,
    ) -> Result<Self, Error> {
        client.check()?;
        let ttl_ms = whole_ms("TTL", options.ttl)?;
        let stall_limit = options.stall_limit;
        let stall_limit_ms = stall_limit.map(|limit| whole_ms("stall limit", limit));
        let request = v1::OpenRequest {
            holder: holder.as_str().to_owned(),
            ttl: Some(duration::from_ms(ttl_ms)),
            open_id: Some(Uuid::new_v4().to_string()),
            stall_limit: stall_limit_ms.transpose()?.map(duration::from_ms),
            holder_key: options.holder_key.map(|key| key.to_string()),
        };
        let clock = client.options().clock.clone();
        // The first attempt may be the one that opened it, so its time counts.
        let sent_ms = clock.now_ms();
        let session = opening::open(&client, request).await?;
        let malformed = |what: &str| {
            Error::protocol(
                Code::Internal,
                format!("the node's answer to Open is malformed: {what}"),
            )
        };
        let id: SessionId = session
            .session_id
            .parse()
            .map_err(|error| malformed(&format!("{error}")))?;
        let granted_ms = session.ttl.as_ref().and_then(duration::to_ms);
        let granted_ms = granted_ms.ok_or_else(|| malformed("it has no TTL"))?;
        let keeper = client.keeper();
        let shared = Arc::new(Shared {
            id,
            clock,
            lease: Mutex::new(Lease::new(sent_ms, granted_ms.min(ttl_ms))),
            lost: CancellationToken::new(),
            loss: OnceLock::new(),
            ended: AtomicBool::new(false),
            registry: Mutex::new(Registry::default()),
            progress: stall_limit.map(|_| AtomicU64::new(0)),
            stalled: AtomicBool::new(false),
            keeper: keeper.clone(),
        });
        keeper.keep(&shared);
        let session = Self {
            handle: Arc::new(Handle {
                client,
                shared,
                request_ids: RequestIds::new(),
            }),
        };
        // Otherwise it is closed as it is dropped here.
        session.client().opened(session.shared())?;
        session.check()?;
        Ok(session)
    }

    /// The session's id: a bearer secret.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.handle.shared.id
    }

    /// Its TTL.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.handle.shared.lease().ttl_ms())
    }

    /// Returns once the session is lost (or closed): from then on another may hold its scopes.
    pub async fn lost(&self) {
        // The clock may know it already.
        if self.loss().is_none() {
            self.handle.shared.lost.cancelled().await;
        }
    }

    /// Cancelled once the session is lost (or closed), to be handed to what must stop then.
    #[must_use]
    pub fn lost_token(&self) -> CancellationToken {
        self.handle.shared.lost.clone()
    }

    /// Why the session is lost; `None` while it is not. It reads the clock, so that it is right
    /// also at once after the process was stopped and goes on.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.handle.shared.current_loss()
    }

    /// Tells that the work gets on. In a session with a stall limit this must be called at least
    /// once within that limit, or the session is not renewed and ends as [`Loss::Stalled`] (it is
    /// renewed again if this is called before that); in others it does nothing.
    pub fn progress(&self) {
        let shared = &self.handle.shared;
        if let Some(progress) = &shared.progress {
            // In one order with `stalled_at`: one of the two sees what the other has done.
            progress.fetch_add(1, Ordering::SeqCst);
            if shared.stalled.swap(false, Ordering::SeqCst) {
                shared.wake();
            }
        }
    }

    /// Grants that the cluster counts as this session's and no [`Grant`](crate::Grant) here stands
    /// for, as far as keepalives have told: transferred to it, or made by an acquire whose answer
    /// was lost or not waited for. [`Session::adopt`] takes them over.
    #[must_use]
    pub fn unclaimed(&self) -> Vec<Holding> {
        self.handle.shared.registry().unclaimed()
    }

    /// As [`Session::unclaimed`], once there are any. They are learnt of by the next keepalive, so
    /// within a quarter of the TTL. One of an acquire that is under way here may be among them; those
    /// that were transferred to a session that did not wait for them have no request id.
    ///
    /// Those that are not taken over stay, and are returned again at once.
    ///
    /// # Errors
    /// [`crate::ErrorKind::SessionLost`] once the session is lost.
    pub async fn until_unclaimed(&self) -> Result<Vec<Holding>, Error> {
        let found = self.handle.shared.registry().found();
        let looking = async {
            loop {
                // Before the look, so that nothing is found between the two unnoticed.
                let notified = found.notified();
                let unclaimed = self.unclaimed();
                if !unclaimed.is_empty() {
                    return Ok(unclaimed);
                }
                notified.await;
            }
        };
        self.until_lost(looking).await
    }

    /// Ends the session: its grants are lost at once here, and free in the cluster once this
    /// returns. Whether there still was one to close.
    ///
    /// # Errors
    /// As for every call. The session is lost here in any case, and expires by itself.
    pub async fn close(&self) -> Result<bool, Error> {
        self.handle.shared.close(self.client()).await
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Whether the session ends when this is dropped.
    pub(crate) fn is_last_handle(&self) -> bool {
        Arc::strong_count(&self.handle) == 1
    }

    pub(crate) fn client(&self) -> &Client {
        &self.handle.client
    }

    pub(crate) fn request_ids(&self) -> &RequestIds {
        &self.handle.request_ids
    }

    /// The result of `call`, unless the session is lost first.
    pub(crate) async fn until_lost<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.lost() => Err(Error::session_lost(self.loss().unwrap_or(Loss::Closed))),
            result = call => result,
        }
    }

    /// An error once the session is lost.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.loss()
            .map_or(Ok(()), |loss| Err(Error::session_lost(loss)))
    }
}

/// As far as the API can say it; the cluster checks the bounds.
fn whole_ms(what: &str, time: Duration) -> Result<u64, Error> {
    u64::try_from(time.as_millis())
        .map_err(|_too_long| Error::usage(format!("the {what} is too long; give at most 24 h")))
}

impl Shared {
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn cancelled(&self) {
        self.lost.cancelled().await;
    }

    /// The progress mark that keepalives carry.
    pub(crate) fn progress_mark(&self) -> Option<u64> {
        let progress = self.progress.as_ref()?;
        Some(progress.load(Ordering::SeqCst))
    }

    /// The cluster does not renew the session for want of progress. True if there was some since
    /// the mark that it was told.
    pub(crate) fn stalled_at(&self, mark: Option<u64>) -> bool {
        self.stalled.store(true, Ordering::SeqCst);
        let progressed = self.progress_mark() != mark;
        if progressed {
            self.stalled.store(false, Ordering::SeqCst);
        }
        progressed
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Has the keeper look at this session again.
    pub(crate) fn wake(&self) {
        self.keeper.wake(self.id);
    }

    /// Ends the session here, for good. The first cause stays.
    pub(crate) fn lose(&self, loss: Loss) {
        if self.loss.set(loss).is_ok() {
            tracing::debug!(%loss, session = %self.id.hash(), "session lost");
            self.lost.cancel();
            self.keeper.forget(self.id);
        }
    }

    /// Ends the session here, then in the cluster.
    pub(crate) async fn close(&self, client: &Client) -> Result<bool, Error> {
        // Nobody may go on working under it while the call is on its way.
        self.lose(Loss::Closed);
        let request = v1::CloseRequest {
            session_id: self.id.to_string(),
        };
        let closed = client.close(request).await?.closed;
        self.ended.store(true, Ordering::Relaxed);
        Ok(closed)
    }

    /// After a keepalive that was sent at `sent_ms` was acknowledged. A lease that had lapsed
    /// before is not revived: its loss may have been acted upon.
    pub(crate) fn acknowledged(&self, sent_ms: u64) {
        if self.current_loss().is_none() {
            self.stalled.store(false, Ordering::Relaxed);
            self.renewed(sent_ms);
        }
    }

    /// The same for one whose answer is late: it may be older than one that told of a stall.
    pub(crate) fn renewed(&self, sent_ms: u64) {
        if self.current_loss().is_none() {
            let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
            *lease = lease.renewed(sent_ms);
        }
    }

    pub(crate) fn current_loss(&self) -> Option<Loss> {
        if self.loss.get().is_none() && self.lease().is_lapsed(self.clock.now_ms()) {
            self.lose(match self.is_stalled() {
                true => Loss::Stalled,
                false => Loss::Lapsed,
            });
        }
        self.loss.get().copied()
    }

    /// A call in a grant was refused: what that says about the grant and the session.
    pub(crate) fn refused(&self, key: &Key, error: &Error) {
        match error.reason() {
            Some(Reason::EpochSuperseded) => self.registry().end(key, GrantLoss::Superseded),
            Some(Reason::SessionExpired) => self.lose(Loss::Expired),
            Some(_) | None => {}
        }
    }

    /// The answer to the release of a grant that was given up here. Should an acquire have taken
    /// it up again meanwhile, that one has ended too.
    pub(crate) fn release_answered(&self, key: &Key, answer: &Result<v1::ReleaseResponse, Error>) {
        match answer {
            Ok(_) => self.registry().end(key, GrantLoss::Released),
            Err(error) => self.refused(key, error),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.client.forget(self.shared.id);
        self.shared.lose(Loss::Closed);
        // One that was being closed may have failed in it, or was not waited for.
        if self.shared.loss.get() != Some(&Loss::Closed)
            || self.shared.ended.load(Ordering::Relaxed)
        {
            return;
        }
        // Without a runtime it is not closed, and expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.client.clone();
            let shared = Arc::clone(&self.shared);
            runtime.spawn(async move {
                if let Err(error) = shared.close(&client).await {
                    tracing::debug!(%error, "a dropped session was not closed; it expires");
                }
            });
        }
    }
}
