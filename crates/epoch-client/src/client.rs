//! The client of one cluster. Its calls, one method each, are beside this file by service.

mod epoch;
mod permission;
mod record;
mod session;
mod trust;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoch_core::{Holder, SessionId};
use epoch_proto::v1;
use epoch_proto::v1::cluster_service_client::ClusterServiceClient;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::call::Effect;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::keepalive::{Keeper, KeeperSlot};
use crate::options::{OpenOptions, Options};
use crate::pool::Pool;
use crate::session::{Loss, Session, Shared};

pub(crate) use session::{ended, refusal_of};

/// Sessions closed at once at the most, when all are.
const CLOSES_UNDER_WAY_MAX: usize = 64;

/// A client of one cluster. Cheap to clone: clones share connections and what they have learnt
/// about the leader.
///
/// Each call returns the answer of a node, or an [`Error`] once a node refused or the overall
/// deadline ended.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Made anew in another runtime once the one has ended in which its connections are.
    pool: Mutex<Arc<Pool>>,
    options: Options,
    keeper: KeeperSlot,
    /// Of which a handle is left; none once the client is shut down.
    sessions: Mutex<Option<BTreeMap<SessionId, Arc<Shared>>>>,
}

impl Client {
    /// A client that asks `endpoints` in turn. Connections are made when first needed.
    ///
    /// Call it within a tokio runtime: the connections are driven by it, and made anew by the first
    /// call in another one after it was shut down. A runtime that stands still (one of a single
    /// thread outside of `block_on`) keeps them, and calls from elsewhere get no answer meanwhile.
    ///
    /// # Errors
    /// No endpoint, or one that cannot be used.
    pub fn connect(
        endpoints: impl IntoIterator<Item = Endpoint>,
        options: Options,
    ) -> Result<Self, Error> {
        let options = options.bounded();
        let pool = Pool::new(endpoints.into_iter().collect(), options.clone())?;
        Ok(Self::over(Arc::new(pool), options))
    }

    /// A client over these connections. The background task has one of its own, so that it does not
    /// keep its user's.
    pub(crate) fn over(pool: Arc<Pool>, options: Options) -> Self {
        Self {
            inner: Arc::new(Inner {
                pool: Mutex::new(pool),
                options,
                keeper: KeeperSlot::default(),
                sessions: Mutex::new(Some(BTreeMap::new())),
            }),
        }
    }

    pub(crate) fn keeper(&self) -> Keeper {
        self.inner.keeper.keeper(self)
    }

    /// An error once the client is shut down.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.sessions().as_ref().map(|_| ()).ok_or_else(shut_down)
    }

    /// A session was opened; an error if the client was shut down meanwhile.
    pub(crate) fn opened(&self, session: &Arc<Shared>) -> Result<(), Error> {
        let mut sessions = self.sessions();
        let open = sessions.as_mut().ok_or_else(shut_down)?;
        open.insert(session.id, Arc::clone(session));
        Ok(())
    }

    pub(crate) fn forget(&self, session: SessionId) {
        if let Some(open) = self.sessions().as_mut() {
            open.remove(&session);
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Option<BTreeMap<SessionId, Arc<Shared>>>> {
        let sessions = self.inner.sessions.lock();
        sessions.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pool(&self) -> Arc<Pool> {
        let mut pool = self
            .inner
            .pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if pool.has_ended() && Handle::try_current().is_ok() {
            *pool = pool.anew();
        }
        Arc::clone(&pool)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Opens a session that keeps itself alive. `ttl`: from 1 s to 24 h, in whole milliseconds. When
    /// the future is dropped, or no answer comes in time, a session that was opened all the same is
    /// closed in the background.
    ///
    /// # Errors
    /// As for every call; when opening took longer than the session lasts; and after
    /// [`Client::shutdown`].
    pub async fn open_session(&self, holder: &Holder, ttl: Duration) -> Result<Session, Error> {
        self.open_session_with(holder, OpenOptions::new(ttl)).await
    }

    /// Opens a session that keeps itself alive, as `options` say.
    ///
    /// # Errors
    /// As for [`Client::open_session`].
    pub async fn open_session_with(
        &self,
        holder: &Holder,
        options: OpenOptions,
    ) -> Result<Session, Error> {
        Session::open(self.clone(), holder, options).await
    }

    /// Closes all sessions that were opened by [`Client::open_session`] and are not lost. All are
    /// lost here at once, and their grants free in the cluster once this returns. It takes no longer
    /// than a call may. From then on this client and its clones open no session any more:
    /// [`Client::open_session`] fails with [`ErrorKind::Usage`](crate::ErrorKind::Usage). Calls
    /// without a session, and watches, go on.
    ///
    /// # Errors
    /// As for every call: the first failure, once all were asked for or the deadline has ended. What
    /// was not closed expires by itself.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let sessions = self.sessions().take().unwrap_or_default();
        let mut open: Vec<_> = sessions.into_values().collect();
        open.retain(|session| session.current_loss().is_none());
        // Nobody may go on working while others are being closed.
        for session in &open {
            session.lose(Loss::Closed);
        }
        let mut result = Ok(());
        let all_closed = async {
            let mut closing = JoinSet::new();
            for session in open {
                while closing.len() >= CLOSES_UNDER_WAY_MAX {
                    merge(&mut result, closed(closing.join_next().await));
                }
                let client = self.clone();
                closing.spawn(async move { session.close(&client).await });
            }
            while !closing.is_empty() {
                merge(&mut result, closed(closing.join_next().await));
            }
        };
        let deadline = self.options().deadline;
        if timeout(deadline, all_closed).await.is_err() {
            let message = format!("not all sessions were closed within {deadline:?}; they expire");
            merge(
                &mut result,
                Err(Error::unavailable(None, message).with_outcome_unknown(true)),
            );
        }
        result
    }

    /// Who is in the cluster, and who leads.
    ///
    /// # Errors
    /// As for every call.
    pub async fn status(&self) -> Result<v1::StatusResponse, Error> {
        self.call(Effect::Read, v1::StatusRequest {}, |channel, request| async move {
            ClusterServiceClient::new(channel).status(request).await
        })
        .await
    }

    /// What operators did, or what was denied (as one node remembers it), newest first, one page.
    ///
    /// # Errors
    /// As for every call.
    pub async fn audit(&self, request: v1::AuditRequest) -> Result<v1::AuditResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            ClusterServiceClient::new(channel).audit(request).await
        })
        .await
    }
}

/// The first failure stays.
fn merge(result: &mut Result<(), Error>, next: Result<(), Error>) {
    if result.is_ok() {
        *result = next;
    }
}

fn shut_down() -> Error {
    Error::usage("the client was shut down: it opens no sessions any more; connect another one")
}

fn closed(joined: Option<Result<Result<bool, Error>, JoinError>>) -> Result<(), Error> {
    match joined {
        // The runtime ends: the session expires.
        None | Some(Err(_)) => Ok(()),
        Some(Ok(closed)) => closed.map(|_was_open| ()),
    }
}
