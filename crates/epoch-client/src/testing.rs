//! A node that answers as a test says, on a real connection.

mod epoch;
mod paused;
mod record;
mod trust;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epoch_core::{Epoch, GrantsDigest, Reason};
use epoch_proto::v1::cluster_service_server::ClusterServiceServer;
use epoch_proto::v1::epoch_service_server::EpochServiceServer;
use epoch_proto::v1::record_service_server::RecordServiceServer;
use epoch_proto::v1::session_service_server::{SessionService, SessionServiceServer};
use epoch_proto::v1::trust_service_server::TrustServiceServer;
use epoch_proto::v1::{self, KeepAliveRequest, KeepAliveResponse};
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use crate::{Client, Options};

pub(crate) use paused::{Suspend, paused_client, suspendable_client, until};

/// How a node answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Serve,
    Refuse(Reason),
    /// It takes the request, and its answer is lost.
    Silence,
    /// It takes the request, and the answer comes so many milliseconds later.
    Late(u64),
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
    pub(crate) opens: Vec<Answer>,
    pub(crate) acquires: Vec<Answer>,
    pub(crate) keepalives: Vec<Answer>,
    /// For sessions with other answers to their keepalives.
    pub(crate) keepalives_of: BTreeMap<String, Vec<Answer>>,
    pub(crate) many: Vec<Answer>,
    pub(crate) transfers: Vec<Answer>,
    pub(crate) certifies: Vec<Answer>,
    pub(crate) releases: Vec<Answer>,
    pub(crate) closes: Vec<Answer>,
    pub(crate) writes: Vec<Answer>,
    /// The epoch that a cancelled wait had been granted before.
    pub(crate) cancelled_epoch: Option<u64>,
    /// The epoch of what is acquired.
    pub(crate) epoch: u64,
    /// The certificate of what is acquired.
    pub(crate) certificate: String,
    /// The certificate that Certify returns.
    pub(crate) fresh: String,
    /// What every session holds.
    pub(crate) grants: Vec<v1::SessionGrant>,
    /// What every session waits for.
    pub(crate) waits: Vec<v1::SessionWait>,
    /// Whether keepalives' digests are compared with that.
    pub(crate) compares: bool,
    /// Whether keepalives are told so in any case.
    pub(crate) always_differs: bool,
    /// When present, a listing that has been read is answered only once there is a permit.
    pub(crate) listing_gate: Option<Arc<Semaphore>>,
    /// Whether keepalives are refused whose progress mark is the one that was served last.
    pub(crate) wants_progress: bool,
    pub(crate) served_mark: Option<u64>,
    /// One list for each watch; watches beyond them say nothing.
    pub(crate) watches: Vec<Vec<Said>>,
    /// Trust bundles with their numbers, told two a page.
    pub(crate) bundles: Vec<(u64, String)>,
    pub(crate) statements: Vec<String>,
    pub(crate) bundle_answers: Vec<Answer>,
    /// After which numbers bundles were asked for.
    pub(crate) seen_bundles: Vec<u64>,
    pub(crate) leader: Option<SocketAddr>,
    /// Whether new connections in memory are refused.
    pub(crate) down: bool,
    pub(crate) seen_connects: usize,
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
    /// The sessions of the keepalives, and when they came.
    pub(crate) keepalive_times: Vec<(String, Instant)>,
    pub(crate) seen_certifies: usize,
    pub(crate) seen_closes: usize,
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Mutex<Script>>,
    /// Takes connections in memory.
    door: mpsc::UnboundedSender<io::Result<DuplexStream>>,
}

impl Fake {
    /// A node that serves every call until its script says otherwise.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (door, connections) = mpsc::unbounded_channel();
        let fake = Self {
            door,
            address: listener.local_addr().unwrap(),
            script: Arc::new(Mutex::new(Script {
                opens: vec![Answer::Serve],
                acquires: vec![Answer::Serve],
                keepalives: vec![Answer::Serve],
                keepalives_of: BTreeMap::new(),
                many: vec![Answer::Serve],
                transfers: vec![Answer::Serve],
                certifies: vec![Answer::Refuse(Reason::EpochSuperseded)],
                releases: vec![Answer::Serve],
                closes: vec![Answer::Serve],
                writes: vec![Answer::Serve],
                cancelled_epoch: None,
                epoch: 42,
                certificate: "header.payload.signature".to_owned(),
                fresh: "header.fresh.signature".to_owned(),
                grants: Vec::new(),
                waits: Vec::new(),
                compares: false,
                always_differs: false,
                listing_gate: None,
                wants_progress: false,
                served_mark: None,
                watches: Vec::new(),
                bundles: Vec::new(),
                statements: Vec::new(),
                bundle_answers: vec![Answer::Serve],
                seen_bundles: Vec::new(),
                leader: None,
                down: false,
                seen_connects: 0,
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
                keepalive_times: Vec::new(),
                seen_certifies: 0,
                seen_closes: 0,
            })),
        };
        let services = || {
            tonic::transport::Server::builder()
                .add_service(SessionServiceServer::new(fake.clone()))
                .add_service(EpochServiceServer::new(fake.clone()))
                .add_service(RecordServiceServer::new(fake.clone()))
                .add_service(ClusterServiceServer::new(fake.clone()))
                .add_service(TrustServiceServer::new(fake.clone()))
        };
        tokio::spawn(services().serve_with_incoming(TcpListenerStream::new(listener)));
        let connections = UnboundedReceiverStream::new(connections);
        tokio::spawn(services().serve_with_incoming(connections));
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

    /// The answer to a keepalive, and how late it is.
    fn keepalive(
        &self,
        request: KeepAliveRequest,
    ) -> Option<(KeepAliveResponse, Option<Duration>)> {
        let mut script = self.script.lock().unwrap();
        script.seen_keepalives += 1;
        let seen = (request.session_id.clone(), Instant::now());
        script.keepalive_times.push(seen);
        let mut answer = match script.keepalives_of.get_mut(&request.session_id) {
            Some(answers) => next(answers),
            None => next(&mut script.keepalives),
        };
        if script.wants_progress && request.progress == script.served_mark {
            answer = Answer::Refuse(Reason::SessionStalled);
        }
        let (reason, late) = match answer {
            Answer::Serve => (None, None),
            Answer::Refuse(reason) => (Some(reason.to_string()), None),
            Answer::Silence => return None,
            Answer::Late(ms) => (None, Some(Duration::from_millis(ms))),
        };
        if reason.is_none() {
            script.served_mark = request.progress;
        }
        let differs = script.compares && request.grants != Some(script.digest().to_string());
        let answer = KeepAliveResponse {
            session_id: request.session_id,
            ttl: Some(epoch_proto::duration::from_ms(1_000)),
            reason,
            message: None,
            grants_differ: differs || script.always_differs,
        };
        Some((answer, late))
    }

    async fn play<T>(&self, answer: Answer, message: T) -> Result<Response<T>, Status> {
        match answer {
            Answer::Serve => Ok(self.answer(message)),
            Answer::Refuse(reason) => Err(self.refuse(reason)),
            Answer::Silence => std::future::pending().await,
            Answer::Late(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(self.answer(message))
            }
        }
    }
}

impl Script {
    fn digest(&self) -> GrantsDigest {
        let grants = self.grants.iter();
        grants.fold(GrantsDigest::default(), |digest, granted| {
            digest.with(&granted.scope, Epoch::new(granted.epoch).unwrap())
        })
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
        let answer = self.next(|script| {
            script.seen_opens.push(request.clone());
            &mut script.opens
        });
        let session = v1::Session {
            session_id: format!("{}.7.0", request.open_id.unwrap()),
            ttl: request.ttl,
            holder: request.holder,
            session: String::new(),
            ..v1::Session::default()
        };
        self.play(answer, session).await
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
            while let Some(Ok(request)) = requests.next().await {
                let (answer, late) = match fake.keepalive(request) {
                    None => continue,
                    Some(answered) => answered,
                };
                if let Some(late) = late {
                    let sender = sender.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(late).await;
                        drop(sender.send(Ok(answer)).await);
                    });
                    continue;
                }
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
        let answer = self.next(|script| {
            script.seen_closes += 1;
            &mut script.closes
        });
        self.play(answer, v1::CloseResponse { closed: true }).await
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
        if let Some(gate) = self.seen(|script| script.listing_gate.clone()) {
            gate.acquire().await.unwrap().forget();
        }
        // The waits follow the grants.
        let waits = self.seen(|script| script.waits.clone());
        let rows = grants.len() + waits.len();
        let to = (from + 2).min(rows);
        let grants_to = to.min(grants.len());
        Ok(self.answer(v1::SessionState {
            holder: "agent".to_owned(),
            grants: grants[from.min(grants_to)..grants_to].to_vec(),
            waits: waits[from.saturating_sub(grants.len())..to - grants_to].to_vec(),
            next_page: (to < rows).then(|| to.to_string()),
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
