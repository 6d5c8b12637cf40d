//! What is on a node's disk, offline: every checksum verified, nothing changed.

mod tables;

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use epoch_machine::State;
use epoch_store::checkpoint::{self, Checkpoint, CheckpointError, TableError, Unusable};
use epoch_store::snapshot::{self, SnapshotFile, SnapshotMeta};
use epoch_store::{FolderLock, LogReader, LogReport, RealFs, inspect_log};
use serde::Serialize;

use crate::node::Keys;
use crate::raft::{self, GROUP, Replay, describe_log_id, describe_vote};
use crate::seed::Seed;
use crate::tls::{PeerName, PeerTls};

/// The command line of `epochd inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectArgs {
    /// The node's data folder. The node must not be running.
    #[arg(long, env = "EPOCHD_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Tell the state as of this log index, instead of the log's last one.
    #[arg(long, value_name = "INDEX")]
    pub index: Option<u64>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    node: Option<u64>,
    cluster_id: Option<String>,
    incarnation: Option<String>,
    log: Option<Log>,
    snapshots: Vec<Stored>,
    checkpoint: Option<Stored>,
    state: Option<Summary>,
    /// What else there is to know.
    notes: Vec<String>,
    /// Everything that is not as it was written, or could not be read.
    damage: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Log {
    segments: Vec<Segment>,
    first_index: Option<u64>,
    last_index: Option<u64>,
    purged: Option<String>,
    vote: Option<String>,
    committed: Option<String>,
    synced_frame: Option<u64>,
    /// Bytes of a write that a crash cut off, which the next start takes back.
    torn_bytes: u64,
    incomplete_files: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Segment {
    file: String,
    bytes: u64,
    frames: u64,
    first_frame: u64,
    last_frame: u64,
    first_index: Option<u64>,
    last_index: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Stored {
    file: String,
    bytes: u64,
    #[serde(flatten)]
    summary: Summary,
}

/// A state in figures.
#[derive(Debug, Serialize)]
struct Summary {
    index: u64,
    hash: String,
    now_ms: u64,
    sessions: usize,
    grants: usize,
    scope_rows: usize,
    spent_request_ids: usize,
    /// Signing keys, permissions, tokens, limits and audit records.
    rare_rows: usize,
}

impl Summary {
    fn of(state: &State, index: u64) -> Self {
        let counts = state.counts();
        Self {
            index,
            hash: state.hash().to_string(),
            now_ms: state.now_ms(),
            sessions: counts.sessions,
            grants: counts.grants,
            scope_rows: counts.rows,
            spent_request_ids: counts.spent,
            rare_rows: counts.admin,
        }
    }
}

impl Report {
    /// Whether everything is as it was written.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    fn damaged(&mut self, error: &anyhow::Error) {
        self.damage.push(format!("{error:#}"));
    }
}

/// Reads a data folder.
///
/// # Errors
/// There is no such folder, or a process has it. Damage is no error: it is part of the report.
pub fn run(args: &InspectArgs) -> anyhow::Result<Report> {
    let folder = &args.data_dir;
    if !folder.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    let _lock = lock(folder)?;
    let mut report = Report::default();
    let Some(seed) = read_seed(folder, &mut report) else {
        return Ok(report);
    };
    if !raft::has_been_served(folder) {
        report.notes.push("it has never been started".to_owned());
        return Ok(report);
    }
    let fresh = State::new(seed.cluster_id, seed.incarnation, GROUP);
    let mut base = Base::new(fresh.clone(), args.index);
    let whole = inspect_snapshots(folder, &mut report, &mut base);
    inspect_checkpoint(folder, &whole, &fresh, &mut report, &mut base)?;
    match inspect_log(&RealFs, &folder.join("log")) {
        Ok((log, reader)) => {
            let is_new = log.vote.is_none() && log.last_index.is_none() && log.purged.is_none();
            inspect_small_files(folder, &seed, is_new, &mut report);
            report.log = Some(describe_log(&log));
            replay(base, args.index, &log, &reader, &mut report)?;
        }
        Err(error) => {
            report.damaged(&anyhow::Error::new(error));
            inspect_small_files(folder, &seed, false, &mut report);
        }
    }
    Ok(report)
}

/// Keeps a node from starting meanwhile. A folder that has never been served has no lock to take.
fn lock(folder: &Path) -> anyhow::Result<Option<FolderLock>> {
    if !folder.join("LOCK").exists() {
        return Ok(None);
    }
    match FolderLock::acquire(&RealFs, folder) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ epoch_store::LockError::Held(_)) => Err(error.into()),
        // On a disk that is mounted read-only nothing can start either.
        Err(_) => Ok(None),
    }
}

fn read_seed(folder: &Path, report: &mut Report) -> Option<Seed> {
    match Seed::read(folder) {
        Ok(seed) => {
            report.node = Some(seed.node);
            report.cluster_id = Some(seed.cluster_id.to_string());
            report.incarnation = Some(seed.incarnation.to_string());
            Some(seed)
        }
        Err(error) => {
            report.damaged(&anyhow::Error::new(error));
            None
        }
    }
}

/// The signing keys, the certificate, whose folder it is, and what is remembered of the peers.
fn inspect_small_files(folder: &Path, seed: &Seed, log_is_new: bool, report: &mut Report) {
    match Keys::open(folder, seed.node) {
        Ok(keys) if keys.is_empty() => report.notes.push(
            "it has no signing key: it will make one, which the root key has to put in a bundle"
                .to_owned(),
        ),
        Ok(_) => {}
        Err(error) => report.damaged(&anyhow::Error::new(error)),
    }
    let name = PeerName {
        cluster_id: seed.cluster_id,
        node: seed.node,
    };
    if let Err(error) = PeerTls::open(folder, name) {
        report.damaged(&anyhow::Error::new(error));
    }
    if let Err(error) = raft::check_owner(folder, seed, log_is_new) {
        report.damaged(&anyhow::Error::new(error));
    }
    match raft::remembered_loss(folder, seed.node) {
        Ok(None) => {}
        Ok(Some(why)) => report
            .notes
            .push(format!("it neither votes nor leads: {why}")),
        Err(error) => report.damaged(&anyhow::Error::new(error)),
    }
}

/// The newest state at or below the index asked for.
struct Base {
    state: State,
    meta: Option<SnapshotMeta>,
    at_most: u64,
}

impl Base {
    fn new(fresh: State, at_most: Option<u64>) -> Self {
        Self {
            state: fresh,
            meta: None,
            at_most: at_most.unwrap_or(u64::MAX),
        }
    }

    fn offer(&mut self, state: State, meta: SnapshotMeta) {
        let later = self
            .meta
            .as_ref()
            .is_none_or(|known| known.index < meta.index);
        if later && meta.index <= self.at_most {
            self.state = state;
            self.meta = Some(meta);
        }
    }
}

/// Returns those that make a state.
fn inspect_snapshots(folder: &Path, report: &mut Report, base: &mut Base) -> Vec<SnapshotFile> {
    let mut whole = Vec::new();
    let files = match snapshot::files(&RealFs, &folder.join("snapshots")) {
        Ok(files) => files,
        Err(error) => {
            let error = anyhow::Error::new(error).context("the snapshots cannot be listed");
            report.damaged(&error);
            return whole;
        }
    };
    for path in files {
        let mut file = SnapshotFile {
            path,
            // Read from the file itself.
            meta: SnapshotMeta {
                index: 0,
                term: 0,
                opaque: bytes::Bytes::new(),
            },
        };
        // The hash first: it tells damage from a row of another version.
        let verified = snapshot::verify(&RealFs, &file.path);
        match verified.and_then(|_| snapshot::load(&RealFs, &file)) {
            Ok((state, meta)) => {
                report.snapshots.push(Stored {
                    file: file.path.display().to_string(),
                    bytes: size(&file.path),
                    summary: Summary::of(&state, meta.index),
                });
                file.meta = meta.clone();
                whole.push(file);
                base.offer(state, meta);
            }
            Err(error) => report.damaged(&anyhow::Error::new(error)),
        }
    }
    whole
}

/// The table's code writes when it opens a table, so it gets a copy.
fn inspect_checkpoint(
    folder: &Path,
    whole: &[SnapshotFile],
    fresh: &State,
    report: &mut Report,
    base: &mut Base,
) -> anyhow::Result<()> {
    let original = folder.join("checkpoint");
    if !original.is_dir() {
        if original.symlink_metadata().is_ok() {
            report.damaged(&anyhow!("{} is no folder", original.display()));
        }
        return Ok(());
    }
    let space = "the checkpoint is read from a copy: TMPDIR must name a folder with room for it";
    let temporary = tempfile::tempdir().context(space)?;
    let copy = temporary.path().join("checkpoint");
    let bytes = copy_checkpoint(&original, &copy)
        .with_context(|| format!("{} cannot be copied", original.display()))
        .context(space)?;
    match load_checkpoint(&copy, whole, fresh)? {
        Ok(Some((state, meta))) => {
            report.checkpoint = Some(Stored {
                file: original.display().to_string(),
                bytes,
                summary: Summary::of(&state, meta.index),
            });
            base.offer(state, meta);
        }
        Ok(None) => {}
        Err(why) => {
            let what = format!("{} is of no use to the next start", original.display());
            // What a crash can leave is no damage.
            let is_left = matches!(
                why,
                Unusable::Marked | Unusable::Table(TableError::NoBase(_))
            );
            let why = anyhow::Error::new(why).context(what);
            if is_left {
                report.notes.push(format!("{why:#}"));
            } else {
                report.damaged(&why);
            }
        }
    }
    Ok(())
}

type Loaded = Option<(State, SnapshotMeta)>;

fn load_checkpoint(
    folder: &Path,
    whole: &[SnapshotFile],
    fresh: &State,
) -> Result<Result<Loaded, Unusable>, CheckpointError> {
    let (mut checkpoint, found) = Checkpoint::open(folder, fresh)?;
    let chain = match found {
        Ok(chain) => chain,
        Err(why) => return Ok(Err(why)),
    };
    let begins_at = chain.and_then(|chain| chain.base);
    let file = whole
        .iter()
        .find(|file| Some(checkpoint::Base::from(&file.meta)) == begins_at);
    checkpoint.load(&RealFs, file)
}

/// The folder and its marker. Returns how many bytes there are.
fn copy_checkpoint(from: &Path, to: &Path) -> io::Result<u64> {
    let marker = checkpoint::marker_file(from);
    if marker.exists() {
        std::fs::copy(marker, checkpoint::marker_file(to))?;
    }
    std::fs::create_dir(to)?;
    copy_folder(from, to)
}

/// Bytes of the copied files.
fn copy_folder(from: &Path, to: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            bytes += copy_folder(&entry.path(), &target)?;
        } else {
            // Not its permissions: a copy that cannot be written cannot be opened.
            let mut original = std::fs::File::open(entry.path())?;
            bytes += io::copy(&mut original, &mut std::fs::File::create(target)?)?;
        }
    }
    Ok(bytes)
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn describe_log(log: &LogReport) -> Log {
    let name = |path: &PathBuf| path.display().to_string();
    Log {
        segments: log
            .segments
            .iter()
            .map(|segment| Segment {
                file: name(&segment.file),
                bytes: segment.bytes,
                frames: segment.frames,
                first_frame: segment.first_frame,
                last_frame: segment.last_frame,
                first_index: segment.first_index,
                last_index: segment.last_index,
            })
            .collect(),
        first_index: log.first_index,
        last_index: log.last_index,
        purged: log
            .purged
            .as_ref()
            .map(|purged| describe_log_id(&purged.log_id)),
        vote: log.vote.as_deref().map(describe_vote),
        committed: log.committed.as_deref().map(describe_log_id),
        synced_frame: log.synced,
        torn_bytes: log.torn_tail.as_ref().map_or(0, |torn| torn.bytes),
        incomplete_files: log.incomplete.iter().map(name).collect(),
    }
}

/// Applies the log's entries to the newest state, up to `index` or to the log's end. The last ones
/// may not have been committed.
///
/// # Errors
/// There is no state of `index` on this disk.
fn replay(
    base: Base,
    index: Option<u64>,
    log: &LogReport,
    reader: &LogReader,
    report: &mut Report,
) -> anyhow::Result<()> {
    let purged = log.purged.as_ref().map(|purged| purged.index);
    let reaches = base.meta.as_ref().map(|meta| meta.index);
    let falls_short = purged.is_some_and(|purged| reaches.is_none_or(|reaches| reaches < purged));
    match (index, falls_short) {
        (None, true) => {
            report.damage.push(format!(
                "the log begins after index {}, and no state on this disk reaches it: the next \
                 start fetches a peer's snapshot",
                purged.unwrap_or(0)
            ));
            return Ok(());
        }
        (Some(index), true) => bail!("a state of index {index} is not on this disk any more"),
        (_, false) => {}
    }
    let mut replay = Replay::new(base.state, reaches);
    if let Err(error) = replay.run(reader, index.unwrap_or(u64::MAX)) {
        report.damaged(&error);
        return Ok(());
    }
    let at = replay.index().unwrap_or(0);
    if let Some(index) = index.filter(|index| *index != at) {
        bail!("a state of index {index} is not on this disk yet: the log ends at {at}");
    }
    report.state = Some(Summary::of(replay.state(), at));
    Ok(())
}
