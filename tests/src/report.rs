//! The resource that the agents write to: reports in a SQLite file, guarded by epochs.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use epoch_core::{Certificate, Fence, Intent, IntentId, PayloadDigest, Receipt, Scope};
use epoch_guard::sqlite::{Admitted, RefusalRecord, SqliteGuard, Write, WriteError};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::Serialize;

use crate::clock;

/// How many refusals are read back.
const REFUSALS_READ: u64 = 100;

/// What an agent writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Who wrote it.
    pub author: String,
    /// Under which epoch.
    pub epoch: u64,
    /// How many readings it is about.
    pub readings: u32,
    /// Their sum.
    pub total: i64,
    /// The highest.
    pub highest: i64,
}

/// One connection to the file.
#[derive(Debug)]
pub struct Reports {
    connection: Connection,
}

impl Reports {
    /// Makes the file: guard tables, the readings to report on, and the table of reports, which
    /// refuses every change that does not come through the guard.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn create(path: &Path) -> Result<Self> {
        let reports = Self::open(path)?;
        let connection = &reports.connection;
        SqliteGuard::install(connection)?;
        connection.execute_batch(
            "CREATE TABLE reading (minute INTEGER PRIMARY KEY, value INTEGER NOT NULL) STRICT;
             CREATE TABLE report (
                 scope TEXT PRIMARY KEY, author TEXT NOT NULL, epoch INTEGER NOT NULL,
                 readings INTEGER NOT NULL, total INTEGER NOT NULL, highest INTEGER NOT NULL
             ) STRICT;",
        )?;
        for minute in 0..60_i64 {
            let value = 20 + (minute * 37) % 23;
            connection.execute("INSERT INTO reading VALUES (?1, ?2)", [minute, value])?;
        }
        SqliteGuard::protect(connection, "report")?;
        Ok(reports)
    }

    /// Opens the file.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn open(path: &Path) -> Result<Self> {
        let connection =
            Connection::open(path).with_context(|| format!("opening {}", path.display()))?;
        Ok(Self { connection })
    }

    /// Computes a report over the readings.
    ///
    /// # Errors
    /// SQLite fails, or there is nothing to report on.
    pub fn compute(&self, author: &str, epoch: u64) -> Result<Report> {
        let sql = "SELECT count(*), sum(value), max(value) FROM reading";
        let (readings, total, highest) = self
            .connection
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        ensure!(readings > 0, "there are no readings");
        Ok(Report {
            author: author.to_owned(),
            epoch,
            readings,
            total,
            highest,
        })
    }

    /// Writes a report if the guard admits it.
    ///
    /// # Errors
    /// Refused, or SQLite fails.
    pub fn write(
        &mut self,
        guard: &SqliteGuard,
        scope: &Scope,
        certificate: &str,
        report: &Report,
    ) -> Result<Admitted, WriteError<rusqlite::Error>> {
        let payload = format!("{report:?}");
        // One agent writes one report under one epoch: a retry of it is no second report. The
        // author's name is short enough by the bound on holders, unless the epoch is missing.
        let id = IntentId::parse(&format!("{}-report", report.epoch)).ok();
        let intent = id.map(|id| Intent {
            id,
            payload: PayloadDigest::of(payload.as_bytes()),
        });
        let write = Write {
            scope,
            certificate: certificate.into(),
            intent: intent.as_ref(),
            expected_revision: None,
            now_ms: clock::unix_ms(),
        };
        guard.write(&mut self.connection, &write, |transaction| {
            put(transaction, scope, report)
        })
    }

    /// The barrier: no older holder writes from here on.
    ///
    /// # Errors
    /// Refused, or SQLite fails.
    pub fn advance(
        &mut self,
        guard: &SqliteGuard,
        scope: &Scope,
        certificate: &Certificate,
    ) -> Result<Receipt> {
        let now_ms = clock::unix_ms();
        Ok(guard.advance(&mut self.connection, scope, certificate, now_ms)?)
    }

    /// The report as it stands.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn report(&self, scope: &Scope) -> Result<Option<Report>> {
        let sql = "SELECT author, epoch, readings, total, highest FROM report WHERE scope = ?1";
        let found = self.connection.query_row(sql, [scope.as_str()], |row| {
            Ok(Report {
                author: row.get(0)?,
                epoch: row.get(1)?,
                readings: row.get(2)?,
                total: row.get(3)?,
                highest: row.get(4)?,
            })
        });
        Ok(found.optional()?)
    }

    /// The fence of the scope.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn fence(&self, scope: &Scope) -> Result<Option<Fence>> {
        Ok(SqliteGuard::fence(&self.connection, scope)?)
    }

    /// What was refused, the newest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn refusals(&self) -> Result<Vec<RefusalRecord>> {
        Ok(SqliteGuard::refusals(&self.connection, REFUSALS_READ)?)
    }

    /// Tries to change the report without the guard, as a forgotten script would.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn bypass(&self, scope: &Scope) -> rusqlite::Result<usize> {
        let sql = "UPDATE report SET author = 'nobody' WHERE scope = ?1";
        self.connection.execute(sql, [scope.as_str()])
    }
}

fn put(transaction: &Transaction<'_>, scope: &Scope, report: &Report) -> rusqlite::Result<Vec<u8>> {
    let Report {
        author,
        epoch,
        readings,
        total,
        highest,
    } = report;
    transaction.execute(
        "INSERT INTO report (scope, author, epoch, readings, total, highest)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (scope) DO UPDATE SET author = excluded.author, epoch = excluded.epoch,
             readings = excluded.readings, total = excluded.total, highest = excluded.highest",
        params![scope.as_str(), author, epoch, readings, total, highest],
    )?;
    Ok(Vec::new())
}
