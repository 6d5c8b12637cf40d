//! The fence rows: one per scope, never lowered, never deleted.

use std::fmt::Display;

use epoch_core::{Epoch, Fence, Grant, Holder, Position, Scope};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use super::error::GuardError;

/// A scope's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FenceRow {
    pub(super) fence: Fence,
    /// How many writes were admitted.
    pub(super) revision: u64,
    /// How many intents are kept.
    pub(super) intents: u64,
}

pub(super) fn read(connection: &Connection, scope: &Scope) -> Result<Option<FenceRow>, GuardError> {
    let step = || GuardError::at("read the fence");
    let sql = "SELECT incarnation, epoch, log_group, log_term, log_leader, log_index, log_offset,
            holder, grant_hash, revision, intents FROM main.epoch_fence WHERE scope = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(step())?;
    let raw = statement
        .query_row([scope.as_str()], RawRow::read)
        .optional()
        .map_err(step())?;
    raw.map(RawRow::parse).transpose()
}

/// A row as it is stored, before its texts are parsed.
struct RawRow {
    incarnation: String,
    epoch: u64,
    position: Position,
    holder: Option<String>,
    grant_hash: Option<String>,
    revision: u64,
    intents: u64,
}

impl RawRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            incarnation: row.get(0)?,
            epoch: row.get(1)?,
            position: Position {
                group: row.get(2)?,
                term: row.get(3)?,
                leader: row.get(4)?,
                index: row.get(5)?,
                offset: row.get(6)?,
            },
            holder: row.get(7)?,
            grant_hash: row.get(8)?,
            revision: row.get(9)?,
            intents: row.get(10)?,
        })
    }

    fn parse(self) -> Result<FenceRow, GuardError> {
        let grant = match (self.holder, self.grant_hash) {
            (Some(holder), Some(hash)) => Some(Grant {
                holder: Holder::parse(&holder).map_err(corrupt)?,
                hash: hash.parse().map_err(corrupt)?,
            }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(corrupt("half a grant")),
        };
        let fence = Fence {
            incarnation: self.incarnation.parse().map_err(corrupt)?,
            epoch: Epoch::new(self.epoch).map_err(corrupt)?,
            position: self.position,
            grant,
        };
        Ok(FenceRow {
            fence,
            revision: self.revision,
            intents: self.intents,
        })
    }
}

fn corrupt(detail: impl Display) -> GuardError {
    GuardError::Corrupt {
        table: "epoch_fence",
        detail: detail.to_string(),
    }
}

/// Raises the fence; the caller's decision has found it to be above.
pub(super) fn raise(
    connection: &Connection,
    scope: &Scope,
    fence: &Fence,
    now_ms: u64,
) -> Result<(), GuardError> {
    let step = || GuardError::at("raise the fence");
    let sql = "INSERT INTO main.epoch_fence (scope, incarnation, epoch, log_group, log_term,
            log_leader, log_index, log_offset, holder, grant_hash, raised_at_ms)
        VALUES (:scope, :incarnation, :epoch, :group, :term, :leader, :index, :offset, :holder,
            :grant, :now)
        ON CONFLICT (scope) DO UPDATE SET incarnation = :incarnation, epoch = :epoch,
            log_group = :group, log_term = :term, log_leader = :leader, log_index = :index,
            log_offset = :offset, holder = :holder, grant_hash = :grant, raised_at_ms = :now";
    let Position {
        group,
        term,
        leader,
        index,
        offset,
    } = fence.position;
    let mut statement = connection.prepare_cached(sql).map_err(step())?;
    statement
        .execute(named_params! {
            ":scope": scope.as_str(),
            ":incarnation": fence.incarnation.to_string(),
            ":epoch": fence.epoch.get(),
            ":group": group,
            ":term": term,
            ":leader": leader,
            ":index": index,
            ":offset": offset,
            ":holder": fence.grant.as_ref().map(|grant| grant.holder.as_str()),
            ":grant": fence.grant.as_ref().map(|grant| grant.hash.to_string()),
            ":now": stored_ms(now_ms),
        })
        .map_err(step())?;
    Ok(())
}

/// Notes an admitted write and how many intents are kept now.
pub(super) fn note_write(
    connection: &Connection,
    scope: &Scope,
    revision: u64,
    intents: u64,
) -> Result<(), GuardError> {
    let step = || GuardError::at("raise the revision");
    let sql = "UPDATE main.epoch_fence SET revision = ?2, intents = ?3 WHERE scope = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(step())?;
    statement
        .execute((scope.as_str(), revision, intents))
        .map_err(step())?;
    Ok(())
}

/// A time as SQLite can store it: one beyond the year 292,000,000 is as good as that.
pub(super) fn stored_ms(now_ms: u64) -> i64 {
    i64::try_from(now_ms).unwrap_or(i64::MAX)
}
