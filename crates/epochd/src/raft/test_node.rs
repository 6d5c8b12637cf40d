//! Nodes of one cluster in one process: consensus and a peer listener, nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use epoch_core::{ClusterId, Incarnation, NodeId};
use epoch_machine::State;
use tempfile::TempDir;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::Consensus;
use super::identity::Identity;
use super::types::{AppliedMeta, LeaderId, LogId, ProcessId, StoredMembership};
use crate::connections::Connections;
use crate::first_trust::FirstTrust;
use crate::init::PeerCa;
use crate::metrics::Metrics;
use crate::raft::Happenings;
use crate::seed::{Addresses, Seed};
use crate::settings::{Storage, Timing};
use crate::tls::{PeerCertificates, PeerName, PeerTls, incoming};
use crate::watch::Watches;

const CLUSTER: ClusterId = ClusterId(Uuid::from_u128(1));
const INCARNATION: Incarnation = Incarnation(Uuid::from_u128(2));
const NODES: NodeId = 3;

/// As one of the nodes would say it of itself.
pub(super) fn identity(me: NodeId) -> Identity {
    Identity {
        cluster_id: CLUSTER,
        incarnation: INCARNATION,
        group: 0,
        me,
        process: ProcessId::draw(),
    }
}

/// The certificates of the node `id`, in its data folder.
fn certify(id: NodeId, folder: &Path) {
    static PEERS: OnceLock<PeerCertificates> = OnceLock::new();
    let peers = PEERS.get_or_init(|| {
        let out = tempfile::tempdir().unwrap();
        PeerCertificates::begin(out.path(), CLUSTER, &PeerCa::default()).unwrap()
    });
    peers.write(id, folder).unwrap();
}

/// As which the node `id` connects, and is connected to.
pub(super) fn tls(id: NodeId) -> PeerTls {
    let folder = tempfile::tempdir().unwrap();
    certify(id, folder.path());
    let name = PeerName {
        cluster_id: CLUSTER,
        node: id,
    };
    PeerTls::open(folder.path(), name).unwrap()
}

pub(super) struct TestNode {
    pub(super) id: NodeId,
    pub(super) consensus: Consensus,
    pub(super) addresses: Addresses,
    folder: TempDir,
}

impl TestNode {
    /// A node on an empty disk, in its quiet second.
    pub(super) async fn start(id: NodeId) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certify(id, folder.path());
        let nodes: BTreeMap<_, _> = (1..=NODES).map(|id| (id, Addresses::default())).collect();
        let trust = FirstTrust::of_test(CLUSTER, INCARNATION, nodes.keys().copied());
        let seed = Seed::new(id, nodes, &trust);
        let timing = Timing {
            heartbeat_ms: 60,
            election_min_ms: 300,
            election_max_ms: 600,
        };
        let storage = Storage {
            snapshot_log_bytes: None,
            log_segment_bytes: 1 << 20,
        };
        let (happenings, _) = Happenings::new(Watches::default());
        let started = Consensus::start(
            folder.path(),
            seed,
            timing,
            storage,
            Metrics::new(id),
            happenings,
            crate::clock::boot(),
        )
        .await;
        let (consensus, _) = started.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = Addresses {
            peer: listener.local_addr().unwrap().to_string(),
            ..Addresses::default()
        };
        let terms = consensus.tls().clone();
        let metrics = Metrics::new(id);
        let connections = Connections::new(metrics.peer_connections);
        let incoming = incoming(listener, terms, connections, metrics.handshakes_failed);
        let serving = tonic::transport::Server::builder()
            .add_service(consensus.peer_service())
            .serve_with_incoming(incoming);
        tokio::spawn(serving);
        Self {
            id,
            consensus,
            addresses,
            folder,
        }
    }

    pub(super) async fn quiet_second_over(&self) {
        while let Some(left) = self.consensus.contact.quiet_left() {
            tokio::time::sleep(left).await;
        }
    }

    pub(super) async fn ping(&self, other: &Self) {
        self.consensus.ping(other.id, &other.addresses.peer).await;
    }

    /// Gives it a snapshot, of an empty state, that reaches `index`.
    pub(super) fn make_snapshot(&self, index: u64) {
        let applied = AppliedMeta {
            last_log_id: Some(LogId::new(LeaderId::new(1, 1), index)),
            membership: StoredMembership::default(),
        };
        let state = State::new(CLUSTER, INCARNATION, 0);
        let snapshots = &self.consensus.snapshots;
        snapshots.write(&state, applied, &mut || ()).unwrap();
    }

    /// Flips a bit in the middle of its snapshot.
    pub(super) fn damage_snapshot(&self) {
        let folder = self.folder.path().join("snapshots");
        let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
        let mut bytes = std::fs::read(file.path()).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(file.path(), bytes).unwrap();
    }
}
