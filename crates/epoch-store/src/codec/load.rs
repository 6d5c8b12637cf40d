//! Rows, as they were stored, back to the state they were written from.

use epoch_machine::{LoadError, Loader, State, StateHash};

use super::DecodeError;
use super::row::{RowCounts, SnapshotHead, SnapshotRow};

/// Why stored rows are not a state.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// A row that is malformed or out of bounds.
    #[error("row {row} is malformed")]
    Row {
        /// Its number, from 0, the head.
        row: u64,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A row of another kind than its place says.
    #[error("row {0} is of another kind than the head says")]
    Kind(u64),
    /// Fewer rows than the head says.
    #[error("{0} rows are missing")]
    Missing(u64),
    /// Rows that do not fit together.
    #[error("its rows do not fit together")]
    Relation(#[from] LoadError),
    /// Each row is well, and one is missing, too many or another than was written.
    #[error("the state's hash is {found}; its head says {expected}")]
    StateHash {
        /// As the head says.
        expected: StateHash,
        /// That of the rows.
        found: StateHash,
    },
}

/// Puts a state together from the head and the rows it counts, in their order. What it returns
/// has the hash that the head names: it is the state that was written, or an error.
#[derive(Debug)]
pub(crate) struct StateLoader {
    loader: Loader,
    left: RowCounts,
    rows: u64,
    hash: StateHash,
}

impl StateLoader {
    pub(crate) fn new(head: &SnapshotHead) -> Self {
        Self {
            loader: Loader::new(head.head),
            left: head.counts,
            rows: 0,
            hash: head.state_hash,
        }
    }

    /// Adds the row that comes next.
    pub(crate) fn add(&mut self, row: SnapshotRow) -> Result<(), RowsError> {
        self.rows = self.rows.saturating_add(1);
        let RowCounts {
            sessions,
            scopes,
            spent,
            waits,
            records,
            admin,
        } = &mut self.left;
        let kinds = [sessions, scopes, spent, waits, records, admin];
        let kind = match &row {
            SnapshotRow::Session(_) => 0,
            SnapshotRow::Scope(_) => 1,
            SnapshotRow::Spent(_) => 2,
            SnapshotRow::Wait(_) => 3,
            SnapshotRow::Record(_) => 4,
            SnapshotRow::Admin(_) => 5,
        };
        // Each kind begins where the one before has ended.
        let mut left = kinds
            .into_iter()
            .enumerate()
            .skip_while(|(_, left)| **left == 0);
        match left.next() {
            Some((next, left)) if next == kind => *left -= 1,
            Some(_) | None => return Err(RowsError::Kind(self.rows)),
        }
        match row {
            SnapshotRow::Session(row) => self.loader.session(row)?,
            SnapshotRow::Scope(row) => self.loader.scope(row)?,
            SnapshotRow::Spent(row) => self.loader.spent(row)?,
            SnapshotRow::Wait(row) => self.loader.wait(row)?,
            SnapshotRow::Record(row) => self.loader.record(row)?,
            SnapshotRow::Admin(row) => self.loader.admin(row)?,
        }
        Ok(())
    }

    /// The state.
    pub(crate) fn finish(self) -> Result<State, RowsError> {
        match self.left.total() {
            0 => {}
            left => return Err(RowsError::Missing(left)),
        }
        let state = self.loader.finish()?;
        let found = state.hash();
        if found == self.hash {
            Ok(state)
        } else {
            Err(RowsError::StateHash {
                expected: self.hash,
                found,
            })
        }
    }
}
