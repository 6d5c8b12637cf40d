//! The guard over real files, with real signatures.

mod bounds;
mod fences;
mod intents;
mod races;
mod tables;
mod trust;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use epoch_core::{
    CachedVerifier, Certificate, Claims, ClusterId, Epoch, Fence, Grant, GrantHash, Holder, Intent,
    IntentId, KeySet, PayloadDigest, Position, Reason, Scope, SigningKey, Validity, Verifier,
};
use rusqlite::{Connection, Transaction};
use tempfile::TempDir;

use super::{Admitted, Presented, SqliteGuard, SqliteSettings, Write, WriteError};

pub(super) const NOW_MS: u64 = 1_767_225_600_000;

pub(super) type Verdict = Result<Admitted, WriteError<rusqlite::Error>>;

/// A database file with guard tables and a protected table of notes.
pub(super) struct Bench {
    pub(super) folder: TempDir,
    pub(super) guard: SqliteGuard,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(SqliteSettings::default())
    }

    pub(super) fn with(settings: SqliteSettings) -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
            guard: guarding(verifier(), settings),
        };
        let connection = bench.open();
        SqliteGuard::install(&connection).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE note (number INTEGER PRIMARY KEY, scope TEXT, epoch INTEGER, text TEXT)",
            )
            .unwrap();
        SqliteGuard::protect(&connection, "note").unwrap();
        bench
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("content.db")
    }

    pub(super) fn open(&self) -> Connection {
        open(&self.path())
    }

    /// One write of a note under the usual scope.
    pub(super) fn write(&self, connection: &mut Connection, epoch: u64, intent: &str) -> Verdict {
        self.write_as(
            connection,
            &token(&fence(epoch, "writer")),
            Some(&self::intent(intent)),
            None,
        )
    }

    pub(super) fn write_as(
        &self,
        connection: &mut Connection,
        token: &str,
        intent: Option<&Intent>,
        expected_revision: Option<u64>,
    ) -> Verdict {
        let scope = scope();
        let write = Write {
            scope: &scope,
            certificate: Presented::Token(token),
            intent,
            expected_revision,
            now_ms: NOW_MS,
        };
        let epoch = verifier()
            .verify(token, NOW_MS)
            .map_or(0, |c| c.epoch().get());
        self.guard.write(connection, &write, |transaction| {
            note(transaction, &scope, epoch)
        })
    }
}

/// A guard that trusts this.
pub(super) fn guarding(verifier: Verifier, settings: SqliteSettings) -> SqliteGuard {
    SqliteGuard::new(Arc::new(CachedVerifier::new(verifier, &[7; 16])), settings)
}

/// A connection as fast as tests need it: nothing here depends on surviving a power cut.
pub(super) fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection
        .pragma_update(None, "synchronous", "OFF")
        .unwrap();
    connection
}

/// The business write: one more note; its outcome is the note's number.
pub(super) fn note(
    transaction: &Transaction<'_>,
    scope: &Scope,
    epoch: u64,
) -> Result<Vec<u8>, rusqlite::Error> {
    transaction.execute(
        "INSERT INTO note (scope, epoch, text) VALUES (?1, ?2, 'text')",
        (scope.as_str(), epoch),
    )?;
    Ok(transaction.last_insert_rowid().to_string().into_bytes())
}

/// The epochs of all notes of a scope, in the order in which they were written.
pub(super) fn epochs_written(connection: &Connection, scope: &Scope) -> Vec<u64> {
    let mut statement = connection
        .prepare("SELECT epoch FROM note WHERE scope = ?1 ORDER BY number")
        .unwrap();
    let rows = statement
        .query_map([scope.as_str()], |row| row.get(0))
        .unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// The checker: a late write is a note of a lower epoch after one of a higher.
pub(super) fn late_writes(epochs: &[u64]) -> usize {
    epochs
        .iter()
        .zip(epochs.iter().skip(1))
        .filter(|(earlier, later)| later < earlier)
        .count()
}

pub(super) fn reason(verdict: &Verdict) -> Option<Reason> {
    match verdict {
        Err(WriteError::Guard(error)) => error.refusal().map(epoch_core::Refusal::reason),
        Ok(_) | Err(WriteError::Business(_)) => None,
    }
}

pub(super) fn scope() -> Scope {
    Scope::parse("reports/research-note").unwrap()
}

pub(super) fn intent(id: &str) -> Intent {
    Intent {
        id: IntentId::parse(id).unwrap(),
        payload: PayloadDigest::of(b"text"),
    }
}

pub(super) fn cluster() -> ClusterId {
    "018f4d1c-0000-7000-8000-00000000000a".parse().unwrap()
}

pub(super) fn fence(epoch: u64, holder: &str) -> Fence {
    fence_in(1, epoch, holder)
}

pub(super) fn fence_in(incarnation: u8, epoch: u64, holder: &str) -> Fence {
    Fence {
        incarnation: format!("018f4d1c-0000-7000-8000-0000000000{incarnation:02x}")
            .parse()
            .unwrap(),
        epoch: Epoch::new(epoch).unwrap(),
        position: Position {
            group: 0,
            term: 3,
            leader: 2,
            index: 1000 + epoch,
            offset: 0,
        },
        grant: Some(Grant {
            holder: Holder::parse(holder).unwrap(),
            hash: GrantHash([u8::try_from(epoch % 251).unwrap(); 32]),
        }),
    }
}

pub(super) fn holderless(epoch: u64) -> Fence {
    Fence {
        grant: None,
        ..fence(epoch, "nobody")
    }
}

pub(super) fn token(fence: &Fence) -> String {
    token_in(&scope(), fence)
}

pub(super) fn token_in(scope: &Scope, fence: &Fence) -> String {
    SigningKey::from_seed(&[1; 32])
        .unwrap()
        .sign(&claims_in(scope, fence))
        .unwrap()
}

pub(super) fn claims_in(scope: &Scope, fence: &Fence) -> Claims {
    let issued_at_s = NOW_MS / 1000;
    let validity = Validity {
        issued_at_s,
        expires_at_s: issued_at_s + 3600,
        jti: "one".to_owned(),
    };
    Claims::new(cluster(), scope.clone(), fence.clone(), validity).unwrap()
}

pub(super) fn certificate(fence: &Fence) -> Certificate {
    verifier().verify(&token(fence), NOW_MS).unwrap()
}

pub(super) fn verifier() -> Verifier {
    let key = SigningKey::from_seed(&[1; 32]).unwrap();
    Verifier::new(cluster(), KeySet::from_iter([key.verifying_key().clone()]))
}
