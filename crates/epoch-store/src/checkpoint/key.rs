//! The checkpoint's keys: those of its table, and those of the rows in it.

use epoch_core::RequestId;
use epoch_machine::{RowChange, SessionKey};

use crate::codec::SnapshotRow;

/// The key of the head. No other key is this short, so it comes first.
pub(super) const HEAD: [u8; 1] = [0];
/// How the keys of chunks begin.
const CHUNK: u8 = 1;

const SESSION: u8 = 1;
const SCOPE: u8 = 2;
const SPENT: u8 = 3;
const WAIT: u8 = 4;
const RECORD: u8 = 5;

/// The key of a chunk. Big-endian: byte order is then the order in which chunks were written.
pub(super) fn chunk(number: u64) -> [u8; 9] {
    let mut key = [CHUNK; 9];
    let (_, rest) = key.split_at_mut(1);
    rest.copy_from_slice(&number.to_be_bytes());
    key
}

/// The number of the chunk with this key.
pub(super) fn chunk_number(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&[CHUNK])?;
    number.try_into().ok().map(u64::from_be_bytes)
}

/// Whether these bytes begin as the key of a row does.
pub(super) fn is_row_key(bytes: &[u8]) -> bool {
    matches!(
        bytes.first(),
        Some(&(SESSION | SCOPE | SPENT | WAIT | RECORD))
    )
}

/// Appends the key of a row. The byte order of keys is the order of rows in a snapshot.
pub(super) fn put_row_key(bytes: &mut Vec<u8>, row: &SnapshotRow) {
    match row {
        SnapshotRow::Session(row) => put_session(bytes, row.key),
        SnapshotRow::Scope(row) => put_name(bytes, SCOPE, row.scope.as_str()),
        SnapshotRow::Spent(row) => put_spent(bytes, row.session, row.request_id),
        SnapshotRow::Wait(row) => put_wait(bytes, row.scope.as_str(), row.index, row.offset),
        SnapshotRow::Record(row) => put_name(bytes, RECORD, row.scope.as_str()),
    }
}

/// Appends the key of a row that has changed.
pub(super) fn put_changed_key(bytes: &mut Vec<u8>, change: &RowChange) {
    match change {
        RowChange::Session(key, _) => put_session(bytes, *key),
        RowChange::Scope(name, _) => put_name(bytes, SCOPE, name),
        RowChange::Spent(key, request_id, _) => put_spent(bytes, *key, *request_id),
        RowChange::Wait(name, (index, offset), _) => put_wait(bytes, name, *index, *offset),
        RowChange::Record(name, _) => put_name(bytes, RECORD, name),
    }
}

fn put_session(bytes: &mut Vec<u8>, key: SessionKey) {
    bytes.push(SESSION);
    put_numbers(bytes, key);
}

fn put_name(bytes: &mut Vec<u8>, kind: u8, name: &str) {
    bytes.push(kind);
    bytes.extend_from_slice(name.as_bytes());
}

fn put_wait(bytes: &mut Vec<u8>, name: &str, index: u64, offset: u32) {
    put_name(bytes, WAIT, name);
    // Below every byte of a name, which has no control characters: a name that begins with
    // another comes after all of the other's waits.
    bytes.push(0);
    put_numbers(bytes, SessionKey { index, offset });
}

fn put_spent(bytes: &mut Vec<u8>, key: SessionKey, request_id: RequestId) {
    bytes.push(SPENT);
    put_numbers(bytes, key);
    bytes.extend_from_slice(&request_id.get().to_be_bytes());
}

fn put_numbers(bytes: &mut Vec<u8>, key: SessionKey) {
    bytes.extend_from_slice(&key.index.to_be_bytes());
    bytes.extend_from_slice(&key.offset.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::state_rows;
    use crate::testing::{Workload, fresh_state};

    #[test]
    fn row_keys_are_ordered_as_rows_are_and_the_same_for_changes() {
        let mut state = fresh_state();
        state.track_changes();
        let mut workload = Workload::new(1, 300, 60);
        for index in 1..=400 {
            workload.advance(&mut state, index);
        }
        let keys: Vec<_> = state_rows(&state)
            .map(|row| {
                let mut key = Vec::new();
                put_row_key(&mut key, &row);
                key
            })
            .collect();
        assert!(keys.is_sorted_by(|one, next| one < next));
        assert!(keys.iter().all(|key| is_row_key(key)));

        let changes = state.take_changes();
        let changed = state.changed_rows(&changes);
        let changed: Vec<_> = changed
            .map(|change| {
                let mut key = Vec::new();
                put_changed_key(&mut key, &change);
                key
            })
            .collect();
        // All rows are new; some came and went.
        assert!(changed.is_sorted() && changed.len() > keys.len());
        assert!(keys.iter().all(|key| changed.binary_search(key).is_ok()));
    }

    #[test]
    fn queues_of_scopes_that_begin_alike_do_not_mix() {
        let places = [
            ("a", 0, 0),
            ("a", 0, 1),
            ("a", 1, 0),
            ("a", u64::MAX, u32::MAX),
            ("a ", 0, 0),
            ("a/b", 0, 0),
            ("b", 0, 0),
        ];
        let keys = places.map(|(name, index, offset)| {
            let mut key = Vec::new();
            put_wait(&mut key, name, index, offset);
            key
        });
        assert!(keys.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn chunk_keys_are_read_back_and_ordered_by_number() {
        let numbers = [0, 1, 255, 256, u64::MAX];
        let keys = numbers.map(chunk);
        assert!(keys.is_sorted() && keys[0][..] > HEAD[..]);
        assert_eq!(keys.map(|key| chunk_number(&key)), numbers.map(Some));
        assert_eq!(chunk_number(&HEAD), None);
    }
}
