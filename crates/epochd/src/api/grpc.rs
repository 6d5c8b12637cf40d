//! The calls over gRPC.

use std::pin::Pin;

use epoch_proto::v1;
use epoch_proto::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use epoch_proto::v1::epoch_service_server::{EpochService, EpochServiceServer};
use epoch_proto::v1::record_service_server::{RecordService, RecordServiceServer};
use epoch_proto::v1::session_service_server::{SessionService, SessionServiceServer};
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
}

impl Api {
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
        self.answer(Api::open(self, request.into_inner()).await)
    }

    type KeepAliveStream =
        Pin<Box<dyn Stream<Item = std::result::Result<v1::KeepAliveResponse, Status>> + Send>>;

    async fn keep_alive(
        &self,
        request: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> std::result::Result<Response<Self::KeepAliveStream>, Status> {
        let api = self.clone();
        // Answers come in the order of the requests: a node that passes them on counts on it.
        let answers = request
            .into_inner()
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
        self.answer(Api::close(self, request.into_inner()).await)
    }

    async fn get(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> std::result::Result<Response<v1::SessionState>, Status> {
        self.answer(Api::get_session(self, request.into_inner()).await)
    }

    async fn list(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> std::result::Result<Response<v1::ListSessionsResponse>, Status> {
        self.answer(Api::list_sessions(self, request.into_inner()).await)
    }
}

#[tonic::async_trait]
impl EpochService for Api {
    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> std::result::Result<Response<v1::Grant>, Status> {
        self.answer(Api::acquire(self, request.into_inner()).await)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> std::result::Result<Response<v1::ReleaseResponse>, Status> {
        self.answer(Api::release(self, request.into_inner()).await)
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> std::result::Result<Response<v1::RevokeResponse>, Status> {
        self.answer(Api::revoke(self, request.into_inner()).await)
    }

    async fn certify(
        &self,
        request: Request<v1::CertifyRequest>,
    ) -> std::result::Result<Response<v1::CertifyResponse>, Status> {
        self.answer(Api::certify(self, request.into_inner()).await)
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> std::result::Result<Response<v1::ScopeState>, Status> {
        self.answer(Api::get(self, request.into_inner()).await)
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> std::result::Result<Response<v1::ListResponse>, Status> {
        self.answer(Api::list(self, request.into_inner()).await)
    }

    async fn acquire_many(
        &self,
        request: Request<v1::AcquireManyRequest>,
    ) -> std::result::Result<Response<v1::AcquireManyResponse>, Status> {
        self.answer(Api::acquire_many(self, request.into_inner()).await)
    }

    async fn cancel_wait(
        &self,
        request: Request<v1::CancelWaitRequest>,
    ) -> std::result::Result<Response<v1::CancelWaitResponse>, Status> {
        self.answer(Api::cancel_wait(self, request.into_inner()).await)
    }

    async fn transfer(
        &self,
        request: Request<v1::TransferRequest>,
    ) -> std::result::Result<Response<v1::TransferResponse>, Status> {
        self.answer(Api::transfer(self, request.into_inner()).await)
    }

    type WatchStream =
        Pin<Box<dyn Stream<Item = std::result::Result<v1::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> std::result::Result<Response<Self::WatchStream>, Status> {
        let api = self.clone();
        let watch = Api::watch(self, &request.into_inner()).map(|answers| {
            let answers = answers.map(move |said| api.counted(said).map_err(Status::from));
            Box::pin(answers) as Self::WatchStream
        });
        self.answer(watch)
    }
}

#[tonic::async_trait]
impl RecordService for Api {
    async fn put(
        &self,
        request: Request<v1::PutRecordRequest>,
    ) -> std::result::Result<Response<v1::PutRecordResponse>, Status> {
        self.answer(Api::put_record(self, request.into_inner()).await)
    }

    async fn get(
        &self,
        request: Request<v1::GetRecordRequest>,
    ) -> std::result::Result<Response<v1::Record>, Status> {
        self.answer(Api::get_record(self, request.into_inner()).await)
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRecordRequest>,
    ) -> std::result::Result<Response<v1::DeleteRecordResponse>, Status> {
        self.answer(Api::delete_record(self, request.into_inner()).await)
    }
}

#[tonic::async_trait]
impl ClusterService for Api {
    async fn status(
        &self,
        _request: Request<v1::StatusRequest>,
    ) -> std::result::Result<Response<v1::StatusResponse>, Status> {
        Ok(Response::new(Api::status(self)))
    }
}
