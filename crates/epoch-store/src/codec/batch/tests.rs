use std::sync::Arc;

use epoch_core::{
    ClusterId, Incarnation, IntentId, KeyOffer, Principal, SessionId, SignedBundle, SigningKey,
    TextKind,
};
use epoch_machine::{
    AdminRow, IntentDigest, Limits, LockDelay, METADATA_BYTES_MAX, Metadata, Prefix, SCOPES_MAX,
    SessionKey, TTL_MS_MAX, TTL_MS_MIN, Terms, TokenHash, TokenLabel, VALUE_BYTES_MAX, Value,
    Verbs, WAIT_MS_MAX,
};
use uuid::Uuid;

use super::*;
use crate::codec::SnapshotRow;
use crate::testing::rows::largest_rows;

fn session() -> SessionId {
    SessionId {
        open_id: OpenId(Uuid::from_u128(7)),
        index: 300,
        offset: 2,
    }
}

fn principal(name: &str) -> Principal {
    Principal::parse(name).unwrap()
}

fn terms_of(lock_delay_ms: u64) -> Terms {
    Terms {
        lock_delay: LockDelay::from_ms(lock_delay_ms).unwrap(),
        metadata: Metadata::new("{\"run\": 7}").unwrap(),
    }
}

fn record_write(value: Option<&[u8]>, intent: Option<&str>) -> Command {
    let value = value.map(|bytes| Value::new(bytes).unwrap());
    let intent = intent.map(|id| IntentId::parse(id).unwrap());
    Command::WriteRecord {
        scope: Scope::parse("reports/research-note").unwrap(),
        session: session(),
        epoch: Epoch::new(1 << 50).unwrap(),
        expected_revision: intent.is_some().then_some(0),
        intent: intent.map(|id| IntentDigest::of(&id, value.as_ref())),
        value,
    }
}

fn signing(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32]).unwrap()
}

fn key_offer(endorser: Option<SigningKey>) -> KeyOffer {
    let cluster = ClusterId(Uuid::from_u128(1));
    let incarnation = Incarnation(Uuid::from_u128(2));
    let offer = signing(2).offer(cluster, incarnation, 3, endorser.as_ref());
    offer.unwrap()
}

fn largest_bundle() -> Arc<SignedBundle> {
    let mut rows = largest_rows().into_iter();
    let found = rows.find_map(|row| match row {
        SnapshotRow::Admin(AdminRow::Bundle(bundle)) => Some(bundle),
        _ => None,
    });
    found.unwrap()
}

fn every_command() -> Vec<Command> {
    let nobody = every_operator_command(None);
    let root = every_operator_command(Some(principal("root")));
    [commands_of_sessions(), nobody, root].concat()
}

fn commands_of_sessions() -> Vec<Command> {
    let scope = Scope::parse("reports/research-note").unwrap();
    let epoch = Epoch::new(1 << 50).unwrap();
    vec![
        Command::Open {
            open_id: OpenId(Uuid::from_u128(7)),
            holder: Holder::parse("agent-a").unwrap(),
            ttl: Ttl::from_ms(10_000).unwrap(),
            stall_limit: None,
            principal: None,
            holder_key: None,
        },
        Command::Open {
            open_id: OpenId(Uuid::from_u128(7)),
            holder: Holder::parse("agent-a").unwrap(),
            ttl: Ttl::from_ms(10_000).unwrap(),
            stall_limit: Some(Ttl::from_ms(60_000).unwrap()),
            principal: Some(principal("agent-a")),
            holder_key: Some([7; 32]),
        },
        Command::Close { session: session() },
        Command::Expire {
            session: SessionKey {
                index: 0,
                offset: 0,
            },
        },
        Command::Acquire {
            scope: scope.clone(),
            session: session(),
            request_id: RequestId::new(9).unwrap(),
            terms: Terms::default(),
            wait: Wait::default(),
            reissue: false,
        },
        Command::Acquire {
            scope: scope.clone(),
            session: session(),
            request_id: RequestId::new(9).unwrap(),
            terms: terms_of(1_000),
            wait: Wait::from_ms(30_000).unwrap(),
            reissue: true,
        },
        Command::AcquireMany {
            scopes: Scopes::new(vec![scope.clone(), Scope::parse("a").unwrap()]).unwrap(),
            session: session(),
            request_id: RequestId::new(9).unwrap(),
            terms: terms_of(0),
        },
        Command::CancelWait {
            scope: scope.clone(),
            session: session(),
            request_id: RequestId::new(9).unwrap(),
        },
        Command::EndWait {
            session: SessionKey::from(&session()),
            request_id: RequestId::new(9).unwrap(),
        },
        Command::EndDelay {
            scope: scope.clone(),
            epoch,
        },
        Command::Transfer {
            scope: scope.clone(),
            session: session(),
            epoch,
            to: session().hash(),
        },
        record_write(None, None),
        record_write(Some(&[]), None),
        record_write(Some(&[7; VALUE_BYTES_MAX]), Some("intent")),
        Command::Release {
            scope: scope.clone(),
            session: session(),
            epoch,
        },
        Command::Revoke {
            scope: scope.clone(),
            epoch: None,
            by: None,
        },
        Command::Revoke {
            scope,
            epoch: Some(epoch),
            by: Some(principal("root")),
        },
        Command::OfferKey(Arc::new(key_offer(None))),
        Command::OfferKey(Arc::new(key_offer(Some(signing(1))))),
    ]
}

/// Those of operators, by nobody in particular or by somebody.
fn every_operator_command(by: Option<Principal>) -> Vec<Command> {
    let limit = by.is_some().then_some(7);
    vec![
        Command::GrantPermission {
            by: by.clone(),
            principal: principal("agent-a"),
            prefix: Prefix::default(),
            verbs: Verbs::ALL,
        },
        Command::RevokePermission {
            by: by.clone(),
            principal: principal("agent-a"),
            prefix: Prefix::parse("reports/").unwrap(),
        },
        Command::AddToken {
            by: by.clone(),
            principal: principal("agent-a"),
            label: TokenLabel::parse("ci-1").unwrap(),
            hash: TokenHash([8; 32]),
            expires_ms: by.as_ref().and(NonZeroU64::new(1_900_000_000_000)),
        },
        Command::RemoveToken {
            by: by.clone(),
            principal: principal("agent-a"),
            label: TokenLabel::parse("ci-1").unwrap(),
        },
        Command::PutBundle {
            by: by.clone(),
            bundle: largest_bundle(),
        },
        Command::RotateKeys {
            by: by.clone(),
            node: by.as_ref().and(Some(0)),
        },
        Command::RetireKey {
            by: by.clone(),
            kid: signing(1).id(),
        },
        Command::PutStatement {
            by: by.clone(),
            text: "a statement".into(),
        },
        Command::SetLimits {
            by,
            principal: principal("agent-a"),
            limits: Limits {
                sessions: limit,
                grants: limit,
                waits: limit,
                requests_per_second: limit,
            },
        },
    ]
}

fn batch(commands: Vec<Command>) -> Batch {
    Batch {
        leadership: Leadership { term: 4, node: 2 },
        wall_ms: 1_800_000_000_000,
        commands,
    }
}

#[test]
fn every_command_survives() {
    let batch = batch(every_command());
    assert_eq!(decode_batch(&encode_batch(&batch)).unwrap(), batch);
}

#[test]
fn the_stated_sizes_bound_the_batch() {
    let empty = encode_batch(&batch(Vec::new())).len();
    let mut largest = batch(Vec::new());
    largest.wall_ms = u64::MAX;
    largest.leadership = Leadership {
        term: u64::MAX,
        node: u64::MAX,
    };
    assert_eq!(encode_batch(&largest).len(), BATCH_HEAD_BYTES_MAX);
    for command in every_command() {
        let bytes = command_bytes(&command);
        let commands = vec![command; 3];
        assert_eq!(encode_batch(&batch(commands)).len(), empty + 3 * bytes);
    }
}

#[test]
fn the_largest_command_fits_into_a_batch_with_room_for_others() {
    let scopes = (0..SCOPES_MAX).map(|n| Scope::parse(&format!("{n:0>512}")).unwrap());
    let mut terms = terms_of(WAIT_MS_MAX);
    terms.metadata = Metadata::new(&"m".repeat(METADATA_BYTES_MAX)).unwrap();
    let largest = Command::AcquireMany {
        scopes: Scopes::new(scopes.collect()).unwrap(),
        session: session(),
        request_id: RequestId::new((1 << 53) - 1).unwrap(),
        terms,
    };
    let bytes = encode_batch(&batch(vec![largest.clone()]));
    assert_eq!(decode_batch(&bytes).unwrap().commands, [largest]);
    assert!(bytes.len() < BATCH_BYTES_MAX / 4, "{}", bytes.len());
}

#[test]
fn a_batch_cut_anywhere_or_followed_by_anything_is_refused_or_shorter() {
    let whole = encode_batch(&batch(every_command()));
    for end in 0..whole.len() {
        // A cut between two commands is a shorter batch: lengths are the log's matter.
        if let Ok(shorter) = decode_batch(&whole[..end]) {
            assert_eq!(encode_batch(&shorter), whole[..end]);
        }
    }
    for extra in 0..=u8::MAX {
        let mut longer = whole.to_vec();
        longer.push(extra);
        assert!(decode_batch(&longer).is_err(), "{extra}");
    }
}

#[test]
fn what_this_version_would_not_write_is_refused() {
    let whole = encode_batch(&batch(every_command()));
    let refused = |bytes: &[u8]| decode_batch(bytes).unwrap_err();
    assert!(matches!(refused(b""), DecodeError::Magic(_)));
    assert!(matches!(refused(b"EPB"), DecodeError::Magic(_)));
    assert!(matches!(refused(&whole[1..]), DecodeError::Magic(_)));
    let mut newer = whole.to_vec();
    newer[3] = 2;
    assert!(matches!(refused(&newer), DecodeError::Version { found: 2 }));
    let mut unknown_field = whole.to_vec();
    unknown_field.extend([15 << 3, 1]);
    assert!(matches!(
        refused(&unknown_field),
        DecodeError::UnknownBytes { .. }
    ));
    let mut twice = whole.to_vec();
    twice.extend([1 << 3, 4]);
    assert!(matches!(refused(&twice), DecodeError::UnknownBytes { .. }));
    let huge = vec![0; ENTRY_BYTES_MAX + 1];
    assert!(matches!(refused(&huge), DecodeError::TooLarge { .. }));
}

/// The name of the error's variant.
fn refused(message: &raft::command::Command) -> String {
    let command = Some(message.clone());
    let encoded = raft::Batch {
        commands: vec![raft::Command { command }],
        ..raft::Batch::default()
    };
    let bytes = [MAGIC, &[VERSION], &encoded.encode_to_vec()].concat();
    let shown = format!("{:?}", decode_batch(&bytes).unwrap_err());
    let end = shown.find(|c: char| !c.is_alphanumeric());
    shown[..end.unwrap_or(shown.len())].to_owned()
}

/// A message of a kind, every value of which is well, changed.
macro_rules! changed {
    ($name:ident, $kind:ident) => {
        fn $name(change: impl FnOnce(&mut raft::$kind)) -> raft::command::Command {
            let mut commands = every_command().into_iter().rev();
            let found = commands.find_map(|command| match command_message(&command).command {
                Some(raft::command::Command::$kind(message)) => Some(message),
                _ => None,
            });
            let mut message = found.unwrap();
            change(&mut message);
            raft::command::Command::$kind(message)
        }
    };
}

changed!(open, Open);
changed!(close, Close);
changed!(expire, Expire);
changed!(acquire, Acquire);
changed!(acquire_many, AcquireMany);
changed!(cancel_wait, CancelWait);
changed!(end_wait, EndWait);
changed!(end_delay, EndDelay);
changed!(transfer, Transfer);
changed!(write_record, WriteRecord);
changed!(release, Release);
changed!(revoke, Revoke);
changed!(put_bundle, PutBundle);
changed!(offer_key, OfferKey);
changed!(rotate_keys, RotateKeys);
changed!(retire_key, RetireKey);
changed!(put_statement, PutStatement);
changed!(grant_permission, GrantPermission);
changed!(revoke_permission, RevokePermission);
changed!(add_token, AddToken);
changed!(remove_token, RemoveToken);
changed!(set_limits, SetLimits);

const TOO_HIGH: u64 = 1 << 53;

fn assert_refused(cases: Vec<(&str, raft::command::Command)>) {
    for (expected, message) in cases {
        assert_eq!(refused(&message), expected, "{message:?}");
    }
}

#[test]
fn malformed_sessions_and_keys_are_refused() {
    assert_refused(vec![
        ("Length", open(|open| open.open_id.truncate(15))),
        ("Name", open(|open| open.holder.clear())),
        ("Ttl", open(|open| open.ttl_ms = TTL_MS_MIN - 1)),
        ("Ttl", open(|open| open.ttl_ms = TTL_MS_MAX + 1)),
        ("Ttl", open(|open| open.stall_limit_ms = Some(0))),
        (
            "Ttl",
            open(|open| open.stall_limit_ms = Some(TTL_MS_MAX + 1)),
        ),
        ("Missing", close(|close| close.session = None)),
        ("Missing", expire(|expire| expire.session = None)),
        ("Missing", end_wait(|end| end.session = None)),
        (
            "Missing",
            close(|close| close.session.as_mut().unwrap().key = None),
        ),
        (
            "Length",
            close(|close| close.session.as_mut().unwrap().open_id.truncate(0)),
        ),
        ("Name", open(|open| open.principal = Some(String::new()))),
        (
            "Length",
            open(|open| open.holder_key = Some(vec![7; 33].into())),
        ),
    ]);
    let error = command(raft::Command { command: None }).unwrap_err();
    assert!(matches!(error, DecodeError::Missing(_)), "{error:?}");
}

#[test]
fn malformed_acquires_are_refused() {
    let default = || Some(raft::Terms::default());
    let of = |lock_delay_ms, metadata: usize| {
        let metadata = "m".repeat(metadata);
        Some(raft::Terms {
            lock_delay_ms,
            metadata,
        })
    };
    assert_refused(vec![
        ("Name", acquire(|acquire| acquire.scope.clear())),
        ("Name", acquire(|acquire| acquire.scope = "a".repeat(513))),
        ("Name", acquire(|acquire| acquire.scope = "a\n".to_owned())),
        ("Missing", acquire(|acquire| acquire.session = None)),
        ("Id", acquire(|acquire| acquire.request_id = 0)),
        ("Id", acquire(|acquire| acquire.request_id = TOO_HIGH)),
        ("Spelling", acquire(|acquire| acquire.terms = default())),
        (
            "Wait",
            acquire(|acquire| acquire.terms = of(WAIT_MS_MAX + 1, 0)),
        ),
        (
            "Metadata",
            acquire(|acquire| acquire.terms = of(0, METADATA_BYTES_MAX + 1)),
        ),
        ("Wait", acquire(|acquire| acquire.wait_ms = WAIT_MS_MAX + 1)),
        ("Scopes", acquire_many(|many| many.scopes.clear())),
        (
            "Scopes",
            acquire_many(|many| many.scopes = (0..65).map(|n| format!("s/{n}")).collect()),
        ),
        (
            "Scopes",
            acquire_many(|many| many.scopes.push(many.scopes[0].clone())),
        ),
        ("Name", acquire_many(|many| many.scopes.push(String::new()))),
        ("Missing", acquire_many(|many| many.session = None)),
        ("Id", acquire_many(|many| many.request_id = 0)),
        ("Spelling", acquire_many(|many| many.terms = default())),
    ]);
}

#[test]
fn malformed_ends_of_waits_and_grants_are_refused() {
    assert_refused(vec![
        ("Name", cancel_wait(|cancel| cancel.scope.clear())),
        ("Missing", cancel_wait(|cancel| cancel.session = None)),
        ("Id", cancel_wait(|cancel| cancel.request_id = 0)),
        ("Id", end_wait(|end| end.request_id = 0)),
        ("Id", end_wait(|end| end.request_id = TOO_HIGH)),
        ("Name", end_delay(|end| end.scope.clear())),
        ("Id", end_delay(|end| end.epoch = 0)),
        ("Name", transfer(|transfer| transfer.scope.clear())),
        ("Missing", transfer(|transfer| transfer.session = None)),
        ("Id", transfer(|transfer| transfer.epoch = 0)),
        ("Length", transfer(|transfer| transfer.to.truncate(31))),
        ("Name", release(|release| release.scope.clear())),
        ("Missing", release(|release| release.session = None)),
        ("Id", release(|release| release.epoch = 0)),
        ("Name", revoke(|revoke| revoke.scope.clear())),
        ("Id", revoke(|revoke| revoke.epoch = Some(0))),
        ("Id", revoke(|revoke| revoke.epoch = Some(TOO_HIGH))),
    ]);
}

#[test]
fn malformed_commands_of_operators_are_refused() {
    let nobody = || Some(String::new());
    let permission_with = |change: fn(&mut raft::PermissionRow)| {
        grant_permission(|grant| change(grant.permission.as_mut().unwrap()))
    };
    assert_refused(vec![
        ("Name", revoke(|revoke| revoke.by = nobody())),
        ("Missing", grant_permission(|grant| grant.permission = None)),
        ("Name", grant_permission(|grant| grant.by = nobody())),
        ("Name", permission_with(|row| row.principal.clear())),
        (
            "Prefix",
            permission_with(|row| row.prefix = "p".repeat(513)),
        ),
        ("Verbs", permission_with(|row| row.verbs = 0)),
        ("Verbs", permission_with(|row| row.verbs = 16)),
        ("Name", revoke_permission(|revoke| revoke.by = nobody())),
        ("Name", revoke_permission(|revoke| revoke.principal.clear())),
        (
            "Prefix",
            revoke_permission(|revoke| revoke.prefix.push('\n')),
        ),
        ("Name", add_token(|add| add.by = nobody())),
        ("Name", add_token(|add| add.principal.clear())),
        ("Label", add_token(|add| add.label.push('/'))),
        ("Length", add_token(|add| add.hash.truncate(31))),
        ("Name", remove_token(|remove| remove.by = nobody())),
        ("Name", remove_token(|remove| remove.principal.clear())),
        ("Label", remove_token(|remove| remove.label.clear())),
        ("Name", set_limits(|set| set.by = nobody())),
        ("Missing", set_limits(|set| set.limits = None)),
        (
            "Name",
            set_limits(|set| set.limits.as_mut().unwrap().principal.clear()),
        ),
    ]);
}

#[test]
fn malformed_commands_about_signing_keys_are_refused() {
    let nobody = || Some(String::new());
    let first_twice = |offer: &mut raft::OfferKey| {
        let (first, _) = offer.text.split_once(',').unwrap();
        offer.text = format!("{first},{first}");
    };
    let longest = TextKind::Statement.part_bytes_max();
    assert_refused(vec![
        ("Name", put_bundle(|put| put.by = nobody())),
        ("Missing", put_bundle(|put| put.bundle = None)),
        (
            "Bundle",
            put_bundle(|put| put.bundle.as_mut().unwrap().payload.clear()),
        ),
        (
            "Bundle",
            put_bundle(|put| put.bundle.as_mut().unwrap().signatures.clear()),
        ),
        ("Bundle", offer_key(|offer| offer.text.clear())),
        ("Bundle", offer_key(first_twice)),
        ("Bundle", offer_key(|offer| offer.text.push(','))),
        ("Name", rotate_keys(|rotate| rotate.by = nobody())),
        ("Name", retire_key(|retire| retire.by = nobody())),
        ("Length", retire_key(|retire| retire.kid.truncate(31))),
        ("Name", put_statement(|put| put.by = nobody())),
        (
            "TooLarge",
            put_statement(|put| put.text = "s".repeat(longest + 1)),
        ),
    ]);
}

#[test]
fn malformed_record_writes_are_refused() {
    assert_refused(vec![
        ("Name", write_record(|write| write.scope.clear())),
        ("Missing", write_record(|write| write.session = None)),
        ("Id", write_record(|write| write.epoch = 0)),
        (
            "Value",
            write_record(|write| write.value = Some(vec![7; VALUE_BYTES_MAX + 1].into())),
        ),
        (
            "Length",
            write_record(|write| write.intent.as_mut().unwrap().id.truncate(15)),
        ),
        (
            "Length",
            write_record(|write| write.intent.as_mut().unwrap().payload.truncate(15)),
        ),
    ]);
}
