//! The calls about grants and scopes.

use std::time::Duration;

use epoch_proto::v1::epoch_service_client::EpochServiceClient;
use epoch_proto::{duration, v1};

use crate::call::Effect;
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Takes a scope for a session if it is free, or waits for it. The same request id again is
    /// the same acquire: also in the queue, where a retry keeps its place.
    ///
    /// It takes as long as the wait, and the deadline of every call on top.
    ///
    /// # Errors
    /// As for every call; `SCOPE_HELD` when another session holds it, `WAIT_EXPIRED` when that
    /// was so for all of the wait.
    pub async fn acquire(&self, request: v1::AcquireRequest) -> Result<v1::Grant, Error> {
        // A malformed wait is refused by the node.
        let wait_ms = request.wait.as_ref().and_then(duration::to_ms);
        let wait = Duration::from_millis(wait_ms.unwrap_or(0));
        let attempt = |left: Duration| {
            let mut attempt = request.clone();
            if !wait.is_zero() {
                attempt.wait = Some(duration::from_ms(whole_ms(left)));
            }
            attempt
        };
        self.call_waiting(Effect::Repeatable, wait, attempt, |channel, request| async move {
            EpochServiceClient::new(channel).acquire(request).await
        })
        .await
    }

    /// Takes several scopes, all or none, without waiting. The same request id again is the same
    /// acquire.
    ///
    /// # Errors
    /// As for every call; `SCOPE_HELD` when another session holds one of them.
    pub async fn acquire_many(
        &self,
        request: v1::AcquireManyRequest,
    ) -> Result<v1::AcquireManyResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            EpochServiceClient::new(channel).acquire_many(request).await
        })
        .await
    }

    /// Ends a wait, or sees to it that a late copy of its acquire begins none.
    ///
    /// # Errors
    /// As for every call.
    pub async fn cancel_wait(
        &self,
        request: v1::CancelWaitRequest,
    ) -> Result<v1::CancelWaitResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            EpochServiceClient::new(channel).cancel_wait(request).await
        })
        .await
    }

    /// Ends a wait, and gives back what it was granted before.
    ///
    /// # Errors
    /// As for every call; the wait may be over then, and what it was granted not given back.
    pub async fn give_up_wait(&self, request: v1::CancelWaitRequest) -> Result<(), Error> {
        let (scope, session_id) = (request.scope.clone(), request.session_id.clone());
        if let Some(epoch) = self.cancel_wait(request).await?.epoch {
            let request = v1::ReleaseRequest {
                scope,
                epoch,
                session_id,
            };
            self.release(request).await?;
        }
        Ok(())
    }

    /// Gives a grant to another session, at the next epoch. The same again, after an answer that
    /// was lost, returns the same epoch for as long as the other session has that grant.
    ///
    /// # Errors
    /// As for every call; `EPOCH_SUPERSEDED` when the grant is not the current one any more.
    pub async fn transfer(
        &self,
        request: v1::TransferRequest,
    ) -> Result<v1::TransferResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            EpochServiceClient::new(channel).transfer(request).await
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
}

/// What is left of a wait, as the whole milliseconds that the API takes. Never nothing: a retry
/// that came without a wait would ask for something else.
fn whole_ms(left: Duration) -> u64 {
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).map_or(u64::MAX, |ms| ms.max(1))
}
