use bytes::Bytes;
use epoch_machine::{METADATA_BYTES_MAX, VALUE_BYTES_MAX, WAIT_MS_MAX};
use prost::Message as _;
use raft::snapshot_row::Row;

use super::*;
use crate::testing::rows::{largest_rows, record, rows_of_every_kind};
use crate::testing::{fresh_state, random_state};

fn encoded(row: &SnapshotRow) -> Vec<u8> {
    row_message(row).encode_to_vec()
}

#[test]
fn every_row_survives() {
    for row in rows_of_every_kind() {
        assert_eq!(decode_row(&encoded(&row)).unwrap(), row);
    }
    let state = random_state(8, 600);
    for row in state_rows(&state) {
        assert_eq!(decode_row(&encoded(&row)).unwrap(), row);
    }
}

#[test]
fn the_head_counts_the_rows_and_survives() {
    for state in [fresh_state(), random_state(8, 600)] {
        let head = SnapshotHead::from(&state);
        assert_eq!(head.counts.total(), state_rows(&state).count() as u64);
        let bytes = head_message(&head).encode_to_vec();
        assert_eq!(decode_head(&bytes).unwrap(), head);
    }
}

#[test]
fn a_row_cut_anywhere_or_followed_by_anything_is_refused() {
    for row in rows_of_every_kind() {
        let whole = encoded(&row);
        for end in 0..whole.len() {
            assert!(decode_row(&whole[..end]).is_err(), "{row:?} cut at {end}");
        }
        for extra in 0..=u8::MAX {
            let mut longer = whole.clone();
            longer.push(extra);
            assert!(decode_row(&longer).is_err(), "{row:?}, then {extra}");
        }
    }
}

/// The name of the error's variant.
fn refused(row: &Row) -> String {
    let row = Some(row.clone());
    let error = decode_row(&raft::SnapshotRow { row }.encode_to_vec()).unwrap_err();
    let shown = format!("{error:?}");
    let end = shown.find(|c: char| !c.is_alphanumeric());
    shown[..end.unwrap_or(shown.len())].to_owned()
}

fn assert_refused(cases: Vec<(&str, Row)>) {
    for (expected, row) in cases {
        assert_eq!(refused(&row), expected, "{row:?}");
    }
}

/// A message of a kind's largest row, changed.
macro_rules! changed {
    ($name:ident, $kind:ident, $message:ty) => {
        fn $name(change: impl FnOnce(&mut $message)) -> Row {
            let mut rows = largest_rows().into_iter();
            let found = rows.find_map(|row| match row_message(&row).row {
                Some(Row::$kind(message)) => Some(message),
                _ => None,
            });
            let mut message = found.unwrap();
            change(&mut message);
            Row::$kind(message)
        }
    };
}

changed!(session_with, Session, raft::SessionRow);
changed!(scope_with, Scope, raft::ScopeRow);
changed!(spent_with, Spent, raft::SpentRow);
changed!(wait_with, Wait, raft::WaitRow);
changed!(record_with, Record, raft::RecordRow);
changed!(permission_with, Permission, raft::PermissionRow);
changed!(token_with, Token, raft::TokenRow);
changed!(limits_with, Limits, raft::LimitsRow);
changed!(audit_with, Audit, raft::AuditRow);
changed!(bundle_with, Bundle, raft::BundleRow);
changed!(offer_with, Offer, raft::OfferRow);
changed!(retired_with, Retired, raft::RetiredRow);
changed!(statement_with, Statement, raft::StatementRow);

fn held_with(change: impl FnOnce(&mut raft::HeldRow)) -> Row {
    scope_with(|row| change(row.held.as_mut().unwrap()))
}

fn free_with(change: impl FnOnce(&mut raft::ScopeRow)) -> Row {
    scope_with(|row| {
        row.held = None;
        change(row);
    })
}

fn done_with(change: impl FnOnce(&mut raft::DoneIntent)) -> Row {
    record_with(|row| change(row.intents.last_mut().unwrap()))
}

const TOO_HIGH: u64 = 1 << 53;

#[test]
fn malformed_sessions_are_refused() {
    assert_refused(vec![
        ("Missing", session_with(|row| row.key = None)),
        ("Length", session_with(|row| row.open_id.truncate(15))),
        ("Name", session_with(|row| row.holder.push('h'))),
        ("Name", session_with(|row| row.holder.clear())),
        ("Ttl", session_with(|row| row.ttl_ms = 999)),
        ("Ttl", session_with(|row| row.ttl_ms += 1)),
        ("Ttl", session_with(|row| row.stall_limit_ms = Some(0))),
        ("Ttl", session_with(|row| row.stall_limit_ms = Some(999))),
        ("Id", session_with(|row| row.forgotten = TOO_HIGH)),
        (
            "Name",
            session_with(|row| row.principal = Some(String::new())),
        ),
        (
            "Name",
            session_with(|row| row.principal = Some("p\n".to_owned())),
        ),
        (
            "Length",
            session_with(|row| row.holder_key = Some(vec![7; 31].into())),
        ),
        (
            "Length",
            session_with(|row| row.holder_key = Some(Bytes::new())),
        ),
    ]);
}

#[test]
fn malformed_scopes_are_refused() {
    assert_refused(vec![
        ("Name", scope_with(|row| row.scope.push('n'))),
        ("Name", scope_with(|row| row.scope.clear())),
        ("Id", scope_with(|row| row.epoch = 0)),
        ("Id", scope_with(|row| row.epoch = TOO_HIGH)),
        ("Spelling", scope_with(|row| row.lock_delay_ms = 1)),
        ("Wait", free_with(|row| row.lock_delay_ms = WAIT_MS_MAX + 1)),
        ("Missing", held_with(|held| held.session = None)),
        ("Id", held_with(|held| held.request_id = TOO_HIGH)),
        (
            "Spelling",
            held_with(|held| held.terms = Some(raft::Terms::default())),
        ),
        ("Wait", held_with(|held| terms_of(held).lock_delay_ms += 1)),
        (
            "Metadata",
            held_with(|held| terms_of(held).metadata.push('m')),
        ),
        // Neither is anything without the other.
        ("Id", held_with(|held| held.before_epoch = 0)),
        ("Id", held_with(|held| held.before_epoch = TOO_HIGH)),
        ("Missing", held_with(|held| held.before_session = None)),
    ]);
}

fn terms_of(held: &mut raft::HeldRow) -> &mut raft::Terms {
    held.terms.as_mut().unwrap()
}

#[test]
fn malformed_spent_request_ids_are_refused() {
    assert_refused(vec![
        ("Missing", spent_with(|row| row.session = None)),
        ("Id", spent_with(|row| row.request_id = 0)),
        ("Id", spent_with(|row| row.request_id = TOO_HIGH)),
        ("Name", spent_with(|row| row.scope.push('n'))),
        ("Unknown", spent_with(|row| row.what = 0)),
        ("Unknown", spent_with(|row| row.what = 4)),
        ("Unknown", spent_with(|row| row.what = u32::MAX)),
    ]);
}

#[test]
fn malformed_waits_are_refused() {
    assert_refused(vec![
        ("Name", wait_with(|row| row.scope.push('n'))),
        ("Missing", wait_with(|row| row.session = None)),
        ("Id", wait_with(|row| row.request_id = 0)),
        ("Id", wait_with(|row| row.request_id = TOO_HIGH)),
        ("Wait", wait_with(|row| row.wait_ms = WAIT_MS_MAX + 1)),
        ("Wait", wait_with(|row| row.wait_ms = u64::MAX)),
        (
            "Spelling",
            wait_with(|row| row.terms = Some(raft::Terms::default())),
        ),
        (
            "Metadata",
            wait_with(|row| {
                row.terms = Some(raft::Terms {
                    lock_delay_ms: 0,
                    metadata: "m".repeat(METADATA_BYTES_MAX + 1),
                });
            }),
        ),
    ]);
}

#[test]
fn malformed_records_are_refused() {
    assert_refused(vec![
        ("Name", record_with(|row| row.scope.push('n'))),
        ("Id", record_with(|row| row.revision = 0)),
        ("Id", record_with(|row| row.revision = TOO_HIGH)),
        ("Id", record_with(|row| row.epoch = 0)),
        ("Id", record_with(|row| row.epoch = TOO_HIGH)),
        (
            "Value",
            record_with(|row| row.value = Some(vec![7; VALUE_BYTES_MAX + 1].into())),
        ),
        (
            "TooLarge",
            record_with(|row| row.intents.push(row.intents[0].clone())),
        ),
        ("Missing", done_with(|done| done.intent = None)),
        ("Id", done_with(|done| done.revision = 0)),
        ("Id", done_with(|done| done.revision = TOO_HIGH)),
        (
            "Length",
            done_with(|done| done.intent.as_mut().unwrap().id.truncate(15)),
        ),
        (
            "Length",
            done_with(|done| done.intent.as_mut().unwrap().payload.truncate(0)),
        ),
    ]);
}

#[test]
fn malformed_rare_rows_are_refused() {
    assert_refused(vec![
        ("Name", permission_with(|row| row.principal.clear())),
        ("Name", permission_with(|row| row.principal.push('p'))),
        ("Prefix", permission_with(|row| row.prefix.push('p'))),
        (
            "Prefix",
            permission_with(|row| row.prefix = "a\0".to_owned()),
        ),
        ("Verbs", permission_with(|row| row.verbs = 0)),
        ("Verbs", permission_with(|row| row.verbs = 16)),
        ("Verbs", permission_with(|row| row.verbs = 256 + 1)),
        ("Length", token_with(|row| row.hash.truncate(31))),
        ("Name", token_with(|row| row.principal.clear())),
        ("Label", token_with(|row| row.label.clear())),
        ("Label", token_with(|row| row.label.push('l'))),
        ("Label", token_with(|row| row.label = "a b".to_owned())),
        ("Label", token_with(|row| row.label = "\u{e9}".to_owned())),
        ("Name", limits_with(|row| row.principal.clear())),
        (
            "Name",
            audit_with(|row| row.principal = Some(String::new())),
        ),
        ("Unknown", audit_with(|row| row.action = 0)),
        ("Unknown", audit_with(|row| row.action = 11)),
        ("Unknown", audit_with(|row| row.action = u32::MAX)),
        ("Target", audit_with(|row| row.target.push('t'))),
        (
            "Reason",
            audit_with(|row| row.refused = "NO_REASON".to_owned()),
        ),
    ]);
}

fn signature_with(change: impl FnOnce(&mut raft::BundleSignature)) -> Row {
    bundle_with(|row| change(row.signatures.last_mut().unwrap()))
}

#[test]
fn malformed_rows_of_signing_keys_are_refused() {
    assert_refused(vec![
        ("Bundle", bundle_with(|row| row.payload.clear())),
        ("Bundle", bundle_with(|row| row.payload.push(' '))),
        ("Bundle", bundle_with(|row| row.payload = "{}".to_owned())),
        ("Bundle", bundle_with(|row| row.signatures.clear())),
        (
            "Bundle",
            bundle_with(|row| row.signatures.push(row.signatures[0].clone())),
        ),
        (
            "Bundle",
            bundle_with(|row| row.signatures[1] = row.signatures[0].clone()),
        ),
        ("Length", signature_with(|one| one.kid.truncate(31))),
        ("Length", signature_with(|one| one.signature.truncate(63))),
        ("Length", offer_with(|row| row.public_key.truncate(31))),
        (
            "Length",
            offer_with(|row| row.public_key = vec![7; 33].into()),
        ),
        ("Length", retired_with(|row| row.kid.truncate(31))),
        ("Unknown", statement_with(|row| row.topic = 0)),
        ("Unknown", statement_with(|row| row.topic = 3)),
        ("TooLarge", statement_with(|row| row.text.push('s'))),
    ]);
}

#[test]
fn a_row_of_no_kind_is_refused() {
    let error = decode_row(&[]).unwrap_err();
    assert!(matches!(error, DecodeError::Missing("row")), "{error:?}");
}

#[test]
fn a_removed_value_and_an_empty_one_are_told_apart() {
    let removed = SnapshotRow::Record(record("a", None, 0));
    let empty = SnapshotRow::Record(record("a", Some(b""), 0));
    assert_ne!(encoded(&removed), encoded(&empty));
}
