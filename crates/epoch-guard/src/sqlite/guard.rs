//! The guard itself: decide, raise, write and record as one transaction.

use std::error::Error;
use std::sync::Arc;

use epoch_core::{
    Advance, Attempt, CachedVerifier, Certificate, Fence, Receipt, Refusal, Scope, Verdict, decide,
    decide_advance,
};
use rusqlite::{Connection, Transaction};

use super::error::{GuardError, WriteError};
use super::fence::{self, FenceRow};
use super::refusals::{self, RefusalRecord, Refused};
use super::request::{Admitted, Presented, Write};
use super::settings::SqliteSettings;
use super::{ledger, protect, schema};

/// The guard of SQLite databases: any number of them, each with its tables installed.
#[derive(Debug)]
pub struct SqliteGuard {
    verifier: Arc<CachedVerifier>,
    settings: SqliteSettings,
}

impl SqliteGuard {
    /// A guard that trusts what `verifier` trusts, now and whenever that changes: whoever adopts
    /// bundles for the shared verifier does so for the guard. How many nodes must have signed a
    /// certificate is the verifier's to say
    /// ([`with_signatures`](epoch_core::Verifier::with_signatures)). A certificate that it has
    /// verified before costs no second signature check.
    #[must_use]
    pub fn new(verifier: Arc<CachedVerifier>, settings: SqliteSettings) -> Self {
        Self { verifier, settings }
    }

    /// Creates the guard's tables (named `epoch_...`), once; calling it again changes nothing.
    ///
    /// # Errors
    /// The database is locked or has tables of a later version, or SQLite fails.
    pub fn install(connection: &Connection) -> Result<(), GuardError> {
        schema::install(connection)
    }

    /// Makes `table` refuse every insert, update and delete outside of an admitted
    /// [`write`](Self::write), on any connection and from any program.
    ///
    /// This stops mistakes: the forgotten script, the code path without a guard. It does not stop
    /// malice, since whoever can write the file can drop a trigger, or the table itself; and it
    /// does not tell scopes apart: a write admitted for one scope may change any protected table.
    ///
    /// # Errors
    /// There is no such ordinary table, the guard's tables are not installed, the database is
    /// locked, or SQLite fails.
    pub fn protect(connection: &Connection, table: &str) -> Result<(), GuardError> {
        protect::protect(connection, table)
    }

    /// The verifier, as it is shared.
    #[must_use]
    pub fn verifier(&self) -> &Arc<CachedVerifier> {
        &self.verifier
    }

    /// Does `business` if, and only if, the certificate, the intent and the expected revision
    /// allow it: fence, intent, revision and the business write stand or fall together.
    ///
    /// `business` gets the open transaction and returns the outcome, which is stored with the
    /// intent and given again to a retry. It must not end the transaction. If it fails, everything
    /// is rolled back, the raised fence included.
    ///
    /// # Errors
    /// Refused (recorded in the table of refusals; the fence is raised all the same when the
    /// certificate is above it), the business write's own error, a locked database, or a failure
    /// of SQLite.
    pub fn write<E: Error + 'static>(
        &self,
        connection: &mut Connection,
        write: &Write<'_>,
        business: impl FnOnce(&Transaction<'_>) -> Result<Vec<u8>, E>,
    ) -> Result<Admitted, WriteError<E>> {
        self.prepare(connection)?;
        let refused = Refused {
            operation: "write",
            scope: write.scope,
            certificate: None,
            intent: write.intent.map(|intent| &intent.id),
            now_ms: write.now_ms,
        };
        let mut kept = None;
        let certificate = match self.certificate(write.certificate, write.now_ms, &mut kept) {
            Ok(certificate) => certificate,
            Err(refusal) => return Err(self.refuse(connection, &refused, refusal).into()),
        };
        match self.attempt(connection, write, certificate, business)? {
            Ok(admitted) => Ok(admitted),
            Err(refusal) => {
                let refused = Refused {
                    certificate: Some(certificate),
                    ..refused
                };
                Err(self.refuse(connection, &refused, refusal).into())
            }
        }
    }

    /// One try, in one transaction. A refusal is returned inside, for it may have raised the fence.
    fn attempt<E: Error + 'static>(
        &self,
        connection: &Connection,
        write: &Write<'_>,
        certificate: &Certificate,
        business: impl FnOnce(&Transaction<'_>) -> Result<Vec<u8>, E>,
    ) -> Result<Result<Admitted, Refusal>, WriteError<E>> {
        let scope = write.scope;
        let transaction = schema::begin(connection)?;
        schema::check(&transaction)?;
        let row = fence::read(&transaction, scope)?;
        let recorded = match write.intent {
            Some(intent) => ledger::read(&transaction, scope, &intent.id)?,
            None => None,
        };
        let (revision, intents) = row
            .as_ref()
            .map_or((0, 0), |row| (row.revision, row.intents));
        let decision = decide(&Attempt {
            scope,
            fence: row.as_ref().map(|row| &row.fence),
            certificate,
            intent: write.intent,
            recorded: recorded.as_ref(),
            expected_revision: write.expected_revision,
            revision,
        });
        if let Some(fence) = &decision.raise {
            fence::raise(&transaction, scope, fence, write.now_ms)?;
        }
        let raised = decision.raise.is_some();
        match decision.verdict {
            Verdict::Admit => {
                let outcome = self.business(&transaction, scope, business)?;
                let revision = self.note(
                    &transaction,
                    write,
                    certificate,
                    &outcome,
                    (revision, intents),
                )?;
                schema::commit(transaction)?;
                Ok(Ok(Admitted {
                    outcome,
                    revision,
                    replayed: false,
                }))
            }
            Verdict::Replay(record) => {
                if raised {
                    schema::commit(transaction)?;
                }
                let (outcome, revision) = (record.outcome.clone(), record.revision);
                Ok(Ok(Admitted {
                    outcome,
                    revision,
                    replayed: true,
                }))
            }
            Verdict::Refuse(refusal) => {
                if raised {
                    schema::commit(transaction)?;
                }
                Ok(Err(refusal))
            }
        }
    }

    /// Runs the business write with the protected tables open to it.
    fn business<E: Error + 'static>(
        &self,
        transaction: &Transaction<'_>,
        scope: &Scope,
        business: impl FnOnce(&Transaction<'_>) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, WriteError<E>> {
        protect::open(transaction, scope.as_str())?;
        let outcome = business(transaction);
        let ended = transaction.is_autocommit();
        // Also when it was committed in there: an admission row left behind would keep the
        // protected tables open to everybody.
        let closed = protect::close(transaction);
        let outcome = outcome.map_err(WriteError::Business)?;
        closed?;
        if ended {
            return Err(GuardError::TransactionEnded.into());
        }
        let (len, max) = (outcome.len(), self.settings.outcome_bytes_max);
        if len > max {
            return Err(GuardError::OutcomeTooLarge { len, max }.into());
        }
        Ok(outcome)
    }

    /// Notes the admitted write: revision and intent. Returns the new revision.
    fn note(
        &self,
        transaction: &Transaction<'_>,
        write: &Write<'_>,
        certificate: &Certificate,
        outcome: &[u8],
        (revision, mut intents): (u64, u64),
    ) -> Result<u64, GuardError> {
        let scope = write.scope;
        // SQLite counts to 2^63: at a million writes a second that lasts 292,000 years.
        let revision = revision.saturating_add(1);
        if let Some(intent) = write.intent {
            let effect = (outcome, revision);
            ledger::record(
                transaction,
                scope,
                intent,
                certificate.epoch(),
                effect,
                write.now_ms,
            )?;
            intents = intents.saturating_add(1);
        }
        let intents = ledger::prune(transaction, scope, intents, &self.settings, write.now_ms)?;
        fence::note_write(transaction, scope, revision, intents)?;
        Ok(revision)
    }

    /// The barrier: raises the scope's fence to the certificate without a write, so that no older
    /// holder writes from here on. Takes a holderless certificate too. The receipt's resource is
    /// the database's path.
    ///
    /// # Errors
    /// Refused (and recorded), a locked database, or a failure of SQLite.
    pub fn advance<'a>(
        &self,
        connection: &mut Connection,
        scope: &Scope,
        certificate: impl Into<Presented<'a>>,
        now_ms: u64,
    ) -> Result<Receipt, GuardError> {
        self.prepare(connection)?;
        let refused = Refused {
            operation: "barrier",
            scope,
            certificate: None,
            intent: None,
            now_ms,
        };
        let mut kept = None;
        let certificate = match self.certificate(certificate.into(), now_ms, &mut kept) {
            Ok(certificate) => certificate,
            Err(refusal) => return Err(self.refuse(connection, &refused, refusal)),
        };
        let transaction = schema::begin(connection)?;
        schema::check(&transaction)?;
        let row = fence::read(&transaction, scope)?;
        let raised = match decide_advance(scope, row.as_ref().map(|row| &row.fence), certificate) {
            Advance::Raise(fence) => {
                fence::raise(&transaction, scope, &fence, now_ms)?;
                schema::commit(transaction)?;
                true
            }
            Advance::Unchanged => false,
            Advance::Refuse(refusal) => {
                drop(transaction);
                let refused = Refused {
                    certificate: Some(certificate),
                    ..refused
                };
                return Err(self.refuse(connection, &refused, refusal));
            }
        };
        Ok(Receipt {
            resource: connection.path().unwrap_or_default().to_owned(),
            scope: scope.clone(),
            incarnation: certificate.incarnation(),
            epoch: certificate.epoch(),
            raised,
        })
    }

    /// The scope's fence; none before the first certificate was admitted.
    ///
    /// # Errors
    /// The tables are not installed or damaged, the database is locked, or SQLite fails.
    pub fn fence(connection: &Connection, scope: &Scope) -> Result<Option<Fence>, GuardError> {
        schema::check(connection)?;
        Ok(fence::read(connection, scope)?.map(|row| row.fence))
    }

    /// The scope's revision: how many writes were admitted. To be read in the same transaction as
    /// the content a change will be based on.
    ///
    /// # Errors
    /// The tables are not installed or damaged, the database is locked, or SQLite fails.
    pub fn revision(connection: &Connection, scope: &Scope) -> Result<u64, GuardError> {
        schema::check(connection)?;
        let row: Option<FenceRow> = fence::read(connection, scope)?;
        Ok(row.map_or(0, |row| row.revision))
    }

    /// The latest refusals, the newest first, at most `limit`.
    ///
    /// # Errors
    /// The tables are not installed, the database is locked, or SQLite fails.
    pub fn refusals(connection: &Connection, limit: u64) -> Result<Vec<RefusalRecord>, GuardError> {
        schema::check(connection)?;
        refusals::latest(connection, limit)
    }

    fn prepare(&self, connection: &Connection) -> Result<(), GuardError> {
        connection
            .busy_timeout(self.settings.busy_timeout())
            .map_err(GuardError::at("set the busy timeout"))
    }

    /// The verified certificate; `kept` is where one made from a token lives.
    fn certificate<'a>(
        &self,
        presented: Presented<'a>,
        now_ms: u64,
        kept: &'a mut Option<Arc<Certificate>>,
    ) -> Result<&'a Certificate, Refusal> {
        match presented {
            Presented::Nothing => Err(Refusal::NoCertificate),
            Presented::Verified(certificate) => Ok(certificate),
            Presented::Token(token) => Ok(kept.insert(self.verifier.verify(token, now_ms)?)),
        }
    }

    /// Records a refusal after the transaction it ended. That it could not be recorded must not
    /// hide why it was refused.
    fn refuse(
        &self,
        connection: &Connection,
        refused: &Refused<'_>,
        refusal: Refusal,
    ) -> GuardError {
        let recorded =
            refusals::record(connection, refused, &refusal, self.settings.refusals_max).is_ok();
        GuardError::Refused { refusal, recorded }
    }
}
