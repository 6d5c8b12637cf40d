//! The table of refusals, for the post-mortem: who, which epoch, why, when.

use epoch_core::{Certificate, IntentId, Refusal, Scope};
use rusqlite::{Connection, Row, named_params};

use super::error::GuardError;
use super::fence::stored_ms;
use super::schema;

/// One refusal. Holder, incarnation and epoch are known only of certificates that verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalRecord {
    /// When, in milliseconds since 1970, by the caller's clock.
    pub at_ms: u64,
    /// `write` or `barrier`.
    pub operation: String,
    /// The resource's scope.
    pub scope: String,
    /// The public reason's name.
    pub reason: String,
    /// In words.
    pub message: String,
    /// Who.
    pub holder: Option<String>,
    /// The certificate's incarnation.
    pub incarnation: Option<String>,
    /// The certificate's epoch.
    pub epoch: Option<u64>,
    /// The intent id of a write.
    pub intent: Option<String>,
}

/// What was being tried when it was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused<'a> {
    pub(super) operation: &'static str,
    pub(super) scope: &'a Scope,
    pub(super) certificate: Option<&'a Certificate>,
    pub(super) intent: Option<&'a IntentId>,
    pub(super) now_ms: u64,
}

/// Writes a refusal down in a transaction of its own, and forgets the oldest beyond `kept_max`.
pub(super) fn record(
    connection: &Connection,
    refused: &Refused<'_>,
    refusal: &Refusal,
    kept_max: u64,
) -> Result<(), GuardError> {
    let step = || GuardError::at("record the refusal");
    let transaction = schema::begin(connection)?;
    schema::check(&transaction)?;
    let sql = "INSERT INTO main.epoch_refusal
        (at_ms, operation, scope, reason, message, holder, incarnation, epoch, intent)
        VALUES (:at, :operation, :scope, :reason, :message, :holder, :incarnation, :epoch, :intent)";
    let certificate = refused.certificate;
    transaction
        .prepare_cached(sql)
        .map_err(step())?
        .execute(named_params! {
            ":at": stored_ms(refused.now_ms),
            ":operation": refused.operation,
            ":scope": refused.scope.as_str(),
            ":reason": refusal.reason().as_str(),
            ":message": refusal.to_string(),
            ":holder": certificate.and_then(|c| c.grant()).map(|grant| grant.holder.as_str()),
            ":incarnation": certificate.map(|c| c.incarnation().to_string()),
            ":epoch": certificate.map(|c| c.epoch().get()),
            ":intent": refused.intent.map(IntentId::as_str),
        })
        .map_err(step())?;
    // Numbers have no gaps, so the bound needs no count.
    let sql = "DELETE FROM main.epoch_refusal
        WHERE number <= (SELECT max(number) FROM main.epoch_refusal) - ?1";
    transaction
        .prepare_cached(sql)
        .map_err(step())?
        .execute([kept_max])
        .map_err(step())?;
    schema::commit(transaction)
}

/// The latest refusals, the newest first.
pub(super) fn latest(
    connection: &Connection,
    limit: u64,
) -> Result<Vec<RefusalRecord>, GuardError> {
    let step = || GuardError::at("read the refusals");
    let sql = "SELECT at_ms, operation, scope, reason, message, holder, incarnation, epoch, intent
        FROM main.epoch_refusal ORDER BY number DESC LIMIT ?1";
    let mut statement = connection.prepare_cached(sql).map_err(step())?;
    let rows = statement.query_map([limit], read).map_err(step())?;
    rows.collect::<Result<_, _>>().map_err(step())
}

fn read(row: &Row<'_>) -> rusqlite::Result<RefusalRecord> {
    Ok(RefusalRecord {
        at_ms: row.get(0)?,
        operation: row.get(1)?,
        scope: row.get(2)?,
        reason: row.get(3)?,
        message: row.get(4)?,
        holder: row.get(5)?,
        incarnation: row.get(6)?,
        epoch: row.get(7)?,
        intent: row.get(8)?,
    })
}
