//! Refusing changes to a table outside of the guard.

use rusqlite::{Connection, OptionalExtension as _};

use super::error::GuardError;
use super::schema;

/// Adds triggers to `table` that look for the admission row, which only an admitted write has.
pub(super) fn protect(connection: &Connection, table: &str) -> Result<(), GuardError> {
    let step = || GuardError::at("protect the table");
    let transaction = schema::begin(connection)?;
    schema::check(&transaction)?;
    // The name as it was created: the caller's may differ in case.
    let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND lower(name) = lower(?1)
        AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE 'epoch\\_%' ESCAPE '\\'
        AND sql NOT LIKE 'CREATE VIRTUAL%'";
    let name: Option<String> = transaction
        .query_row(sql, [table], |row| row.get(0))
        .optional()
        .map_err(step())?;
    let name = name.ok_or_else(|| GuardError::NotATable {
        table: table.to_owned(),
    })?;
    for change in ["INSERT", "UPDATE", "DELETE"] {
        let trigger = quoted(&format!("epoch_protect_{}_{name}", change.to_lowercase()));
        let sql = format!(
            "CREATE TRIGGER IF NOT EXISTS main.{trigger} BEFORE {change} ON {table}
            WHEN NOT EXISTS (SELECT 1 FROM epoch_admission)
            BEGIN
                SELECT RAISE(ABORT, 'epoch guard: this table changes only in a guarded write');
            END",
            table = quoted(&name),
        );
        transaction.execute_batch(&sql).map_err(step())?;
    }
    schema::commit(transaction)
}

/// An identifier, quoted for SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Opens protected tables to the rest of this transaction.
pub(super) fn open(connection: &Connection, scope: &str) -> Result<(), GuardError> {
    let sql = "INSERT INTO main.epoch_admission (only, scope) VALUES (1, ?1)";
    let step = || GuardError::at("open the protected tables");
    connection
        .prepare_cached(sql)
        .map_err(step())?
        .execute([scope])
        .map_err(step())?;
    Ok(())
}

/// Closes them again, before the commit.
pub(super) fn close(connection: &Connection) -> Result<(), GuardError> {
    let step = || GuardError::at("close the protected tables");
    let sql = "DELETE FROM main.epoch_admission";
    connection
        .prepare_cached(sql)
        .map_err(step())?
        .execute([])
        .map_err(step())?;
    Ok(())
}
