//! What an operator gives to a resource: which cluster, and its root key.

use std::fmt;
use std::str::FromStr;

use crate::id::ClusterId;
use crate::json;
use crate::keys::VerifyingKey;

const START: &str = "epochd-root:";

/// The cluster that a resource trusts, and its root key: where its trust begins. As text,
/// `epochd-root:<cluster id>:<root key as base64url>`; no secret, but it must come from the
/// operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The cluster.
    pub cluster: ClusterId,
    /// The key whose signature begins a chain of bundles.
    pub root: VerifyingKey,
}

/// Text that is not a pin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not of the form epochd-root:<cluster id>:<root key as base64url>; \
     take it from who made the cluster"
)]
pub struct PinError {
    /// What was given, cut to 64 characters.
    pub text: String,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{START}{}:{}", self.cluster, self.root.to_base64url())
    }
}

impl FromStr for Pin {
    type Err = PinError;
    fn from_str(text: &str) -> Result<Self, PinError> {
        let parse = || {
            let (cluster, root) = text.strip_prefix(START)?.split_once(':')?;
            let pin = Self {
                cluster: cluster.parse().ok()?,
                root: root.parse().ok()?,
            };
            // One pin has one spelling.
            (pin.to_string() == text).then_some(pin)
        };
        parse().ok_or_else(|| PinError {
            text: json::excerpt(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_pin_has_one_spelling() {
        let pin = testing::pin();
        let text = pin.to_string();
        assert!(text.starts_with("epochd-root:018f4d1c-0000-7000-8000-00000000000a:"));
        assert_eq!(text.parse(), Ok(pin));
        for bad in [
            String::new(),
            text.to_uppercase(),
            text.replace("018f", "018F"),
            format!("{text}="),
            format!("{text}\n"),
            text.replace("epochd-root", "epochd"),
            text.replace(":018f", ":"),
            text.get(..text.len() - 1).unwrap().to_owned(),
        ] {
            assert!(bad.parse::<Pin>().is_err(), "{bad}");
        }
    }
}
