//! An operator's statement, signed with the root key: what is allowed for a time.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::certificate::{JTI_BYTES_MAX, Validity, issuer};
use crate::fields::{self, FieldError, number, object, only_members, text};
use crate::id::{ClusterId, EPOCH_EXCLUSIVE_MAX};
use crate::json;
use crate::jws::{SignedText, TextKind};
use crate::jws_error::JwsError;
use crate::keys::KeyId;
use crate::pin::Pin;

/// How far a statement's clock and the reader's may differ, in milliseconds.
const SKEW_MS: u64 = 30_000;
/// How far guards may be told to accept epochs ahead, in seconds: 366 days.
pub const MAX_FUTURE_S_MAX: u64 = 366 * 86_400;

/// What a statement allows until it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
    /// Grants go on while the cluster's time is ahead of real time.
    Clock,
    /// Guards accept epochs whose time is up to so many seconds ahead.
    MaxFuture {
        /// From 1 to [`MAX_FUTURE_S_MAX`].
        seconds: u64,
    },
}

/// Why something is not a statement, or not a valid one now. Each variant is one check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// The signed text is not one, or the signature does not verify.
    #[error(transparent)]
    Jws(#[from] JwsError),
    /// The payload is not strict JSON.
    #[error("the statement is not a strict JSON object: {detail}; have it made again")]
    Malformed {
        /// What is wrong.
        detail: String,
    },
    /// A member cannot be read.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// This version does not know what it allows.
    #[error("the statement is of the unknown kind {kind:?}; use a version that knows it")]
    Kind {
        /// What was given, cut to 64 characters.
        kind: String,
    },
    /// The bound is out of bounds.
    #[error("max_future is {seconds} s; it must be from 1 to {MAX_FUTURE_S_MAX}")]
    Seconds {
        /// What was given.
        seconds: u64,
    },
    /// `iat`, `exp` or `jti` is out of bounds.
    #[error(
        "iat and exp must be below 2^53 and in this order, jti of 1 to {JTI_BYTES_MAX} bytes; \
         have the statement made again"
    )]
    Validity,
    /// Another cluster's.
    #[error("the statement is for cluster {found}, expected {expected}; check which one it is for")]
    OtherCluster {
        /// What was given.
        found: ClusterId,
        /// The cluster expected.
        expected: ClusterId,
    },
    /// The root key must sign it, alone.
    #[error(
        "the statement is signed by the key {kid}; only the root key {root} may sign it, alone"
    )]
    NotRootSigned {
        /// Who signed.
        kid: KeyId,
        /// Who must.
        root: KeyId,
    },
    /// It has expired.
    #[error("the statement expired at {expires_at_s} s, now is {now_ms} ms; make another one")]
    Expired {
        /// `exp`, in seconds.
        expires_at_s: u64,
        /// The reader's time, in milliseconds.
        now_ms: u64,
    },
    /// It is issued in the future.
    #[error(
        "the statement is issued at {issued_at_s} s, after now ({now_ms} ms); check the clocks"
    )]
    IssuedInFuture {
        /// `iat`, in seconds.
        issued_at_s: u64,
        /// The reader's time, in milliseconds.
        now_ms: u64,
    },
    /// It is meant for the cluster, not for resources.
    #[error("a statement about the cluster's clock is for the cluster's nodes; give it to one")]
    ForTheCluster,
    /// The verifier has a plain key set.
    #[error("this verifier has a plain key set, no pinned root; give it the pin")]
    NotPinned,
}

/// A statement whose content is in bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    cluster: ClusterId,
    validity: Validity,
    kind: StatementKind,
}

impl Statement {
    /// A statement about a cluster.
    ///
    /// # Errors
    /// Validity or seconds out of bounds.
    pub fn new(
        cluster: ClusterId,
        validity: Validity,
        kind: StatementKind,
    ) -> Result<Self, StatementError> {
        let Validity {
            issued_at_s,
            expires_at_s,
            ref jti,
        } = validity;
        let in_order = issued_at_s < expires_at_s && expires_at_s < EPOCH_EXCLUSIVE_MAX;
        if !in_order || !(1..=JTI_BYTES_MAX).contains(&jti.len()) {
            return Err(StatementError::Validity);
        }
        match kind {
            StatementKind::MaxFuture { seconds } if !(1..=MAX_FUTURE_S_MAX).contains(&seconds) => {
                Err(StatementError::Seconds { seconds })
            }
            StatementKind::Clock | StatementKind::MaxFuture { .. } => Ok(Self {
                cluster,
                validity,
                kind,
            }),
        }
    }

    /// Reads and verifies a signed text at the time `now_ms` (milliseconds since 1970).
    ///
    /// # Errors
    /// One variant for each check.
    pub fn verify(text: &str, pin: &Pin, now_ms: u64) -> Result<Self, StatementError> {
        let statement = Self::verify_signature(text, pin)?;
        let Validity {
            issued_at_s,
            expires_at_s,
            jti: _,
        } = statement.validity;
        if !statement.holds_at(now_ms) {
            return Err(StatementError::Expired {
                expires_at_s,
                now_ms,
            });
        }
        if issued_at_s.saturating_mul(1_000) > now_ms.saturating_add(SKEW_MS) {
            return Err(StatementError::IssuedInFuture {
                issued_at_s,
                now_ms,
            });
        }
        Ok(statement)
    }

    /// All of [`verify`](Self::verify) but the dates: for a statement that was verified before.
    pub(crate) fn verify_signature(text: &str, pin: &Pin) -> Result<Self, StatementError> {
        let text = SignedText::parse(TextKind::Statement, text)?;
        for part in text.parts() {
            if part.kid != pin.root.id() {
                return Err(StatementError::NotRootSigned {
                    kid: part.kid,
                    root: pin.root.id(),
                });
            }
            part.check(&pin.root)?;
        }
        let payload = text.payload()?;
        let map = json::object(&payload).map_err(|detail| StatementError::Malformed { detail })?;
        let statement = Self::read(&map)?;
        let (found, expected) = (statement.cluster, pin.cluster);
        if found != expected {
            return Err(StatementError::OtherCluster { found, expected });
        }
        Ok(statement)
    }

    fn read(map: &Map<String, Value>) -> Result<Self, StatementError> {
        const MEMBERS: [&str; 5] = ["iss", "iat", "exp", "jti", "statement"];
        only_members(map, "the statement", &MEMBERS)?;
        let validity = Validity {
            issued_at_s: number(map, "iat")?,
            expires_at_s: number(map, "exp")?,
            jti: text(map, "jti")?.to_owned(),
        };
        let content = object(map, "statement")?;
        let kind = match text(content, "statement.kind")? {
            "clock" => {
                only_members(content, "the statement", &["kind"])?;
                StatementKind::Clock
            }
            "max_future" => {
                only_members(content, "the statement", &["kind", "seconds"])?;
                let seconds = number(content, "statement.seconds")?;
                StatementKind::MaxFuture { seconds }
            }
            other => {
                return Err(StatementError::Kind {
                    kind: json::excerpt(other),
                });
            }
        };
        Self::new(fields::cluster(map)?, validity, kind)
    }

    /// Whether it has not expired at `now_ms`. No skew is given: it is an exception, and its end
    /// is what the operator said.
    #[must_use]
    pub fn holds_at(&self, now_ms: u64) -> bool {
        self.validity.expires_at_s.saturating_mul(1_000) > now_ms
    }

    /// The cluster it is about.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// When it is valid, and its number.
    #[must_use]
    pub fn validity(&self) -> &Validity {
        &self.validity
    }

    /// What it allows.
    #[must_use]
    pub fn kind(&self) -> StatementKind {
        self.kind
    }

    /// The payload: JSON, the same bytes for the same statement.
    #[must_use]
    pub fn to_json(&self) -> String {
        let (kind, seconds) = match self.kind {
            StatementKind::Clock => ("clock", None),
            StatementKind::MaxFuture { seconds } => ("max_future", Some(seconds)),
        };
        let wire = WireStatement {
            iss: issuer(self.cluster),
            iat: self.validity.issued_at_s,
            exp: self.validity.expires_at_s,
            jti: &self.validity.jti,
            statement: WireContent { kind, seconds },
        };
        // Strings and numbers always serialise; the fallback verifies nowhere.
        serde_json::to_string(&wire).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct WireStatement<'a> {
    iss: String,
    iat: u64,
    exp: u64,
    jti: &'a str,
    statement: WireContent,
}

#[derive(Serialize)]
struct WireContent {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
}

#[cfg(test)]
mod tests;
