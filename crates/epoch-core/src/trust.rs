//! What a resource that pinned a root trusts: the newest bundle that leads back to it.

use serde_json::{Map, Value, json};

use crate::bundle::Bundle;
use crate::bundle_error::BundleError;
use crate::fields::{self, FieldError, only_members, text};
use crate::json;
use crate::pin::Pin;
use crate::signed_bundle::SignedBundle;
use crate::statement::{Statement, StatementError, StatementKind};
use crate::trust_error::TrustError;

const FORMAT: &str = "epochd-trust-1";
/// Longest stored form, in bytes: nine parts of a bundle, a statement, and what is around them.
pub const TRUST_BYTES_MAX: usize = 64 * 1024;

/// A pin, the newest bundle adopted under it, and the operator's statement for guards, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    pin: Pin,
    bundle: Option<SignedBundle>,
    statement: Option<SignedStatement>,
}

/// A verified statement, with its text to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SignedStatement {
    text: String,
    statement: Statement,
}

impl SignedStatement {
    /// Of two statements the later one counts; within one second, the one of the higher number, so
    /// that all guards that have both agree.
    fn order(&self) -> (u64, &str) {
        let validity = self.statement.validity();
        (validity.issued_at_s, &validity.jti)
    }
}

/// Why stored trust cannot be used. It is made anew from the pin: at worst, a bundle that was
/// rolled back meanwhile is then not noticed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredTrustError {
    /// Too long.
    #[error("the stored trust has {len} bytes; at most {TRUST_BYTES_MAX} are read; restore it")]
    TooLarge {
        /// What was given, in bytes.
        len: usize,
    },
    /// Not strict JSON, or not of this format.
    #[error("the stored trust is not of the format {FORMAT}: {detail}; restore it, or remove it")]
    Malformed {
        /// What is wrong.
        detail: String,
    },
    /// A member cannot be read.
    #[error("the stored trust: {0}; restore it, or remove it")]
    Field(#[from] FieldError),
    /// It was stored under another pin.
    #[error("the stored trust is of the pin {found}, not {expected}; check the pin")]
    OtherPin {
        /// What was stored.
        found: String,
        /// The pin given.
        expected: String,
    },
    /// The bundle in it is none.
    #[error("the stored bundle: {0}; restore the file, or remove it")]
    Bundle(#[from] BundleError),
    /// The bundle in it does not belong to the pin.
    #[error("the stored bundle: {0}; restore the file, or remove it")]
    Trust(#[from] TrustError),
    /// The statement in it does not verify.
    #[error("the stored statement: {0}; restore the file, or remove it")]
    Statement(#[from] StatementError),
}

impl Trust {
    /// Trust that has seen no bundle yet.
    #[must_use]
    pub fn new(pin: Pin) -> Self {
        Self {
            pin,
            bundle: None,
            statement: None,
        }
    }

    /// Where it begins.
    #[must_use]
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// The newest bundle adopted.
    #[must_use]
    pub fn bundle(&self) -> Option<&Bundle> {
        self.bundle.as_ref().map(SignedBundle::bundle)
    }

    /// How far ahead the operator lets guards accept epochs at `now_ms`, in milliseconds.
    #[must_use]
    pub fn max_future_ms(&self, now_ms: u64) -> Option<u64> {
        let statement = &self.statement.as_ref()?.statement;
        match statement.kind() {
            StatementKind::MaxFuture { seconds } if statement.holds_at(now_ms) => {
                Some(seconds.saturating_mul(1_000))
            }
            StatementKind::MaxFuture { .. } | StatementKind::Clock => None,
        }
    }

    /// Adopts the newest bundle of a chain (oldest first), if all that lead to it from what is
    /// trusted already check out. Those at or below what is trusted are passed over. Returns
    /// whether anything newer was adopted: all of it, or nothing.
    ///
    /// # Errors
    /// No bundles; [`TrustError::Rollback`] if the newest is older than what is trusted;
    /// [`TrustError::Fork`] if there is another one of the same rank; or what is wrong with the
    /// first bundle that may not follow.
    pub fn adopt(&mut self, chain: &[SignedBundle]) -> Result<bool, TrustError> {
        let newest = chain.last().ok_or(TrustError::EmptyChain)?.bundle();
        if let Some(current) = self.bundle() {
            let (offered, current) = (newest.rank(), current.rank());
            if offered < current {
                return Err(TrustError::Rollback { offered, current });
            }
        }
        let mut last: Option<&SignedBundle> = self.bundle.as_ref();
        let mut adopted = false;
        for signed in chain {
            self.check_cluster(signed.bundle())?;
            match last.map(SignedBundle::bundle) {
                None => signed.check_first(&self.pin.root)?,
                Some(last) if !adopted && signed.bundle().rank() <= last.rank() => {
                    let rank = last.rank();
                    if signed.bundle().rank() == rank && signed.bundle() != last {
                        // An alarm takes more than a text that anybody could make up.
                        signed.check_known(&self.pin.root)?;
                        return Err(TrustError::Fork { rank });
                    }
                    continue;
                }
                Some(last) => signed.check_successor(last, &self.pin.root)?,
            }
            last = Some(signed);
            adopted = true;
        }
        if adopted {
            self.bundle = last.cloned();
        }
        Ok(adopted)
    }

    fn check_cluster(&self, bundle: &Bundle) -> Result<(), TrustError> {
        let (found, expected) = (bundle.terms().cluster, self.pin.cluster);
        if found == expected {
            return Ok(());
        }
        Err(TrustError::OtherCluster { found, expected })
    }

    /// Adopts an operator's statement for guards, unless a later one is adopted already. Returns
    /// whether it was adopted.
    ///
    /// # Errors
    /// The statement does not verify at `now_ms`, or is not for guards.
    pub fn adopt_statement(&mut self, text: &str, now_ms: u64) -> Result<bool, StatementError> {
        let statement = Statement::verify(text, &self.pin, now_ms)?;
        if statement.kind() == StatementKind::Clock {
            return Err(StatementError::ForTheCluster);
        }
        let text = text.to_owned();
        let new = SignedStatement { text, statement };
        let newer = |old: &SignedStatement| new.order() > old.order();
        if !self.statement.as_ref().is_none_or(newer) {
            return Ok(false);
        }
        self.statement = Some(new);
        Ok(true)
    }

    /// The stored form: no secret, but who can change it can roll trust back, or forge it where the
    /// bundle is signed by nodes; keep it like the fence itself.
    #[must_use]
    pub fn to_json(&self) -> String {
        json!({
            "format": FORMAT,
            "pin": self.pin.to_string(),
            "bundle": self.bundle.as_ref().map(SignedBundle::to_text),
            "statement": self.statement.as_ref().map(|signed| &signed.text),
        })
        .to_string()
    }

    /// Reads the stored form. All that can be is verified again; a bundle signed by nodes of the
    /// one before, which is not stored, is taken as it stands.
    ///
    /// # Errors
    /// One variant for each part that is not as it was stored.
    pub fn from_json(pin: Pin, bytes: &[u8]) -> Result<Self, StoredTrustError> {
        if bytes.len() > TRUST_BYTES_MAX {
            let len = bytes.len();
            return Err(StoredTrustError::TooLarge { len });
        }
        let map = json::object(bytes).map_err(|detail| StoredTrustError::Malformed { detail })?;
        if text(&map, "format")? != FORMAT {
            let detail = json::shown(map.get("format"));
            return Err(StoredTrustError::Malformed { detail });
        }
        let members = ["format", "pin", "bundle", "statement"];
        only_members(&map, "the stored trust", &members)?;
        let found = text(&map, "pin")?;
        let expected = pin.to_string();
        if found != expected {
            let found = json::excerpt(found);
            return Err(StoredTrustError::OtherPin { found, expected });
        }
        let mut trust = Self::new(pin);
        if let Some(text) = optional(&map, "bundle")? {
            let signed = SignedBundle::parse(text)?;
            trust.check_cluster(signed.bundle())?;
            signed.check_known(&trust.pin.root)?;
            trust.bundle = Some(signed);
        }
        if let Some(text) = optional(&map, "statement")? {
            let statement = Statement::verify_signature(text, &trust.pin)?;
            let text = text.to_owned();
            trust.statement = Some(SignedStatement { text, statement });
        }
        Ok(trust)
    }
}

/// A member that is text or null.
fn optional<'a>(
    map: &'a Map<String, Value>,
    claim: &'static str,
) -> Result<Option<&'a str>, FieldError> {
    match fields::value(map, claim)? {
        Value::Null => Ok(None),
        Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => text(map, claim).map(Some),
    }
}

#[cfg(test)]
mod tests;
