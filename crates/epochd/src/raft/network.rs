//! openraft's network: one client for each peer, over gRPC.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use epoch_core::{NodeId, error_chain};
use epoch_machine::Leadership;
use epoch_proto::raft::peer_service_client::PeerServiceClient;
use epoch_proto::raft::{Envelope, PingRequest, PingResponse, Reply, SnapshotPart, snapshot_part};
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use openraft::{OptionalSend, RaftNetwork, RaftNetworkFactory};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::contact::Contact;
use super::identity::Identity;
use super::introduction::{Introductions, decode_position};
use super::memory::Refusal;
use super::snapshots::Snapshots;
use super::types::{LogId, ProcessId, TypeConfig, Vote, leadership, without_own_leadership};
use crate::clock;
use crate::seed::Addresses;
use crate::tls::{self, PeerConnector, PeerTls};

/// Largest message between nodes: `max_payload_entries` entries of a batch's largest size.
pub(crate) const PEER_MESSAGE_BYTES_MAX: usize = 32 << 20;
/// A partition kills streams without a word: a connection that does not answer for twice this
/// long is made anew.
const PEER_KEEPALIVE: Duration = Duration::from_millis(250);
const PING_TIMEOUT: Duration = Duration::from_millis(300);
/// A snapshot of the largest state, over a slow network.
pub(crate) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(300);

/// A channel to the peer listener of `node`, and of nobody else; connects when first used.
///
/// # Errors
/// The address is not one.
pub(crate) fn connect(
    tls: &PeerTls,
    node: NodeId,
    address: &str,
) -> Result<Channel, tonic::transport::Error> {
    let connector = PeerConnector::new(tls.clone(), node);
    // The connector is what makes it TLS.
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .http2_keep_alive_interval(PEER_KEEPALIVE)
        .keep_alive_timeout(PEER_KEEPALIVE)
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(connector))
}

/// What a connection is for. What has to be quick does not share one with what there may be
/// thousands of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Consensus and pings.
    Peer,
    /// Clients' calls that are passed on.
    Calls,
    /// Clients' acquires that wait, and are passed on.
    Waits,
}

/// With the address that they were made for.
type Channels = BTreeMap<(NodeId, Line), (String, Channel)>;

/// Connections to peers, shared by all that talk to them.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    identity: Identity,
    contact: Contact,
    introductions: Introductions,
    snapshots: Snapshots,
    tls: PeerTls,
    channels: Arc<Mutex<Channels>>,
}

impl Peers {
    pub(crate) fn new(
        identity: Identity,
        contact: Contact,
        introductions: Introductions,
        snapshots: Snapshots,
        tls: PeerTls,
    ) -> Self {
        Self {
            identity,
            contact,
            introductions,
            snapshots,
            tls,
            channels: Arc::default(),
        }
    }

    /// The channel to a peer's peer listener; connects when first used.
    ///
    /// # Errors
    /// The address is not one.
    pub(crate) fn channel(
        &self,
        node: NodeId,
        address: &str,
        line: Line,
    ) -> Result<Channel, tonic::transport::Error> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, channel)) = channels.get(&(node, line))
            && known == address
        {
            return Ok(channel.clone());
        }
        let channel = connect(&self.tls, node, address)?;
        channels.insert((node, line), (address.to_owned(), channel.clone()));
        Ok(channel)
    }

    /// Asks a peer who it is, and says who this node is.
    pub(crate) async fn ping(&self, node: NodeId, address: &str) -> Option<PingResponse> {
        let mut client = PeerServiceClient::new(self.channel(node, address, Line::Peer).ok()?);
        let request = PingRequest {
            envelope: Some(self.identity.envelope(node, Bytes::new())),
            introduction: self.introductions.say(node).ok(),
        };
        let answer = tokio::time::timeout(PING_TIMEOUT, client.ping(request)).await;
        match answer.ok()? {
            Ok(answer) => {
                let answer = answer.into_inner();
                if answer.node != node {
                    return None;
                }
                self.hear(&answer);
                Some(answer)
            }
            Err(status) => {
                if status.code() == tonic::Code::PermissionDenied {
                    self.contact.refused(node, status.message());
                } else if let Some(why) = tls::refusal(&status) {
                    self.contact.refused(node, &why);
                }
                None
            }
        }
    }

    /// What new connections between nodes go by.
    pub(crate) fn tls(&self) -> &PeerTls {
        &self.tls
    }

    fn hear(&self, answer: &PingResponse) {
        let process = ProcessId(answer.process);
        let introduction = answer.introduction.as_ref();
        if let Err(error) = self.introductions.hear(answer.node, process, introduction) {
            tracing::debug!(peer = answer.node, %error, "an introduction does not parse");
        }
        let remembered = answer.remembered.as_deref().map(decode_position);
        if let Some(Ok(remembered)) = remembered {
            self.contact.memory().found_lost(answer.node, &remembered);
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = PeerClient;

    async fn new_client(&mut self, target: NodeId, node: &Addresses) -> PeerClient {
        PeerClient {
            peers: self.clone(),
            target,
            address: node.peer.clone(),
            failing: None,
        }
    }
}

/// openraft's way to one peer.
#[derive(Debug)]
pub(crate) struct PeerClient {
    peers: Peers,
    target: NodeId,
    address: String,
    /// Why the last snapshot was not sent, reported once.
    failing: Option<String>,
}

/// Why a call to a peer gave no answer.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("this leader is silent")]
    Silent,
    #[error("the peer's address does not parse")]
    Address(#[source] tonic::transport::Error),
    #[error("the peer cannot be reached")]
    Status(#[from] Box<Status>),
    #[error("a message does not encode or decode")]
    Codec(#[from] postcard::Error),
    #[error("the snapshot cannot be read")]
    Snapshot(#[from] std::io::Error),
    #[error("no longer wanted")]
    Cancelled,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("this node has lost what it had acknowledged")]
    OwnLoss,
}

/// The end of the log that an append speaks of.
pub(crate) fn last_log_id(request: &AppendEntriesRequest<TypeConfig>) -> Option<LogId> {
    let last = request.entries.last().map(|entry| entry.log_id);
    last.or(request.prev_log_id)
}

type Call = for<'a> fn(
    &'a mut PeerServiceClient<Channel>,
    Envelope,
) -> futures::future::BoxFuture<'a, Result<tonic::Response<Reply>, Status>>;

impl PeerClient {
    fn client(&self) -> Result<PeerServiceClient<Channel>, CallError> {
        let channel = self
            .peers
            .channel(self.target, &self.address, Line::Peer)
            .map_err(CallError::Address)?;
        Ok(PeerServiceClient::new(channel)
            .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX))
    }

    async fn call<A: DeserializeOwned>(
        &self,
        request: &impl Serialize,
        call: Call,
    ) -> Result<(A, ProcessId), CallError> {
        self.reachable()?;
        let body = Bytes::from(postcard::to_stdvec(request)?);
        let envelope = self.peers.identity.envelope(self.target, body);
        let reply = call(&mut self.client()?, envelope)
            .await
            .map_err(Box::new)?
            .into_inner();
        Ok((postcard::from_bytes(&reply.body)?, ProcessId(reply.process)))
    }

    /// Nothing is said to a node that has lost what it had acknowledged, nor by one.
    fn reachable(&self) -> Result<(), CallError> {
        let memory = self.peers.contact.memory();
        if memory.is_own_loss() {
            Err(CallError::OwnLoss)
        } else if memory.is_lost(self.target) {
            Err(Refusal::Lost(self.target).into())
        } else {
            Ok(())
        }
    }

    /// The leadership under which `vote` speaks, if this node may speak under it.
    fn speaking(&self, vote: &Vote) -> Result<Leadership, CallError> {
        let leadership = leadership(vote.leader_id());
        if self.peers.contact.may_speak(leadership) {
            Ok(leadership)
        } else {
            Err(CallError::Silent)
        }
    }

    fn received(&self, vote: Vote) -> Vote {
        without_own_leadership(vote, self.peers.identity.me)
    }

    /// Takes in what the answer to an append says of the peer's log.
    fn remember(
        &self,
        request: &AppendEntriesRequest<TypeConfig>,
        response: &AppendEntriesResponse<NodeId>,
        process: ProcessId,
    ) -> Result<(), Refusal> {
        let memory = self.peers.contact.memory();
        let (peer, vote) = (self.target, *request.vote.leader_id());
        match response {
            AppendEntriesResponse::Success => {
                memory.record(peer, process, vote, last_log_id(request))
            }
            AppendEntriesResponse::PartialSuccess(matched) => {
                memory.record(peer, process, vote, *matched)
            }
            AppendEntriesResponse::Conflict => match request.prev_log_id {
                Some(prev) => memory.lacks(peer, process, vote, prev.index),
                None => memory.admit(peer, process),
            },
            AppendEntriesResponse::HigherVote(_) => memory.admit(peer, process),
        }
    }

    /// A snapshot could not be sent: it is tried again and again, so it is said once.
    fn not_sent(&mut self, error: CallError) -> StreamingError<TypeConfig, Fatal<NodeId>> {
        let is_bad = match &error {
            CallError::Snapshot(_) => true,
            CallError::Status(status) => status.code() == tonic::Code::DataLoss,
            _ => false,
        };
        if is_bad {
            self.peers.snapshots.want_another();
        }
        // That it is away is reported elsewhere.
        let is_away = match &error {
            CallError::Status(status) => status.code() == tonic::Code::Unavailable,
            _ => false,
        };
        let why = error_chain(&error);
        if !is_away && self.failing.as_ref() != Some(&why) {
            tracing::warn!(
                node = self.peers.identity.me,
                peer = self.target,
                why,
                "a snapshot was not sent: trying on"
            );
            self.failing = Some(why);
        }
        streaming_error(error)
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
    ) -> Result<SnapshotResponse<NodeId>, CallError> {
        self.reachable()?;
        let last = snapshot.meta.last_log_id;
        let body = Bytes::from(postcard::to_stdvec(&(vote, &snapshot.meta))?);
        let envelope = self.peers.identity.envelope(self.target, body);
        let first = SnapshotPart {
            part: Some(snapshot_part::Part::Envelope(envelope)),
        };
        let (parts, receiver) = tokio::sync::mpsc::channel(4);
        let contact = self.peers.contact.clone();
        let leadership = leadership(vote.leader_id());
        let reading = tokio::task::spawn_blocking(move || -> Result<(), CallError> {
            let gone = |_| CallError::Cancelled;
            parts.blocking_send(first).map_err(gone)?;
            for data in snapshot.snapshot.chunks()? {
                if !contact.may_speak(leadership) {
                    return Err(CallError::Silent);
                }
                let part = SnapshotPart {
                    part: Some(snapshot_part::Part::Data(data?)),
                };
                parts.blocking_send(part).map_err(gone)?;
            }
            Ok(())
        });
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let answer = self.client()?.install_snapshot(stream).await;
        // A reading that failed says more than the stream it cut off.
        if let Ok(Err(error @ (CallError::Snapshot(_) | CallError::Silent))) = reading.await {
            return Err(error);
        }
        let reply = answer.map_err(Box::new)?.into_inner();
        let response: SnapshotResponse<NodeId> = postcard::from_bytes(&reply.body)?;
        let process = ProcessId(reply.process);
        let memory = self.peers.contact.memory();
        if response.vote.leader_id() == vote.leader_id() {
            memory.record(self.target, process, *vote.leader_id(), last)?;
        } else {
            memory.admit(self.target, process)?;
        }
        Ok(SnapshotResponse {
            vote: self.received(response.vote),
        })
    }
}

type RpcResult<T> = Result<T, RPCError<NodeId, Addresses, RaftError<NodeId>>>;

fn rpc_error(error: CallError) -> RPCError<NodeId, Addresses, RaftError<NodeId>> {
    match error {
        // What is called a network error is sent again at once: thousands of times a second to
        // a peer that is down.
        CallError::Silent
        | CallError::Address(_)
        | CallError::Status(_)
        | CallError::Refused(_)
        | CallError::OwnLoss => RPCError::Unreachable(Unreachable::new(&error)),
        CallError::Codec(_) | CallError::Snapshot(_) | CallError::Cancelled => {
            RPCError::Network(NetworkError::new(&error))
        }
    }
}

impl RaftNetwork<TypeConfig> for PeerClient {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<NodeId>> {
        let leadership = self.speaking(&request.vote).map_err(rpc_error)?;
        let sent = clock::boot();
        let (response, process) = self
            .call(&request, |client, envelope| {
                Box::pin(client.append(envelope))
            })
            .await
            .map_err(rpc_error)?;
        // Before the consensus library counts it.
        self.remember(&request, &response, process)
            .map_err(|refusal| rpc_error(refusal.into()))?;
        if let AppendEntriesResponse::HigherVote(vote) = response {
            return Ok(AppendEntriesResponse::HigherVote(self.received(vote)));
        }
        let contact = &self.peers.contact;
        contact.acknowledged(leadership, self.target, sent);
        Ok(response)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        _option: RPCOption,
    ) -> RpcResult<VoteResponse<NodeId>> {
        let (response, process): (VoteResponse<NodeId>, _) = self
            .call(&request, |client, envelope| Box::pin(client.vote(envelope)))
            .await
            .map_err(rpc_error)?;
        let memory = self.peers.contact.memory();
        let counts = if response.vote_granted {
            memory.record(self.target, process, *response.vote.leader_id(), None)
        } else {
            memory.admit(self.target, process)
        };
        counts.map_err(|refusal| rpc_error(refusal.into()))?;
        Ok(VoteResponse {
            vote: self.received(response.vote),
            ..response
        })
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<TypeConfig, Fatal<NodeId>>> {
        self.speaking(&vote).map_err(streaming_error)?;
        let sending = tokio::time::timeout(SNAPSHOT_TIMEOUT, self.send_snapshot(vote, snapshot));
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = sending => match sent {
                Ok(Ok(response)) => {
                    self.failing = None;
                    Ok(response)
                }
                Ok(Err(error)) => Err(self.not_sent(error)),
                Err(_elapsed) => Err(self.not_sent(CallError::Cancelled)),
            },
        }
    }

    fn backoff(&self) -> Backoff {
        const BACKOFF: Duration = Duration::from_millis(60);
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}

fn streaming_error(error: CallError) -> StreamingError<TypeConfig, Fatal<NodeId>> {
    StreamingError::Unreachable(Unreachable::new(&error))
}

#[cfg(test)]
mod tests {
    use super::super::test_node::TestNode;
    use super::super::types::LeaderId;
    use super::*;

    /// Two nodes past their quiet second that have verified each other, and the way from the
    /// first to the other.
    async fn two() -> (TestNode, TestNode, PeerClient) {
        let (one, two) = (TestNode::start(1).await, TestNode::start(2).await);
        one.ping(&two).await;
        one.ping(&two).await;
        for node in [&one, &two] {
            node.quiet_second_over().await;
        }
        let mut peers = one.consensus.peers.clone();
        let client = peers.new_client(two.id, &two.addresses).await;
        (one, two, client)
    }

    async fn append(
        client: &mut PeerClient,
        prev: Option<LogId>,
    ) -> RpcResult<AppendEntriesResponse<NodeId>> {
        let request = AppendEntriesRequest {
            vote: Vote::new_committed(1, 1),
            prev_log_id: prev,
            entries: Vec::new(),
            leader_commit: None,
        };
        let option = RPCOption::new(Duration::from_secs(1));
        client.append_entries(request, option).await
    }

    #[tokio::test]
    async fn an_acknowledgement_is_remembered_when_it_is_counted() {
        let (one, two, mut client) = two().await;
        let answer = append(&mut client, None).await.unwrap();
        assert_eq!(answer, AppendEntriesResponse::Success);
        // On an empty disk the node would be lost.
        let wiped = TestNode::start(two.id).await;
        let memory = one.consensus.contact.memory();
        memory.hears_nothing_of(two.id);
        one.ping(&wiped).await;
        let remembered = memory.remembered_of_lost(two.id).unwrap();
        assert_eq!(remembered.vote, Some(LeaderId::new(1, 1)));
        // What it would say now is not asked for.
        let refused = append(&mut client, None).await.unwrap_err();
        assert!(matches!(refused, RPCError::Unreachable(_)), "{refused}");
        assert!(refused.to_string().contains("node 2 has lost"), "{refused}");
    }

    #[tokio::test]
    async fn an_answer_of_a_process_that_is_not_verified_is_none() {
        let (one, two, _) = two().await;
        // The same node again, honestly: it knows this one, and is not known yet.
        let again = TestNode::start(two.id).await;
        again.ping(&one).await;
        let memory = again.consensus.contact.memory();
        let process = one.consensus.contact.memory().process();
        assert_eq!(memory.admit(one.id, process), Ok(()));
        again.quiet_second_over().await;
        let mut peers = one.consensus.peers.clone();
        let mut client = peers.new_client(two.id, &again.addresses).await;
        let refused = append(&mut client, None).await.unwrap_err();
        assert!(matches!(refused, RPCError::Unreachable(_)), "{refused}");
        assert!(refused.to_string().contains("not verified"), "{refused}");
    }

    #[tokio::test]
    async fn a_conflict_below_what_was_acknowledged_never_reaches_the_core() {
        let (one, two, mut client) = two().await;
        append(&mut client, None).await.unwrap();
        let last = LogId::new(LeaderId::new(1, 1), 10);
        let later = LogId::new(LeaderId::new(1, 1), 11);
        let memory = one.consensus.contact.memory();
        let process = two.consensus.contact.memory().process();
        memory
            .record(two.id, process, last.leader_id, Some(last))
            .unwrap();
        let answer = append(&mut client, Some(later)).await.unwrap();
        assert_eq!(answer, AppendEntriesResponse::Conflict, "an ordinary one");
        let refused = append(&mut client, Some(last)).await.unwrap_err();
        assert!(refused.to_string().contains("node 2 has lost"), "{refused}");
        assert!(memory.is_lost(two.id));
    }

    #[tokio::test]
    async fn a_node_that_has_lost_its_disk_sends_nothing() {
        let (one, _two, mut client) = two().await;
        let memory = one.consensus.contact.memory();
        memory.found_lost(2, &super::super::types::Position::default());
        let request = VoteRequest::new(Vote::new(5, 1), None);
        let option = RPCOption::new(Duration::from_secs(1));
        let refused = client.vote(request, option).await.unwrap_err();
        assert!(
            refused.to_string().contains("this node has lost"),
            "{refused}"
        );
        let refused = append(&mut client, None).await.unwrap_err();
        assert!(matches!(refused, RPCError::Unreachable(_)), "{refused}");
    }
}
