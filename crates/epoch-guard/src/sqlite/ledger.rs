//! The intent ledger: what took effect, so that a retry is answered without a second effect.

use epoch_core::{Epoch, Intent, IntentId, IntentRecord, PayloadDigest, Scope};
use rusqlite::{Connection, OptionalExtension as _};

use super::error::GuardError;
use super::fence::stored_ms;
use super::settings::SqliteSettings;

/// Most rows one write forgets: it adds one at most, so the ledger shrinks while no write is slow.
const PRUNED_PER_WRITE_MAX: u64 = 64;

pub(super) fn read(
    connection: &Connection,
    scope: &Scope,
    id: &IntentId,
) -> Result<Option<IntentRecord>, GuardError> {
    let step = || GuardError::at("read the intent");
    let sql =
        "SELECT payload, outcome, revision FROM main.epoch_intent WHERE scope = ?1 AND intent = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(step())?;
    let record = statement
        .query_row((scope.as_str(), id.as_str()), |row| {
            Ok(IntentRecord {
                payload: PayloadDigest(row.get(0)?),
                outcome: row.get(1)?,
                revision: row.get(2)?,
            })
        })
        .optional();
    record.map_err(step())
}

/// Records an intent that takes effect in this transaction.
pub(super) fn record(
    connection: &Connection,
    scope: &Scope,
    intent: &Intent,
    epoch: Epoch,
    (outcome, revision): (&[u8], u64),
    now_ms: u64,
) -> Result<(), GuardError> {
    let step = || GuardError::at("record the intent");
    let sql = "INSERT INTO main.epoch_intent
        (scope, intent, payload, outcome, revision, epoch, recorded_at_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let mut statement = connection.prepare_cached(sql).map_err(step())?;
    statement
        .execute((
            scope.as_str(),
            intent.id.as_str(),
            intent.payload.0,
            outcome,
            revision,
            epoch.get(),
            stored_ms(now_ms),
        ))
        .map_err(step())?;
    Ok(())
}

/// Forgets the oldest of a scope's `intents` rows, those too old and those too many; returns how
/// many remain. Looks at no more than the oldest 64.
pub(super) fn prune(
    connection: &Connection,
    scope: &Scope,
    intents: u64,
    settings: &SqliteSettings,
    now_ms: u64,
) -> Result<u64, GuardError> {
    let step = || GuardError::at("forget old intents");
    let excess = intents
        .saturating_sub(settings.intents_per_scope_max)
        .min(PRUNED_PER_WRITE_MAX);
    let cutoff_ms = now_ms.saturating_sub(settings.intent_age_ms_max);
    let sql = "WITH oldest AS (
            SELECT rowid AS place, recorded_at_ms, row_number() OVER (ORDER BY revision) AS rank
            FROM (
                SELECT rowid, revision, recorded_at_ms FROM main.epoch_intent
                WHERE scope = ?1 ORDER BY revision LIMIT ?2
            )
        )
        DELETE FROM main.epoch_intent WHERE rowid IN (
            SELECT place FROM oldest WHERE rank <= ?3 OR recorded_at_ms < ?4
        )";
    let mut statement = connection.prepare_cached(sql).map_err(step())?;
    let forgotten = statement
        .execute((
            scope.as_str(),
            PRUNED_PER_WRITE_MAX,
            excess,
            stored_ms(cutoff_ms),
        ))
        .map_err(step())?;
    Ok(intents.saturating_sub(u64::try_from(forgotten).unwrap_or(u64::MAX)))
}
