//! The calls over gRPC.

use std::pin::Pin;

use epoch_proto::v1;
use epoch_proto::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use epoch_proto::v1::epoch_service_server::{EpochService, EpochServiceServer};
use epoch_proto::v1::permission_service_server::{PermissionService, PermissionServiceServer};
use epoch_proto::v1::record_service_server::{RecordService, RecordServiceServer};
use epoch_proto::v1::session_service_server::{SessionService, SessionServiceServer};
use epoch_proto::v1::trust_service_server::{TrustService, TrustServiceServer};
use futures::stream::{Stream, StreamExt as _};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use super::sessions::{self, Keepalive};
use super::{Api, Result};

/// Keepalives of one stream that are looked at together: those that have come meanwhile.
const KEEP_ALIVES_TOGETHER_MAX: usize = 512;
/// So many times that are under way at once; more wait in the connection.
const KEEP_ALIVES_UNDER_WAY_MAX: usize = 16;

/// Largest request: every field at its longest fits, as in JSON.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The services that clients call.
pub(crate) fn public_routes(api: &Api, routes: Routes) -> Routes {
    admit_peer_calls(api, routes).add_service(
        ClusterServiceServer::new(api.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
    )
}

/// The services that other nodes pass calls on to.
pub(crate) fn admit_peer_calls(api: &Api, routes: Routes) -> Routes {
    routes
        .add_service(
            SessionServiceServer::new(api.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            EpochServiceServer::new(api.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            RecordServiceServer::new(api.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            TrustServiceServer::new(api.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            PermissionServiceServer::new(api.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
}

impl Api {
    /// This, for the caller of the request, and its message.
    fn asked<T>(&self, request: Request<T>) -> (Self, T) {
        let (_metadata, extensions, message) = request.into_parts();
        (self.asked_by(&extensions), message)
    }

    fn answer<T>(&self, result: Result<T>) -> std::result::Result<Response<T>, Status> {
        self.counted(result)
            .map(Response::new)
            .map_err(Status::from)
    }

    /// The answers to keepalives that have come together, until one could not be read.
    async fn keep_alive_answers(
        self,
        received: Vec<std::result::Result<Result<Keepalive>, Status>>,
    ) -> Vec<std::result::Result<v1::KeepAliveResponse, Status>> {
        let mut keepalives = Vec::with_capacity(received.len());
        let mut taken = |keepalive: Keepalive| {
            let session = keepalive.session;
            keepalives.push(keepalive);
            session
        };
        let sessions: Vec<_> = received
            .into_iter()
            .map(|received| received.map(|readable| readable.map(&mut taken)))
            .collect();
        let mut kept = self.keep_alives(keepalives).await.into_iter();
        let answers = sessions.into_iter().map(|session| {
            // An id that is none is not repeated: it may be a part of one, or long.
            let (session, answer) = match session? {
                Ok(session) => (Some(session), kept.next()),
                Err(malformed) => (None, Some(Err(malformed))),
            };
            let answer = answer.unwrap_or_else(|| Err(sessions::unanswered()));
            Ok(match self.counted(answer) {
                Ok(answer) => answer,
                Err(failure) => v1::KeepAliveResponse {
                    session_id: session.map_or_else(String::new, |id| id.to_string()),
                    reason: Some(failure.reason.to_string()),
                    message: Some(failure.message),
                    ..v1::KeepAliveResponse::default()
                },
            })
        });
        answers.collect()
    }
}

#[tonic::async_trait]
impl SessionService for Api {
    async fn open(
        &self,
        request: Request<v1::OpenRequest>,
    ) -> std::result::Result<Response<v1::Session>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::open(&api, message).await)
    }

    type KeepAliveStream =
        Pin<Box<dyn Stream<Item = std::result::Result<v1::KeepAliveResponse, Status>> + Send>>;

    async fn keep_alive(
        &self,
        request: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> std::result::Result<Response<Self::KeepAliveStream>, Status> {
        let (api, requests) = self.asked(request);
        // What cannot be read ends it: the stream itself says the same error again without an end.
        let readable = requests.scan(false, |ended, received| {
            let item = (!*ended).then_some(received);
            *ended = !matches!(item, Some(Ok(_)));
            std::future::ready(item)
        });
        // Answers come in the order of the requests: a node that passes them on counts on it.
        let answers = readable
            .map(|received| received.map(Keepalive::try_from))
            .ready_chunks(KEEP_ALIVES_TOGETHER_MAX)
            .map(move |received| api.clone().keep_alive_answers(received))
            .buffered(KEEP_ALIVES_UNDER_WAY_MAX)
            .flat_map(futures::stream::iter);
        Ok(Response::new(Box::pin(answers)))
    }

    async fn close(
        &self,
        request: Request<v1::CloseRequest>,
    ) -> std::result::Result<Response<v1::CloseResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::close(&api, message).await)
    }

    async fn get(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> std::result::Result<Response<v1::SessionState>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::get_session(&api, message).await)
    }

    async fn list(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> std::result::Result<Response<v1::ListSessionsResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::list_sessions(&api, message).await)
    }
}

#[tonic::async_trait]
impl EpochService for Api {
    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> std::result::Result<Response<v1::Grant>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::acquire(&api, message).await)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> std::result::Result<Response<v1::ReleaseResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::release(&api, message).await)
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> std::result::Result<Response<v1::RevokeResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::revoke(&api, message).await)
    }

    async fn certify(
        &self,
        request: Request<v1::CertifyRequest>,
    ) -> std::result::Result<Response<v1::CertifyResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::certify(&api, message).await)
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> std::result::Result<Response<v1::ScopeState>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::get(&api, message).await)
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> std::result::Result<Response<v1::ListResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::list(&api, message).await)
    }

    async fn acquire_many(
        &self,
        request: Request<v1::AcquireManyRequest>,
    ) -> std::result::Result<Response<v1::AcquireManyResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::acquire_many(&api, message).await)
    }

    async fn cancel_wait(
        &self,
        request: Request<v1::CancelWaitRequest>,
    ) -> std::result::Result<Response<v1::CancelWaitResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::cancel_wait(&api, message).await)
    }

    async fn transfer(
        &self,
        request: Request<v1::TransferRequest>,
    ) -> std::result::Result<Response<v1::TransferResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::transfer(&api, message).await)
    }

    type WatchStream =
        Pin<Box<dyn Stream<Item = std::result::Result<v1::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> std::result::Result<Response<Self::WatchStream>, Status> {
        let (api, message) = self.asked(request);
        let counting = api.clone();
        let watch = Api::watch(&api, message).await.map(|answers| {
            let answers = answers.map(move |said| counting.counted(said).map_err(Status::from));
            Box::pin(answers) as Self::WatchStream
        });
        api.answer(watch)
    }
}

#[tonic::async_trait]
impl RecordService for Api {
    async fn put(
        &self,
        request: Request<v1::PutRecordRequest>,
    ) -> std::result::Result<Response<v1::PutRecordResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::put_record(&api, message).await)
    }

    async fn get(
        &self,
        request: Request<v1::GetRecordRequest>,
    ) -> std::result::Result<Response<v1::Record>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::get_record(&api, message).await)
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRecordRequest>,
    ) -> std::result::Result<Response<v1::DeleteRecordResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::delete_record(&api, message).await)
    }
}

#[tonic::async_trait]
impl ClusterService for Api {
    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> std::result::Result<Response<v1::StatusResponse>, Status> {
        let (api, _message) = self.asked(request);
        api.answer(Api::status(&api).await)
    }

    async fn audit(
        &self,
        request: Request<v1::AuditRequest>,
    ) -> std::result::Result<Response<v1::AuditResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::audit(&api, message).await)
    }
}

#[tonic::async_trait]
impl TrustService for Api {
    async fn bundle(
        &self,
        request: Request<v1::BundleRequest>,
    ) -> std::result::Result<Response<v1::BundleResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::bundle(&api, message).await)
    }

    async fn keys(
        &self,
        request: Request<v1::KeysRequest>,
    ) -> std::result::Result<Response<v1::KeysResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::keys(&api, message).await)
    }

    async fn rotate(
        &self,
        request: Request<v1::RotateRequest>,
    ) -> std::result::Result<Response<v1::RotateResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::rotate(&api, message).await)
    }

    async fn retire(
        &self,
        request: Request<v1::RetireRequest>,
    ) -> std::result::Result<Response<v1::RetireResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::retire(&api, message).await)
    }

    async fn put_bundle(
        &self,
        request: Request<v1::PutBundleRequest>,
    ) -> std::result::Result<Response<v1::PutBundleResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::put_bundle(&api, message).await)
    }

    async fn put_statement(
        &self,
        request: Request<v1::PutStatementRequest>,
    ) -> std::result::Result<Response<v1::PutStatementResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::put_statement(&api, message).await)
    }
}

#[tonic::async_trait]
impl PermissionService for Api {
    async fn grant(
        &self,
        request: Request<v1::GrantPermissionRequest>,
    ) -> std::result::Result<Response<v1::GrantPermissionResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::grant_permission(&api, message).await)
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokePermissionRequest>,
    ) -> std::result::Result<Response<v1::RevokePermissionResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::revoke_permission(&api, message).await)
    }

    async fn list(
        &self,
        request: Request<v1::ListPermissionsRequest>,
    ) -> std::result::Result<Response<v1::ListPermissionsResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::list_permissions(&api, message).await)
    }

    async fn add_token(
        &self,
        request: Request<v1::AddTokenRequest>,
    ) -> std::result::Result<Response<v1::AddTokenResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::add_token(&api, message).await)
    }

    async fn remove_token(
        &self,
        request: Request<v1::RemoveTokenRequest>,
    ) -> std::result::Result<Response<v1::RemoveTokenResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::remove_token(&api, message).await)
    }

    async fn set_limits(
        &self,
        request: Request<v1::SetLimitsRequest>,
    ) -> std::result::Result<Response<v1::SetLimitsResponse>, Status> {
        let (api, message) = self.asked(request);
        api.answer(Api::set_limits(&api, message).await)
    }
}
