//! The calls, one method each.

use std::sync::Arc;
use std::time::Duration;

use epoch_core::{Holder, Reason};
use epoch_proto::v1::cluster_service_client::ClusterServiceClient;
use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{self, KeepAliveRequest, KeepAliveResponse};
use tokio_stream::StreamExt as _;
use tonic::{Response, Status};
use uuid::Uuid;

use crate::call::Effect;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::options::Options;
use crate::pool::{LEADER_KEY, Pool};
use crate::session::Session;

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

    /// Opens a session, which the caller keeps alive. Without an `open_id` one is made here, so
    /// that every attempt opens the same session.
    ///
    /// # Errors
    /// As for every call.
    pub async fn open(&self, mut request: v1::OpenRequest) -> Result<v1::Session, Error> {
        request
            .open_id
            .get_or_insert_with(|| Uuid::new_v4().to_string());
        self.call(Effect::Repeatable, request, |channel, request| async move {
            SessionServiceClient::new(channel).open(request).await
        })
        .await
    }

    /// Keeps a session alive, once.
    ///
    /// # Errors
    /// As for every call; `SESSION_EXPIRED` when it is gone.
    pub async fn keepalive(&self, request: KeepAliveRequest) -> Result<KeepAliveResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            let (metadata, extensions, message) = request.into_parts();
            // The request side stays open until the answer is there.
            let stream = tokio_stream::once(message).chain(tokio_stream::pending());
            let request = tonic::Request::from_parts(metadata, extensions, stream);
            let response = SessionServiceClient::new(channel)
                .keep_alive(request)
                .await?;
            let (metadata, mut answers, extensions) = response.into_parts();
            let answer = answers.message().await?.ok_or_else(ended)?;
            match refusal_of(&answer) {
                Some(mut status) => {
                    if let Some(leader) = metadata.get(LEADER_KEY) {
                        status.metadata_mut().insert(LEADER_KEY, leader.clone());
                    }
                    Err(status)
                }
                None => Ok(Response::from_parts(metadata, answer, extensions)),
            }
        })
        .await
    }

    /// Closes a session and releases its grants.
    ///
    /// # Errors
    /// As for every call.
    pub async fn close(&self, request: v1::CloseRequest) -> Result<v1::CloseResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            SessionServiceClient::new(channel).close(request).await
        })
        .await
    }

    /// Takes a scope for a session if it is free. The same request id again is the same acquire.
    ///
    /// # Errors
    /// As for every call; `SCOPE_HELD` when another session holds it.
    pub async fn acquire(&self, request: v1::AcquireRequest) -> Result<v1::Grant, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            EpochServiceClient::new(channel).acquire(request).await
        })
        .await
    }

    /// Gives a grant back.
    ///
    /// # Errors
    /// As for every call; `EPOCH_SUPERSEDED` once a higher epoch exists.
    pub async fn release(&self, request: v1::ReleaseRequest) -> Result<v1::ReleaseResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            EpochServiceClient::new(channel).release(request).await
        })
        .await
    }

    /// Ends the current grant of a scope. Without an epoch it is not sent again once it may have
    /// taken effect, since the second one would end the next grant.
    ///
    /// # Errors
    /// As for every call; `EPOCH_SUPERSEDED` when the epoch is not the current one any more.
    pub async fn revoke(&self, request: v1::RevokeRequest) -> Result<v1::RevokeResponse, Error> {
        let effect = if request.epoch.is_some() {
            Effect::Repeatable
        } else {
            Effect::Once
        };
        self.call(effect, request, |channel, request| async move {
            EpochServiceClient::new(channel).revoke(request).await
        })
        .await
    }

    /// A fresh certificate of a current grant.
    ///
    /// # Errors
    /// As for every call; `EPOCH_SUPERSEDED` when the grant is not the current one any more.
    pub async fn certify(&self, request: v1::CertifyRequest) -> Result<v1::CertifyResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            EpochServiceClient::new(channel).certify(request).await
        })
        .await
    }

    /// One scope, as of now.
    ///
    /// # Errors
    /// As for every call.
    pub async fn get(&self, request: v1::GetRequest) -> Result<v1::ScopeState, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            EpochServiceClient::new(channel).get(request).await
        })
        .await
    }

    /// Held scopes in byte order, one page.
    ///
    /// # Errors
    /// As for every call.
    pub async fn list(&self, request: v1::ListRequest) -> Result<v1::ListResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            EpochServiceClient::new(channel).list(request).await
        })
        .await
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

pub(crate) fn ended() -> Status {
    Status::unavailable("the node ended the stream of keepalives")
}

/// The refusal that a keepalive's answer carries, as the status of a call.
pub(crate) fn refusal_of(answer: &KeepAliveResponse) -> Option<Status> {
    let text = answer.reason.as_deref()?;
    let message = answer
        .message
        .as_deref()
        .unwrap_or("the keepalive was refused");
    Some(match Reason::parse(text) {
        Some(reason) => epoch_proto::refusal(reason, message, &[]),
        None => Status::unknown(format!("{message} [{text}]")),
    })
}
