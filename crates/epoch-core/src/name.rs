//! The names people choose: scope, holder and principal.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest scope, in bytes of UTF-8.
pub const SCOPE_BYTES_MAX: usize = 512;
/// Longest holder, in bytes of UTF-8. With the longest scope, a certificate stays under 2 KiB.
pub const HOLDER_BYTES_MAX: usize = 256;
/// Longest principal, in bytes of UTF-8.
pub const PRINCIPAL_BYTES_MAX: usize = 256;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has no bytes.
    #[error("{what} is empty; give it 1 to {max} bytes")]
    Empty {
        /// Which name.
        what: &'static str,
        /// The bound, in bytes.
        max: usize,
    },
    /// The name is longer than the bound.
    #[error("{what} has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// What was given, in bytes.
        len: usize,
        /// The bound, in bytes.
        max: usize,
    },
    /// The name has a control character, which would be unreadable in logs and headers.
    #[error("{what} has the control character {character:?} at byte {at}; remove it")]
    ControlCharacter {
        /// Which name.
        what: &'static str,
        /// The character found.
        character: char,
        /// Its offset, in bytes.
        at: usize,
    },
}

pub(crate) fn checked(what: &'static str, max: usize, text: &str) -> Result<Arc<str>, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what, max });
    }
    if text.len() > max {
        return Err(NameError::TooLong {
            what,
            len: text.len(),
            max,
        });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, character)) => Err(NameError::ControlCharacter {
            what,
            character,
            at,
        }),
        None => Ok(Arc::from(text)),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses and checks `text`.
            ///
            /// # Errors
            /// Empty, longer than the bound, or with a control character.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                checked($what, $max, text).map(Self)
            }

            /// The name as it was given, byte by byte.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The shared text, to be kept without a copy.
            #[must_use]
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// The name of what is protected: UTF-8, 1 to 512 bytes, no control characters, `/`-separated
    /// by custom. Compared byte by byte: case and Unicode form make different scopes, and `a/`
    /// does not cover `a/b`.
    Scope,
    "scope",
    SCOPE_BYTES_MAX
);
name!(
    /// The identity a session acts for: UTF-8, 1 to 256 bytes, no control characters.
    Holder,
    "holder",
    HOLDER_BYTES_MAX
);
name!(
    /// Whom permissions are given to: UTF-8, 1 to 256 bytes, no control characters.
    Principal,
    "principal",
    PRINCIPAL_BYTES_MAX
);

impl Principal {
    /// Whether a holder is one of its own: named as the principal is, or by its name, `/` and more.
    #[must_use]
    pub fn owns(&self, holder: &Holder) -> bool {
        let rest = holder.as_str().strip_prefix(self.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_of_512_bytes_passes_and_513_do_not() {
        assert!(Scope::parse(&"a".repeat(512)).is_ok());
        assert_eq!(
            Scope::parse(&"a".repeat(513)),
            Err(NameError::TooLong {
                what: "scope",
                len: 513,
                max: 512
            })
        );
    }

    #[test]
    fn empty_nul_and_newline_are_refused() {
        assert!(matches!(Scope::parse(""), Err(NameError::Empty { .. })));
        for bad in ["a\0", "a\nb", "\u{7f}", "\u{85}"] {
            assert!(
                matches!(Scope::parse(bad), Err(NameError::ControlCharacter { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_principal_owns_the_holders_that_are_named_after_it() {
        let principal = Principal::parse("team/a").unwrap();
        for (holder, owned) in [
            ("team/a", true),
            ("team/a/", true),
            ("team/a/worker-7", true),
            ("team/ab", false),
            ("team/a-7", false),
            ("team", false),
            ("TEAM/a", false),
            ("x/team/a", false),
        ] {
            assert_eq!(
                principal.owns(&Holder::parse(holder).unwrap()),
                owned,
                "{holder}"
            );
        }
    }

    #[test]
    fn case_and_unicode_form_make_different_scopes() {
        let parse = |text| Scope::parse(text).unwrap();
        assert_ne!(parse("a"), parse("A"));
        assert_ne!(parse("\u{e9}"), parse("e\u{301}"));
    }
}
