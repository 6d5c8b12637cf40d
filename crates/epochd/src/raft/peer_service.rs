//! The peer listener: what other nodes may ask of this one.

use std::pin::Pin;

use bytes::Bytes;
use epoch_machine::PublicKey;
use epoch_proto::raft::peer_service_server::PeerService;
use epoch_proto::raft::{Envelope, PingRequest, PingResponse, Reply, SnapshotPart, snapshot_part};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use openraft::storage::Snapshot;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::contact::Contact;
use super::network::Identity;
use super::snapshots::Snapshots;
use super::types::{Raft, SnapshotMeta, TypeConfig, Vote, without_own_leadership};

/// Serves peers.
#[derive(Clone)]
pub(crate) struct PeerServer {
    pub(crate) identity: Identity,
    pub(crate) contact: Contact,
    pub(crate) raft: Raft,
    pub(crate) snapshots: Snapshots,
    pub(crate) public_key: PublicKey,
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

fn reply(value: &impl Serialize) -> Result<Response<Reply>, Status> {
    let body = postcard::to_stdvec(value)
        .map_err(|error| Status::internal(format!("the answer does not encode: {error}")))?;
    Ok(Response::new(Reply {
        body: Bytes::from(body),
    }))
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
    /// The body of an envelope that is meant for this node, once it may answer.
    fn open(&self, envelope: Option<Envelope>) -> Result<Bytes, Status> {
        let body = self.check(envelope)?;
        match self.contact.quiet_left() {
            None => Ok(body),
            Some(_) => Err(Status::unavailable("quiet: the process has just started")),
        }
    }

    fn check(&self, envelope: Option<Envelope>) -> Result<Bytes, Status> {
        let refused = |what: &str| {
            Err(Status::permission_denied(format!(
                "this node is of another {what}"
            )))
        };
        let Some(envelope) = envelope else {
            return Err(Status::invalid_argument("no envelope"));
        };
        if *envelope.cluster_id != *self.identity.cluster_id.0.as_bytes() {
            return refused("cluster");
        }
        if *envelope.incarnation != *self.identity.incarnation.0.as_bytes() {
            return refused("incarnation");
        }
        if envelope.group != self.identity.group {
            return refused("group");
        }
        if envelope.to != self.identity.me {
            return refused("node id");
        }
        Ok(envelope.body)
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
        let body = self.open(Some(request.into_inner()))?;
        let mut append: AppendEntriesRequest<TypeConfig> = decode(&body)?;
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
        reply(&response)
    }

    async fn vote(&self, request: Request<Envelope>) -> Result<Response<Reply>, Status> {
        let body = self.open(Some(request.into_inner()))?;
        let mut vote: VoteRequest<_> = decode(&body)?;
        vote.vote = self.received(vote.vote);
        let raft = self.raft.clone();
        let response =
            run(async move { raft.vote(vote).await.map_err(|error| raft_status(&error)) }).await?;
        reply(&response)
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotPart>>,
    ) -> Result<Response<Reply>, Status> {
        let mut parts: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(request.into_inner());
        let Some(SnapshotPart {
            part: Some(snapshot_part::Part::Envelope(envelope)),
        }) = parts.next().await.transpose()?
        else {
            return Err(Status::invalid_argument(
                "the first part must be the envelope",
            ));
        };
        let body = self.open(Some(envelope))?;
        let (vote, meta): (Vote, SnapshotMeta) = decode(&body)?;
        let vote = self.received(vote);
        let (raft, snapshots) = (self.raft.clone(), self.snapshots.clone());
        let response = run(async move {
            let stored = receive(&snapshots, &meta, parts).await?;
            let snapshot = Snapshot {
                meta,
                snapshot: Box::new(stored),
            };
            let installed = raft.install_full_snapshot(vote, snapshot).await;
            installed.map_err(|error| raft_status(&error))
        })
        .await?;
        reply(&response)
    }

    async fn ping(&self, request: Request<PingRequest>) -> Result<Response<PingResponse>, Status> {
        self.check(request.into_inner().envelope)?;
        let initialized = self.raft.is_initialized().await;
        Ok(Response::new(PingResponse {
            node: self.identity.me,
            public_key: Bytes::copy_from_slice(&self.public_key),
            initialized: initialized.map_err(|error| raft_status(&error))?,
            has_leader: self.contact.has_leader() || self.leads(),
        }))
    }
}

/// Takes a snapshot in; it is on the disk, every byte checked, before openraft hears of it.
async fn receive(
    snapshots: &Snapshots,
    meta: &SnapshotMeta,
    mut parts: Pin<Box<dyn Stream<Item = Result<SnapshotPart, Status>> + Send>>,
) -> Result<super::snapshots::StoredSnapshot, Status> {
    let failed = |error: &dyn std::fmt::Display| Status::internal(format!("snapshot: {error}"));
    let mut incoming = snapshots.receive().map_err(|error| failed(&error))?;
    while let Some(part) = parts.next().await {
        let Some(snapshot_part::Part::Data(data)) = part?.part else {
            return Err(Status::invalid_argument(
                "an envelope in the middle of a snapshot",
            ));
        };
        incoming = tokio::task::spawn_blocking(move || incoming.push(&data).map(|()| incoming))
            .await
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))?;
    }
    let meta = meta.clone();
    tokio::task::spawn_blocking(move || incoming.finish(&meta))
        .await
        .map_err(|error| failed(&error))?
        .map_err(|error| failed(&error))
}
