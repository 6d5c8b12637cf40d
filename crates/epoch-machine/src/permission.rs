//! Who may do what, where.

use std::fmt;
use std::sync::Arc;

use epoch_core::SCOPE_BYTES_MAX;

/// Longest prefix of scopes, in bytes of UTF-8: as long as a scope.
pub const PREFIX_BYTES_MAX: usize = SCOPE_BYTES_MAX;

/// What a permission is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Acquiring scopes, and writing their records.
    Acquire,
    /// Looking at scopes, records and events.
    Read,
    /// Ending grants of others, and burning epochs.
    Revoke,
    /// Running the cluster, permissions included: counts with the empty prefix only.
    Operate,
}

impl Verb {
    /// Each of them, in order.
    pub const ALL: [Self; 4] = [Self::Acquire, Self::Read, Self::Revoke, Self::Operate];

    /// Its public name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Read => "read",
            Self::Revoke => "revoke",
            Self::Operate => "operate",
        }
    }

    /// Finds one by its public name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == text)
    }

    fn bit(self) -> u8 {
        match self {
            Self::Acquire => 1,
            Self::Read => 2,
            Self::Revoke => 4,
            Self::Operate => 8,
        }
    }
}

/// One or more verbs. Shown as their names, with commas between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verbs(u8);

/// Verbs that are none, or bits that stand for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there must be one or more of acquire, read, revoke and operate")]
pub struct VerbsError;

impl Verbs {
    /// Each verb.
    pub const ALL: Self = Self(15);

    /// A set of verbs.
    ///
    /// # Errors
    /// There is none.
    pub fn new(verbs: impl IntoIterator<Item = Verb>) -> Result<Self, VerbsError> {
        let bits = verbs.into_iter().fold(0, |bits, verb| bits | verb.bit());
        Self::from_bits(u32::from(bits))
    }

    /// From the bits of [`bits`](Self::bits).
    ///
    /// # Errors
    /// No bit is set, or one that stands for nothing.
    pub fn from_bits(bits: u32) -> Result<Self, VerbsError> {
        match u8::try_from(bits) {
            Ok(bits) if (1..=Self::ALL.0).contains(&bits) => Ok(Self(bits)),
            Ok(_) | Err(_) => Err(VerbsError),
        }
    }

    /// As bits: acquire 1, read 2, revoke 4, operate 8.
    #[must_use]
    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    /// Whether a verb is one of them.
    #[must_use]
    pub fn has(self, verb: Verb) -> bool {
        self.0 & verb.bit() != 0
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |verb| self.has(*verb))
    }
}

impl fmt::Display for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, verb) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}", verb.as_str())?;
        }
        Ok(())
    }
}

/// The scopes of a permission: all that begin with these bytes. UTF-8, at most 512 bytes, no
/// control characters; the empty one covers every scope.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Prefix(Arc<str>);

/// Why a prefix was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// It is longer than the bound.
    #[error("the prefix has {0} bytes; at most {PREFIX_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// It has a control character, which no scope has.
    #[error("the prefix has the control character {0:?}; remove it")]
    ControlCharacter(char),
}

impl Prefix {
    /// Checks length and characters.
    ///
    /// # Errors
    /// Longer than 512 bytes, or with a control character.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        if text.len() > PREFIX_BYTES_MAX {
            return Err(PrefixError::TooLong(text.len()));
        }
        match text.chars().find(|character| character.is_control()) {
            Some(character) => Err(PrefixError::ControlCharacter(character)),
            None => Ok(Self(text.into())),
        }
    }

    /// The prefix as it was given, byte by byte.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it covers every scope.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a scope, or a prefix of scopes, begins with it, byte by byte.
    #[must_use]
    pub fn begins(&self, text: &str) -> bool {
        text.starts_with(&*self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
