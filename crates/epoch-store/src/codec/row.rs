//! Rows of a snapshot.

use epoch_core::{ClusterId, Epoch, Holder, Incarnation, OpenId, RequestId, Scope};
use epoch_machine::{
    Counts, Head, HeldRow, KEYS_MAX, Leadership, ScopeRow, SessionKey, SessionRow, State,
    StateHash, Ttl,
};
use epoch_proto::raft;

use super::DecodeError;
use super::parse::{
    fixed, message, present, public_key, session_key, session_key_message, uuid, uuid_bytes,
};

/// How many rows of each kind follow the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowCounts {
    pub(crate) sessions: u64,
    pub(crate) scopes: u64,
    pub(crate) spent: u64,
}

impl RowCounts {
    /// All rows: a number from the disk, so it bounds loops and reserves nothing.
    pub(crate) fn total(self) -> u64 {
        self.sessions
            .saturating_add(self.scopes)
            .saturating_add(self.spent)
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
        }
    }
}

/// A row after the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotRow {
    Session(SessionRow),
    Scope(ScopeRow),
    Spent(SessionKey, RequestId, Scope),
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
        keys: head
            .keys
            .iter()
            .map(|(node, key)| raft::RegisterKey {
                node: *node,
                public_key: key.to_vec().into(),
            })
            .collect(),
        state_hash: state_hash.to_bytes().to_vec().into(),
    }
}

pub(crate) fn decode_head(bytes: &[u8]) -> Result<SnapshotHead, DecodeError> {
    let head: raft::SnapshotHead = message(bytes)?;
    if head.keys.len() > KEYS_MAX {
        return Err(DecodeError::TooLarge {
            len: head.keys.len(),
            max: KEYS_MAX,
        });
    }
    let keys = head
        .keys
        .iter()
        .map(|key| Ok((key.node, public_key(&key.public_key)?)))
        .collect::<Result<_, DecodeError>>()?;
    Ok(SnapshotHead {
        counts: RowCounts {
            sessions: head.sessions,
            scopes: head.scopes,
            spent: head.spent,
        },
        state_hash: StateHash::from_bytes(fixed("state_hash", &head.state_hash)?),
        head: Head {
            cluster_id: ClusterId(uuid("cluster_id", &head.cluster_id)?),
            incarnation: Incarnation(uuid("incarnation", &head.incarnation)?),
            group: head.group,
            now_ms: head.now_ms,
            keys,
        },
    })
}

pub(crate) fn session_message(row: &SessionRow) -> raft::SnapshotRow {
    wrapped(raft::snapshot_row::Row::Session(raft::SessionRow {
        key: Some(session_key_message(row.key)),
        open_id: uuid_bytes(row.open_id.0),
        holder: row.holder.as_str().to_owned(),
        ttl_ms: row.ttl.ms(),
        forgotten: row.forgotten,
    }))
}

pub(crate) fn scope_message(row: &ScopeRow) -> raft::SnapshotRow {
    let held = row.held.as_ref().map(|held| raft::HeldRow {
        session: Some(session_key_message(held.session)),
        request_id: held.request_id.get(),
        index: held.index,
        offset: held.offset,
        term: held.leadership.term,
        node: held.leadership.node,
    });
    wrapped(raft::snapshot_row::Row::Scope(raft::ScopeRow {
        scope: row.scope.as_str().to_owned(),
        epoch: row.epoch.get(),
        held,
    }))
}

pub(crate) fn spent_message(
    session: SessionKey,
    request_id: RequestId,
    scope: &str,
) -> raft::SnapshotRow {
    wrapped(raft::snapshot_row::Row::Spent(raft::SpentRow {
        session: Some(session_key_message(session)),
        request_id: request_id.get(),
        scope: scope.to_owned(),
    }))
}

fn wrapped(row: raft::snapshot_row::Row) -> raft::SnapshotRow {
    raft::SnapshotRow { row: Some(row) }
}

pub(crate) fn decode_row(bytes: &[u8]) -> Result<SnapshotRow, DecodeError> {
    use raft::snapshot_row::Row;
    let row: raft::SnapshotRow = message(bytes)?;
    Ok(match present("row", row.row)? {
        Row::Session(row) => SnapshotRow::Session(session(row)?),
        Row::Scope(row) => SnapshotRow::Scope(scope(row)?),
        Row::Spent(row) => SnapshotRow::Spent(
            session_key(row.session)?,
            RequestId::new(row.request_id)?,
            Scope::parse(&row.scope)?,
        ),
    })
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
        forgotten,
    })
}

fn scope(row: raft::ScopeRow) -> Result<ScopeRow, DecodeError> {
    let held = match row.held {
        None => None,
        Some(held) => Some(HeldRow {
            session: session_key(held.session)?,
            request_id: RequestId::new(held.request_id)?,
            leadership: Leadership {
                term: held.term,
                node: held.node,
            },
            index: held.index,
            offset: held.offset,
        }),
    };
    Ok(ScopeRow {
        scope: Scope::parse(&row.scope)?,
        epoch: Epoch::new(row.epoch)?,
        held,
    })
}
