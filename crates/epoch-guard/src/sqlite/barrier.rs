//! One scope of one database as a barrier.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use epoch_core::{Barrier, BarrierError, Receipt, Scope};
use rusqlite::Connection;

use super::error::GuardError;
use super::guard::SqliteGuard;

/// A scope of a database whose fence can be raised before the first write.
pub struct SqliteBarrier {
    guard: Arc<SqliteGuard>,
    connection: Mutex<Connection>,
    scope: Scope,
    resource: String,
}

impl SqliteBarrier {
    /// A barrier on `connection`, which it keeps to itself; `resource` names it in receipts.
    #[must_use]
    pub fn new(
        guard: Arc<SqliteGuard>,
        connection: Connection,
        scope: Scope,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            guard,
            connection: Mutex::new(connection),
            scope,
            resource: resource.into(),
        }
    }
}

impl Barrier for SqliteBarrier {
    fn resource(&self) -> &str {
        &self.resource
    }

    fn advance(&self, certificate: &str, now_ms: u64) -> Result<Receipt, BarrierError> {
        // A panic elsewhere leaves at most a transaction that its own drop has rolled back.
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let resource = self.resource.clone();
        match self
            .guard
            .advance(&mut connection, &self.scope, certificate, now_ms)
        {
            Ok(receipt) => Ok(Receipt {
                resource,
                ..receipt
            }),
            Err(GuardError::Refused { refusal, .. }) => Err(BarrierError::Refused {
                resource,
                reason: refusal.reason(),
                message: refusal.to_string(),
            }),
            Err(error) => Err(BarrierError::Unavailable {
                resource,
                message: error.to_string(),
            }),
        }
    }
}

impl fmt::Debug for SqliteBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBarrier")
            .field("resource", &self.resource)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
