//! A session that keeps itself alive, and tells when it is lost.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use epoch_core::{Holder, SessionId};
use epoch_proto::{duration, v1};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::boottime;
use crate::client::Client;
use crate::error::Error;
use crate::keepalive;
use crate::lease::Lease;
use crate::request_id::RequestIds;

/// Why a session is lost. There is no way back from any of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The cluster has no such session any more.
    Expired,
    /// No keepalive was acknowledged for a TTL: another may hold the scopes by now.
    Lapsed,
    /// It was closed here.
    Closed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the cluster has no such session any more",
            Self::Lapsed => "no keepalive was acknowledged within its TTL",
            Self::Closed => "it was closed",
        })
    }
}

/// A session that keeps itself alive in the background.
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
    lease: Mutex<Lease>,
    lost: CancellationToken,
    loss: OnceLock<Loss>,
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
        ttl: Duration,
    ) -> Result<Self, Error> {
        let ttl_ms = u64::try_from(ttl.as_millis())
            .map_err(|_too_long| Error::usage("the TTL is too long; give at most 24 h"))?;
        let request = v1::OpenRequest {
            holder: holder.as_str().to_owned(),
            ttl: Some(duration::from_ms(ttl_ms)),
            open_id: None,
            ..v1::OpenRequest::default()
        };
        // The first attempt may be the one that opened it, so its time counts.
        let sent_ms = boottime::now_ms();
        let session = client.open(request).await?;
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
        let lease = Lease::new(sent_ms, granted_ms.min(ttl_ms));
        let shared = Arc::new(Shared {
            id,
            lease: Mutex::new(lease),
            lost: CancellationToken::new(),
            loss: OnceLock::new(),
        });
        tokio::spawn(keepalive::keep(client.clone(), Arc::clone(&shared)));
        let session = Self {
            handle: Arc::new(Handle {
                client,
                shared,
                request_ids: RequestIds::new(),
            }),
        };
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
        self.handle.shared.lost.cancelled().await;
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

    /// Ends the session: its grants are lost at once here, and free in the cluster once this
    /// returns. Whether there still was one to close.
    ///
    /// # Errors
    /// As for every call. The session is lost here in any case, and expires by itself.
    pub async fn close(&self) -> Result<bool, Error> {
        // Nobody may go on working under it while the call is on its way.
        self.handle.shared.lose(Loss::Closed);
        let request = v1::CloseRequest {
            session_id: self.id().to_string(),
        };
        Ok(self.client().close(request).await?.closed)
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

impl Shared {
    pub(crate) fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn cancelled(&self) {
        self.lost.cancelled().await;
    }

    /// Ends the session here, for good. The first cause stays.
    pub(crate) fn lose(&self, loss: Loss) {
        if self.loss.set(loss).is_ok() {
            tracing::debug!(%loss, session = %self.id.hash(), "session lost");
        }
        self.lost.cancel();
    }

    /// After a keepalive that was sent at `sent_ms` was acknowledged. A lease that had lapsed
    /// before is not revived: its loss may have been acted upon.
    pub(crate) fn acknowledged(&self, sent_ms: u64) {
        if self.current_loss().is_none() {
            let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
            *lease = lease.renewed(sent_ms);
        }
    }

    pub(crate) fn current_loss(&self) -> Option<Loss> {
        if self.loss.get().is_none() && self.lease().is_lapsed(boottime::now_ms()) {
            self.lose(Loss::Lapsed);
        }
        self.loss.get().copied()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.loss.get().is_some() {
            return;
        }
        self.shared.lose(Loss::Closed);
        // Without a runtime it is not closed, and expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.client.clone();
            let request = v1::CloseRequest {
                session_id: self.shared.id.to_string(),
            };
            runtime.spawn(async move {
                if let Err(error) = client.close(request).await {
                    tracing::debug!(%error, "a dropped session was not closed; it expires");
                }
            });
        }
    }
}
