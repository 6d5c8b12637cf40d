//! Rows of a snapshot.

#[cfg(test)]
mod tests;

use epoch_core::{ClusterId, Epoch, Holder, Incarnation, OpenId, RequestId, Scope};
use epoch_machine::{
    AdminRow, Counts, DoneIntent, Head, HeldRow, INTENTS_KEPT, Leadership, LockDelay, Record,
    RecordRow, ScopeRow, SessionRow, SpentRow, SpentUse, StandingRow, State, StateHash, Ttl, Wait,
    WaitRow,
};
use epoch_proto::raft;

use super::parse::{
    fixed, intent, intent_message, message, present, session_key, session_key_message, terms,
    terms_message, uuid, uuid_bytes, value, value_bytes,
};
use super::{DecodeError, admin, trust};

/// How many rows of each kind follow the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowCounts {
    pub(crate) sessions: u64,
    pub(crate) scopes: u64,
    pub(crate) spent: u64,
    pub(crate) waits: u64,
    pub(crate) records: u64,
    pub(crate) admin: u64,
}

impl RowCounts {
    /// All rows: a number from the disk, so it bounds loops and reserves nothing.
    pub(crate) fn total(self) -> u64 {
        let Self {
            sessions,
            scopes,
            spent,
            waits,
            records,
            admin,
        } = self;
        let all = [sessions, scopes, spent, waits, records, admin];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

impl From<Counts> for RowCounts {
    fn from(counts: Counts) -> Self {
        // usize has at most 64 bits everywhere this runs.
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            sessions: count(counts.sessions),
            scopes: count(counts.rows),
            spent: count(counts.spent),
            waits: count(counts.waits),
            records: count(counts.records),
            admin: count(counts.admin),
        }
    }
}

/// A row after the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotRow {
    Session(SessionRow),
    Scope(ScopeRow),
    Spent(SpentRow),
    Wait(WaitRow),
    Record(RecordRow),
    Admin(AdminRow),
}

/// The first row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHead {
    pub(crate) head: Head,
    pub(crate) counts: RowCounts,
    pub(crate) state_hash: StateHash,
}

impl From<&State> for SnapshotHead {
    fn from(state: &State) -> Self {
        Self {
            head: state.head(),
            counts: state.counts().into(),
            state_hash: state.hash(),
        }
    }
}

pub(crate) fn head_message(head: &SnapshotHead) -> raft::SnapshotHead {
    let SnapshotHead {
        head,
        counts,
        state_hash,
    } = head;
    raft::SnapshotHead {
        cluster_id: uuid_bytes(head.cluster_id.0),
        incarnation: uuid_bytes(head.incarnation.0),
        group: head.group,
        now_ms: head.now_ms,
        sessions: counts.sessions,
        scopes: counts.scopes,
        spent: counts.spent,
        waits: counts.waits,
        records: counts.records,
        admin: counts.admin,
        state_hash: state_hash.to_bytes().to_vec().into(),
    }
}

pub(crate) fn decode_head(bytes: &[u8]) -> Result<SnapshotHead, DecodeError> {
    let head: raft::SnapshotHead = message(bytes)?;
    Ok(SnapshotHead {
        counts: RowCounts {
            sessions: head.sessions,
            scopes: head.scopes,
            spent: head.spent,
            waits: head.waits,
            records: head.records,
            admin: head.admin,
        },
        state_hash: StateHash::from_bytes(fixed("state_hash", &head.state_hash)?),
        head: Head {
            cluster_id: ClusterId(uuid("cluster_id", &head.cluster_id)?),
            incarnation: Incarnation(uuid("incarnation", &head.incarnation)?),
            group: head.group,
            now_ms: head.now_ms,
        },
    })
}

/// All rows after the head, in their order.
pub(crate) fn state_rows(state: &State) -> impl Iterator<Item = SnapshotRow> {
    let sessions = state.session_rows().map(SnapshotRow::Session);
    let scopes = state.scope_rows().map(SnapshotRow::Scope);
    let spent = state.spent_rows().map(SnapshotRow::Spent);
    let waits = state.wait_rows().map(SnapshotRow::Wait);
    let records = state.record_rows().map(SnapshotRow::Record);
    let admin = state.admin_rows().map(SnapshotRow::Admin);
    sessions
        .chain(scopes)
        .chain(spent)
        .chain(waits)
        .chain(records)
        .chain(admin)
}

pub(crate) fn row_message(row: &SnapshotRow) -> raft::SnapshotRow {
    use raft::snapshot_row::Row;
    raft::SnapshotRow {
        row: Some(match row {
            SnapshotRow::Session(row) => Row::Session(session_message(row)),
            SnapshotRow::Scope(row) => Row::Scope(scope_message(row)),
            SnapshotRow::Spent(row) => Row::Spent(spent_message(row)),
            SnapshotRow::Wait(row) => Row::Wait(wait_message(row)),
            SnapshotRow::Record(row) => Row::Record(record_message(row)),
            SnapshotRow::Admin(row) => admin::admin_message(row),
        }),
    }
}

pub(crate) fn decode_row(bytes: &[u8]) -> Result<SnapshotRow, DecodeError> {
    use raft::snapshot_row::Row;
    let row: raft::SnapshotRow = message(bytes)?;
    Ok(match present("row", row.row)? {
        Row::Session(row) => SnapshotRow::Session(session(row)?),
        Row::Scope(row) => SnapshotRow::Scope(scope(row)?),
        Row::Spent(row) => SnapshotRow::Spent(spent(row)?),
        Row::Wait(row) => SnapshotRow::Wait(wait(row)?),
        Row::Record(row) => SnapshotRow::Record(record(row)?),
        Row::Permission(row) => SnapshotRow::Admin(AdminRow::Permission(admin::permission(&row)?)),
        Row::Token(row) => SnapshotRow::Admin(admin::token(&row)?),
        Row::Limits(row) => {
            let (principal, limits) = admin::limits(&row)?;
            SnapshotRow::Admin(AdminRow::Limits { principal, limits })
        }
        Row::Audit(row) => SnapshotRow::Admin(admin::audit(&row)?),
        Row::Bundle(row) => SnapshotRow::Admin(AdminRow::Bundle(trust::bundle(row)?)),
        Row::Offer(row) => SnapshotRow::Admin(trust::offer(&row)?),
        Row::Rotation(row) => SnapshotRow::Admin(AdminRow::Rotation(row.node)),
        Row::Retired(row) => SnapshotRow::Admin(trust::retired(&row)?),
        Row::Statement(row) => SnapshotRow::Admin(trust::statement(&row)?),
    })
}

fn session_message(row: &SessionRow) -> raft::SessionRow {
    raft::SessionRow {
        key: Some(session_key_message(row.key)),
        open_id: uuid_bytes(row.open_id.0),
        holder: row.holder.as_str().to_owned(),
        ttl_ms: row.ttl.ms(),
        forgotten: row.forgotten,
        stall_limit_ms: row.stall_limit.map(Ttl::ms),
        principal: admin::principal_text(row.principal.as_ref()),
        holder_key: admin::holder_key_bytes(row.holder_key.as_ref()),
    }
}

fn session(row: raft::SessionRow) -> Result<SessionRow, DecodeError> {
    let forgotten = match row.forgotten {
        0 => 0,
        some => RequestId::new(some)?.get(),
    };
    Ok(SessionRow {
        key: session_key(row.key)?,
        open_id: OpenId(uuid("open_id", &row.open_id)?),
        holder: Holder::parse(&row.holder)?,
        ttl: Ttl::from_ms(row.ttl_ms)?,
        stall_limit: row.stall_limit_ms.map(Ttl::from_ms).transpose()?,
        principal: admin::principal(row.principal.as_deref())?,
        holder_key: admin::holder_key(row.holder_key.as_ref())?,
        forgotten,
    })
}

fn scope_message(row: &ScopeRow) -> raft::ScopeRow {
    let (held, lock_delay_ms) = match &row.standing {
        StandingRow::Free(delay) => (None, delay.ms()),
        StandingRow::Held(held) => (Some(held_message(held)), 0),
    };
    raft::ScopeRow {
        scope: row.scope.as_str().to_owned(),
        epoch: row.epoch.get(),
        held,
        lock_delay_ms,
    }
}

fn held_message(held: &HeldRow) -> raft::HeldRow {
    raft::HeldRow {
        session: Some(session_key_message(held.session)),
        request_id: held.request_id.map_or(0, RequestId::get),
        index: held.index,
        offset: held.offset,
        term: held.leadership.term,
        node: held.leadership.node,
        terms: terms_message(&held.terms),
        before_session: held.before.map(|(key, _)| session_key_message(key)),
        before_epoch: held.before.map_or(0, |(_, epoch)| epoch.get()),
    }
}

fn scope(row: raft::ScopeRow) -> Result<ScopeRow, DecodeError> {
    let standing = match row.held {
        None => StandingRow::Free(LockDelay::from_ms(row.lock_delay_ms)?),
        Some(_) if row.lock_delay_ms != 0 => {
            return Err(DecodeError::Spelling("held scope and lock delay"));
        }
        Some(held) => StandingRow::Held(held_row(held)?),
    };
    Ok(ScopeRow {
        scope: Scope::parse(&row.scope)?,
        epoch: Epoch::new(row.epoch)?,
        standing,
    })
}

fn held_row(held: raft::HeldRow) -> Result<HeldRow, DecodeError> {
    let before = match (held.before_session, held.before_epoch) {
        (None, 0) => None,
        (key, epoch) => Some((session_key(key)?, Epoch::new(epoch)?)),
    };
    let request_id = match held.request_id {
        0 => None,
        number => Some(RequestId::new(number)?),
    };
    Ok(HeldRow {
        session: session_key(held.session)?,
        request_id,
        leadership: Leadership {
            term: held.term,
            node: held.node,
        },
        index: held.index,
        offset: held.offset,
        terms: terms(held.terms)?,
        before,
    })
}

fn spent_message(row: &SpentRow) -> raft::SpentRow {
    raft::SpentRow {
        session: Some(session_key_message(row.session)),
        request_id: row.request_id.get(),
        scope: row.scope.as_str().to_owned(),
        what: match row.what {
            SpentUse::Grant => 1,
            SpentUse::WaitExpired => 2,
            SpentUse::WaitCancelled => 3,
        },
    }
}

fn spent(row: raft::SpentRow) -> Result<SpentRow, DecodeError> {
    Ok(SpentRow {
        session: session_key(row.session)?,
        request_id: RequestId::new(row.request_id)?,
        scope: Scope::parse(&row.scope)?,
        what: match row.what {
            1 => SpentUse::Grant,
            2 => SpentUse::WaitExpired,
            3 => SpentUse::WaitCancelled,
            found => {
                return Err(DecodeError::Unknown {
                    what: "the use of a spent request id",
                    found,
                });
            }
        },
    })
}

fn wait_message(row: &WaitRow) -> raft::WaitRow {
    raft::WaitRow {
        scope: row.scope.as_str().to_owned(),
        index: row.index,
        offset: row.offset,
        session: Some(session_key_message(row.session)),
        request_id: row.request_id.get(),
        wait_ms: row.wait.ms(),
        terms: terms_message(&row.terms),
    }
}

fn wait(row: raft::WaitRow) -> Result<WaitRow, DecodeError> {
    Ok(WaitRow {
        scope: Scope::parse(&row.scope)?,
        index: row.index,
        offset: row.offset,
        session: session_key(row.session)?,
        request_id: RequestId::new(row.request_id)?,
        wait: Wait::from_ms(row.wait_ms)?,
        terms: terms(row.terms)?,
    })
}

fn record_message(row: &RecordRow) -> raft::RecordRow {
    let Record {
        revision,
        value,
        epoch,
        intents,
    } = &row.record;
    let intents = intents.iter().map(|done| raft::DoneIntent {
        intent: Some(intent_message(&done.intent)),
        revision: done.revision,
        had_effect: done.had_effect,
    });
    raft::RecordRow {
        scope: row.scope.as_str().to_owned(),
        revision: *revision,
        value: value_bytes(value.as_ref()),
        epoch: epoch.get(),
        intents: intents.collect(),
    }
}

fn record(row: raft::RecordRow) -> Result<RecordRow, DecodeError> {
    if row.intents.len() > INTENTS_KEPT {
        return Err(DecodeError::TooLarge {
            len: row.intents.len(),
            max: INTENTS_KEPT,
        });
    }
    let done = |done: raft::DoneIntent| {
        Ok(DoneIntent {
            intent: intent(&present("intent", done.intent)?)?,
            revision: Epoch::new(done.revision)?.get(),
            had_effect: done.had_effect,
        })
    };
    let intents = row.intents.into_iter().map(done);
    Ok(RecordRow {
        scope: Scope::parse(&row.scope)?,
        record: Record {
            // It is made as epochs are.
            revision: Epoch::new(row.revision)?.get(),
            value: value(row.value.as_ref())?,
            epoch: Epoch::new(row.epoch)?,
            intents: intents.collect::<Result<_, DecodeError>>()?,
        },
    })
}
