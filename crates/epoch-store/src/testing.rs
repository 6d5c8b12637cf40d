//! What the tests of several modules share.

pub(crate) mod rows;
mod trust;
mod workload;

use std::fs;
use std::path::Path;

use epoch_core::{ClusterId, Incarnation};
use epoch_machine::{Batch, Entry, Outcome, State, apply};
use uuid::Uuid;

use crate::SplitMix;

pub(crate) use workload::Workload;

/// A place in something of `len` parts.
pub(crate) fn index_below(random: &mut SplitMix, len: usize) -> usize {
    usize::try_from(random.below(len as u64)).unwrap()
}

/// A number from the environment.
pub(crate) fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => default,
    }
}

/// A folder of the operating system's in memory where there is one, so that syncs cost nothing.
pub(crate) fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// All files of a folder, with the folder `blobs`.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Damages one file of a folder, or removes it.
pub(crate) fn damage_folder(folder: &Path, random: &mut SplitMix) {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    if files.is_empty() {
        return;
    }
    let file = files[index_below(random, files.len())].clone();
    let mut bytes = fs::read(&file).unwrap();
    if bytes.is_empty() {
        return;
    }
    match random.below(10) {
        0 => return fs::remove_file(&file).unwrap(),
        1 => bytes.truncate(index_below(random, bytes.len())),
        2 => {
            // A sector of zeros.
            let from = index_below(random, bytes.len()) / 512 * 512;
            let to = bytes.len().min(from + 512);
            bytes[from..to].fill(0);
        }
        3 => {
            // A sector that was never written.
            let from = index_below(random, bytes.len()) / 512 * 512;
            let other = index_below(random, bytes.len()) / 512 * 512;
            let len = 512.min(bytes.len() - from).min(bytes.len() - other);
            let copied = bytes[other..other + len].to_vec();
            bytes[from..from + len].copy_from_slice(&copied);
        }
        flips => {
            // Most of the file is padding: half of the flips go where the rows begin.
            for _ in 0..flips {
                let within = if random.below(2) == 0 {
                    bytes.len()
                } else {
                    bytes.len().min(64 << 10)
                };
                let at = index_below(random, within);
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
    fs::write(&file, bytes).unwrap();
}

pub(crate) fn fresh_state() -> State {
    State::new(
        ClusterId(Uuid::from_u128(1)),
        Incarnation(Uuid::from_u128(2)),
        0,
    )
}

pub(crate) fn apply_batch(state: &mut State, index: u64, batch: &Batch) -> Vec<Outcome> {
    let leadership = batch.leadership;
    let entry = Entry { leadership, index };
    apply(state, entry, batch).unwrap().outcomes
}

/// A state with rows of every kind, of several leaderships.
pub(crate) fn random_state(seed: u64, batches: u64) -> State {
    let mut workload = Workload::new(seed, 2_000, 20);
    let mut state = fresh_state();
    for index in 1..=batches {
        workload.advance(&mut state, index);
    }
    state
}
