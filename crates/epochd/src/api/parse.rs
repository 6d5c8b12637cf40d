//! Requests into values that are always valid; every error names its field.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_core::{
    AUDIENCE_BYTES_MAX, AUDIENCES_MAX, Cursor, Epoch, GrantsDigest, Holder, IntentId, KeyId,
    OpenId, Principal, RequestId, Scope, SessionHash, SessionId, Thumbprint,
};
use epoch_machine::{
    LockDelay, Metadata, Prefix, SCOPES_MAX, Scopes, ScopesError, Terms, TokenHash, TokenLabel,
    Ttl, Value, Verb, Verbs, VerbsError, Wait,
};
use epoch_proto::duration;

use super::failure::Failure;

/// All audiences of one request as JSON, in bytes: a certificate with them always fits.
const AUDIENCES_JSON_BYTES_MAX: usize = 2 << 10;
/// Longest life of a token, in milliseconds.
const TOKEN_LIFE_MS_MAX: u64 = 366 * 24 * 3_600_000;
/// Rows of one List when the caller does not say.
const LIST_LIMIT_DEFAULT: usize = 100;
/// Rows of one List at most.
const LIST_LIMIT_MAX: u32 = 1_000;

pub(super) fn scope(text: &str) -> Result<Scope, Failure> {
    Scope::parse(text).map_err(|error| Failure::field("scope", error))
}

pub(super) fn holder(text: &str) -> Result<Holder, Failure> {
    Holder::parse(text).map_err(|error| Failure::field("holder", error))
}

pub(super) fn session_id(text: &str) -> Result<SessionId, Failure> {
    // The text is a secret where it is right, so a wrong one is not repeated either.
    let form = "not of the form <open id>.<index>.<offset>, as Open returned it";
    text.parse()
        .map_err(|_malformed| Failure::field("session_id", form))
}

pub(super) fn open_id(text: &str) -> Result<OpenId, Failure> {
    text.parse()
        .map_err(|error| Failure::field("open_id", error))
}

pub(super) fn holder_key(text: Option<&str>) -> Result<Option<Thumbprint>, Failure> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|error| Failure::field("holder_key", error))
    };
    text.map(parse).transpose()
}

pub(super) fn principal(text: &str) -> Result<Principal, Failure> {
    Principal::parse(text).map_err(|error| Failure::field("principal", error))
}

pub(super) fn permission_prefix(text: &str) -> Result<Prefix, Failure> {
    Prefix::parse(text).map_err(|error| Failure::field("prefix", error))
}

pub(super) fn verbs(names: &[String]) -> Result<Verbs, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::field("verbs", why);
    let parse = |name: &String| {
        Verb::parse(name).ok_or_else(|| refused(&format_args!("{name:?} is none; {VerbsError}")))
    };
    let verbs = names.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    Verbs::new(verbs).map_err(|error| refused(&error))
}

pub(super) fn token_label(text: &str) -> Result<TokenLabel, Failure> {
    TokenLabel::parse(text).map_err(|error| Failure::field("label", error))
}

/// Never the token itself: that one is for its bearer alone.
pub(super) fn token_hash(text: &str) -> Result<TokenHash, Failure> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .map(TokenHash)
        .ok_or_else(|| {
            let form = "it is not a SHA-256 as base64url without padding; send the token's hash, \
                        never the token";
            Failure::field("hash", form)
        })
}

/// `None` for a token that does not end by itself.
pub(super) fn token_life_ms(ttl: Option<&prost_types::Duration>) -> Result<Option<u64>, Failure> {
    let Some(ttl) = ttl else { return Ok(None) };
    let ms = duration::to_ms(ttl).filter(|ms| (1_000..=TOKEN_LIFE_MS_MAX).contains(ms));
    ms.map(Some)
        .ok_or_else(|| Failure::field("ttl", "it must be whole milliseconds, from 1 s to 366 days"))
}

pub(super) fn kid(text: &str) -> Result<KeyId, Failure> {
    text.parse().map_err(|error| Failure::field("kid", error))
}

pub(super) fn epoch(value: u64) -> Result<Epoch, Failure> {
    Epoch::new(value).map_err(|error| Failure::field("epoch", error))
}

pub(super) fn request_id(value: u64) -> Result<RequestId, Failure> {
    RequestId::new(value).map_err(|error| Failure::field("request_id", error))
}

pub(super) fn ttl(ttl: Option<&prost_types::Duration>) -> Result<Ttl, Failure> {
    let Some(ttl) = ttl else {
        return Err(Failure::field(
            "ttl",
            "it is missing; give a duration from 1 s to 24 h",
        ));
    };
    let ms = duration::to_ms(ttl)
        .ok_or_else(|| Failure::field("ttl", "it must be whole milliseconds, from 1 s to 24 h"))?;
    Ttl::from_ms(ms).map_err(|error| Failure::field("ttl", error))
}

pub(super) fn audience(audience: &[String]) -> Result<(), Failure> {
    let refused = |message: String| Err(Failure::field("audience", message));
    if audience.len() > AUDIENCES_MAX {
        return refused(format!(
            "{} are given; at most {AUDIENCES_MAX}",
            audience.len()
        ));
    }
    for one in audience {
        if one.is_empty() || one.len() > AUDIENCE_BYTES_MAX {
            return refused(format!(
                "one has {} bytes; 1 to {AUDIENCE_BYTES_MAX}",
                one.len()
            ));
        }
    }
    let json = serde_json::to_string(audience).map_or(usize::MAX, |json| json.len());
    if json > AUDIENCES_JSON_BYTES_MAX {
        return refused(format!(
            "together {json} bytes; at most {AUDIENCES_JSON_BYTES_MAX}"
        ));
    }
    Ok(())
}

pub(super) fn stall_limit(limit: Option<&prost_types::Duration>) -> Result<Option<Ttl>, Failure> {
    let Some(limit) = limit else { return Ok(None) };
    let refused = |message: &dyn std::fmt::Display| Failure::field("stall_limit", message);
    let ms = duration::to_ms(limit)
        .ok_or_else(|| refused(&"it must be whole milliseconds, from 1 s to 24 h"))?;
    match Ttl::from_ms(ms) {
        Ok(limit) => Ok(Some(limit)),
        Err(_range) => Err(refused(&format_args!("it is {ms} ms; from 1 s to 24 h"))),
    }
}

/// Whole milliseconds; 0 when absent.
fn ms(field: &str, duration: Option<&prost_types::Duration>) -> Result<u64, Failure> {
    duration.map_or(Ok(0), |duration| {
        let refused = || Failure::field(field, "it must be whole milliseconds, at most 24 h");
        duration::to_ms(duration).ok_or_else(refused)
    })
}

pub(super) fn wait(wait: Option<&prost_types::Duration>) -> Result<Wait, Failure> {
    Wait::from_ms(ms("wait", wait)?).map_err(|error| Failure::field("wait", error))
}

pub(super) fn terms(
    lock_delay: Option<&prost_types::Duration>,
    metadata: &str,
) -> Result<Terms, Failure> {
    let lock_delay = LockDelay::from_ms(ms("lock_delay", lock_delay)?);
    Ok(Terms {
        lock_delay: lock_delay.map_err(|error| Failure::field("lock_delay", error))?,
        metadata: Metadata::new(metadata).map_err(|error| Failure::field("metadata", error))?,
    })
}

pub(super) fn scopes(names: &[String]) -> Result<Scopes, Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::field("scopes", error);
    if names.len() > SCOPES_MAX {
        return Err(refused(&ScopesError::Count(names.len())));
    }
    let scopes = names.iter().map(|name| Scope::parse(name));
    let scopes = scopes.collect::<Result<_, _>>();
    Scopes::new(scopes.map_err(|error| refused(&error))?).map_err(|error| refused(&error))
}

pub(super) fn cursor(text: &str) -> Result<Cursor, Failure> {
    text.parse().map_err(|error| Failure::field("after", error))
}

pub(super) fn session_hash(text: &str) -> Result<SessionHash, Failure> {
    text.parse().map_err(|error| Failure::field("to", error))
}

pub(super) fn digest(text: &str) -> Result<GrantsDigest, Failure> {
    text.parse()
        .map_err(|error| Failure::field("grants", error))
}

pub(super) fn value(bytes: &[u8]) -> Result<Value, Failure> {
    Value::new(bytes).map_err(|error| Failure::field("value", error))
}

pub(super) fn intent_id(text: &str) -> Result<IntentId, Failure> {
    IntentId::parse(text).map_err(|error| Failure::field("intent_id", error))
}

/// None when it is empty.
pub(super) fn optional_holder(text: &str) -> Result<Option<Holder>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    holder(text).map(Some)
}

pub(super) fn queue_limit(limit: u32) -> Result<usize, Failure> {
    rows("queue_limit", limit)
}

pub(super) fn limit(limit: u32) -> Result<usize, Failure> {
    rows("limit", limit)
}

fn rows(field: &str, limit: u32) -> Result<usize, Failure> {
    match limit {
        0 => Ok(LIST_LIMIT_DEFAULT),
        1..=LIST_LIMIT_MAX => Ok(usize::try_from(limit).unwrap_or(LIST_LIMIT_DEFAULT)),
        _ => Err(Failure::field(
            field,
            format!("it is {limit}; at most {LIST_LIMIT_MAX}"),
        )),
    }
}

/// A prefix is the beginning of a scope, or nothing.
pub(super) fn prefix(text: &str) -> Result<&str, Failure> {
    if text.is_empty() {
        return Ok(text);
    }
    Scope::parse(text)
        .map(|_scope| text)
        .map_err(|error| Failure::field("prefix", error))
}
