//! Reading single claims: exact types, exact spellings, nothing rounded.

use serde_json::{Map, Value};

use crate::certificate::Grant;
use crate::decide::Fence;
use crate::id::{EPOCH_EXCLUSIVE_MAX, Epoch, GrantHash, Incarnation, Position};
use crate::json;
use crate::name::{Holder, Scope};
use crate::verify_error::{VerifyError, shown};

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
fn value<'a>(map: &'a Map<String, Value>, claim: &'static str) -> Result<&'a Value, VerifyError> {
    let key = claim.rsplit('.').next().unwrap_or(claim);
    map.get(key).ok_or(VerifyError::ClaimMissing { claim })
}

pub(crate) fn text<'a>(
    map: &'a Map<String, Value>,
    claim: &'static str,
) -> Result<&'a str, VerifyError> {
    let malformed = VerifyError::ClaimMalformed {
        claim,
        expected: "text",
    };
    value(map, claim)?.as_str().ok_or(malformed)
}

/// An integer from 0 to 2^53 - 1, written as one: `1.0`, `1e3` and `"1"` are refused.
pub(crate) fn number(map: &Map<String, Value>, claim: &'static str) -> Result<u64, VerifyError> {
    let malformed = VerifyError::ClaimMalformed {
        claim,
        expected: "an integer from 0 to 2^53 - 1",
    };
    let number = value(map, claim)?
        .as_u64()
        .filter(|number| *number < EPOCH_EXCLUSIVE_MAX);
    number.ok_or(malformed)
}

fn number32(map: &Map<String, Value>, claim: &'static str) -> Result<u32, VerifyError> {
    let expected = "an integer from 0 to 2^32 - 1";
    let number = value(map, claim)?
        .as_u64()
        .and_then(|number| u32::try_from(number).ok());
    number.ok_or(VerifyError::ClaimMalformed { claim, expected })
}

/// Scope and fence, from the claims `fence` and `sub`.
pub(crate) fn fence(claims: &Map<String, Value>) -> Result<(Scope, Fence), VerifyError> {
    let not_an_object = VerifyError::ClaimMalformed {
        claim: "fence",
        expected: "an object",
    };
    let map = value(claims, "fence")?.as_object().ok_or(not_an_object)?;
    if let Some(name) = map
        .keys()
        .find(|name| !FENCE_MEMBERS.contains(&name.as_str()))
    {
        return Err(VerifyError::FenceMember {
            name: json::excerpt(name),
        });
    }
    let scope = Scope::parse(text(map, "fence.scope")?).map_err(VerifyError::Scope)?;
    let found = value(map, "fence.epoch")?;
    let epoch = found.as_u64().and_then(|number| Epoch::new(number).ok());
    let epoch = epoch.ok_or_else(|| VerifyError::Epoch {
        found: shown(Some(found)),
    })?;
    let fence = Fence {
        incarnation: incarnation(text(map, "fence.incarnation")?)?,
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

fn incarnation(text: &str) -> Result<Incarnation, VerifyError> {
    let malformed = || VerifyError::ClaimMalformed {
        claim: "fence.incarnation",
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
            let malformed = VerifyError::ClaimMalformed {
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
