//! Which changes the checkpoint gets, over snapshots, installs and starts.

use std::path::Path;

use epoch_core::{ClusterId, Holder, Incarnation, OpenId};
use epoch_machine::{Batch, Command, Leadership, State, Ttl};
use epoch_store::LogOptions;
use epoch_store::checkpoint::{Base, Chain};
use epoch_store::recovery::{Places, Recovery, Source, recover};
use openraft::RaftSnapshotBuilder as _;
use openraft::storage::RaftStateMachine as _;
use uuid::Uuid;

use super::super::hashes::Hashes;
use super::super::identity::Identity;
use super::super::machine::{Builder, Machine};
use super::super::memory::Memory;
use super::super::snapshots::applied_of;
use super::super::test_node::identity;
use super::super::types::{LeaderId, LogId};
use super::*;
use crate::metrics::Metrics;

/// A node's state with its disk, without consensus.
struct Node {
    state: SharedState,
    snapshots: Snapshots,
    upkeep: Upkeep,
    machine: Machine,
    source: Source,
}

fn fresh() -> State {
    State::new(
        ClusterId(Uuid::from_u128(1)),
        Incarnation(Uuid::from_u128(2)),
        0,
    )
}

impl Node {
    fn start(folder: &Path) -> Self {
        let Recovery::Whole(found) =
            recover(&Places::real(folder), LogOptions::default(), fresh()).unwrap()
        else {
            panic!("the log reaches further than every state")
        };
        let applied = found.meta.as_ref().map(applied_of).transpose().unwrap();
        let Identity { me, process, .. } = identity(1);
        let memory = Memory::open(
            folder,
            me,
            process,
            super::super::types::Position::default(),
        );
        let contact = Contact::new(me, memory.unwrap(), clock::boot());
        let state = SharedState::new(found.state, applied.unwrap_or_default());
        let snapshots = Snapshots::new(found.snapshots);
        let upkeep = Upkeep::start(found.checkpoint, contact);
        let machine = Machine::new(
            state.clone(),
            snapshots.clone(),
            upkeep.clone(),
            Hashes::new(me),
            crate::raft::Happenings::new(crate::watch::Watches::default()).0,
            Metrics::new(me),
        );
        Self {
            state,
            snapshots,
            upkeep,
            machine,
            source: found.source,
        }
    }

    /// Opens sessions, one in each entry.
    fn apply_to(&self, last: u64) {
        let mut replicated = self.state.write();
        let first = replicated.applied.last_log_id.map_or(0, |id| id.index + 1);
        for index in first..=last {
            let leadership = Leadership { term: 1, node: 1 };
            let batch = Batch {
                leadership,
                wall_ms: 1_700_000_000_000 + index,
                commands: vec![Command::Open {
                    open_id: OpenId(Uuid::from_u128(index.into())),
                    holder: Holder::parse("agent").unwrap(),
                    ttl: Ttl::from_ms(10_000).unwrap(),
                    stall_limit: None,
                    principal: None,
                    holder_key: None,
                }],
            };
            let place = epoch_machine::Entry { leadership, index };
            epoch_machine::apply(&mut replicated.state, place, &batch).unwrap();
            replicated.applied.last_log_id = Some(LogId::new(LeaderId::new(1, 1), index));
        }
    }

    fn save(&self) -> oneshot::Receiver<(Option<Saved>, Option<Chain>)> {
        let (upkeep, snapshots) = (self.upkeep.clone(), self.snapshots.clone());
        self.upkeep
            .run(&self.state, move |frozen, checkpoint, pace| {
                let saved = upkeep.save(&frozen, &snapshots, checkpoint, pace);
                (saved, checkpoint.chain())
            })
    }

    async fn builder(&mut self) -> Builder {
        self.machine.get_snapshot_builder().await
    }

    async fn snapshot(&mut self) {
        self.builder().await.build_snapshot().await.unwrap();
    }

    async fn assert_begins(&self, base: Option<u64>, index: u64) {
        let (saved, chain) = self.save().await.unwrap();
        assert!(matches!(saved, Some(Saved::Begun { .. })), "{saved:?}");
        assert_chain(chain, base, index);
    }

    async fn assert_goes_on(&self, base: Option<u64>, index: u64) {
        let (saved, chain) = self.save().await.unwrap();
        assert!(matches!(saved, Some(Saved::Appended { .. })), "{saved:?}");
        assert_chain(chain, base, index);
    }

    /// Starts again, and finds the same state.
    fn restart(self, folder: &Path, source: Source, index: u64) -> Self {
        let hash = self.state.read().hash();
        drop(self);
        let node = Self::start(folder);
        assert_eq!(node.source, source);
        let last = node.state.applied().last_log_id;
        assert_eq!(last.map(|id| id.index), Some(index));
        assert_eq!(node.state.read().hash(), hash);
        node
    }
}

fn assert_chain(chain: Option<Chain>, base: Option<u64>, index: u64) {
    let base = base.map(|index| Base { index, term: 1 });
    assert_eq!(chain, Some(Chain { base, index }));
}

#[tokio::test]
async fn chains_go_on_over_starts_and_begin_at_each_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path());
    assert_eq!(node.save().await.unwrap(), (None, None));
    node.apply_to(10);
    node.assert_begins(None, 10).await;
    node.apply_to(20);
    node.assert_goes_on(None, 20).await;

    let mut node = node.restart(folder.path(), Source::Checkpoint, 20);
    node.apply_to(30);
    // Saves what came before it, too.
    node.snapshot().await;
    node.apply_to(40);
    node.assert_begins(Some(30), 40).await;
    node.apply_to(50);
    node.snapshot().await;

    let node = node.restart(folder.path(), Source::Snapshot, 50);
    node.apply_to(60);
    node.assert_begins(Some(50), 60).await;
    let node = node.restart(folder.path(), Source::Checkpoint, 60);
    node.apply_to(70);
    node.assert_goes_on(Some(50), 70).await;
    node.restart(folder.path(), Source::Checkpoint, 70);
}

#[tokio::test]
async fn a_start_from_a_snapshot_alone_begins_a_chain_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::start(folder.path());
    node.apply_to(10);
    node.snapshot().await;
    let node = node.restart(folder.path(), Source::Snapshot, 10);
    drop(node.save().await);
    drop(node);
    std::fs::remove_dir_all(folder.path().join("checkpoint")).unwrap();
    let node = Node::start(folder.path());
    assert_eq!(node.source, Source::Snapshot);
    node.apply_to(20);
    node.assert_begins(Some(10), 20).await;
    node.restart(folder.path(), Source::Checkpoint, 20);
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_a_chain_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::start(folder.path());
    node.apply_to(10);
    node.assert_begins(None, 10).await;
    node.apply_to(20);
    // No folder can be made where there is a file.
    let snapshots = folder.path().join("snapshots");
    std::fs::write(&snapshots, "in the way").unwrap();
    node.builder().await.build_snapshot().await.unwrap_err();
    std::fs::remove_file(&snapshots).unwrap();
    node.apply_to(30);
    node.assert_goes_on(None, 30).await;
    node.restart(folder.path(), Source::Checkpoint, 30);
}

#[tokio::test]
async fn a_snapshot_from_the_leader_begins_another_chain_once_it_is_installed() {
    let others = tempfile::tempdir().unwrap();
    let mut leader = Node::start(others.path());
    leader.apply_to(100);
    leader.snapshot().await;
    let sent = leader.snapshots.newest().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::start(folder.path());
    node.apply_to(10);
    node.assert_begins(None, 10).await;
    let mut incoming = node.snapshots.receive().unwrap();
    for chunk in sent.chunks().unwrap() {
        incoming.push(&chunk.unwrap()).unwrap();
    }
    let received = incoming.finish(&sent.meta()).unwrap();
    node.apply_to(20);
    node.assert_goes_on(None, 20).await;
    let meta = received.meta();
    let installed = node.machine.install_snapshot(&meta, Box::new(received));
    installed.await.unwrap();
    node.apply_to(110);
    node.assert_begins(Some(100), 110).await;
    node.restart(folder.path(), Source::Checkpoint, 110);
}

#[tokio::test]
async fn states_are_saved_in_the_order_in_which_they_were_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::start(folder.path());
    node.apply_to(10);
    node.assert_begins(None, 10).await;
    // The thread is busy while all of this is asked for.
    let (release, wait) = mpsc::channel::<()>();
    let busy = node
        .upkeep
        .run(&node.state, move |_, _, _| wait.recv().is_ok());
    node.apply_to(20);
    let first = node.save();
    node.apply_to(30);
    let mut builder = node.builder().await;
    node.apply_to(40);
    let second = node.save();
    release.send(()).unwrap();
    assert!(busy.await.unwrap());
    assert_chain(first.await.unwrap().1, None, 20);
    builder.build_snapshot().await.unwrap();
    assert_chain(second.await.unwrap().1, Some(30), 40);
    node.restart(folder.path(), Source::Checkpoint, 40);
}
