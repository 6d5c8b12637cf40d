//! openraft's network: one client for each peer, over gRPC.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use epoch_core::{ClusterId, Incarnation, NodeId};
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
use tonic::transport::{Channel, Endpoint};

use super::contact::Contact;
use super::types::{TypeConfig, Vote, leadership, without_own_leadership};
use crate::clock;
use crate::seed::Addresses;

/// Largest message between nodes: `max_payload_entries` entries of a batch's largest size.
pub(crate) const PEER_MESSAGE_BYTES_MAX: usize = 32 << 20;
/// A partition kills streams without a word: a connection that does not answer for twice this
/// long is made anew.
const PEER_KEEPALIVE: Duration = Duration::from_millis(250);
const PEER_CONNECT_TIMEOUT: Duration = Duration::from_millis(250);
const PING_TIMEOUT: Duration = Duration::from_millis(300);
/// A snapshot of the largest state, over a slow network.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(300);

/// What every peer message says of its sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) cluster_id: ClusterId,
    pub(crate) incarnation: Incarnation,
    pub(crate) group: u32,
    pub(crate) me: NodeId,
}

impl Identity {
    pub(crate) fn envelope(&self, to: NodeId, body: Bytes) -> Envelope {
        Envelope {
            cluster_id: Bytes::copy_from_slice(self.cluster_id.0.as_bytes()),
            incarnation: Bytes::copy_from_slice(self.incarnation.0.as_bytes()),
            group: self.group,
            from: self.me,
            to,
            body,
        }
    }
}

/// Connections to peers, one a peer, shared by all that talk to it.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    identity: Identity,
    contact: Contact,
    channels: Arc<Mutex<BTreeMap<NodeId, (String, Channel)>>>,
}

impl Peers {
    pub(crate) fn new(identity: Identity, contact: Contact) -> Self {
        Self {
            identity,
            contact,
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
    ) -> Result<Channel, tonic::transport::Error> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, channel)) = channels.get(&node)
            && known == address
        {
            return Ok(channel.clone());
        }
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(PEER_CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PEER_KEEPALIVE)
            .keep_alive_timeout(PEER_KEEPALIVE)
            .keep_alive_while_idle(true)
            .connect_lazy();
        channels.insert(node, (address.to_owned(), channel.clone()));
        Ok(channel)
    }

    /// Asks a peer who it is.
    pub(crate) async fn ping(&self, node: NodeId, address: &str) -> Option<PingResponse> {
        let mut client = PeerServiceClient::new(self.channel(node, address).ok()?);
        let envelope = Some(self.identity.envelope(node, Bytes::new()));
        let answer =
            tokio::time::timeout(PING_TIMEOUT, client.ping(PingRequest { envelope })).await;
        match answer.ok()? {
            Ok(answer) => Some(answer.into_inner()).filter(|answer| answer.node == node),
            Err(status) => {
                if status.code() == tonic::Code::PermissionDenied {
                    self.contact.refused(node, status.message());
                }
                None
            }
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
        }
    }
}

/// openraft's way to one peer.
#[derive(Debug)]
pub(crate) struct PeerClient {
    peers: Peers,
    target: NodeId,
    address: String,
}

/// Why a call to a peer gave no answer.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("this leader is silent")]
    Silent,
    #[error("the peer's address does not parse")]
    Address(#[source] tonic::transport::Error),
    #[error("the peer cannot be reached")]
    Status(#[from] Box<tonic::Status>),
    #[error("a message does not encode or decode")]
    Codec(#[from] postcard::Error),
    #[error("the snapshot cannot be read")]
    Snapshot(#[from] std::io::Error),
    #[error("no longer wanted")]
    Cancelled,
    /// Passed on, this would end the leader: the consensus library takes it for a broken promise
    /// of the log, which it is.
    #[error("node {node} has lost its log at or before index {index}: replace it")]
    Lost { node: NodeId, index: u64 },
}

type Call =
    for<'a> fn(
        &'a mut PeerServiceClient<Channel>,
        Envelope,
    )
        -> futures::future::BoxFuture<'a, Result<tonic::Response<Reply>, tonic::Status>>;

impl PeerClient {
    fn client(&self) -> Result<PeerServiceClient<Channel>, CallError> {
        let channel = self
            .peers
            .channel(self.target, &self.address)
            .map_err(CallError::Address)?;
        Ok(PeerServiceClient::new(channel)
            .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX))
    }

    async fn call<A: DeserializeOwned>(
        &self,
        request: &impl Serialize,
        call: Call,
    ) -> Result<A, CallError> {
        let body = Bytes::from(postcard::to_stdvec(request)?);
        let envelope = self.peers.identity.envelope(self.target, body);
        let reply = call(&mut self.client()?, envelope)
            .await
            .map_err(Box::new)?
            .into_inner();
        Ok(postcard::from_bytes(&reply.body)?)
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

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
    ) -> Result<SnapshotResponse<NodeId>, CallError> {
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
        | CallError::Lost { .. } => RPCError::Unreachable(Unreachable::new(&error)),
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
        let first = request.prev_log_id.map(|id| id.index);
        let last = request.entries.last().map(|entry| entry.log_id.index);
        let response = self
            .call(&request, |client, envelope| {
                Box::pin(client.append(envelope))
            })
            .await
            .map_err(rpc_error)?;
        let contact = &self.peers.contact;
        match &response {
            AppendEntriesResponse::HigherVote(vote) => {
                return Ok(AppendEntriesResponse::HigherVote(self.received(*vote)));
            }
            AppendEntriesResponse::Success => {
                if let Some(index) = last.or(first) {
                    contact.matched(leadership, self.target, index);
                }
            }
            AppendEntriesResponse::PartialSuccess(matched) => {
                if let Some(id) = matched {
                    contact.matched(leadership, self.target, id.index);
                }
            }
            AppendEntriesResponse::Conflict => {
                if let Some(index) = first
                    && contact.has_lost(leadership, self.target, index)
                {
                    return Err(rpc_error(CallError::Lost {
                        node: self.target,
                        index,
                    }));
                }
            }
        }
        contact.acknowledged(leadership, self.target, sent);
        Ok(response)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        _option: RPCOption,
    ) -> RpcResult<VoteResponse<NodeId>> {
        let response: VoteResponse<NodeId> = self
            .call(&request, |client, envelope| Box::pin(client.vote(envelope)))
            .await
            .map_err(rpc_error)?;
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
                Ok(result) => result.map_err(streaming_error),
                Err(_elapsed) => Err(streaming_error(CallError::Cancelled)),
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
