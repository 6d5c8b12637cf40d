//! The numbers and identifiers of the protocol, as types whose values are always valid.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Epochs and request ids are below 2^53, so that they are exact in JSON and Lua.
pub const EPOCH_EXCLUSIVE_MAX: u64 = 1 << 53;

/// Why an identifier was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The number is zero or not below 2^53.
    #[error("{what} is {value}; it must be from 1 to 2^53 - 1")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// What was given.
        value: u64,
    },
    /// The text is not of the identifier's form.
    #[error("{what} {text:?} is not of the form {form}")]
    Malformed {
        /// Which identifier.
        what: &'static str,
        /// What was given, cut to 128 characters.
        text: String,
        /// The form expected.
        form: &'static str,
    },
    /// The text is not of the identifier's form, and is not repeated: it may be a bearer secret.
    #[error("{what} is not of the form {form}")]
    MalformedSecret {
        /// Which identifier.
        what: &'static str,
        /// The form expected.
        form: &'static str,
    },
}

impl IdError {
    pub(crate) fn malformed(what: &'static str, text: &str, form: &'static str) -> Self {
        Self::Malformed {
            what,
            text: text.chars().take(128).collect(),
            form,
        }
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "u64", into = "u64")]
        pub struct $name(NonZeroU64);

        impl $name {
            /// Checks the range.
            ///
            /// # Errors
            /// Zero, or not below 2^53.
            pub fn new(value: u64) -> Result<Self, IdError> {
                match NonZeroU64::new(value) {
                    Some(number) if value < EPOCH_EXCLUSIVE_MAX => Ok(Self(number)),
                    _ => Err(IdError::OutOfRange { what: $what, value }),
                }
            }

            /// The lowest one.
            pub const FIRST: Self = Self(NonZeroU64::MIN);

            /// The number.
            #[must_use]
            pub fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl TryFrom<u64> for $name {
            type Error = IdError;
            fn try_from(value: u64) -> Result<Self, IdError> {
                Self::new(value)
            }
        }

        impl From<$name> for u64 {
            fn from(number: $name) -> u64 {
                number.get()
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.parse::<u64>()
                    .map_err(|_not_a_number| {
                        IdError::malformed($what, text, "a whole number from 1 to 2^53 - 1")
                    })
                    .and_then(Self::new)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// The fencing token: strictly greater for each new grant in a scope, from 1 to 2^53 - 1.
    /// `epoch >> 10` is the time of the grant in milliseconds since 1970, while clocks were sane;
    /// nothing else may be concluded from the number.
    Epoch,
    "epoch"
);
number!(
    /// What the client calls one acquire, from 1 to 2^53 - 1, unique in its session. The same id
    /// again is the same acquire, however often and wherever it is sent.
    RequestId,
    "request_id"
);

/// A voter or learner, from 1; never reused.
pub type NodeId = u64;

macro_rules! uuid {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                // Only the hyphenated form, so that one identifier has one spelling.
                match Uuid::try_parse(text) {
                    Ok(uuid) if text.len() == 36 => Ok(Self(uuid)),
                    _ => Err(IdError::malformed($what, text, "a hyphenated UUID")),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }
    };
}

uuid!(
    /// The cluster, for good: it outlives every incarnation.
    ClusterId,
    "cluster_id"
);
uuid!(
    /// One continuous life of the cluster's state: a UUIDv7, so that a later one is higher. A
    /// restore from backup begins a new one. Fences compare (incarnation, epoch), in that order.
    Incarnation,
    "incarnation"
);
uuid!(
    /// What the client calls one Open: a retry with it is idempotent while that session lives.
    OpenId,
    "open_id"
);

/// Where a command stands in the log; `offset` is its place within the batch that is one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The Raft group; 0 today.
    pub group: u32,
    /// The Raft term. Terms can have several leaders: a term is never an epoch.
    pub term: u64,
    /// The node that led.
    pub leader: NodeId,
    /// The log index, from 0.
    pub index: u64,
    /// The command's place in the entry's batch, from 0.
    pub offset: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            term,
            leader,
            index,
            offset,
        } = self;
        write!(f, "{group}/{term}.{leader}/{index}.{offset}")
    }
}

/// Where an event stands in the log, for a watch to go on after: the entry's index, and which of
/// the entry's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cursor {
    /// The log index.
    pub index: u64,
    /// Which of the entry's events, from 1; 0 is before the first.
    pub offset: u32,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.offset)
    }
}

impl FromStr for Cursor {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let malformed = || IdError::malformed("cursor", text, "<index>.<offset>");
        let (index, offset) = text.split_once('.').ok_or_else(malformed)?;
        let cursor = Self {
            index: index.parse().map_err(|_not_a_number| malformed())?,
            offset: offset.parse().map_err(|_not_a_number| malformed())?,
        };
        (cursor.to_string() == text)
            .then_some(cursor)
            .ok_or_else(malformed)
    }
}

/// A session: its open id, and the position of its Open, so that a late copy of an Open never
/// revives an old session's request ids. A bearer secret: others are shown its [`SessionHash`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Chosen by the client.
    pub open_id: OpenId,
    /// Log index of the Open.
    pub index: u64,
    /// Its offset in the batch.
    pub offset: u32,
}

impl SessionId {
    /// What others are shown in place of the id.
    #[must_use]
    pub fn hash(&self) -> SessionHash {
        SessionHash(sha256(&["epochd session", &self.to_string()]))
    }
}

impl FromStr for SessionId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let malformed = || IdError::MalformedSecret {
            what: "session_id",
            form: "<open id>.<index>.<offset>",
        };
        let mut parts = text.split('.');
        let (Some(open_id), Some(index), Some(offset), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let id = Self {
            open_id: open_id.parse().map_err(|_not_a_uuid| malformed())?,
            index: index.parse().map_err(|_not_a_number| malformed())?,
            offset: offset.parse().map_err(|_not_a_number| malformed())?,
        };
        // One session has one spelling: no leading zeros, signs or upper-case digits.
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(malformed())
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.open_id, self.index, self.offset)
    }
}

pub(crate) fn sha256(parts: &[&str]) -> [u8; 32] {
    // NUL separates: no part can contain it, so no two lists of parts run together.
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, parts.join("\0").as_bytes()).as_ref());
    out
}

macro_rules! hash {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                // A session's id is easily mistaken for its hash, and is a secret.
                let malformed = || IdError::MalformedSecret {
                    what: $what,
                    form: "32 bytes as base64url without padding",
                };
                let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_not_base64| malformed())?;
                <[u8; 32]>::try_from(bytes).map(Self).map_err(|_wrong_length| malformed())
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(hash: $name) -> Self {
                hash.to_string()
            }
        }
    };
}

hash!(
    /// SHA-256 of a session id: names a session to those who may not act in it.
    SessionHash,
    "session"
);
hash!(
    /// SHA-256 of session id and request id: tells two grants with one number apart, and is not
    /// changed by a fresh certificate.
    GrantHash,
    "grant"
);

impl GrantHash {
    /// The hash of one grant; of a transferred one, which no request of the session asked for, with
    /// 0 in place of the request id.
    #[must_use]
    pub fn of(session: &SessionId, request: Option<RequestId>) -> Self {
        let request = request.map_or(0, RequestId::get);
        Self(sha256(&[
            "epochd grant",
            &session.to_string(),
            &request.to_string(),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_from_1_to_2_pow_53_minus_1() {
        assert!(Epoch::new(0).is_err());
        assert!(Epoch::new(1).is_ok());
        assert!(Epoch::new(EPOCH_EXCLUSIVE_MAX - 1).is_ok());
        assert!(Epoch::new(EPOCH_EXCLUSIVE_MAX).is_err());
    }

    #[test]
    fn a_session_id_has_one_spelling() {
        let text = "018f4d1c-0000-7000-8000-00000000000a.17.3";
        let id: SessionId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        for bad in [
            "",
            "x.1.2",
            "018f4d1c-0000-7000-8000-00000000000a.17",
            "018f4d1c-0000-7000-8000-00000000000a.17.3.4",
            "018f4d1c-0000-7000-8000-00000000000a.017.3",
            "018f4d1c-0000-7000-8000-00000000000a.+17.3",
            "018F4D1C-0000-7000-8000-00000000000A.17.3",
            "018f4d1c000070008000-00000000000a.17.3",
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated_where_it_does_not_parse() {
        let open_id = "018f4d1c-0000-7000-8000-00000000000a";
        let id = format!("{open_id}.17.3");
        let refused = [
            format!("{id}.4").parse::<SessionId>().unwrap_err(),
            format!("x{id}").parse::<SessionId>().unwrap_err(),
            id.parse::<SessionHash>().unwrap_err(),
        ];
        for error in refused {
            let said = format!("{error} {error:?}");
            assert!(!said.contains(open_id), "{said}");
        }
    }

    #[test]
    fn hashes_round_trip_as_text() {
        let id: SessionId = "018f4d1c-0000-7000-8000-00000000000a.17.3".parse().unwrap();
        let hash = id.hash();
        assert_eq!(hash.to_string().parse::<SessionHash>(), Ok(hash));
        let request = RequestId::new(7).unwrap();
        assert_ne!(GrantHash::of(&id, Some(request)).0, hash.0);
    }
}
