//! Getting a snapshot from a peer before the consensus core starts, for a node whose own states
//! are all behind the log's purge point.

use std::collections::BTreeMap;
use std::time::Duration;

use epoch_core::NodeId;
use epoch_proto::raft::peer_service_client::PeerServiceClient;
use epoch_proto::raft::{SnapshotPart, snapshot_part};

use super::identity::Identity;
use super::network::{PEER_MESSAGE_BYTES_MAX, SNAPSHOT_TIMEOUT, connect};
use super::peer_service::receive;
use super::snapshots::{Snapshots, StoredSnapshot};
use super::types::SnapshotMeta;
use crate::seed::Addresses;
use crate::tls::PeerTls;

const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// About every half minute it is said again why there is none yet.
const ROUNDS_BETWEEN_REPORTS: u32 = 6;

/// Why one peer did not give a snapshot.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("its address does not parse")]
    Address(#[from] tonic::transport::Error),
    #[error("{}", .0.message())]
    Status(#[from] Box<tonic::Status>),
    #[error("the request does not encode")]
    Request(#[source] postcard::Error),
    #[error("its first message is not a snapshot's head")]
    Head,
    #[error("its snapshot reaches index {0} only")]
    Behind(u64),
    #[error("not whole within {SNAPSHOT_TIMEOUT:?}")]
    Elapsed,
}

/// The first snapshot that a member gives which reaches index `at_least`: checked whole, and on
/// the disk. Asks the members in turn until one has it, and never gives up by itself.
pub(crate) async fn fetch_snapshot(
    identity: Identity,
    tls: &PeerTls,
    members: &BTreeMap<NodeId, Addresses>,
    snapshots: &Snapshots,
    at_least: u64,
) -> StoredSnapshot {
    let mut reported: BTreeMap<NodeId, String> = BTreeMap::new();
    let mut pause = PAUSE_FIRST;
    let mut round = 0_u32;
    loop {
        round = round.wrapping_add(1);
        if round.is_multiple_of(ROUNDS_BETWEEN_REPORTS) {
            reported.clear();
        }
        let peers = members.iter().filter(|(peer, _)| **peer != identity.me);
        for (peer, addresses) in peers {
            let fetching = fetch_from(identity, tls, *peer, &addresses.peer, snapshots, at_least);
            let fetched = tokio::time::timeout(SNAPSHOT_TIMEOUT, fetching).await;
            let why = match fetched.unwrap_or(Err(FetchError::Elapsed)) {
                Ok(stored) => {
                    tracing::info!(node = identity.me, peer, "snapshot fetched");
                    return stored;
                }
                Err(error) => error.to_string(),
            };
            if reported.get(peer) != Some(&why) {
                tracing::warn!(
                    node = identity.me,
                    peer,
                    why,
                    "no snapshot that reaches index {at_least} from this peer: trying on. One that \
                     has no state itself cannot be connected to"
                );
                reported.insert(*peer, why);
            }
        }
        tokio::time::sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

async fn fetch_from(
    identity: Identity,
    tls: &PeerTls,
    peer: NodeId,
    address: &str,
    snapshots: &Snapshots,
    at_least: u64,
) -> Result<StoredSnapshot, FetchError> {
    let mut client = PeerServiceClient::new(connect(tls, peer, address)?)
        .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX);
    let body = postcard::to_stdvec(&at_least).map_err(FetchError::Request)?;
    let envelope = identity.envelope(peer, body.into());
    let parts = client.fetch_snapshot(envelope).await.map_err(Box::new)?;
    let mut parts = parts.into_inner();
    let Some(SnapshotPart {
        part: Some(snapshot_part::Part::Envelope(head)),
    }) = parts.message().await.map_err(Box::new)?
    else {
        return Err(FetchError::Head);
    };
    identity.check(&head).map_err(Box::new)?;
    let meta: SnapshotMeta = match postcard::take_from_bytes(&head.body) {
        Ok((meta, [])) => meta,
        Ok(_) | Err(_) => return Err(FetchError::Head),
    };
    match meta.last_log_id {
        Some(last) if last.index >= at_least => {}
        last => return Err(FetchError::Behind(last.map_or(0, |last| last.index))),
    }
    let stored = receive(snapshots, &meta, Box::pin(parts)).await;
    Ok(stored.map_err(|error| Box::new(tonic::Status::from(error)))?)
}

#[cfg(test)]
mod tests {
    use super::super::test_node::{TestNode, identity, tls};
    use super::super::types::Position;
    use super::*;

    const ME: NodeId = 3;

    async fn fetch_one(peer: &TestNode, at_least: u64) -> Result<StoredSnapshot, FetchError> {
        let folder = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::open(folder.path()).unwrap();
        let address = &peer.addresses.peer;
        let fetched = fetch_from(
            identity(ME),
            &tls(ME),
            peer.id,
            address,
            &snapshots,
            at_least,
        )
        .await;
        if fetched.is_err() {
            assert!(snapshots.newest().is_none());
            let left = std::fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, 0, "what did not arrive whole leaves nothing");
        }
        fetched
    }

    #[tokio::test]
    async fn the_first_peer_with_a_snapshot_that_reaches_far_enough_gives_it() {
        let (none, far) = (TestNode::start(1).await, TestNode::start(2).await);
        far.make_snapshot(7_000);
        let gone = Addresses {
            peer: "127.0.0.1:1".to_owned(),
            ..Addresses::default()
        };
        let members = BTreeMap::from([
            (none.id, none.addresses.clone()),
            (far.id, far.addresses.clone()),
            (ME, Addresses::default()),
            (0, gone),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::open(folder.path()).unwrap();
        let stored = fetch_snapshot(identity(ME), &tls(ME), &members, &snapshots, 7_000).await;
        assert_eq!(
            stored.meta().last_log_id.map(|last| last.index),
            Some(7_000)
        );
        let (_, applied) = stored.load().unwrap();
        assert_eq!(applied.last_log_id.map(|last| last.index), Some(7_000));
        // It is on the disk.
        let again = Snapshots::open(folder.path()).unwrap();
        let (_, applied) = again.newest().unwrap().load().unwrap();
        assert_eq!(applied.last_log_id.map(|last| last.index), Some(7_000));
    }

    #[tokio::test]
    async fn a_peer_that_gets_its_snapshot_later_is_asked_again() {
        let peer = TestNode::start(1).await;
        let members = BTreeMap::from([(peer.id, peer.addresses.clone())]);
        let folder = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::open(folder.path()).unwrap();
        let tls = tls(ME);
        let fetching = fetch_snapshot(identity(ME), &tls, &members, &snapshots, 5);
        let mut fetching = Box::pin(fetching);
        let early = tokio::time::timeout(PAUSE_FIRST, &mut fetching).await;
        assert!(early.is_err(), "there was none");
        peer.make_snapshot(5);
        let stored = fetching.await;
        assert_eq!(stored.meta().last_log_id.map(|last| last.index), Some(5));
    }

    #[tokio::test]
    async fn a_snapshot_that_does_not_reach_far_enough_is_not_taken() {
        let peer = TestNode::start(1).await;
        peer.make_snapshot(7);
        let refused = fetch_one(&peer, 8).await;
        assert!(matches!(refused, Err(FetchError::Status(_))), "{refused:?}");
        assert!(peer.consensus.snapshots.take_wanted());
    }

    #[tokio::test]
    async fn a_damaged_snapshot_is_not_taken() {
        let peer = TestNode::start(1).await;
        peer.make_snapshot(7);
        peer.damage_snapshot();
        let refused = fetch_one(&peer, 7).await;
        assert!(matches!(refused, Err(FetchError::Status(_))), "{refused:?}");
    }

    #[tokio::test]
    async fn a_node_that_has_lost_its_disk_gives_no_snapshot() {
        let peer = TestNode::start(1).await;
        peer.make_snapshot(7);
        let memory = peer.consensus.contact.memory();
        memory.found_lost(2, &Position::default());
        let refused = fetch_one(&peer, 7).await.unwrap_err();
        assert!(
            refused.to_string().contains("node 2 remembers"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn a_node_of_another_cluster_gives_no_snapshot() {
        let peer = TestNode::start(1).await;
        peer.make_snapshot(7);
        let folder = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::open(folder.path()).unwrap();
        let mut stranger = identity(ME);
        stranger.cluster_id.0 = uuid::Uuid::from_u128(99);
        let address = &peer.addresses.peer;
        let refused = fetch_from(stranger, &tls(ME), peer.id, address, &snapshots, 7).await;
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains("another cluster"), "{refused}");
    }
}
