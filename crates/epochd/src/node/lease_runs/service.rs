//! The session service of one node: it hands requests to the world, and the world's answers back.

use std::sync::Arc;

use epoch_core::{Reason, SessionId};
use epoch_machine::Ttl;
use epoch_proto::v1::session_service_server::SessionService;
use epoch_proto::v1::{self, KeepAliveRequest, KeepAliveResponse};
use epoch_proto::{duration, refusal};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::world::{Answer, Ask, NotServed, Served, Shared};

#[derive(Clone)]
pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) node: usize,
}

/// The address under which the client knows a node.
pub(super) fn address(node: usize) -> String {
    format!("node-{node}:7600")
}

impl Service {
    /// The answer to a call, if it comes; the caller gives up by itself.
    async fn ask(&self, ask: Ask) -> Answer {
        let (sender, answer) = oneshot::channel();
        self.shared.send(self.node, ask, |answer| {
            // A caller that has given up needs none.
            drop(sender.send(answer));
        });
        match answer.await {
            Ok(answer) => answer,
            Err(_lost) => std::future::pending().await,
        }
    }

    async fn call<T>(
        &self,
        ask: Ask,
        answer: impl FnOnce(Served) -> T,
    ) -> Result<Response<T>, Status> {
        let Answer { result, leader } = self.ask(ask).await;
        let leader = leader.map(|leader| address(leader).parse().unwrap());
        match result {
            Ok(served) => {
                let mut response = Response::new(answer(served));
                leader.map(|leader| response.metadata_mut().insert("epochd-leader", leader));
                Ok(response)
            }
            Err(NotServed::Refused(reason)) => {
                let mut status = refusal(reason, "refused in a run", &[]);
                leader.map(|leader| status.metadata_mut().insert("epochd-leader", leader));
                Err(status)
            }
            Err(NotServed::Broken) => Err(broken()),
        }
    }
}

fn broken() -> Status {
    Status::unavailable("the connection broke")
}

fn kept(id: SessionId, result: Result<Served, NotServed>) -> Result<KeepAliveResponse, Status> {
    let (ttl, reason) = match result {
        Ok(Served::Renewed(ttl)) => (Some(duration::from_ms(ttl.ms())), None),
        Ok(_) => (None, Some(Reason::Internal)),
        Err(NotServed::Refused(reason)) => (None, Some(reason)),
        Err(NotServed::Broken) => return Err(broken()),
    };
    Ok(KeepAliveResponse {
        session_id: id.to_string(),
        ttl,
        reason: reason.map(|reason| reason.to_string()),
        ..KeepAliveResponse::default()
    })
}

#[tonic::async_trait]
impl SessionService for Service {
    async fn open(
        &self,
        request: Request<v1::OpenRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let request = request.into_inner();
        let ttl = |time: &_| Ttl::from_ms(duration::to_ms(time).unwrap()).unwrap();
        let ask = Ask::Open {
            open_id: request.open_id.unwrap(),
            ttl: ttl(&request.ttl.unwrap()),
            stall_limit: request.stall_limit.as_ref().map(ttl),
        };
        self.call(ask, |served| match served {
            Served::Opened(id, ttl) => v1::Session {
                session_id: id.to_string(),
                ttl: Some(duration::from_ms(ttl.ms())),
                ..v1::Session::default()
            },
            Served::Stream | Served::Renewed(_) => v1::Session::default(),
        })
        .await
    }

    type KeepAliveStream = UnboundedReceiverStream<Result<KeepAliveResponse, Status>>;

    async fn keep_alive(
        &self,
        request: Request<Streaming<KeepAliveRequest>>,
    ) -> Result<Response<Self::KeepAliveStream>, Status> {
        let (sender, answers) = mpsc::unbounded_channel();
        let service = self.clone();
        tokio::spawn(async move {
            let mut requests = request.into_inner();
            while let Some(Ok(request)) = requests.next().await {
                let id: SessionId = request.session_id.parse().unwrap();
                let progress = request.progress;
                let sender = sender.clone();
                service.shared.send(
                    service.node,
                    Ask::KeepAlive { id, progress },
                    move |answer| {
                        // A client that has left the stream needs none.
                        drop(sender.send(kept(id, answer.result)));
                    },
                );
            }
        });
        self.call(Ask::Stream, |_| UnboundedReceiverStream::new(answers))
            .await
    }

    async fn close(
        &self,
        _request: Request<v1::CloseRequest>,
    ) -> Result<Response<v1::CloseResponse>, Status> {
        Err(Status::unimplemented("no session is closed in a run"))
    }

    async fn get(
        &self,
        _request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::SessionState>, Status> {
        Err(Status::unimplemented("grants agree in a run"))
    }

    async fn list(
        &self,
        _request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        Err(Status::unimplemented("nobody lists sessions in a run"))
    }
}
