//! The narrow interface to consensus. Nothing outside this module knows openraft.
//!
//! Architecture invariant: a node leads only by winning an election in this process; it says
//! nothing in its quiet second, and nothing in a leadership that no quorum has acknowledged for
//! 600 ms.
#![expect(
    clippy::result_large_err,
    reason = "the consensus library's own error types"
)]

mod contact;
mod fetch;
mod happenings;
mod hashes;
mod identity;
mod introduction;
mod log_store;
mod machine;
mod memory;
mod network;
mod owner;
mod peer_service;
mod replay;
mod shared;
mod snapshots;
mod tending;
#[cfg(test)]
mod test_node;
mod types;
mod upkeep;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use epoch_core::NodeId;
use epoch_machine::{Batch, ForeignLeadership, Leadership, Outcome, State};
use epoch_proto::raft::Envelope;
use epoch_proto::raft::peer_service_server::PeerServiceServer;
use epoch_store::recovery::{self, Places, RecoverError, Recovered, Recovery};
use epoch_store::{LogOptions, codec};
use openraft::storage::RaftLogStorage as _;
use openraft::{ServerState, SnapshotPolicy};
use tokio::sync::watch;
use tonic::transport::Channel;

use contact::Answer;
pub(crate) use contact::{Contact, QUIET, SILENCE_AFTER};
pub(crate) use happenings::Happenings;
pub(crate) use identity::Identity;
pub(crate) use owner::has_been_served;
pub(crate) use peer_service::PeerServer;
pub(crate) use replay::{Replay, describe_log_id, describe_vote};
pub(crate) use shared::SharedState;

use self::hashes::Hashes;
use self::introduction::Introductions;
use self::log_store::LogStore;
use self::machine::Machine;
use self::memory::{Memory, MemoryError};
pub(crate) use self::network::Line;
use self::network::{PEER_MESSAGE_BYTES_MAX, Peers};
use self::owner::{OwnerCheck, OwnerError};
use self::snapshots::Snapshots;
use self::tending::Tending;
use self::types::{Metrics as RaftMetrics, Position, ProcessId, Proposal, Raft, Vote};
use self::upkeep::Upkeep;
use crate::metrics::Metrics;
use crate::seed::{Addresses, Seed};
use crate::settings::{Storage, Timing};
use crate::tls::{PeerName, PeerTls, TlsError};

/// The one Raft group there is.
pub(crate) const GROUP: u32 = 0;
/// Entries in one append at most: with batches of 256 KiB, below [`PEER_MESSAGE_BYTES_MAX`].
const APPEND_ENTRIES_MAX: u64 = 64;
/// Lets a snapshot of the largest state through.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(300);
/// A proposal or leadership check that takes longer has an unknown outcome: on a deposed leader
/// they can hang for good.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a node's consensus did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Recover(#[from] RecoverError),
    #[error(
        "the log begins after index {purged}, no state on this disk reaches it, and there is no \
         other node to fetch one from: put the files in snapshots back"
    )]
    Alone { purged: u64 },
    #[error("the newest state's log id and membership do not decode: replace the node")]
    Meta(#[from] postcard::Error),
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error("it cannot speak to the other nodes")]
    Tls(#[from] TlsError),
    #[error("what is remembered of the peers cannot be used")]
    Memory(#[from] MemoryError),
    #[error("heartbeat and election times do not fit: {0}")]
    Timing(#[from] openraft::ConfigError),
    #[error("the consensus core does not start: {0}")]
    Core(String),
}

/// Why a batch was not applied, as far as this node knows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// It certainly took no effect.
    #[error("this node does not lead")]
    NotLeader,
    /// It may still take effect.
    #[error("the outcome is unknown")]
    Unknown,
}

/// What the rest of the node sees of consensus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) term: u64,
    /// This node's own leadership, won in an election.
    pub(crate) leading: Option<Leadership>,
    /// The leader, while it is heard.
    pub(crate) leader: Option<NodeId>,
    pub(crate) applied: u64,
    /// Voters and learners with their addresses; before the first entry, those of the seed.
    pub(crate) members: BTreeMap<NodeId, Member>,
    /// Why the core is dead.
    pub(crate) fatal: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) addresses: Addresses,
    pub(crate) voter: bool,
}

/// One node's consensus.
#[derive(Clone)]
pub(crate) struct Consensus {
    raft: Raft,
    contact: Contact,
    peers: Peers,
    introductions: Introductions,
    seed: Arc<Seed>,
    log: LogStore,
    snapshots: Snapshots,
    tending: Arc<tokio::sync::Mutex<Tending>>,
    identity: Identity,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").finish_non_exhaustive()
    }
}

impl Consensus {
    /// Reads what is on the disk and starts the core, which does not campaign before
    /// [`Consensus::set_campaigning`] lets it. `begun` is when this process began.
    ///
    /// Where the states on the disk do not reach the log, a peer's snapshot is fetched first,
    /// however long that takes.
    pub(crate) async fn start(
        folder: &Path,
        seed: Seed,
        timing: Timing,
        storage: Storage,
        metrics: Metrics,
        happenings: Happenings,
        begun: Duration,
    ) -> Result<(Self, SharedState), StartError> {
        let identity = Identity {
            cluster_id: seed.cluster_id,
            incarnation: seed.incarnation,
            group: GROUP,
            me: seed.node,
            process: ProcessId::draw(),
        };
        let owner = OwnerCheck::begin(folder, &seed)?;
        let name = PeerName {
            cluster_id: seed.cluster_id,
            node: seed.node,
        };
        let tls = PeerTls::open(folder, name)?;
        let Recovered {
            log,
            snapshots,
            checkpoint,
            state,
            meta,
            ..
        } = recovered(folder, &seed, identity, &tls, storage).await?;
        let applied = meta.as_ref().map(snapshots::applied_of).transpose()?;
        let log = LogStore::new(log, seed.node, metrics.clone());
        owner.finish(log.was_new(), applied.is_some())?;
        let applied = applied.unwrap_or_default();

        let position = log.position().await;
        let mut start = position.map_err(|error| StartError::Core(error.to_string()))?;
        // A snapshot that was installed just before a crash can be ahead of the log.
        start.last = start.last.max(applied.last_log_id);
        let memory = Memory::open(folder, seed.node, identity.process, start)?;
        let contact = Contact::new(seed.node, memory, begun);
        let hashes = Hashes::new(seed.node);
        let introductions = Introductions::new(contact.clone(), hashes.clone());
        let snapshots = Snapshots::new(snapshots);
        let upkeep = Upkeep::start(checkpoint, contact.clone());
        happenings.skip_to(applied.last_log_id.map_or(0, |id| id.index));
        let state = SharedState::new(state, applied);
        let machine = Machine::new(
            state.clone(),
            snapshots.clone(),
            upkeep.clone(),
            hashes,
            happenings,
            metrics.clone(),
        );
        let peers = Peers::new(
            identity,
            contact.clone(),
            introductions.clone(),
            snapshots.clone(),
            tls,
        );
        let config = Arc::new(config(&seed, timing)?);
        let raft = Raft::new(seed.node, config, peers.clone(), log.clone(), machine)
            .await
            .map_err(|error| StartError::Core(error.to_string()))?;
        let tending = Tending {
            storage,
            raft: raft.clone(),
            log: log.clone(),
            snapshots: snapshots.clone(),
            checkpointed: state.applied().last_log_id.map(|id| id.index),
            state: state.clone(),
            upkeep,
            contact: contact.clone(),
            metrics,
        };
        let seed = Arc::new(seed);
        let consensus = Self {
            raft,
            contact,
            peers,
            introductions,
            seed,
            log,
            snapshots,
            tending: Arc::new(tokio::sync::Mutex::new(tending)),
            identity,
        };
        consensus.contact.set_voters(consensus.view_now().voters());
        Ok((consensus, state))
    }

    /// The service for the peer listener.
    pub(crate) fn peer_service(&self) -> PeerServiceServer<PeerServer> {
        let server = PeerServer {
            identity: self.identity,
            contact: self.contact.clone(),
            introductions: self.introductions.clone(),
            raft: self.raft.clone(),
            snapshots: self.snapshots.clone(),
        };
        PeerServiceServer::new(server)
            .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX)
    }

    /// What a message to another node begins with, without a body.
    pub(crate) fn envelope(&self, to: NodeId) -> Envelope {
        self.identity.envelope(to, Bytes::new())
    }

    /// Whether an envelope is for this node, and from the one of its cluster whose certificate it
    /// came under.
    pub(crate) fn check_from(
        &self,
        sender: Option<&PeerName>,
        envelope: &Envelope,
    ) -> Result<(), tonic::Status> {
        self.identity.check_from(sender, envelope)
    }

    pub(crate) fn contact(&self) -> &Contact {
        &self.contact
    }

    /// What new connections between nodes go by.
    pub(crate) fn tls(&self) -> &PeerTls {
        self.peers.tls()
    }

    /// The channel to a member's peer listener.
    pub(crate) fn channel(
        &self,
        node: NodeId,
        address: &str,
        line: Line,
    ) -> Result<Channel, tonic::transport::Error> {
        self.peers.channel(node, address, line)
    }

    /// Pings one member and keeps its answer.
    pub(crate) async fn ping(&self, node: NodeId, address: &str) {
        if let Some(answer) = self.peers.ping(node, address).await {
            let answer = Answer {
                initialized: answer.initialized,
                has_leader: answer.has_leader,
            };
            self.contact.heard(node, answer);
        }
    }

    /// Keeps what is remembered of the peers on the disk. Never ends.
    pub(crate) async fn keep_memory(&self) {
        self.contact.memory().keep().await;
    }

    /// How things stand.
    pub(crate) fn view_now(&self) -> View {
        self.view(&self.raft.metrics().borrow())
    }

    /// Resolves when something may have changed since the last call on `changes`.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.raft.metrics())
    }

    fn view(&self, metrics: &RaftMetrics) -> View {
        let membership = &metrics.membership_config;
        let voters: std::collections::BTreeSet<_> = membership.voter_ids().collect();
        let mut members: BTreeMap<_, _> = types::members(membership)
            .into_iter()
            .map(|(id, addresses)| {
                (
                    id,
                    Member {
                        addresses,
                        voter: voters.contains(&id),
                    },
                )
            })
            .collect();
        if members.is_empty() {
            let first = self.seed.nodes.iter();
            members.extend(first.map(|(id, addresses)| {
                (
                    *id,
                    Member {
                        addresses: addresses.clone(),
                        voter: true,
                    },
                )
            }));
        }
        View {
            term: metrics.current_term,
            leading: own_leadership(metrics),
            leader: self.named_leader(metrics),
            applied: metrics.last_applied.map_or(0, |id| id.index),
            members,
            fatal: metrics
                .running_state
                .as_ref()
                .err()
                .map(ToString::to_string),
        }
    }

    /// This node's own leadership.
    pub(crate) fn leading(&self) -> Option<Leadership> {
        own_leadership(&self.raft.metrics().borrow())
    }

    /// The leader, while it is heard, and its addresses.
    pub(crate) fn leader(&self) -> Option<(NodeId, Addresses)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let leader = self.named_leader(&metrics)?;
        let node = metrics.membership_config.membership().get_node(&leader)?;
        Some((leader, node.clone()))
    }

    fn named_leader(&self, metrics: &RaftMetrics) -> Option<NodeId> {
        metrics.current_leader.filter(|leader| {
            *leader == metrics.id && own_leadership(metrics).is_some()
                || *leader != metrics.id && self.contact.may_name_leader()
        })
    }

    /// Lets the core campaign or not.
    pub(crate) fn set_campaigning(&self, allowed: bool) {
        self.raft.runtime_config().elect(allowed);
    }

    /// Begins the cluster's log with the seed's voters, unless it has begun.
    pub(crate) async fn initialize_if_new(&self) {
        match self.raft.is_initialized().await {
            Ok(false) => {}
            Ok(true) | Err(_) => return,
        }
        match self.raft.initialize(self.seed.nodes.clone()).await {
            Ok(()) => tracing::info!("cluster initialized"),
            // Another node was first; its entries arrive by replication.
            Err(error) => tracing::debug!(%error, "not initialized here"),
        }
    }

    /// Commits and applies a batch under its own leadership.
    ///
    /// Runs to its end once begun, even if the returned future is dropped.
    pub(crate) async fn write(
        &self,
        batch: &Batch,
    ) -> Result<Result<Vec<Outcome>, ForeignLeadership>, WriteError> {
        if !self.contact.may_speak(batch.leadership) {
            return Err(WriteError::NotLeader);
        }
        let proposal = Proposal(codec::encode_batch(batch));
        let raft = self.raft.clone();
        let writing = tokio::spawn(async move { raft.client_write(proposal).await });
        let Ok(written) = tokio::time::timeout(ANSWER_TIMEOUT, writing).await else {
            return Err(WriteError::Unknown);
        };
        match written {
            // Whatever else stands at the index where ours was, its outcomes are not ours.
            Ok(Ok(response))
                if types::leadership(&response.log_id.leader_id) != batch.leadership =>
            {
                Ok(Err(ForeignLeadership))
            }
            Ok(Ok(response)) => response.data.outcomes.ok_or(WriteError::Unknown),
            // The core refuses before it appends, or after it has cut the entry off its log; it
            // may still be on another node's.
            Ok(Err(_)) | Err(_) => Err(WriteError::Unknown),
        }
    }

    /// Returns once a quorum has confirmed this node's leadership, begun after the call, and all
    /// that was committed before is applied.
    pub(crate) async fn check_leadership(&self, leadership: Leadership) -> Result<(), WriteError> {
        if !self.contact.may_speak(leadership) {
            return Err(WriteError::NotLeader);
        }
        let checking = tokio::time::timeout(ANSWER_TIMEOUT, self.raft.ensure_linearizable());
        match checking.await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return Err(WriteError::NotLeader),
        }
        // The check is the core's; that it was for this leadership, and not for a later one of
        // this node, is ours to see.
        if self.leading() == Some(leadership) && self.contact.may_speak(leadership) {
            Ok(())
        } else {
            Err(WriteError::NotLeader)
        }
    }

    /// Ends this node's leadership, without deposing another leader.
    ///
    /// A leader in this library never campaigns and never steps down by itself, and it refuses
    /// candidates whose log is shorter. So it is shown the lowest vote of the next term: of node
    /// 0, which does not exist, so that it is below the vote of every leader of that term.
    pub(crate) async fn step_down(&self, leadership: Leadership) {
        let Ok(log) = self.log.clone().get_log_state().await else {
            return;
        };
        let vote = Vote::new(leadership.term.saturating_add(1), 0);
        let request = openraft::raft::VoteRequest::new(vote, log.last_log_id);
        if let Err(error) = self.raft.vote(request).await {
            tracing::warn!(%error, "stepping down failed");
        }
    }

    /// Keeps log, snapshots and checkpoint in proportion. Never ends.
    pub(crate) async fn tend(&self) {
        self.tending.lock().await.run().await;
    }

    /// Stops the core.
    pub(crate) async fn stop(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the consensus core did not stop cleanly");
        }
    }
}

/// What is wrong with the folder's owner. Changes nothing.
pub(crate) fn check_owner(folder: &Path, seed: &Seed, log_is_new: bool) -> Result<(), OwnerError> {
    let owner = OwnerCheck::begin(folder, seed)?;
    owner.lacks_owner(log_is_new).map_or(Ok(()), Err)
}

/// Why a node has no say any more, as its folder remembers. Changes nothing.
pub(crate) fn remembered_loss(folder: &Path, node: NodeId) -> Result<Option<String>, MemoryError> {
    let memory = Memory::open(folder, node, ProcessId::draw(), Position::default())?;
    Ok(memory.own_loss())
}

/// Opens all that is stored; with a peer's snapshot, if nothing here reaches the log.
async fn recovered(
    folder: &Path,
    seed: &Seed,
    identity: Identity,
    tls: &PeerTls,
    storage: Storage,
) -> Result<Recovered, StartError> {
    let options = LogOptions {
        segment_bytes_max: storage.log_segment_bytes,
        ..LogOptions::default()
    };
    loop {
        let fresh = State::new(seed.cluster_id, seed.incarnation, GROUP);
        let places = Places::real(folder);
        let recovering =
            tokio::task::spawn_blocking(move || recovery::recover(&places, options, fresh));
        let found = recovering
            .await
            .map_err(|error| StartError::Core(error.to_string()))??;
        let short = match found {
            Recovery::Whole(recovered) => return Ok(*recovered),
            Recovery::Short(short) => short,
        };
        if seed.nodes.len() == 1 {
            return Err(StartError::Alone {
                purged: short.purged,
            });
        }
        tracing::error!(
            node = seed.node,
            newest = short.index,
            purged = short.purged,
            "no state on this disk reaches the log: fetching a peer's snapshot"
        );
        let snapshots = Snapshots::new(short.snapshots);
        fetch::fetch_snapshot(identity, tls, &seed.nodes, &snapshots, short.purged).await;
    }
}

/// See [`Consensus::changes`].
pub(crate) struct Changes(watch::Receiver<RaftMetrics>);

impl Changes {
    /// Waits; returns at once if something changed since the last call.
    pub(crate) async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // The core has ended; its last metrics say so, and nothing changes any more.
            std::future::pending::<()>().await;
        }
    }
}

impl View {
    pub(crate) fn voters(&self) -> std::collections::BTreeSet<NodeId> {
        self.members
            .iter()
            .filter(|(_, member)| member.voter)
            .map(|(id, _)| *id)
            .collect()
    }
}

/// This node's own leadership, won in an election.
fn own_leadership(metrics: &RaftMetrics) -> Option<Leadership> {
    let id = metrics.vote.leader_id();
    let leads = metrics.state == ServerState::Leader
        && metrics.vote.is_committed()
        && id.node_id == metrics.id;
    leads.then(|| types::leadership(id))
}

fn config(seed: &Seed, timing: Timing) -> Result<openraft::Config, openraft::ConfigError> {
    let config = openraft::Config {
        cluster_name: seed.cluster_id.to_string(),
        heartbeat_interval: timing.heartbeat_ms,
        election_timeout_min: timing.election_min_ms,
        election_timeout_max: timing.election_max_ms,
        install_snapshot_timeout: u64::try_from(SNAPSHOT_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
        max_payload_entries: APPEND_ENTRIES_MAX,
        // Snapshots follow the log's bytes, and purging follows the snapshots on the disk.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        purge_batch_size: 1,
        enable_elect: false,
        ..openraft::Config::default()
    };
    config.validate()
}
