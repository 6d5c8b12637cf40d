//! Reading single claims: exact types, exact spellings, nothing rounded.

use serde_json::{Map, Value};

use crate::certificate::{Grant, issuer};
use crate::decide::Fence;
use crate::id::{ClusterId, EPOCH_EXCLUSIVE_MAX, Epoch, GrantHash, Incarnation, Position};
use crate::json::{self, shown};
use crate::name::{Holder, Scope};
use crate::verify_error::VerifyError;

/// Why a member of a signed object cannot be read. In its text a claim is any member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// It is missing.
    #[error("the claim {claim} is missing")]
    Missing {
        /// Which one.
        claim: &'static str,
    },
    /// It has another form.
    #[error("the claim {claim} is not {expected}")]
    Malformed {
        /// Which one.
        claim: &'static str,
        /// The form expected.
        expected: &'static str,
    },
    /// There is one that this version does not know.
    #[error("{object} has the unknown member {name:?}; use a version that knows it")]
    Unknown {
        /// Where.
        object: &'static str,
        /// Which one, cut to 64 characters.
        name: String,
    },
}

/// Refuses an object with other members than these.
pub(crate) fn only_members(
    map: &Map<String, Value>,
    object: &'static str,
    allowed: &[&str],
) -> Result<(), FieldError> {
    match map.keys().find(|name| !allowed.contains(&name.as_str())) {
        Some(name) => Err(FieldError::Unknown {
            object,
            name: json::excerpt(name),
        }),
        None => Ok(()),
    }
}

/// The members of the claim `fence`. Others are refused: a fence that means more than is read here
/// must not be taken for one that is understood.
const FENCE_MEMBERS: [&str; 9] = [
    "scope",
    "incarnation",
    "epoch",
    "group",
    "term",
    "leader",
    "index",
    "offset",
    "grant",
];

/// The value of `claim`; its key is the part after the last dot.
pub(crate) fn value<'a>(
    map: &'a Map<String, Value>,
    claim: &'static str,
) -> Result<&'a Value, FieldError> {
    let key = claim.rsplit('.').next().unwrap_or(claim);
    map.get(key).ok_or(FieldError::Missing { claim })
}

pub(crate) fn text<'a>(
    map: &'a Map<String, Value>,
    claim: &'static str,
) -> Result<&'a str, FieldError> {
    let malformed = FieldError::Malformed {
        claim,
        expected: "text",
    };
    value(map, claim)?.as_str().ok_or(malformed)
}

/// An integer from 0 to 2^53 - 1, written as one: `1.0`, `1e3` and `"1"` are refused.
pub(crate) fn number(map: &Map<String, Value>, claim: &'static str) -> Result<u64, FieldError> {
    let malformed = FieldError::Malformed {
        claim,
        expected: "an integer from 0 to 2^53 - 1",
    };
    let number = value(map, claim)?
        .as_u64()
        .filter(|number| *number < EPOCH_EXCLUSIVE_MAX);
    number.ok_or(malformed)
}

fn number32(map: &Map<String, Value>, claim: &'static str) -> Result<u32, FieldError> {
    let expected = "an integer from 0 to 2^32 - 1";
    let number = value(map, claim)?
        .as_u64()
        .and_then(|number| u32::try_from(number).ok());
    number.ok_or(FieldError::Malformed { claim, expected })
}

/// The cluster that the member `iss` names.
pub(crate) fn cluster(map: &Map<String, Value>) -> Result<ClusterId, FieldError> {
    let text = text(map, "iss")?;
    let named = text.strip_prefix("epochd:").and_then(|id| id.parse().ok());
    // One cluster has one spelling.
    named
        .filter(|cluster| issuer(*cluster) == text)
        .ok_or(FieldError::Malformed {
            claim: "iss",
            expected: "epochd:<cluster id>",
        })
}

/// An object within an object.
pub(crate) fn object<'a>(
    map: &'a Map<String, Value>,
    claim: &'static str,
) -> Result<&'a Map<String, Value>, FieldError> {
    let not_an_object = FieldError::Malformed {
        claim,
        expected: "an object",
    };
    value(map, claim)?.as_object().ok_or(not_an_object)
}

/// Scope and fence, from the claims `fence` and `sub`.
pub(crate) fn fence(claims: &Map<String, Value>) -> Result<(Scope, Fence), VerifyError> {
    let map = object(claims, "fence")?;
    only_members(map, "the claim fence", &FENCE_MEMBERS)?;
    let scope = Scope::parse(text(map, "fence.scope")?).map_err(VerifyError::Scope)?;
    let found = value(map, "fence.epoch")?;
    let epoch = found.as_u64().and_then(|number| Epoch::new(number).ok());
    let epoch = epoch.ok_or_else(|| VerifyError::Epoch {
        found: shown(Some(found)),
    })?;
    let fence = Fence {
        incarnation: incarnation(map, "fence.incarnation")?,
        epoch,
        position: Position {
            group: number32(map, "fence.group")?,
            term: number(map, "fence.term")?,
            leader: number(map, "fence.leader")?,
            index: number(map, "fence.index")?,
            offset: number32(map, "fence.offset")?,
        },
        grant: grant(claims, map)?,
    };
    Ok((scope, fence))
}

pub(crate) fn incarnation(
    map: &Map<String, Value>,
    claim: &'static str,
) -> Result<Incarnation, FieldError> {
    let text = text(map, claim)?;
    let malformed = || FieldError::Malformed {
        claim,
        expected: "a hyphenated lower-case UUID",
    };
    let incarnation: Incarnation = text.parse().map_err(|_malformed| malformed())?;
    if incarnation.to_string() == text {
        Ok(incarnation)
    } else {
        Err(malformed())
    }
}

fn grant(
    claims: &Map<String, Value>,
    fence: &Map<String, Value>,
) -> Result<Option<Grant>, VerifyError> {
    match (claims.contains_key("sub"), fence.contains_key("grant")) {
        (false, false) => Ok(None),
        (true, true) => {
            let holder = Holder::parse(text(claims, "sub")?).map_err(VerifyError::Holder)?;
            let expected = "32 bytes as base64url without padding";
            let malformed = FieldError::Malformed {
                claim: "fence.grant",
                expected,
            };
            let hash: Result<GrantHash, _> = text(fence, "fence.grant")?.parse();
            Ok(Some(Grant {
                holder,
                hash: hash.map_err(|_malformed| malformed)?,
            }))
        }
        (true, false) | (false, true) => Err(VerifyError::GrantIncomplete),
    }
}
