//! The guard's tables and their version.

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use super::error::GuardError;

/// The version of the tables below.
const VERSION: i64 = 1;

/// The triggers keep fences from sinking on any path, the guard's own bugs included. The admission
/// table has a row only inside a guard's transaction, so that nobody else ever sees one.
const TABLES: &str = "
CREATE TABLE epoch_meta (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    version INTEGER NOT NULL
) STRICT;

CREATE TABLE epoch_fence (
    scope TEXT NOT NULL PRIMARY KEY,
    incarnation TEXT NOT NULL,
    epoch INTEGER NOT NULL CHECK (epoch BETWEEN 1 AND 9007199254740991),
    log_group INTEGER NOT NULL,
    log_term INTEGER NOT NULL,
    log_leader INTEGER NOT NULL,
    log_index INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    holder TEXT,
    grant_hash TEXT,
    revision INTEGER NOT NULL DEFAULT 0,
    intents INTEGER NOT NULL DEFAULT 0 CHECK (intents >= 0),
    raised_at_ms INTEGER NOT NULL,
    CHECK ((holder IS NULL) = (grant_hash IS NULL))
) STRICT;

CREATE TRIGGER epoch_fence_stays BEFORE DELETE ON epoch_fence BEGIN
    SELECT RAISE(ABORT, 'epoch guard: a fence outlives the data it guards');
END;
CREATE TRIGGER epoch_fence_rises BEFORE UPDATE ON epoch_fence
WHEN NEW.scope <> OLD.scope OR NEW.revision < OLD.revision
    OR (NEW.incarnation, NEW.epoch) < (OLD.incarnation, OLD.epoch)
BEGIN
    SELECT RAISE(ABORT, 'epoch guard: a fence only rises');
END;
CREATE TRIGGER epoch_fence_is_not_replaced BEFORE INSERT ON epoch_fence
WHEN EXISTS (
    SELECT 1 FROM epoch_fence AS old WHERE old.scope = NEW.scope
        AND (NEW.incarnation, NEW.epoch) < (old.incarnation, old.epoch)
)
BEGIN
    SELECT RAISE(ABORT, 'epoch guard: a fence only rises');
END;

CREATE TABLE epoch_intent (
    scope TEXT NOT NULL,
    intent TEXT NOT NULL,
    payload BLOB NOT NULL CHECK (length(payload) = 32),
    outcome BLOB NOT NULL,
    revision INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope, intent)
) STRICT;
CREATE UNIQUE INDEX epoch_intent_by_revision ON epoch_intent (scope, revision);

CREATE TABLE epoch_refusal (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    operation TEXT NOT NULL,
    scope TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    holder TEXT,
    incarnation TEXT,
    epoch INTEGER,
    intent TEXT
) STRICT;

CREATE TABLE epoch_admission (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    scope TEXT NOT NULL
) STRICT;

INSERT INTO epoch_meta (only, version) VALUES (1, 1);
";

/// Begins the guard's transaction: the write lock is taken before anything is read, so that what
/// is read cannot change before it is acted on.
pub(super) fn begin(connection: &Connection) -> Result<Transaction<'_>, GuardError> {
    if !connection.is_autocommit() {
        return Err(GuardError::InTransaction);
    }
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
        .map_err(GuardError::at("begin a transaction"))
}

pub(super) fn commit(transaction: Transaction<'_>) -> Result<(), GuardError> {
    // Dropped on failure, it rolls back: then nothing stands.
    transaction.commit().map_err(GuardError::at("commit"))
}

/// Creates the tables, once.
pub(super) fn install(connection: &Connection) -> Result<(), GuardError> {
    let transaction = begin(connection)?;
    match version(&transaction)? {
        Some(found) => known(found),
        None => {
            transaction
                .execute_batch(TABLES)
                .map_err(GuardError::at("create the tables"))?;
            commit(transaction)
        }
    }
}

/// Refuses a database without the guard's tables, or with those of a later version.
pub(super) fn check(connection: &Connection) -> Result<(), GuardError> {
    version(connection)?.map_or(Err(GuardError::NotInstalled), known)
}

fn known(found: i64) -> Result<(), GuardError> {
    if found == VERSION {
        Ok(())
    } else {
        Err(GuardError::Version {
            found,
            known: VERSION,
        })
    }
}

fn version(connection: &Connection) -> Result<Option<i64>, GuardError> {
    let exists = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'epoch_meta'";
    let step = || GuardError::at("read the version of the guard tables");
    let mut exists = connection.prepare_cached(exists).map_err(step())?;
    if !exists.exists([]).map_err(step())? {
        return Ok(None);
    }
    let mut version = connection
        .prepare_cached("SELECT version FROM main.epoch_meta WHERE only = 1")
        .map_err(step())?;
    let found = version
        .query_row([], |row| row.get(0))
        .optional()
        .map_err(step())?;
    found.map(Some).ok_or_else(|| GuardError::Corrupt {
        table: "epoch_meta",
        detail: "no version".to_owned(),
    })
}
