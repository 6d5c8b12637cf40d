//! The calls about who vouches for certificates.

use epoch_core::SignedBundle;
use epoch_proto::v1;
use epoch_proto::v1::trust_service_client::TrustServiceClient;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use crate::call::{Effect, refused};
use crate::client::Client;
use crate::error::Error;
use crate::pool::Node;
use crate::trust::chain::Chain;

impl Client {
    /// The trust bundles that lead from the root key to the node keys of now, oldest first, and the
    /// operator's statements, one page: there are more while the last bundle's sequence number is below
    /// the answer's.
    ///
    /// # Errors
    /// As for every call.
    pub async fn bundle(&self, request: v1::BundleRequest) -> Result<v1::BundleResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            TrustServiceClient::new(channel).bundle(request).await
        })
        .await
    }

    /// All of the trust bundles after a sequence number, as far as the chain reaches back, and the
    /// operator's statements: all pages of it. None of it is verified here.
    ///
    /// # Errors
    /// As for every call; a text that is no bundle, or bundles that are not in order.
    pub async fn bundles(&self, after: u64) -> Result<(Vec<SignedBundle>, Vec<String>), Error> {
        let mut chain = Chain::default();
        let mut after = after;
        loop {
            let page = self.bundle(v1::BundleRequest { after }).await?;
            let more = chain.take(page);
            if !more.map_err(|error| Error::protocol(Code::Internal, error.to_string()))? {
                return Ok((chain.bundles, chain.statements));
            }
            after = chain.last();
        }
    }

    /// One page of one node's, asked once.
    pub(crate) async fn bundle_of(
        &self,
        node: &Node,
        after: u64,
    ) -> Result<v1::BundleResponse, Error> {
        let attempt_timeout = self.options().attempt_timeout;
        let mut request = Request::new(v1::BundleRequest { after });
        request.set_timeout(attempt_timeout);
        let mut service = TrustServiceClient::new(node.channel.clone());
        let answered = timeout(attempt_timeout, service.bundle(request)).await;
        let late = |_elapsed| Status::deadline_exceeded("the node did not answer in time");
        match answered.unwrap_or_else(|elapsed| Err(late(elapsed))) {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(refused(&status)),
        }
    }

    /// Every node's signing keys, and how each stands.
    ///
    /// # Errors
    /// As for every call.
    pub async fn keys(&self, request: v1::KeysRequest) -> Result<v1::KeysResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            TrustServiceClient::new(channel).keys(request).await
        })
        .await
    }

    /// Asks nodes for new signing keys. It is not sent again once it may have taken effect, since the
    /// second one would ask for other keys.
    ///
    /// # Errors
    /// As for every call.
    pub async fn rotate_keys(
        &self,
        request: v1::RotateRequest,
    ) -> Result<v1::RotateResponse, Error> {
        self.call(Effect::Once, request, |channel, request| async move {
            TrustServiceClient::new(channel).rotate(request).await
        })
        .await
    }

    /// Takes a signing key out of the bundle: certificates under it verify no more.
    ///
    /// # Errors
    /// As for every call.
    pub async fn retire_key(
        &self,
        request: v1::RetireRequest,
    ) -> Result<v1::RetireResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            TrustServiceClient::new(channel).retire(request).await
        })
        .await
    }

    /// Gives the cluster a bundle that the root key has signed.
    ///
    /// # Errors
    /// As for every call. `INVALID_ARGUMENT` when it may not follow the newest one.
    pub async fn put_bundle(
        &self,
        request: v1::PutBundleRequest,
    ) -> Result<v1::PutBundleResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            TrustServiceClient::new(channel).put_bundle(request).await
        })
        .await
    }

    /// Gives the cluster an operator's statement, which the root key has signed.
    ///
    /// # Errors
    /// As for every call. `INVALID_ARGUMENT` when it does not verify.
    pub async fn put_statement(
        &self,
        request: v1::PutStatementRequest,
    ) -> Result<v1::PutStatementResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            TrustServiceClient::new(channel)
                .put_statement(request)
                .await
        })
        .await
    }
}
