//! A node that answers as a test says, on a real connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epoch_core::Reason;
use epoch_proto::v1::epoch_service_server::{EpochService, EpochServiceServer};
use epoch_proto::v1::session_service_server::{SessionService, SessionServiceServer};
use epoch_proto::v1::{self, KeepAliveRequest, KeepAliveResponse};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::{Client, Options};

/// How a node answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Serve,
    Refuse(Reason),
    /// It takes the request, and its answer is lost.
    Silence,
}

/// What a node has seen, and how it answers: one answer for each call, the last one for all later
/// calls.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) acquires: Vec<Answer>,
    pub(crate) keepalives: Vec<Answer>,
    pub(crate) leader: Option<SocketAddr>,
    pub(crate) seen_acquires: Vec<v1::AcquireRequest>,
    pub(crate) seen_opens: Vec<v1::OpenRequest>,
    pub(crate) seen_keepalives: usize,
    pub(crate) seen_closes: usize,
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Mutex<Script>>,
}

impl Fake {
    /// A node that serves every call until its script says otherwise.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            script: Arc::new(Mutex::new(Script {
                acquires: vec![Answer::Serve],
                keepalives: vec![Answer::Serve],
                leader: None,
                seen_acquires: Vec::new(),
                seen_opens: Vec::new(),
                seen_keepalives: 0,
                seen_closes: 0,
            })),
        };
        let server = tonic::transport::Server::builder()
            .add_service(SessionServiceServer::new(fake.clone()))
            .add_service(EpochServiceServer::new(fake.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        fake
    }

    pub(crate) fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&Script) -> T) -> T {
        look(&self.script.lock().unwrap())
    }

    fn answer<T>(&self, message: T) -> Response<T> {
        let mut response = Response::new(message);
        if let Some(leader) = self.seen(|script| script.leader) {
            response
                .metadata_mut()
                .insert("epochd-leader", leader.to_string().parse().unwrap());
        }
        response
    }

    fn refuse(&self, reason: Reason) -> Status {
        let mut status = epoch_proto::refusal(reason, "refused by the test", &[]);
        *status.metadata_mut() = self.answer(()).metadata().clone();
        status
    }

    async fn play<T>(&self, answer: Answer, message: T) -> Result<Response<T>, Status> {
        match answer {
            Answer::Serve => Ok(self.answer(message)),
            Answer::Refuse(reason) => Err(self.refuse(reason)),
            Answer::Silence => std::future::pending().await,
        }
    }
}

fn next(answers: &mut Vec<Answer>) -> Answer {
    if answers.len() > 1 {
        answers.remove(0)
    } else {
        answers[0]
    }
}

/// A client of these nodes that gives up soon.
pub(crate) fn client(nodes: &[&Fake], deadline_ms: u64, attempt_ms: u64) -> Client {
    let options = Options {
        deadline: Duration::from_millis(deadline_ms),
        attempt_timeout: Duration::from_millis(attempt_ms),
        ..Options::default()
    };
    let endpoints = nodes
        .iter()
        .map(|node| node.address.to_string().parse().unwrap());
    Client::connect(endpoints, options).unwrap()
}

#[tonic::async_trait]
impl SessionService for Fake {
    async fn open(
        &self,
        request: Request<v1::OpenRequest>,
    ) -> Result<Response<v1::Session>, Status> {
        let request = request.into_inner();
        self.script(|script| script.seen_opens.push(request.clone()));
        Ok(self.answer(v1::Session {
            session_id: format!("{}.7.0", request.open_id.unwrap()),
            ttl: request.ttl,
            holder: request.holder,
            session: String::new(),
            ..v1::Session::default()
        }))
    }

    type KeepAliveStream = ReceiverStream<Result<KeepAliveResponse, Status>>;

    async fn keep_alive(
        &self,
        request: Request<Streaming<KeepAliveRequest>>,
    ) -> Result<Response<Self::KeepAliveStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        let mut requests = request.into_inner();
        let fake = self.clone();
        tokio::spawn(async move {
            while let Some(Ok(KeepAliveRequest { session_id, .. })) = requests.next().await {
                let mut answer = Answer::Serve;
                fake.script(|script| {
                    script.seen_keepalives += 1;
                    answer = next(&mut script.keepalives);
                });
                let reason = match answer {
                    Answer::Serve => None,
                    Answer::Refuse(reason) => Some(reason.to_string()),
                    Answer::Silence => continue,
                };
                let ttl = Some(epoch_proto::duration::from_ms(1_000));
                let answer = KeepAliveResponse {
                    session_id,
                    ttl,
                    reason,
                    message: None,
                    ..KeepAliveResponse::default()
                };
                if sender.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Ok(self.answer(ReceiverStream::new(receiver)))
    }

    async fn close(
        &self,
        _request: Request<v1::CloseRequest>,
    ) -> Result<Response<v1::CloseResponse>, Status> {
        self.script(|script| script.seen_closes += 1);
        Ok(self.answer(v1::CloseResponse { closed: true }))
    }

    async fn get(
        &self,
        _request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::SessionState>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    async fn list(
        &self,
        _request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }
}

#[tonic::async_trait]
impl EpochService for Fake {
    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::Grant>, Status> {
        let request = request.into_inner();
        let mut answer = Answer::Serve;
        self.script(|script| {
            script.seen_acquires.push(request.clone());
            answer = next(&mut script.acquires);
        });
        let grant = v1::Grant {
            scope: request.scope,
            epoch: 42,
            holder: "agent".to_owned(),
            session_id: request.session_id,
            certificate: "header.payload.signature".to_owned(),
            incarnation: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
            position: Some(v1::Position {
                group: 0,
                term: 1,
                leader: 1,
                index: 8,
                offset: 0,
            }),
        };
        self.play(answer, grant).await
    }

    async fn release(
        &self,
        _request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        Ok(self.answer(v1::ReleaseResponse { released: true }))
    }

    async fn revoke(
        &self,
        _request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        Err(self.refuse(Reason::NoQuorum))
    }

    async fn certify(
        &self,
        _request: Request<v1::CertifyRequest>,
    ) -> Result<Response<v1::CertifyResponse>, Status> {
        Err(self.refuse(Reason::EpochSuperseded))
    }

    async fn get(
        &self,
        _request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::ScopeState>, Status> {
        Ok(self.answer(v1::ScopeState::default()))
    }

    async fn list(
        &self,
        _request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        Ok(self.answer(v1::ListResponse::default()))
    }

    async fn acquire_many(
        &self,
        _request: Request<v1::AcquireManyRequest>,
    ) -> Result<Response<v1::AcquireManyResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    async fn cancel_wait(
        &self,
        _request: Request<v1::CancelWaitRequest>,
    ) -> Result<Response<v1::CancelWaitResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    async fn transfer(
        &self,
        _request: Request<v1::TransferRequest>,
    ) -> Result<Response<v1::TransferResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }

    type WatchStream = ReceiverStream<Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        _request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }
}
