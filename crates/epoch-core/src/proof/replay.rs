//! Which proofs have been used.

use std::collections::{BTreeMap, BTreeSet};

use crate::proof_error::ProofError;

/// The hashes of used proofs, each until its proof is out of the window by itself.
#[derive(Debug)]
pub(super) struct Replays {
    entries_max: usize,
    until_ms: BTreeMap<[u8; 32], u64>,
    by_time: BTreeSet<(u64, [u8; 32])>,
    /// Proofs that end by then have been forgotten: none is taken again, even if the clock steps
    /// back.
    forgotten_ms: u64,
}

impl Replays {
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            until_ms: BTreeMap::new(),
            by_time: BTreeSet::new(),
            forgotten_ms: 0,
        }
    }

    /// Remembers a proof that was not used before.
    pub(super) fn add(
        &mut self,
        used: [u8; 32],
        until_ms: u64,
        now_ms: u64,
    ) -> Result<(), ProofError> {
        self.forget(now_ms);
        if self.until_ms.contains_key(&used) || until_ms <= self.forgotten_ms {
            return Err(ProofError::Replayed);
        }
        // An entry that is still needed is never dropped for a new one.
        let entries = self.until_ms.len();
        if entries >= self.entries_max {
            return Err(ProofError::ReplayCacheFull { entries });
        }
        self.until_ms.insert(used, until_ms);
        self.by_time.insert((until_ms, used));
        Ok(())
    }

    fn forget(&mut self, now_ms: u64) {
        while let Some((until_ms, used)) = self.by_time.first().copied() {
            if until_ms >= now_ms {
                return;
            }
            self.by_time.remove(&(until_ms, used));
            self.until_ms.remove(&used);
            self.forgotten_ms = until_ms;
        }
    }
}
