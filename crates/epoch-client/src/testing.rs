//! A node that answers as a test says, on a real connection.

mod epoch;
mod record;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epoch_core::Reason;
use epoch_proto::v1::cluster_service_server::ClusterServiceServer;
use epoch_proto::v1::epoch_service_server::EpochServiceServer;
use epoch_proto::v1::record_service_server::RecordServiceServer;
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

/// What a node says in a watch. After the last it is silent.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    /// The kinds, scopes and cursors of events, and the answer's own cursor.
    Events(
        Vec<(&'static str, &'static str, &'static str)>,
        &'static str,
    ),
    Refuse(Reason),
    /// The stream ends.
    End,
}

/// What a node has seen, and how it answers: one answer for each call, the last one for all later
/// calls.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) acquires: Vec<Answer>,
    pub(crate) keepalives: Vec<Answer>,
    pub(crate) many: Vec<Answer>,
    pub(crate) transfers: Vec<Answer>,
    pub(crate) certifies: Vec<Answer>,
    pub(crate) writes: Vec<Answer>,
    /// The epoch that a cancelled wait had been granted before.
    pub(crate) cancelled_epoch: Option<u64>,
    /// What every session holds.
    pub(crate) grants: Vec<v1::SessionGrant>,
    /// One list for each watch; watches beyond them say nothing.
    pub(crate) watches: Vec<Vec<Said>>,
    pub(crate) leader: Option<SocketAddr>,
    pub(crate) seen_many: Vec<v1::AcquireManyRequest>,
    pub(crate) seen_cancels: Vec<v1::CancelWaitRequest>,
    pub(crate) seen_releases: Vec<v1::ReleaseRequest>,
    pub(crate) seen_transfers: Vec<v1::TransferRequest>,
    pub(crate) seen_pages: usize,
    pub(crate) seen_watches: Vec<v1::WatchRequest>,
    pub(crate) seen_puts: Vec<v1::PutRecordRequest>,
    pub(crate) seen_deletes: Vec<v1::DeleteRecordRequest>,
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
                many: vec![Answer::Serve],
                transfers: vec![Answer::Serve],
                certifies: vec![Answer::Refuse(Reason::EpochSuperseded)],
                writes: vec![Answer::Serve],
                cancelled_epoch: None,
                grants: Vec::new(),
                watches: Vec::new(),
                leader: None,
                seen_many: Vec::new(),
                seen_cancels: Vec::new(),
                seen_releases: Vec::new(),
                seen_transfers: Vec::new(),
                seen_pages: 0,
                seen_watches: Vec::new(),
                seen_puts: Vec::new(),
                seen_deletes: Vec::new(),
                seen_acquires: Vec::new(),
                seen_opens: Vec::new(),
                seen_keepalives: 0,
                seen_closes: 0,
            })),
        };
        let server = tonic::transport::Server::builder()
            .add_service(SessionServiceServer::new(fake.clone()))
            .add_service(EpochServiceServer::new(fake.clone()))
            .add_service(RecordServiceServer::new(fake.clone()))
            .add_service(ClusterServiceServer::new(fake.clone()))
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

    /// The next answer of one kind of call, noted as it is seen.
    fn next(&self, see: impl FnOnce(&mut Script) -> &mut Vec<Answer>) -> Answer {
        let mut answer = Answer::Serve;
        self.script(|script| answer = next(see(script)));
        answer
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
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::SessionState>, Status> {
        // Two a page, whatever the limit: to be read on.
        let from: usize = request
            .get_ref()
            .page
            .as_deref()
            .map_or(0, |page| page.parse().unwrap());
        self.script(|script| script.seen_pages += 1);
        let grants = self.seen(|script| script.grants.clone());
        let to = (from + 2).min(grants.len());
        Ok(self.answer(v1::SessionState {
            holder: "agent".to_owned(),
            grants: grants[from..to].to_vec(),
            next_page: (to < grants.len()).then(|| to.to_string()),
            ..v1::SessionState::default()
        }))
    }

    async fn list(
        &self,
        _request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }
}
