//! The checkpoint's keys: those of its table, and those of the rows in it.

use epoch_core::RequestId;
use epoch_machine::{AdminKey, RowChange, SessionKey, StatementTopic};

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
/// Followed by the kind, one of these.
const ADMIN: u8 = 6;
const PERMISSION: u8 = 1;
const TOKEN: u8 = 2;
const LIMITS: u8 = 3;
const AUDIT: u8 = 4;
const BUNDLE: u8 = 5;
const OFFER: u8 = 6;
const ROTATION: u8 = 7;
const RETIRED: u8 = 8;
const STATEMENT: u8 = 9;

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
        Some(&(SESSION | SCOPE | SPENT | WAIT | RECORD | ADMIN))
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
        SnapshotRow::Admin(row) => put_admin(bytes, &row.key()),
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
        RowChange::Admin(key, _) => put_admin(bytes, key),
    }
}

fn put_number(bytes: &mut Vec<u8>, kind: u8, number: u64) {
    bytes.push(kind);
    bytes.extend_from_slice(&number.to_be_bytes());
}

fn put_admin(bytes: &mut Vec<u8>, key: &AdminKey) {
    bytes.push(ADMIN);
    match key {
        AdminKey::Permission(principal, prefix) => {
            put_name(bytes, PERMISSION, principal.as_str());
            // As in the key of a wait.
            put_name(bytes, 0, prefix.as_str());
        }
        AdminKey::Token(hash) => {
            bytes.push(TOKEN);
            bytes.extend_from_slice(&hash.0);
        }
        AdminKey::Limits(principal) => put_name(bytes, LIMITS, principal.as_str()),
        AdminKey::Audit(number) => put_number(bytes, AUDIT, *number),
        AdminKey::Bundle(sequence) => put_number(bytes, BUNDLE, *sequence),
        AdminKey::Offer(node) => put_number(bytes, OFFER, *node),
        AdminKey::Rotation(node) => put_number(bytes, ROTATION, *node),
        AdminKey::Retired(kid) => {
            bytes.push(RETIRED);
            bytes.extend_from_slice(kid.as_bytes());
        }
        AdminKey::Statement(topic) => {
            bytes.push(STATEMENT);
            bytes.push(match topic {
                StatementTopic::Clock => 1,
                StatementTopic::MaxFuture => 2,
            });
        }
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
    use epoch_core::{KeyId, Principal};
    use epoch_machine::{Prefix, TokenHash};

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
    fn keys_of_rare_rows_are_ordered_as_the_rows_are() {
        let principal = |name: &str| Principal::parse(name).unwrap();
        let permission = |name: &str, prefix: &str| {
            AdminKey::Permission(principal(name), Prefix::parse(prefix).unwrap())
        };
        let rows = [
            permission("a", ""),
            permission("a", "a"),
            permission("a", "b"),
            permission("a ", ""),
            permission("a/b", ""),
            permission("b", ""),
            AdminKey::Token(TokenHash([0; 32])),
            AdminKey::Token(TokenHash([255; 32])),
            AdminKey::Limits(principal("a")),
            AdminKey::Limits(principal("a/b")),
            AdminKey::Limits(principal("b")),
            AdminKey::Audit(1),
            AdminKey::Audit(256),
            AdminKey::Bundle(1),
            AdminKey::Bundle(256),
            AdminKey::Offer(1),
            AdminKey::Offer(256),
            AdminKey::Rotation(1),
            AdminKey::Rotation(256),
            AdminKey::Retired(KeyId::from_bytes([0; 32])),
            AdminKey::Retired(KeyId::from_bytes([255; 32])),
            AdminKey::Statement(StatementTopic::Clock),
            AdminKey::Statement(StatementTopic::MaxFuture),
        ];
        assert!(rows.is_sorted_by(|one, next| one < next));
        let keys = rows.map(|row| {
            let mut key = Vec::new();
            put_admin(&mut key, &row);
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
