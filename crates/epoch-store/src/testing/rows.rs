//! Rows one by one: of every kind, and the largest of each.

use std::num::NonZeroU64;
use std::sync::Arc;

use epoch_core::{
    BUNDLE_AGE_S, BUNDLE_BYTES_MAX, BUNDLE_KEYS_MAX, BUNDLE_LIFETIME_S, BUNDLE_NODES_MAX, Bundle,
    BundleKey, BundleTerms, ClusterId, EPOCH_EXCLUSIVE_MAX, Epoch, HOLDER_BYTES_MAX, Holder,
    Incarnation, IntentId, KeyId, OpenId, PARTS_MAX, PRINCIPAL_BYTES_MAX, Principal, Reason,
    RequestId, SCOPE_BYTES_MAX, Scope, SignedBundle, TextKind, VerifyingKey,
};
use epoch_machine::{
    AdminRow, AuditAction, AuditRecord, AuditTarget, DoneIntent, HeldRow, INTENTS_KEPT,
    IntentDigest, KeptStatement, LABEL_BYTES_MAX, Leadership, Limits, LockDelay,
    METADATA_BYTES_MAX, Metadata, Offer, Permission, Prefix, Record, RecordRow, Retired, ScopeRow,
    SessionKey, SessionRow, SpentRow, SpentUse, StandingRow, StatementTopic, TARGET_BYTES_MAX,
    TTL_MS_MAX, Terms, Token, TokenHash, TokenLabel, Ttl, VALUE_BYTES_MAX, Value, Verb, Verbs,
    WAIT_MS_MAX, Wait, WaitRow,
};
use uuid::Uuid;

use crate::codec::SnapshotRow;

pub(crate) fn scope(name: &str) -> Scope {
    Scope::parse(name).unwrap()
}

pub(crate) fn request_id(number: u64) -> RequestId {
    RequestId::new(number).unwrap()
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

/// The session opened at log index `index`, which has forgotten the request ids up to 3.
pub(crate) fn session(index: u64) -> SessionRow {
    SessionRow {
        key: key(index),
        open_id: OpenId(Uuid::from_u128(index.into())),
        holder: Holder::parse("agent-a").unwrap(),
        ttl: Ttl::from_ms(1_000).unwrap(),
        stall_limit: None,
        principal: None,
        holder_key: None,
        forgotten: 3,
    }
}

pub(crate) fn key(index: u64) -> SessionKey {
    SessionKey { index, offset: 0 }
}

pub(crate) fn held(name: &str, session: SessionKey, request: Option<u64>) -> ScopeRow {
    ScopeRow {
        scope: scope(name),
        epoch: epoch(1 << 20),
        standing: StandingRow::Held(HeldRow {
            session,
            request_id: request.map(request_id),
            leadership: Leadership { term: 1, node: 1 },
            index: 20,
            offset: 0,
            terms: Terms::default(),
            before: None,
        }),
    }
}

pub(crate) fn free(name: &str, at: u64, delay_ms: u64) -> ScopeRow {
    ScopeRow {
        scope: scope(name),
        epoch: epoch(at),
        standing: StandingRow::Free(LockDelay::from_ms(delay_ms).unwrap()),
    }
}

pub(crate) fn spent(session: SessionKey, request: u64, what: SpentUse) -> SpentRow {
    SpentRow {
        session,
        request_id: request_id(request),
        scope: scope("a"),
        what,
    }
}

pub(crate) fn wait(name: &str, index: u64, session: SessionKey, request: u64) -> WaitRow {
    WaitRow {
        scope: scope(name),
        index,
        offset: 0,
        session,
        request_id: request_id(request),
        wait: Wait::from_ms(30_000).unwrap(),
        terms: Terms::default(),
    }
}

pub(crate) fn record(name: &str, value: Option<&[u8]>, intents: usize) -> RecordRow {
    let value = value.map(|bytes| Value::new(bytes).unwrap());
    let last = EPOCH_EXCLUSIVE_MAX - 1;
    let done = |number: usize| DoneIntent {
        intent: IntentDigest::of(
            &IntentId::parse(&format!("intent-{number}")).unwrap(),
            value.as_ref(),
        ),
        revision: last,
        had_effect: true,
    };
    RecordRow {
        scope: scope(name),
        record: Record {
            revision: last,
            epoch: epoch(last),
            intents: (0..intents).map(done).collect(),
            value,
        },
    }
}

pub(crate) fn retired(number: u16) -> AdminRow {
    let mut kid = [0; 32];
    kid[..2].copy_from_slice(&number.to_be_bytes());
    AdminRow::Retired(Retired {
        kid: KeyId::from_bytes(kid),
        time_ms: 1,
    })
}

/// With a signature that does not verify: nobody asks again.
pub(crate) fn bundle(sequence: u64, signer: KeyId) -> AdminRow {
    let keys = vec![BundleKey {
        node: 1,
        key: VerifyingKey::new([1; 32]),
        since_s: 0,
    }];
    let bundle = Bundle::new(bundle_terms(sequence), keys).unwrap();
    let signed = SignedBundle::from_parts(bundle.to_json(), vec![(signer, [7; 64])]);
    AdminRow::Bundle(Arc::new(signed.unwrap()))
}

pub(crate) fn root() -> VerifyingKey {
    VerifyingKey::new([0; 32])
}

fn bundle_terms(sequence: u64) -> BundleTerms {
    BundleTerms {
        cluster: ClusterId(Uuid::from_u128(1)),
        incarnation: Incarnation(Uuid::from_u128(2)),
        sequence,
        root: root(),
        issued_at_s: 1,
        expires_at_s: EPOCH_EXCLUSIVE_MAX - 1,
        lifetime_s: 600,
        max_age_s: 60,
    }
}

/// As many keys and signatures as there may be, and a payload as long as it may be.
fn largest_bundle() -> SignedBundle {
    let last = EPOCH_EXCLUSIVE_MAX - 1;
    let nodes = BUNDLE_NODES_MAX as u64;
    let key = |number: u8| BundleKey {
        node: last - u64::from(number) % nodes,
        key: VerifyingKey::new([1 + number; 32]),
        since_s: last,
    };
    let keys = (0..).take(BUNDLE_KEYS_MAX).map(key).collect();
    let terms = BundleTerms {
        issued_at_s: last - 1,
        lifetime_s: *BUNDLE_LIFETIME_S.end(),
        max_age_s: *BUNDLE_AGE_S.end(),
        ..bundle_terms(last)
    };
    let bundle = Bundle::new(terms, keys).unwrap();
    let mut payload = bundle.to_json();
    // The root key may have signed it with any spaces between.
    let room = BUNDLE_BYTES_MAX - payload.len();
    payload.insert_str(1, &" ".repeat(room));
    let keys = bundle.keys().iter().map(|key| key.key.id());
    let signers = [root().id()].into_iter().chain(keys).take(PARTS_MAX);
    let signatures = signers.map(|kid| (kid, [u8::MAX; 64])).collect();
    SignedBundle::from_parts(payload, signatures).unwrap()
}

pub(crate) fn permission(who: &str, prefix: &str, verb: Verb) -> AdminRow {
    AdminRow::Permission(Permission {
        principal: principal(who),
        prefix: Prefix::parse(prefix).unwrap(),
        verbs: Verbs::new([verb]).unwrap(),
    })
}

pub(crate) fn token(byte: u8, owner: &str, label: &str) -> AdminRow {
    AdminRow::Token(Token {
        hash: TokenHash([byte; 32]),
        principal: principal(owner),
        label: TokenLabel::parse(label).unwrap(),
        created_ms: 1,
        expires_ms: None,
    })
}

pub(crate) fn limits(who: &str, waits: Option<u32>) -> AdminRow {
    AdminRow::Limits {
        principal: principal(who),
        limits: Limits {
            waits,
            ..Limits::default()
        },
    }
}

pub(crate) fn audit(number: u64, action: AuditAction) -> AdminRow {
    AdminRow::Audit(AuditRecord {
        number,
        time_ms: 1,
        index: 1,
        principal: None,
        action,
        target: AuditTarget::new("").unwrap(),
        refused: None,
    })
}

fn principal(name: &str) -> Principal {
    Principal::parse(name).unwrap()
}

/// Rows of every kind, with each part there and absent.
pub(crate) fn rows_of_every_kind() -> Vec<SnapshotRow> {
    let limited = SessionRow {
        stall_limit: Some(Ttl::from_ms(60_000).unwrap()),
        forgotten: 0,
        ..session(2)
    };
    let uses = [
        SpentUse::Grant,
        SpentUse::WaitExpired,
        SpentUse::WaitCancelled,
    ];
    let mut rows = vec![
        SnapshotRow::Session(session(1)),
        SnapshotRow::Session(limited),
        SnapshotRow::Scope(free("a", 1, 0)),
        SnapshotRow::Scope(free("b", 1, 9_000)),
        SnapshotRow::Scope(held("c", key(1), Some(5))),
        SnapshotRow::Scope(held("d", key(1), None)),
    ];
    rows.extend(uses.map(|what| SnapshotRow::Spent(spent(key(1), 7, what))));
    rows.push(SnapshotRow::Wait(wait("c", 30, key(2), 8)));
    rows.push(SnapshotRow::Record(record("a", None, 1)));
    rows.push(SnapshotRow::Record(record("b", Some(b""), 0)));
    let verbs = Verb::ALL.map(|verb| permission("root", "", verb));
    let actions = AuditAction::ALL.map(|action| audit(1, action));
    let unendorsed = AdminRow::Offer(Offer {
        node: 1,
        key: VerifyingKey::new([9; 32]),
        endorsed: false,
    });
    let clock = AdminRow::Statement(KeptStatement {
        topic: StatementTopic::Clock,
        issued_at_s: 0,
        text: "".into(),
    });
    let mut rare = vec![
        token(0, "p", "t"),
        limits("p", Some(0)),
        bundle(1, root().id()),
        unendorsed,
        AdminRow::Rotation(0),
        retired(0),
        clock,
    ];
    rare.extend(verbs);
    rare.extend(actions);
    rows.extend(rare.into_iter().map(SnapshotRow::Admin));
    rows.extend(largest_rows());
    rows
}

/// The largest row of each kind: every part is there, and as long as it can be.
#[expect(
    clippy::too_many_lines,
    reason = "a row of each kind, with nothing in it but its fields"
)]
pub(crate) fn largest_rows() -> [SnapshotRow; 14] {
    let name = "n".repeat(SCOPE_BYTES_MAX);
    let last = EPOCH_EXCLUSIVE_MAX - 1;
    let key = SessionKey {
        index: u64::MAX,
        offset: u32::MAX,
    };
    let longest = principal(&"p".repeat(PRINCIPAL_BYTES_MAX));
    let terms = Terms {
        lock_delay: LockDelay::from_ms(WAIT_MS_MAX).unwrap(),
        metadata: Metadata::new(&"m".repeat(METADATA_BYTES_MAX)).unwrap(),
    };
    [
        SnapshotRow::Session(SessionRow {
            key,
            open_id: OpenId(Uuid::from_u128(u128::MAX)),
            holder: Holder::parse(&"h".repeat(HOLDER_BYTES_MAX)).unwrap(),
            ttl: Ttl::from_ms(TTL_MS_MAX).unwrap(),
            stall_limit: Some(Ttl::from_ms(TTL_MS_MAX).unwrap()),
            principal: Some(longest.clone()),
            holder_key: Some([u8::MAX; 32]),
            forgotten: last,
        }),
        SnapshotRow::Scope(ScopeRow {
            scope: scope(&name),
            epoch: epoch(last),
            standing: StandingRow::Held(HeldRow {
                session: key,
                request_id: Some(request_id(last)),
                leadership: Leadership {
                    term: u64::MAX,
                    node: u64::MAX,
                },
                index: u64::MAX,
                offset: u32::MAX,
                terms: terms.clone(),
                before: Some((key, epoch(last))),
            }),
        }),
        SnapshotRow::Spent(SpentRow {
            session: key,
            request_id: request_id(last),
            scope: scope(&name),
            what: SpentUse::WaitCancelled,
        }),
        SnapshotRow::Wait(WaitRow {
            scope: scope(&name),
            index: u64::MAX,
            offset: u32::MAX,
            session: key,
            request_id: request_id(last),
            wait: Wait::from_ms(WAIT_MS_MAX).unwrap(),
            terms,
        }),
        SnapshotRow::Record(record(
            &name,
            Some(&[u8::MAX; VALUE_BYTES_MAX]),
            INTENTS_KEPT,
        )),
        SnapshotRow::Admin(AdminRow::Permission(Permission {
            principal: longest.clone(),
            prefix: Prefix::parse(&name).unwrap(),
            verbs: Verbs::ALL,
        })),
        SnapshotRow::Admin(AdminRow::Token(Token {
            hash: TokenHash([u8::MAX; 32]),
            principal: longest.clone(),
            label: TokenLabel::parse(&"l".repeat(LABEL_BYTES_MAX)).unwrap(),
            created_ms: u64::MAX,
            expires_ms: NonZeroU64::new(u64::MAX),
        })),
        SnapshotRow::Admin(AdminRow::Limits {
            principal: longest.clone(),
            limits: Limits {
                sessions: Some(u32::MAX),
                grants: Some(u32::MAX),
                waits: Some(u32::MAX),
                requests_per_second: Some(u32::MAX),
            },
        }),
        SnapshotRow::Admin(AdminRow::Audit(AuditRecord {
            number: u64::MAX,
            time_ms: u64::MAX,
            index: u64::MAX,
            principal: Some(longest),
            action: AuditAction::PermissionRevoke,
            target: AuditTarget::new(&"t".repeat(TARGET_BYTES_MAX)).unwrap(),
            refused: Some(Reason::PermissionDenied),
        })),
        SnapshotRow::Admin(AdminRow::Bundle(Arc::new(largest_bundle()))),
        SnapshotRow::Admin(AdminRow::Offer(Offer {
            node: last,
            key: VerifyingKey::new([u8::MAX; 32]),
            endorsed: true,
        })),
        SnapshotRow::Admin(AdminRow::Rotation(last - 1)),
        SnapshotRow::Admin(AdminRow::Retired(Retired {
            kid: KeyId::from_bytes([u8::MAX; 32]),
            time_ms: u64::MAX,
        })),
        SnapshotRow::Admin(AdminRow::Statement(KeptStatement {
            topic: StatementTopic::MaxFuture,
            issued_at_s: u64::MAX,
            text: "s".repeat(TextKind::Statement.part_bytes_max()).into(),
        })),
    ]
}
