//! The calls about sessions.

use epoch_core::Reason;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{self, KeepAliveRequest, KeepAliveResponse};
use tokio_stream::StreamExt as _;
use tonic::{Response, Status};
use uuid::Uuid;

use crate::call::Effect;
use crate::client::Client;
use crate::error::Error;
use crate::pool::LEADER_KEY;

impl Client {
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

    /// One session with its grants and waits, one page.
    ///
    /// # Errors
    /// As for every call; `SESSION_EXPIRED` when it is gone.
    pub async fn get_session(
        &self,
        request: v1::GetSessionRequest,
    ) -> Result<v1::SessionState, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            SessionServiceClient::new(channel).get(request).await
        })
        .await
    }

    /// Live sessions in the order in which they were opened, one page. Never their ids.
    ///
    /// # Errors
    /// As for every call.
    pub async fn list_sessions(
        &self,
        request: v1::ListSessionsRequest,
    ) -> Result<v1::ListSessionsResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            SessionServiceClient::new(channel).list(request).await
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
