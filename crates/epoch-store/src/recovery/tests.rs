//! Tests of the start. By subject: ordinary starts here, crashes in `crashes`.

mod crashes;
mod model;
mod node;

use bytes::Bytes;

use super::*;
use crate::SimFs;
use crate::checkpoint::Saved;
use crate::testing::{fresh_state, memory_folder};

use self::model::{Model, meta};

/// Small, so that a few entries fill a segment.
const LOG_OPTIONS: LogOptions = LogOptions {
    segment_bytes_max: 16 << 10,
    cache_bytes_max: 1 << 10,
};

struct Setup {
    model: Model,
    fs: SimFs,
    places: Places,
    _root: tempfile::TempDir,
}

impl Setup {
    /// A log of `entries` entries, and nothing else.
    fn new(entries: u64) -> Self {
        let root = memory_folder();
        let fs = SimFs::new(1);
        let places = Places {
            fs: fs.shared(),
            folder: PathBuf::from("/data"),
            checkpoint: root.path().join("checkpoint"),
        };
        let mut setup = Self {
            model: Model::new(1),
            fs,
            places,
            _root: root,
        };
        let mut found = setup.whole();
        let last = entries - 1;
        setup.model.extend_to(last);
        found.log.append(&setup.model.entries(0..=last)).unwrap();
        setup
    }

    fn recover(&self) -> Recovery {
        recover(&self.places, LOG_OPTIONS, fresh_state()).unwrap()
    }

    fn whole(&self) -> Recovered {
        match self.recover() {
            Recovery::Whole(found) => *found,
            Recovery::Short(short) => panic!("{} entries short", short.missing()),
        }
    }

    fn short(&self) -> Short {
        match self.recover() {
            Recovery::Whole(found) => panic!("{:?}", found.meta),
            Recovery::Short(short) => short,
        }
    }

    fn snapshot(&self, found: &Recovered, index: u64) {
        let state = self.model.state_at(index);
        let written = found.snapshots.write(&state, &meta(index), &mut || ());
        written.unwrap();
    }

    /// From the newest snapshot on.
    fn checkpoint(&self, found: &mut Recovered, index: u64) {
        let base = found.snapshots.newest().map(|file| Base::from(&file.meta));
        let since = base.map(|base| base.index);
        let (state, changes) = self.model.changed(since, index);
        let checkpoint = &mut found.checkpoint;
        let saved = checkpoint.save(&state, &meta(index), since, &changes, base, &mut || ());
        assert!(matches!(saved.unwrap(), Saved::Begun { .. }));
    }

    fn damage(&self, file: &SnapshotFile) {
        self.fs.overwrite(&file.path, 60, b"damage").unwrap();
    }

    fn purge(&self, found: &mut Recovered, index: u64) {
        found
            .log
            .purge_to(index, Bytes::from_static(b"id"))
            .unwrap();
    }

    fn assert_state(&self, found: &Recovered, source: Source, index: u64) {
        assert_eq!(found.source, source);
        assert_eq!(found.meta, Some(meta(index)));
        assert_eq!(found.state.hash(), self.model.hash_at(index));
    }
}

#[test]
fn nothing_stored_is_the_fresh_state() {
    let setup = Setup::new(1);
    let found = setup.whole();
    assert_eq!((found.source, found.meta), (Source::Fresh, None));
    assert_eq!(found.state.hash(), fresh_state().hash());
}

#[test]
fn the_newer_of_checkpoint_and_snapshot_is_taken() {
    let setup = Setup::new(40);
    let mut found = setup.whole();
    setup.snapshot(&found, 10);
    setup.checkpoint(&mut found, 20);
    drop(found);
    let mut found = setup.whole();
    setup.assert_state(&found, Source::Checkpoint, 20);
    setup.snapshot(&found, 30);
    setup.purge(&mut found, 30);
    drop(found);
    let found = setup.whole();
    setup.assert_state(&found, Source::Snapshot, 30);
}

#[test]
fn damaged_snapshots_are_done_without_while_the_log_makes_up_for_them() {
    let setup = Setup::new(40);
    let mut found = setup.whole();
    setup.checkpoint(&mut found, 5);
    setup.snapshot(&found, 10);
    setup.snapshot(&found, 20);
    for file in found.snapshots.whole() {
        setup.damage(&file);
    }
    drop(found);
    let found = setup.whole();
    setup.assert_state(&found, Source::Checkpoint, 5);
    assert_eq!(found.snapshots.damaged().len(), 2);
}

#[test]
fn a_checkpoint_on_the_older_snapshot_is_taken_while_it_is_newer_than_both() {
    let setup = Setup::new(40);
    let mut found = setup.whole();
    setup.snapshot(&found, 10);
    setup.checkpoint(&mut found, 30);
    setup.snapshot(&found, 20);
    drop(found);
    let found = setup.whole();
    setup.assert_state(&found, Source::Checkpoint, 30);
    setup.snapshot(&found, 30);
    drop(found);
    // As new, and to be had without the changed rows.
    let found = setup.whole();
    setup.assert_state(&found, Source::Snapshot, 30);
}

#[test]
fn a_checkpoint_whose_snapshot_is_damaged_is_done_without() {
    let setup = Setup::new(40);
    let mut found = setup.whole();
    setup.snapshot(&found, 10);
    setup.snapshot(&found, 20);
    setup.checkpoint(&mut found, 30);
    setup.damage(&found.snapshots.newest().unwrap());
    drop(found);
    let mut found = setup.whole();
    setup.assert_state(&found, Source::Snapshot, 10);
    assert_eq!(found.checkpoint.chain(), None);
    setup.checkpoint(&mut found, 35);
    drop(found);
    let found = setup.whole();
    setup.assert_state(&found, Source::Checkpoint, 35);
}

#[test]
fn a_state_below_the_purge_point_is_short_until_a_peers_snapshot_is_there() {
    let setup = Setup::new(40);
    let mut found = setup.whole();
    setup.snapshot(&found, 10);
    setup.snapshot(&found, 20);
    let newest = found.snapshots.newest().unwrap();
    // Below the newer one: what must never be done.
    setup.purge(&mut found, 20);
    setup.damage(&newest);
    drop(found);
    let short = setup.short();
    assert_eq!((short.index, short.purged), (Some(10), 20));
    assert_eq!(short.missing(), 10);
    assert_eq!(short.snapshots.damaged().len(), 1);

    let sent = setup.model.snapshot_bytes(25);
    let mut incoming = short.snapshots.receive().unwrap();
    incoming.append(&sent).unwrap();
    incoming.finish(|found, _| *found == meta(25)).unwrap();
    let found = setup.whole();
    setup.assert_state(&found, Source::Snapshot, 25);
}

#[test]
fn a_purged_log_without_any_state_is_short() {
    let setup = Setup::new(40);
    let mut found = setup.whole();
    setup.purge(&mut found, 0);
    drop(found);
    let short = setup.short();
    assert_eq!((short.index, short.purged), (None, 0));
    assert_eq!(short.missing(), 1);
}

#[test]
fn a_snapshot_of_another_cluster_is_refused_by_name() {
    let setup = Setup::new(40);
    let found = setup.whole();
    setup.snapshot(&found, 10);
    let path = found.snapshots.newest().unwrap().path;
    drop(found);
    let fresh = fresh_state();
    let other = State::new(fresh.cluster_id(), fresh.incarnation(), 1);
    let refused = recover(&setup.places, LOG_OPTIONS, other).unwrap_err();
    assert!(
        matches!(&refused, RecoverError::Foreign(found) if *found == path),
        "{refused:?}"
    );
}
