//! Rows one by one: of every kind, and the largest of each.

use epoch_core::{
    EPOCH_EXCLUSIVE_MAX, Epoch, HOLDER_BYTES_MAX, Holder, IntentId, OpenId, RequestId,
    SCOPE_BYTES_MAX, Scope,
};
use epoch_machine::{
    DoneIntent, HeldRow, INTENTS_KEPT, IntentDigest, Leadership, LockDelay, METADATA_BYTES_MAX,
    Metadata, Record, RecordRow, ScopeRow, SessionKey, SessionRow, SpentRow, SpentUse, StandingRow,
    TTL_MS_MAX, Terms, Ttl, VALUE_BYTES_MAX, Value, WAIT_MS_MAX, Wait, WaitRow,
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
    rows.extend(largest_rows());
    rows
}

/// The largest row of each kind: every part is there, and as long as it can be.
pub(crate) fn largest_rows() -> [SnapshotRow; 5] {
    let name = "n".repeat(SCOPE_BYTES_MAX);
    let last = EPOCH_EXCLUSIVE_MAX - 1;
    let key = SessionKey {
        index: u64::MAX,
        offset: u32::MAX,
    };
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
    ]
}
