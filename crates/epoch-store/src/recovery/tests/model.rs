//! What every node agrees on: the entries, and the state after each.

use std::ops::RangeInclusive;

use bytes::Bytes;
use epoch_machine::{Changes, State, StateHash};

use crate::codec::{decode_batch, encode_batch};
use crate::snapshot::{self, SnapshotMeta};
use crate::testing::{Workload, apply_batch, fresh_state};
use crate::{FileSystem, SimFs};

/// A state is kept at each of these, to make others from.
const STATE_EVERY: u64 = 64;

/// The log as it was agreed on: the entry at an index never changes.
pub(super) struct Model {
    workload: Workload,
    state: State,
    entries: Vec<Bytes>,
    hashes: Vec<StateHash>,
    states: Vec<State>,
}

pub(super) fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        index,
        term: 1 + index / 50,
        opaque: Bytes::from(format!("membership at {index}")),
    }
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            workload: Workload::new(seed, 300, 12),
            state: fresh_state(),
            entries: Vec::new(),
            hashes: Vec::new(),
            states: Vec::new(),
        }
    }

    pub(super) fn extend_to(&mut self, last: u64) {
        for index in self.entries.len() as u64..=last {
            let batch = self.workload.advance(&mut self.state, index);
            self.entries.push(encode_batch(&batch));
            self.hashes.push(self.state.hash());
            if index % STATE_EVERY == 0 {
                self.states.push(self.state.clone());
            }
        }
    }

    pub(super) fn entries(&self, range: RangeInclusive<u64>) -> Vec<(u64, Bytes)> {
        range.map(|index| (index, self.entry(index))).collect()
    }

    pub(super) fn entry(&self, index: u64) -> Bytes {
        self.entries[at(index)].clone()
    }

    pub(super) fn hash_at(&self, index: u64) -> StateHash {
        self.hashes[at(index)]
    }

    pub(super) fn state_at(&self, index: u64) -> State {
        let from = index / STATE_EVERY;
        let mut state = self.states[at(from)].clone();
        for index in from * STATE_EVERY + 1..=index {
            let batch = decode_batch(&self.entry(index)).unwrap();
            apply_batch(&mut state, index, &batch);
        }
        state
    }

    /// The state at `index`, and what has changed since that at `since`, or since the fresh one.
    pub(super) fn changed(&self, since: Option<u64>, index: u64) -> (State, Changes) {
        let mut state = since.map_or_else(fresh_state, |since| self.state_at(since));
        state.track_changes();
        for index in since.map_or(0, |since| since + 1)..=index {
            let batch = decode_batch(&self.entry(index)).unwrap();
            apply_batch(&mut state, index, &batch);
        }
        let changes = state.take_changes();
        (state, changes)
    }

    /// A peer's snapshot, as it is sent.
    pub(super) fn snapshot_bytes(&self, index: u64) -> Bytes {
        let fs = SimFs::new(0).shared();
        let folder = std::path::Path::new("/peer");
        let state = self.state_at(index);
        let written = snapshot::write(&fs, folder, &state, &meta(index), &mut || ()).unwrap();
        let chunks = snapshot::chunks(fs.as_ref() as &dyn FileSystem, &written.file).unwrap();
        chunks.flat_map(Result::unwrap).collect()
    }
}

fn at(index: u64) -> usize {
    usize::try_from(index).unwrap()
}
