//! Requests into values that are always valid; every error names its field.

use epoch_core::{
    AUDIENCE_BYTES_MAX, AUDIENCES_MAX, Epoch, Holder, OpenId, RequestId, Scope, SessionId,
};
use epoch_machine::Ttl;
use epoch_proto::{duration, v1};

use super::failure::Failure;

/// All audiences of one request as JSON, in bytes: a certificate with them always fits.
const AUDIENCES_JSON_BYTES_MAX: usize = 2 << 10;
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

/// What Acquire will offer later, and does not yet.
pub(super) fn not_offered(request: &v1::AcquireRequest) -> Result<(), Failure> {
    let zero = |duration: &Option<prost_types::Duration>| {
        duration
            .as_ref()
            .is_none_or(|duration| duration::to_ms(duration) == Some(0))
    };
    if !zero(&request.wait) {
        return Err(Failure::unimplemented("wait"));
    }
    if request.reissue {
        return Err(Failure::unimplemented("reissue"));
    }
    if !zero(&request.lock_delay) {
        return Err(Failure::unimplemented("lock_delay"));
    }
    Ok(())
}

pub(super) fn limit(limit: u32) -> Result<usize, Failure> {
    match limit {
        0 => Ok(LIST_LIMIT_DEFAULT),
        1..=LIST_LIMIT_MAX => Ok(usize::try_from(limit).unwrap_or(LIST_LIMIT_DEFAULT)),
        _ => Err(Failure::field(
            "limit",
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
