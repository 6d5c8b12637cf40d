//! The client of one cluster. Its calls, one method each, are beside this file by service.

mod epoch;
mod record;
mod session;

use std::sync::Arc;
use std::time::Duration;

use epoch_core::Holder;
use epoch_proto::v1;
use epoch_proto::v1::cluster_service_client::ClusterServiceClient;

use crate::call::Effect;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::options::Options;
use crate::pool::Pool;
use crate::session::Session;

pub(crate) use session::{ended, refusal_of};

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
    pool: Pool,
    options: Options,
}

impl Client {
    /// A client that asks `endpoints` in turn. Connections are made when first needed.
    ///
    /// Call it within a tokio runtime.
    ///
    /// # Errors
    /// No endpoint, or one that cannot be used.
    pub fn connect(
        endpoints: impl IntoIterator<Item = Endpoint>,
        options: Options,
    ) -> Result<Self, Error> {
        let pool = Pool::new(endpoints.into_iter().collect(), options.clone())?;
        Ok(Self {
            inner: Arc::new(Inner { pool, options }),
        })
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Opens a session that keeps itself alive. `ttl`: from 1 s to 24 h, in whole milliseconds.
    ///
    /// # Errors
    /// As for every call; and when opening took longer than the session lasts.
    pub async fn open_session(&self, holder: &Holder, ttl: Duration) -> Result<Session, Error> {
        Session::open(self.clone(), holder, ttl).await
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
}
