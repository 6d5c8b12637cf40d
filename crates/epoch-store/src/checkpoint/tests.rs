//! Tests of the checkpoint. By subject: ordinary use here, and damage.

mod damage;

use std::fs;

use bytes::Bytes;
use epoch_core::{ClusterId, Incarnation};
use uuid::Uuid;

use super::*;
use crate::RealFs;
use crate::snapshot::Snapshots;
use crate::testing::{Workload, fresh_state};

fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        index,
        term: 3,
        opaque: Bytes::from_static(b"membership"),
    }
}

fn open(folder: &Path) -> Checkpoint {
    let (checkpoint, found) = Checkpoint::open(folder, &fresh_state()).unwrap();
    found.unwrap();
    checkpoint
}

fn unusable(folder: &Path) -> Unusable {
    let (_, found) = Checkpoint::open(folder, &fresh_state()).unwrap();
    found.unwrap_err()
}

fn is_begun(saved: Saved) -> bool {
    matches!(saved, Saved::Begun { .. })
}

fn is_appended(saved: Saved) -> bool {
    matches!(saved, Saved::Appended { .. })
}

/// A state that goes on, with its changes, in folders of its own.
struct Running {
    state: State,
    workload: Workload,
    index: u64,
    /// Where the changes that are not saved begin.
    since: Option<u64>,
    snapshots: Snapshots,
    root: tempfile::TempDir,
}

impl Running {
    fn new(seed: u64, scopes: u64) -> Self {
        Self::in_folder(seed, scopes, tempfile::tempdir().unwrap())
    }

    fn in_folder(seed: u64, scopes: u64, root: tempfile::TempDir) -> Self {
        let mut state = fresh_state();
        state.track_changes();
        Self {
            state,
            workload: Workload::new(seed, scopes, 60),
            index: 0,
            since: None,
            snapshots: Snapshots::open(RealFs::shared(), &root.path().join("snapshots")).unwrap(),
            root,
        }
    }

    /// With a chain from a snapshot on.
    fn begun(seed: u64) -> (Self, Checkpoint) {
        let mut running = Self::new(seed, 500);
        running.advance(50);
        running.snapshot();
        let mut checkpoint = open(&running.folder());
        assert!(is_begun(running.save(&mut checkpoint, 50)));
        (running, checkpoint)
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("checkpoint")
    }

    fn advance(&mut self, batches: u64) {
        for _ in 0..batches {
            self.index += 1;
            self.workload.advance(&mut self.state, self.index);
        }
    }

    fn base(&self) -> Option<Base> {
        let newest = self.snapshots.newest()?;
        Some(Base::from(&newest.meta))
    }

    /// Writes a snapshot, without saving what has changed before it.
    fn snapshot(&mut self) {
        let meta = meta(self.index);
        let written = self.snapshots.write(&self.state, &meta, &mut || ());
        written.unwrap();
        self.state.take_changes();
        self.since = Some(self.index);
    }

    fn try_save(&mut self, checkpoint: &mut Checkpoint) -> Result<Saved, CheckpointError> {
        self.try_save_paced(checkpoint, &mut || ())
    }

    fn try_save_paced(
        &mut self,
        checkpoint: &mut Checkpoint,
        pace: &mut dyn FnMut(),
    ) -> Result<Saved, CheckpointError> {
        let changes = self.state.take_changes();
        let since = self.since.replace(self.index);
        let (meta, base) = (meta(self.index), self.base());
        checkpoint.save(&self.state, &meta, since, &changes, base, pace)
    }

    /// Advances and saves what has changed.
    fn save(&mut self, checkpoint: &mut Checkpoint, batches: u64) -> Saved {
        self.advance(batches);
        self.try_save(checkpoint).unwrap()
    }

    fn load_from(
        &self,
        checkpoint: &mut Checkpoint,
    ) -> Result<Option<(State, SnapshotMeta)>, Unusable> {
        let base = checkpoint.chain().and_then(|chain| chain.base);
        let whole = self.snapshots.whole();
        let base = whole
            .iter()
            .find(|file| Some(Base::from(&file.meta)) == base);
        checkpoint.load(&RealFs, base).unwrap()
    }

    fn assert_loads(&self) -> Checkpoint {
        self.assert_loads_from(&self.folder())
    }

    fn assert_loads_from(&self, folder: &Path) -> Checkpoint {
        let mut checkpoint = open(folder);
        let (state, found) = self.load_from(&mut checkpoint).unwrap().unwrap();
        assert_eq!(found, meta(self.index));
        // Not assert_eq: a state is pages long.
        assert!(state == self.state);
        assert_eq!(checkpoint.chain().unwrap().index, self.index);
        checkpoint
    }

    fn assert_no_chain(&self) {
        assert_eq!(open(&self.folder()).chain(), None);
    }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn an_empty_folder_is_an_empty_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a/checkpoint");
    for _ in 0..2 {
        let mut checkpoint = open(&folder);
        assert!(checkpoint.chain().is_none());
        assert!(checkpoint.load(&RealFs, None).unwrap().unwrap().is_none());
    }
}

#[test]
fn what_is_no_folder_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("checkpoint");
    fs::write(&folder, "no folder").unwrap();
    assert!(open(&folder).chain().is_none());
    fs::remove_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("nowhere", &folder).unwrap();
    assert!(open(&folder).chain().is_none());
}

#[test]
fn a_chain_from_the_fresh_state_on_is_loaded_without_any_snapshot() {
    let mut running = Running::new(1, 5_000);
    let mut checkpoint = open(&running.folder());
    assert!(is_begun(running.save(&mut checkpoint, 400)));
    for _ in 0..5 {
        assert!(is_appended(running.save(&mut checkpoint, 3)));
    }
    assert_eq!(checkpoint.chain().unwrap().base, None);
    drop(checkpoint);
    let mut checkpoint = running.assert_loads();
    // It goes on from what was loaded.
    assert!(is_appended(running.save(&mut checkpoint, 3)));
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_chain_from_a_snapshot_on_is_loaded_with_it_and_only_changes_are_written() {
    let mut running = Running::new(13, 5_000);
    running.advance(400);
    running.snapshot();
    let mut checkpoint = open(&running.folder());
    let Saved::Begun { bytes } = running.save(&mut checkpoint, 40) else {
        panic!("no chain was begun")
    };
    let Saved::Appended { bytes: fewer } = running.save(&mut checkpoint, 4) else {
        panic!("another chain was begun")
    };
    assert!(fewer * 5 < bytes, "{bytes}, {fewer}");
    drop(checkpoint);
    let mut checkpoint = running.assert_loads();
    assert!(is_appended(running.save(&mut checkpoint, 3)));
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn the_next_snapshot_begins_another_chain_and_the_old_one_is_removed() {
    let (mut running, mut checkpoint) = Running::begun(14);
    for _ in 0..3 {
        // A last delta of the old chain, as before every snapshot.
        let old = running.base();
        assert!(is_appended(running.save(&mut checkpoint, 50)));
        assert_eq!(checkpoint.chain().unwrap().base, old);
        let before = checkpoint.held.clone().unwrap().chunks;
        running.snapshot();
        assert!(is_begun(running.save(&mut checkpoint, 2)));
        let chain = checkpoint.chain().unwrap();
        assert_eq!(chain.base, running.base());
        assert_ne!(chain.base, old);
        let held = checkpoint.held.clone().unwrap();
        assert_eq!(held.chunks.start, before.end, "numbers go on rising");
        let table = checkpoint.table.clone().unwrap();
        assert!(!table.has_others(&held.chunks).unwrap());
    }
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn the_first_chain_of_a_process_gets_a_new_table() {
    let (mut running, mut checkpoint) = Running::begun(25);
    for _ in 0..20 {
        running.save(&mut checkpoint, 20);
    }
    drop(checkpoint);
    let grown = folder::db_bytes(&running.folder());
    let mut checkpoint = running.assert_loads();
    assert!(is_appended(running.save(&mut checkpoint, 1)));
    assert!(folder::db_bytes(&running.folder()) >= grown);
    let next = checkpoint.next;
    running.snapshot();
    assert!(is_begun(running.save(&mut checkpoint, 1)));
    assert!(folder::db_bytes(&running.folder()) < grown);
    assert_eq!(checkpoint.held.clone().unwrap().chunks.start, next);
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_chain_goes_on_while_its_snapshot_is_kept_when_a_newer_one_is_not_what_it_is_at() {
    let (mut running, mut checkpoint) = Running::begun(15);
    // A snapshot of a peer's that is ahead, before it is installed.
    let ahead = Running::new(16, 500);
    let written = running
        .snapshots
        .write(&ahead.state, &meta(1_000), &mut || ());
    written.unwrap();
    assert_eq!(running.base().unwrap().index, 1_000);
    assert!(is_appended(running.save(&mut checkpoint, 5)));
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_save_of_many_changes_is_loaded_too() {
    let mut running = Running::new(2, 60_000);
    running.advance(1);
    running.snapshot();
    let mut checkpoint = open(&running.folder());
    running.save(&mut checkpoint, 1);
    running.advance(2_500);
    let mut steps = 0;
    let saved = running.try_save_paced(&mut checkpoint, &mut || steps += 1);
    assert!(is_appended(saved.unwrap()));
    let chunks = checkpoint.held.clone().unwrap().chunks;
    let chunks = usize::try_from(chunks.end - chunks.start).unwrap() - 1;
    assert!(chunks > 2 * table::BATCH_CHUNKS, "{chunks}");
    assert_eq!(steps, (chunks - 1) / table::BATCH_CHUNKS);
    drop(checkpoint);
    let mut checkpoint = running.assert_loads();
    // They are as many to remove.
    running.snapshot();
    assert!(is_begun(running.save(&mut checkpoint, 1)));
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn changes_that_follow_on_nothing_end_the_chain_until_the_next_snapshot() {
    let (mut running, mut checkpoint) = Running::begun(3);
    // These changes are never saved.
    running.advance(50);
    running.state.take_changes();
    running.since = Some(running.index);
    for _ in 0..2 {
        assert_eq!(running.save(&mut checkpoint, 5), Saved::Nothing);
        assert_eq!(checkpoint.chain(), None);
    }
    drop(checkpoint);
    running.assert_no_chain();
    let mut checkpoint = open(&running.folder());
    running.snapshot();
    assert!(is_begun(running.save(&mut checkpoint, 5)));
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_save_that_was_cut_off_leaves_the_state_before_it() {
    let (mut running, mut checkpoint) = Running::begun(17);
    running.snapshot();
    assert!(is_begun(running.save(&mut checkpoint, 1)));
    let held = checkpoint.held.clone().unwrap();
    let table = checkpoint.table.take().unwrap();
    drop(checkpoint);
    // As before an old chain was removed, and after the first batches of a save.
    table.put_chunk(held.chunks.start - 1, b"old");
    table.put_chunk(held.chunks.end, b"cut off");
    table.put_chunk(held.chunks.end + 1, b"cut off");
    drop(table);
    let mut checkpoint = running.assert_loads();
    assert!(checkpoint.trace);
    assert!(is_appended(running.save(&mut checkpoint, 1)));
    let held = checkpoint.held.clone().unwrap();
    let table = checkpoint.table.clone().unwrap();
    assert!(!table.has_others(&held.chunks).unwrap());
    drop((table, checkpoint));
    running.assert_loads();
}

#[test]
fn a_table_that_sled_takes_for_an_empty_one_is_removed() {
    let running = Running::new(24, 500);
    fs::create_dir_all(running.folder()).unwrap();
    drop(Table::open(&running.folder()).unwrap());
    let why = unusable(&running.folder());
    assert!(
        matches!(why, Unusable::Table(TableError::NoHead)),
        "{why:?}"
    );
    assert_eq!(entries(&running.folder()), 0);
}

#[test]
fn a_first_save_that_was_cut_off_is_removed() {
    let running = Running::new(18, 500);
    fs::create_dir_all(running.folder()).unwrap();
    let table = Table::open(&running.folder()).unwrap();
    table.put_chunk(0, b"cut off");
    drop(table);
    let why = unusable(&running.folder());
    assert!(
        matches!(why, Unusable::Table(TableError::NoHead)),
        "{why:?}"
    );
    assert_eq!(entries(&running.folder()), 0);
}

#[test]
fn a_checkpoint_of_another_cluster_is_removed() {
    let (running, checkpoint) = Running::begun(4);
    drop(checkpoint);
    let other = State::new(
        ClusterId(Uuid::from_u128(1)),
        Incarnation(Uuid::from_u128(3)),
        0,
    );
    let (_, found) = Checkpoint::open(&running.folder(), &other).unwrap();
    let why = found.unwrap_err();
    assert!(
        matches!(why, Unusable::Table(TableError::Foreign)),
        "{why:?}"
    );
    assert_eq!(entries(&running.folder()), 0);
}

#[test]
fn a_chain_without_its_snapshot_is_removed() {
    let (running, checkpoint) = Running::begun(19);
    drop(checkpoint);
    let mut checkpoint = open(&running.folder());
    let named = checkpoint.chain().unwrap().base.unwrap();
    let why = checkpoint.load(&RealFs, None).unwrap().unwrap_err();
    assert!(
        matches!(&why, Unusable::Table(TableError::NoBase(base)) if *base == named),
        "{why:?}"
    );
    assert_eq!((checkpoint.chain(), entries(&running.folder())), (None, 0));
}

#[test]
fn a_chain_with_a_damaged_or_another_snapshot_is_removed() {
    let (running, checkpoint) = Running::begun(20);
    drop(checkpoint);
    let file = running.snapshots.newest().unwrap();
    // Whole, and of another state.
    let other = Running::new(21, 500);
    crate::snapshot::write(
        &RealFs::shared(),
        running.snapshots.folder(),
        &other.state,
        &file.meta,
        &mut || (),
    )
    .unwrap();
    let why = running.load_from(&mut open(&running.folder())).unwrap_err();
    assert!(
        matches!(&why, Unusable::Table(TableError::Rows(_))),
        "{why:?}"
    );

    let (running, checkpoint) = Running::begun(22);
    drop(checkpoint);
    let file = running.snapshots.newest().unwrap();
    fs::write(&file.path, "damaged").unwrap();
    let why = running.load_from(&mut open(&running.folder())).unwrap_err();
    assert!(
        matches!(&why, Unusable::Table(TableError::DamagedBase(_))),
        "{why:?}"
    );
}

#[test]
fn a_marker_from_the_last_start_removes_the_checkpoint_unread() {
    let (mut running, checkpoint) = Running::begun(5);
    drop(checkpoint);
    let marker = marker_file(&running.folder());
    fs::write(&marker, "").unwrap();
    let why = unusable(&running.folder());
    assert!(matches!(why, Unusable::Marked), "{why:?}");
    assert!(!marker.exists());
    let mut checkpoint = open(&running.folder());
    running.snapshot();
    assert!(is_begun(running.save(&mut checkpoint, 1)));
    drop(checkpoint);
    running.assert_loads();
    assert!(!marker.exists());
}

#[test]
fn a_checkpoint_that_is_open_is_not_removed() {
    let (running, checkpoint) = Running::begun(9);
    let refused = Checkpoint::open(&running.folder(), &fresh_state()).unwrap_err();
    assert!(matches!(refused, CheckpointError::InUse(_)), "{refused:?}");
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_save_that_fails_ends_the_chain() {
    let (mut running, mut checkpoint) = Running::begun(10);
    // As if sled had put a value there.
    fs::write(running.folder().join("blobs/1"), "value").unwrap();
    running.advance(5);
    let failed = running.try_save(&mut checkpoint).unwrap_err();
    assert!(
        matches!(failed, CheckpointError::Table(TableError::Blobs)),
        "{failed:?}"
    );
    assert_eq!(checkpoint.chain(), None);
    assert_eq!(running.save(&mut checkpoint, 5), Saved::Nothing);
    running.snapshot();
    assert!(is_begun(running.save(&mut checkpoint, 5)));
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_table_that_was_given_up_is_not_called_again_nor_opened_by_the_next_process() {
    let (mut running, mut checkpoint) = Running::begun(11);
    let stopped = checkpoint.stop(Trouble::Gone(OffReason::ThreadDied));
    assert!(matches!(stopped, CheckpointError::Off(_)), "{stopped:?}");
    let refused = running.try_save(&mut checkpoint).unwrap_err();
    assert!(
        matches!(refused, CheckpointError::Off(OffReason::Earlier)),
        "{refused:?}"
    );
    drop(checkpoint);
    let why = unusable(&running.folder());
    assert!(matches!(why, Unusable::Marked), "{why:?}");
    // That was told once: the next one is used again.
    let mut checkpoint = open(&running.folder());
    running.snapshot();
    running.save(&mut checkpoint, 1);
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_new_chain_gets_a_new_table_when_the_file_has_grown_far_beyond_what_is_in_it() {
    let (mut running, mut checkpoint) = Running::begun(12);
    for _ in 0..40 {
        running.save(&mut checkpoint, 10);
    }
    let grown = folder::db_bytes(&running.folder());
    checkpoint.rebuild_bytes_min = grown - 1;
    // As if there were nothing in it.
    let held = checkpoint.held.as_mut().unwrap();
    held.chunks.start = held.chunks.end;
    let next = checkpoint.next;
    running.snapshot();
    assert!(is_begun(running.save(&mut checkpoint, 1)));
    assert!(folder::db_bytes(&running.folder()) < grown);
    assert_eq!(checkpoint.held.clone().unwrap().chunks.start, next);
    drop(checkpoint);
    let mut checkpoint = running.assert_loads();
    assert!(is_appended(running.save(&mut checkpoint, 1)));
    drop(checkpoint);
    running.assert_loads();
}

#[test]
fn a_head_beyond_the_bound_is_not_saved() {
    let (mut running, mut checkpoint) = Running::begun(23);
    let mut long = meta(running.index);
    long.opaque = vec![0; HEAD_BYTES_MAX].into();
    let refused = checkpoint.save(
        &running.state,
        &long,
        running.since,
        &Changes::default(),
        running.base(),
        &mut || (),
    );
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, CheckpointError::HeadTooLarge),
        "{refused:?}"
    );
    assert!(is_appended(running.save(&mut checkpoint, 1)));
}
