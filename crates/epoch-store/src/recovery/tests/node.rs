//! A node that runs until its disk dies, over and over.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use epoch_machine::{Changes, State};

use super::LOG_OPTIONS;
use super::model::{Model, meta};
use crate::checkpoint::{Base, Saved};
use crate::codec::decode_batch;
use crate::recovery::{Places, Recovered, Recovery, Source, recover};
use crate::testing::{apply_batch, copy_folder, damage_folder, fresh_state, memory_folder};
use crate::{SimFs, SplitMix};

/// Why a promise was broken.
type Broken = String;

/// A bug put in on purpose, to see that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    None,
    /// The log is purged below the newer snapshot.
    PurgeBelowNewest,
    /// A save that goes on with a chain leaves the position in the head where it was.
    StaleHead,
    /// What has changed between a snapshot and the first save after it is not in the chain that
    /// begins there.
    LostChanges,
}

/// What the world does to the disk besides crashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    None,
    /// The checkpoint's folder is damaged or lost between processes.
    Checkpoint,
    /// The newest snapshot is damaged, and the checkpoint often lost. Nothing is installed then:
    /// a node whose log begins with what a peer sent has nothing else to fall back on.
    NewestSnapshot,
}

/// One node with its disks, through many processes.
pub(super) struct Life {
    random: SplitMix,
    model: Model,
    fs: SimFs,
    root: tempfile::TempDir,
    /// Number of the checkpoint's folder: each process has another one.
    folder: u64,
    /// Up to where a checkpoint was saved that is still there, if it is known to be.
    saved: Option<u64>,
    /// Highest index that was acknowledged.
    acknowledged: Option<u64>,
    bug: Bug,
    harm: Harm,
    pub(super) starts: Starts,
}

/// How the starts went: a run that never came to what it is to test proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Starts {
    pub(super) fresh: u64,
    pub(super) checkpoint: u64,
    pub(super) snapshot: u64,
    /// Crashed before the start was done.
    pub(super) died: u64,
    /// With a damaged snapshot.
    pub(super) damaged: u64,
    /// Saves that began a chain.
    pub(super) begun: u64,
    /// Saves that went on with one.
    pub(super) appended: u64,
}

impl Starts {
    pub(super) fn add(&mut self, other: Self) {
        self.fresh += other.fresh;
        self.checkpoint += other.checkpoint;
        self.snapshot += other.snapshot;
        self.died += other.died;
        self.damaged += other.damaged;
        self.begun += other.begun;
        self.appended += other.appended;
    }
}

/// One process.
struct Process {
    found: Recovered,
    state: State,
    applied: Option<u64>,
    /// Where `changes` begin.
    since: Option<u64>,
    changes: Changes,
}

impl Life {
    pub(super) fn new(seed: u64, bug: Bug, harm: Harm, skipped_syncs: u64) -> Self {
        let fs = SimFs::new(seed);
        fs.skip_syncs(skipped_syncs);
        Self {
            random: SplitMix::new(seed),
            model: Model::new(seed),
            fs,
            root: memory_folder(),
            folder: 0,
            saved: None,
            acknowledged: None,
            bug,
            harm,
            starts: Starts::default(),
        }
    }

    /// Starts, works, and dies at a random operation of the disk.
    pub(super) fn live_and_die(&mut self) -> Result<(), Broken> {
        // Often while it starts, which takes some ten operations.
        let operations = if self.random.below(4) == 0 { 12 } else { 250 };
        self.fs.crash_at(1 + self.random.below(operations));
        let process = match recover(&self.places(), LOG_OPTIONS, fresh_state()) {
            Err(_) if self.fs.is_dead() => {
                self.starts.died += 1;
                // A disk that cannot be read takes the checkpoint with it.
                self.saved = None;
                None
            }
            Err(error) => return Err(format!("start refused: {error:?}")),
            Ok(Recovery::Short(short)) => {
                return Err(format!("{} entries short", short.missing()));
            }
            Ok(Recovery::Whole(found)) => self.begin(*found)?,
        };
        let process = match process {
            None => None,
            Some(mut process) => {
                while self.work(&mut process)? {}
                Some(process)
            }
        };
        self.power_off(process);
        Ok(())
    }

    fn places(&self) -> Places {
        Places {
            fs: self.fs.shared(),
            folder: PathBuf::from("/data"),
            checkpoint: self.checkpoint(),
        }
    }

    fn checkpoint(&self) -> PathBuf {
        self.root.path().join(format!("checkpoint-{}", self.folder))
    }

    /// As the checkpoint's folder was when last synced.
    fn synced(&self) -> PathBuf {
        self.root.path().join("synced")
    }

    /// Checks what was found, and applies the log. `None` if the disk dies meanwhile.
    fn begin(&mut self, mut found: Recovered) -> Result<Option<Process>, Broken> {
        *match found.source {
            Source::Fresh => &mut self.starts.fresh,
            Source::Checkpoint => &mut self.starts.checkpoint,
            Source::Snapshot => &mut self.starts.snapshot,
        } += 1;
        self.starts.damaged += u64::from(!found.snapshots.damaged().is_empty());
        let applied = found.meta.as_ref().map(|meta| meta.index);
        if let Some(index) = applied {
            if found.meta != Some(meta(index)) {
                return Err(format!("{:?} was never given", found.meta));
            }
            self.check_hash(&found.state, index)?;
        }
        if applied < self.saved {
            return Err(format!(
                "a checkpoint of {:?} was saved, {applied:?} is there",
                self.saved
            ));
        }
        let last = found.log.last_index().max(applied);
        if last < self.acknowledged {
            return Err(format!(
                "{:?} was acknowledged, {last:?} is there",
                self.acknowledged
            ));
        }
        // What a node has when it starts, it tells the leader.
        self.acknowledged = last;
        if found.log.last_index() < applied
            && let Some(index) = applied
            && !self.purge(&mut found, index)?
        {
            return Ok(None);
        }
        let mut process = Process {
            state: found.state.clone(),
            found,
            applied,
            since: applied,
            changes: Changes::default(),
        };
        process.state.track_changes();
        let next = applied.map_or(0, |index| index + 1);
        let read = process.found.log.read(next..u64::MAX, u64::MAX);
        let Some(entries) = self.alive(read)? else {
            return Ok(None);
        };
        for (expected, (index, entry)) in (next..).zip(&entries) {
            if *index != expected || *entry != self.model.entry(expected) {
                return Err(format!("entry {expected} is missing or another"));
            }
            self.apply(&mut process, *index)?;
        }
        if process.applied != last {
            return Err(format!("entries up to {last:?} are not in the log"));
        }
        Ok(Some(process))
    }

    /// One piece of work; `false` when the disk has died.
    fn work(&mut self, process: &mut Process) -> Result<bool, Broken> {
        match self.random.below(100) {
            0..70 => self.append(process),
            70..80 => self.save_checkpoint(process).map(|()| true),
            80..87 => self.write_snapshot(process),
            87..95 => {
                let snapshots = &process.found.snapshots;
                let index = match self.bug {
                    Bug::PurgeBelowNewest => snapshots.newest().map(|file| file.meta.index),
                    Bug::None | Bug::StaleHead | Bug::LostChanges => snapshots.purgeable(),
                };
                match index {
                    Some(index) => self.purge(&mut process.found, index),
                    None => Ok(true),
                }
            }
            _ if self.harm == Harm::NewestSnapshot => self.append(process),
            _ => self.install(process),
        }
    }

    fn append(&mut self, process: &mut Process) -> Result<bool, Broken> {
        let first = process.applied.map_or(0, |index| index + 1);
        let last = first + self.random.below(4);
        self.model.extend_to(last);
        let entries = self.model.entries(first..=last);
        let appended = process.found.log.append(&entries);
        if self.alive(appended)?.is_none() {
            return Ok(false);
        }
        self.acknowledged = Some(last);
        for index in first..=last {
            self.apply(process, index)?;
        }
        Ok(true)
    }

    fn apply(&self, process: &mut Process, index: u64) -> Result<(), Broken> {
        let batch = decode_batch(&self.model.entry(index)).unwrap();
        apply_batch(&mut process.state, index, &batch);
        process.applied = Some(index);
        self.check_hash(&process.state, index)
    }

    fn save_checkpoint(&mut self, process: &mut Process) -> Result<(), Broken> {
        let Some(applied) = process.applied else {
            return Ok(());
        };
        process.changes.merge(process.state.take_changes());
        let newest = process.found.snapshots.newest();
        let base = newest.map(|file| Base::from(&file.meta));
        let begins = base.map(|base| base.index) == process.since;
        let head = match (self.bug, process.since) {
            (Bug::StaleHead, Some(since)) if !begins => since,
            _ => applied,
        };
        if self.bug == Bug::LostChanges && begins {
            process.changes = Changes::default();
        }
        let saved = process.found.checkpoint.save(
            &process.state,
            &meta(head),
            process.since,
            &process.changes,
            base,
            &mut || (),
        );
        self.saved = Some(applied);
        match saved.map_err(|error| format!("no checkpoint: {error:?}"))? {
            Saved::Nothing => self.saved = None,
            Saved::Appended { .. } => self.starts.appended += 1,
            Saved::Begun { .. } => self.starts.begun += 1,
        }
        process.since = Some(applied);
        process.changes = Changes::default();
        replace_folder(&self.checkpoint(), &self.synced());
        Ok(())
    }

    fn write_snapshot(&mut self, process: &mut Process) -> Result<bool, Broken> {
        let Some(applied) = process.applied else {
            return Ok(true);
        };
        self.save_checkpoint(process)?;
        let snapshots = &process.found.snapshots;
        let written = snapshots.write(&process.state, &meta(applied), &mut || ());
        Ok(self.alive(written)?.is_some())
    }

    /// Takes in a snapshot of a peer that is ahead.
    fn install(&mut self, process: &mut Process) -> Result<bool, Broken> {
        let index = process.applied.unwrap_or(0) + 1 + self.random.below(40);
        self.model.extend_to(index);
        let sent = self.model.snapshot_bytes(index);
        let received = process.found.snapshots.receive().and_then(|mut incoming| {
            for chunk in sent.chunks(1_000) {
                incoming.append(chunk)?;
            }
            incoming.finish(|found, _| *found == meta(index))
        });
        let Some((_, state)) = self.alive(received)? else {
            return Ok(false);
        };
        self.check_hash(&state, index)?;
        if !self.purge(&mut process.found, index)? {
            return Ok(false);
        }
        self.acknowledged = Some(index);
        process.state = state;
        process.state.track_changes();
        process.applied = Some(index);
        process.since = Some(index);
        process.changes = Changes::default();
        Ok(true)
    }

    fn purge(&self, found: &mut Recovered, index: u64) -> Result<bool, Broken> {
        let purged = found.log.purge_to(index, Bytes::from_static(b"log id"));
        Ok(self.alive(purged)?.is_some())
    }

    /// `None` for an error of a disk that has died.
    fn alive<T, E: std::fmt::Debug>(&self, result: Result<T, E>) -> Result<Option<T>, Broken> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.fs.is_dead() => Ok(None),
            Err(error) => Err(format!("{error:?}")),
        }
    }

    fn check_hash(&self, state: &State, index: u64) -> Result<(), Broken> {
        if state.hash() == self.model.hash_at(index) {
            Ok(())
        } else {
            Err(format!("another state at index {index}"))
        }
    }

    fn power_off(&mut self, process: Option<Process>) {
        if let Some(mut process) = process {
            if self.random.coin() {
                // Dies in a save: some of it is on the disk.
                let synced = self.root.path().join("synced-before");
                let saved = self.saved;
                replace_folder(&self.synced(), &synced);
                self.save_checkpoint(&mut process).unwrap_or_default();
                replace_folder(&synced, &self.synced());
                self.saved = saved;
            }
            drop(process);
        }
        let seed = self.random.bits();
        self.fs = if self.random.below(3) == 0 {
            self.fs.restart_process()
        } else {
            self.fs.restart(seed)
        };
        self.power_off_checkpoint();
        if self.harm == Harm::NewestSnapshot {
            self.damage_newest_snapshot();
        }
    }

    fn power_off_checkpoint(&mut self) {
        let (current, synced) = (self.checkpoint(), self.synced());
        self.folder += 1;
        let next = self.checkpoint();
        match self.random.below(3) {
            0 => copy_if_there(&synced, &next),
            1 => copy_if_there(&current, &next),
            _ => {
                mix_folders(&synced, &current, &next, &mut self.random);
                self.saved = None;
            }
        }
        let lost = match self.harm {
            Harm::None => false,
            Harm::Checkpoint => self.random.below(8) == 0,
            Harm::NewestSnapshot => self.random.coin(),
        };
        if self.harm != Harm::None {
            self.saved = None;
        }
        if lost {
            remove_folder(&next);
        } else if self.harm == Harm::Checkpoint && self.random.below(4) == 0 && next.exists() {
            damage_folder(&next, &mut self.random);
        }
        remove_folder(&current);
        replace_folder(&next, &synced);
    }

    fn damage_newest_snapshot(&mut self) {
        let files = self.fs.files();
        let newest = files.iter().rfind(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("snapshot-0")
        });
        if let Some(path) = newest
            && self.random.below(3) == 0
        {
            self.fs.overwrite(path, 70, b"damage").unwrap();
        }
    }
}

fn copy_if_there(from: &Path, to: &Path) {
    if from.exists() {
        copy_folder(from, to);
    }
}

fn remove_folder(folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}

fn replace_folder(from: &Path, to: &Path) {
    remove_folder(to);
    copy_if_there(from, to);
}

/// Of each file, each sector as it is in one folder or the other.
fn mix_folders(old: &Path, new: &Path, to: &Path, random: &mut SplitMix) {
    if !new.exists() {
        return copy_if_there(old, to);
    }
    copy_folder(new, to);
    for entry in fs::read_dir(new).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let name = path.file_name().unwrap();
        let Ok(before) = fs::read(old.join(name)) else {
            continue;
        };
        let mut bytes = fs::read(&path).unwrap();
        for (sector, before) in bytes.chunks_mut(512).zip(before.chunks(512)) {
            if random.coin() && before.len() == sector.len() {
                sector.copy_from_slice(before);
            }
        }
        fs::write(to.join(name), bytes).unwrap();
    }
}
