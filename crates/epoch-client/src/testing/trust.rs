//! The calls about trust, as a test says.

use epoch_core::Reason;
use epoch_proto::v1;
use epoch_proto::v1::trust_service_server::TrustService;
use tonic::{Request, Response, Status};

use super::Fake;

/// Bundles of one answer.
const PAGE: usize = 2;

#[tonic::async_trait]
impl TrustService for Fake {
    async fn bundle(
        &self,
        request: Request<v1::BundleRequest>,
    ) -> Result<Response<v1::BundleResponse>, Status> {
        let after = request.into_inner().after;
        let answer = self.next(|script| {
            script.seen_bundles.push(after);
            &mut script.bundle_answers
        });
        let told = self.seen(|script| {
            let later = script.bundles.iter().filter(|(number, _)| *number > after);
            v1::BundleResponse {
                bundles: later.take(PAGE).map(|(_, text)| text.clone()).collect(),
                statements: script.statements.clone(),
                sequence: script.bundles.last().map_or(0, |(number, _)| *number),
            }
        });
        self.play(answer, told).await
    }

    async fn keys(
        &self,
        _request: Request<v1::KeysRequest>,
    ) -> Result<Response<v1::KeysResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    async fn rotate(
        &self,
        _request: Request<v1::RotateRequest>,
    ) -> Result<Response<v1::RotateResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    async fn retire(
        &self,
        _request: Request<v1::RetireRequest>,
    ) -> Result<Response<v1::RetireResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    async fn put_bundle(
        &self,
        _request: Request<v1::PutBundleRequest>,
    ) -> Result<Response<v1::PutBundleResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    async fn put_statement(
        &self,
        _request: Request<v1::PutStatementRequest>,
    ) -> Result<Response<v1::PutStatementResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }
}
