//! The peer listener: what other nodes may ask of this one.

use std::pin::Pin;

use bytes::Bytes;
use epoch_core::{NodeId, error_chain};
use epoch_proto::raft::peer_service_server::PeerService;
use epoch_proto::raft::{Envelope, PingRequest, PingResponse, Reply, SnapshotPart, snapshot_part};
use epoch_store::snapshot::WriteSnapshotError;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use openraft::storage::Snapshot;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::contact::Contact;
use super::identity::Identity;
use super::introduction::{Introductions, encode_position};
use super::memory::Refusal;
use super::network::last_log_id;
use super::snapshots::{SnapshotError, Snapshots, StoredSnapshot};
use super::types::{
    LogId, ProcessId, Raft, SnapshotMeta, TypeConfig, Vote, without_own_leadership,
};
use crate::tls::PeerName;

type Parts = Pin<Box<dyn Stream<Item = Result<SnapshotPart, Status>> + Send>>;

/// Serves peers.
#[derive(Clone)]
pub(crate) struct PeerServer {
    pub(crate) identity: Identity,
    pub(crate) contact: Contact,
    pub(crate) introductions: Introductions,
    pub(crate) raft: Raft,
    pub(crate) snapshots: Snapshots,
}

impl std::fmt::Debug for PeerServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerServer")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Status> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(Status::invalid_argument("bytes follow the message")),
        Err(error) => Err(Status::invalid_argument(format!("not a message: {error}"))),
    }
}

/// Whose certificate the connection was made with.
fn sender<T>(request: &Request<T>) -> Option<PeerName> {
    request.extensions().get().copied()
}

fn encode(value: &impl Serialize) -> Result<Bytes, Status> {
    postcard::to_stdvec(value)
        .map(Bytes::from)
        .map_err(|error| Status::internal(format!("the answer does not encode: {error}")))
}

/// Whose message it is.
#[derive(Debug, Clone, Copy)]
struct Sender {
    node: NodeId,
    process: ProcessId,
}

impl From<&Envelope> for Sender {
    fn from(envelope: &Envelope) -> Self {
        Self {
            node: envelope.from,
            process: ProcessId(envelope.process),
        }
    }
}

/// Runs `work` to its end even if the caller goes away: a cancelled append would leave it half
/// done.
async fn run<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    tokio::spawn(work)
        .await
        .map_err(|error| Status::internal(error.to_string()))?
}

fn raft_status(error: &impl std::fmt::Display) -> Status {
    Status::unavailable(format!("raft: {error}"))
}

impl PeerServer {
    /// An envelope that is meant for this node, once it may answer.
    fn open(&self, sender: Option<&PeerName>, envelope: Envelope) -> Result<Envelope, Status> {
        self.identity.check_from(sender, &envelope)?;
        self.has_a_say()?;
        match self.contact.quiet_left() {
            None => Ok(envelope),
            Some(_) => Err(Status::unavailable("quiet: the process has just started")),
        }
    }

    fn has_a_say(&self) -> Result<(), Status> {
        match self.contact.own_loss() {
            None => Ok(()),
            Some(why) => Err(Status::failed_precondition(why)),
        }
    }

    /// Takes in what a peer's message says of its own vote and log, before the consensus library
    /// sees it.
    fn remember(&self, from: Sender, vote: &Vote, last: Option<LogId>) -> Result<(), Status> {
        let vote = *vote.leader_id();
        if vote.node_id != from.node {
            return Err(Status::invalid_argument("the vote is another node's"));
        }
        let memory = self.contact.memory();
        let recorded = memory.record(from.node, from.process, vote, last);
        recorded.map_err(|refusal| match refusal {
            Refusal::Unverified(_) => Status::unavailable(refusal.to_string()),
            Refusal::Lost(_) => Status::failed_precondition(refusal.to_string()),
        })
    }

    fn reply(&self, value: &impl Serialize) -> Result<Response<Reply>, Status> {
        Ok(Response::new(Reply {
            body: encode(value)?,
            process: self.identity.process.0,
        }))
    }

    /// Whether this node leads, and still speaks.
    fn leads(&self) -> bool {
        let leading = super::own_leadership(&self.raft.metrics().borrow());
        leading.is_some_and(|leadership| self.contact.may_speak(leadership))
    }

    fn received(&self, vote: Vote) -> Vote {
        without_own_leadership(vote, self.identity.me)
    }
}

#[tonic::async_trait]
impl PeerService for PeerServer {
    async fn append(&self, request: Request<Envelope>) -> Result<Response<Reply>, Status> {
        let sender = sender(&request);
        let envelope = self.open(sender.as_ref(), request.into_inner())?;
        let mut append: AppendEntriesRequest<TypeConfig> = decode(&envelope.body)?;
        self.remember(Sender::from(&envelope), &append.vote, last_log_id(&append))?;
        append.vote = self.received(append.vote);
        let raft = self.raft.clone();
        let contact = self.contact.clone();
        let response: AppendEntriesResponse<_> = run(async move {
            let appended = raft.append_entries(append).await;
            let response = appended.map_err(|error| raft_status(&error))?;
            if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
                contact.follows();
            }
            Ok(response)
        })
        .await?;
        self.reply(&response)
    }

    async fn vote(&self, request: Request<Envelope>) -> Result<Response<Reply>, Status> {
        let sender = sender(&request);
        let envelope = self.open(sender.as_ref(), request.into_inner())?;
        let mut vote: VoteRequest<_> = decode(&envelope.body)?;
        self.remember(Sender::from(&envelope), &vote.vote, None)?;
        vote.vote = self.received(vote.vote);
        let raft = self.raft.clone();
        let response =
            run(async move { raft.vote(vote).await.map_err(|error| raft_status(&error)) }).await?;
        self.reply(&response)
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotPart>>,
    ) -> Result<Response<Reply>, Status> {
        let sender = sender(&request);
        let mut parts: Parts = Box::pin(request.into_inner());
        let Some(SnapshotPart {
            part: Some(snapshot_part::Part::Envelope(envelope)),
        }) = parts.next().await.transpose()?
        else {
            return Err(Status::invalid_argument(
                "the first part must be the envelope",
            ));
        };
        let envelope = self.open(sender.as_ref(), envelope)?;
        let (vote, meta): (Vote, SnapshotMeta) = decode(&envelope.body)?;
        self.remember(Sender::from(&envelope), &vote, meta.last_log_id)?;
        let vote = self.received(vote);
        let (raft, snapshots) = (self.raft.clone(), self.snapshots.clone());
        let response = run(async move {
            let stored = match receive(&snapshots, &meta, parts).await {
                // The leader would send it again and again.
                Err(ReceiveError::Disk(why)) => {
                    crate::fatal::stop(&format!("a peer's snapshot cannot be stored: {why}"))
                }
                received => received?,
            };
            let snapshot = Snapshot {
                meta,
                snapshot: Box::new(stored),
            };
            let installed = raft.install_full_snapshot(vote, snapshot).await;
            installed.map_err(|error| raft_status(&error))
        })
        .await?;
        self.reply(&response)
    }

    type FetchSnapshotStream = Parts;

    async fn fetch_snapshot(&self, request: Request<Envelope>) -> Result<Response<Parts>, Status> {
        let sender = sender(&request);
        let envelope = request.into_inner();
        self.identity.check_from(sender.as_ref(), &envelope)?;
        self.has_a_say()?;
        let at_least: u64 = decode(&envelope.body)?;
        let index = |stored: &StoredSnapshot| stored.meta().last_log_id.map(|id| id.index);
        let newest = self.snapshots.newest();
        let Some(stored) = newest.filter(|stored| index(stored) >= Some(at_least)) else {
            // As far as this node has got, it can make one.
            self.snapshots.want_another();
            return Err(Status::not_found(format!(
                "this node has no snapshot that reaches index {at_least}"
            )));
        };
        let head = self
            .identity
            .envelope(envelope.from, encode(&stored.meta())?);
        Ok(Response::new(send(head, stored)))
    }

    async fn ping(&self, request: Request<PingRequest>) -> Result<Response<PingResponse>, Status> {
        let sender = sender(&request);
        let request = request.into_inner();
        let Some(envelope) = request.envelope else {
            return Err(Status::invalid_argument("no envelope"));
        };
        self.identity.check_from(sender.as_ref(), &envelope)?;
        let from = Sender::from(&envelope);
        let introduction = request.introduction.as_ref();
        self.introductions
            .hear(from.node, from.process, introduction)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let internal = |error: &dyn std::fmt::Display| Status::internal(error.to_string());
        let initialized = self.raft.is_initialized().await;
        let remembered = self.contact.memory().remembered_of_lost(from.node);
        let remembered = remembered.as_ref().map(encode_position).transpose();
        let introduction = self.introductions.say(from.node);
        Ok(Response::new(PingResponse {
            node: self.identity.me,
            initialized: initialized.map_err(|error| raft_status(&error))?,
            has_leader: self.contact.has_leader() || self.leads(),
            process: self.identity.process.0,
            introduction: Some(introduction.map_err(|error| internal(&error))?),
            remembered: remembered.map_err(|error| internal(&error))?,
        }))
    }
}

/// A snapshot's parts on their way out, behind `head`.
fn send(head: Envelope, stored: StoredSnapshot) -> Parts {
    let (parts, receiver) = tokio::sync::mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let read = (|| {
            let head = SnapshotPart {
                part: Some(snapshot_part::Part::Envelope(head)),
            };
            // A send that fails has nobody left to hear it.
            if parts.blocking_send(Ok(head)).is_err() {
                return Ok(());
            }
            for data in stored.chunks()? {
                let data = SnapshotPart {
                    part: Some(snapshot_part::Part::Data(data?)),
                };
                if parts.blocking_send(Ok(data)).is_err() {
                    return Ok(());
                }
            }
            Ok::<(), std::io::Error>(())
        })();
        if let Err(error) = read {
            tracing::warn!(%error, "a snapshot cannot be read");
            let failed = Status::internal(format!("the snapshot cannot be read: {error}"));
            drop(parts.blocking_send(Err(failed)));
        }
    });
    Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver))
}

/// Why a snapshot was not taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    /// This node's own disk failed.
    #[error("{0}")]
    Disk(String),
    /// It did not arrive, or not whole.
    #[error("{}", .0.message())]
    Sent(Status),
}

impl From<Status> for ReceiveError {
    fn from(status: Status) -> Self {
        Self::Sent(status)
    }
}

impl From<SnapshotError> for ReceiveError {
    fn from(error: SnapshotError) -> Self {
        let text = error_chain(&error);
        match error {
            SnapshotError::Write(WriteSnapshotError::Io { .. } | WriteSnapshotError::Folder(_)) => {
                Self::Disk(text)
            }
            SnapshotError::Write(_) | SnapshotError::Read(_) | SnapshotError::Meta(_) => {
                Self::Sent(Status::data_loss(text))
            }
        }
    }
}

impl From<ReceiveError> for Status {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Disk(why) => Self::internal(why),
            ReceiveError::Sent(status) => status,
        }
    }
}

/// Takes a snapshot in; it is on the disk, every byte checked, before openraft hears of it.
pub(super) async fn receive(
    snapshots: &Snapshots,
    meta: &SnapshotMeta,
    mut parts: Parts,
) -> Result<StoredSnapshot, ReceiveError> {
    let ended = |error: tokio::task::JoinError| Status::cancelled(error.to_string());
    let mut incoming = snapshots.receive()?;
    while let Some(part) = parts.next().await {
        let Some(snapshot_part::Part::Data(data)) = part?.part else {
            let why = "an envelope in the middle of a snapshot";
            return Err(Status::invalid_argument(why).into());
        };
        incoming = tokio::task::spawn_blocking(move || incoming.push(&data).map(|()| incoming))
            .await
            .map_err(ended)??;
    }
    let meta = meta.clone();
    let finished = tokio::task::spawn_blocking(move || incoming.finish(&meta));
    Ok(finished.await.map_err(ended)??)
}

#[cfg(test)]
mod tests {
    use epoch_proto::raft::peer_service_client::PeerServiceClient;

    use super::super::network::connect;
    use super::super::test_node::{TestNode, identity, tls};
    use super::super::types::{LeaderId, Position};
    use super::*;
    use crate::tls::{PeerTls, refusal};

    fn memory(node: &TestNode) -> &super::super::memory::Memory {
        node.consensus.contact.memory()
    }

    fn process(node: &TestNode) -> ProcessId {
        memory(node).process()
    }

    /// Asks `node` for its vote, as `asking` and in its process.
    async fn ask_for_vote(node: &TestNode, asking: &TestNode, term: u64) -> Result<(), Status> {
        let mut identity = identity(asking.id);
        identity.process = process(asking);
        let request = VoteRequest::new(Vote::new(term, asking.id), None);
        let body = Bytes::from(postcard::to_stdvec(&request).unwrap());
        let envelope = identity.envelope(node.id, body);
        let channel = connect(asking.consensus.tls(), node.id, &node.addresses.peer).unwrap();
        let answer = PeerServiceClient::new(channel).vote(envelope).await;
        answer.map(|_| ())
    }

    #[tokio::test]
    async fn whoever_can_connect_two_pings_verify_both() {
        let (one, other) = (TestNode::start(1).await, TestNode::start(2).await);
        one.ping(&other).await;
        let admitted = memory(&one).admit(other.id, process(&other));
        assert_eq!(admitted, Ok(()), "it has answered");
        one.ping(&other).await;
        assert_eq!(memory(&other).admit(one.id, process(&one)), Ok(()));
    }

    #[tokio::test]
    async fn a_message_from_another_node_than_its_certificate_names_is_refused() {
        let (one, two) = (TestNode::start(1).await, TestNode::start(2).await);
        let asking = async |tls: PeerTls| {
            let channel = connect(&tls, one.id, &one.addresses.peer).unwrap();
            let ping = PingRequest {
                envelope: Some(identity(two.id).envelope(one.id, Bytes::new())),
                introduction: two.consensus.introductions.say(one.id).ok(),
            };
            PeerServiceClient::new(channel).ping(ping).await
        };
        asking(tls(two.id)).await.unwrap();
        let refused = asking(tls(3)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        assert!(refused.message().contains("certificate"), "{refused}");
    }

    #[tokio::test]
    async fn another_node_than_the_one_that_is_dialled_is_refused_in_the_handshake() {
        let (one, two) = (TestNode::start(1).await, TestNode::start(2).await);
        let channel = connect(two.consensus.tls(), 3, &one.addresses.peer).unwrap();
        let envelope = identity(two.id).envelope(3, Bytes::new());
        let refused = PeerServiceClient::new(channel).vote(envelope).await;
        let why = refusal(&refused.unwrap_err()).unwrap();
        assert!(why.contains("of node 1, and not of node 3"), "{why}");
    }

    #[tokio::test]
    async fn a_wiped_node_hears_that_it_is_lost_and_has_no_say_any_more() {
        let (one, two) = (TestNode::start(1).await, TestNode::start(2).await);
        one.ping(&two).await;
        let vote = LeaderId::new(3, one.id);
        memory(&one)
            .record(two.id, process(&two), vote, None)
            .unwrap();
        // The same node, on an empty disk; it does the pinging, as if nobody reached it.
        let wiped = TestNode::start(two.id).await;
        memory(&one).hears_nothing_of(two.id);
        wiped.ping(&one).await;
        assert!(
            !memory(&one).is_lost(two.id),
            "not before it repeats a mark"
        );
        wiped.ping(&one).await;
        assert!(memory(&one).is_lost(two.id));
        let why = wiped.consensus.contact.own_loss().unwrap();
        assert!(why.contains("node 1 remembers"), "{why}");
        wiped.quiet_second_over().await;
        one.quiet_second_over().await;
        let refused = ask_for_vote(&wiped, &one, 5).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert_eq!(refused.message(), why);
        let refused = ask_for_vote(&one, &wiped, 5).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert!(refused.message().contains("node 2 has lost"), "{refused}");
    }

    #[tokio::test]
    async fn an_unverified_process_gets_no_vote_and_a_verified_ones_is_remembered() {
        let (one, two) = (TestNode::start(1).await, TestNode::start(2).await);
        one.quiet_second_over().await;
        let refused = ask_for_vote(&one, &two, 5).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        assert!(refused.message().contains("not verified"), "{refused}");
        one.ping(&two).await;
        ask_for_vote(&one, &two, 5).await.unwrap();
        // Remembered: on an empty disk the node would be lost.
        let wiped = TestNode::start(two.id).await;
        memory(&one).hears_nothing_of(two.id);
        one.ping(&wiped).await;
        let remembered = memory(&one).remembered_of_lost(two.id).unwrap();
        let asked = Position {
            vote: Some(LeaderId::new(5, two.id)),
            last: None,
        };
        assert_eq!(remembered, asked);
    }
}
