//! The claims of a token whose signatures have been checked.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Verifier;
use crate::certificate::{Claims, Validity};
use crate::fields::{FieldError, fence, number, object, only_members, text};
use crate::id::ClusterId;
use crate::json;
use crate::keys::KeySet;
use crate::thumbprint::Thumbprint;
use crate::verify_error::VerifyError;

impl Verifier {
    pub(super) fn claims(
        &self,
        map: &Map<String, Value>,
        now_ms: u64,
    ) -> Result<Claims, VerifyError> {
        let claims = self.read(map)?;
        self.check_times(&claims, now_ms)?;
        self.check_not_before(map, now_ms)?;
        Ok(claims)
    }

    /// All that does not depend on the time.
    fn read(&self, map: &Map<String, Value>) -> Result<Claims, VerifyError> {
        let found = text(map, "iss")?;
        if found != self.issuer {
            let found = json::excerpt(found);
            return Err(VerifyError::Issuer {
                found,
                expected: self.issuer.clone(),
            });
        }
        let audiences = self.audiences(map)?;
        let validity = Validity {
            issued_at_s: number(map, "iat")?,
            expires_at_s: number(map, "exp")?,
            jti: text(map, "jti")?.to_owned(),
        };
        let (scope, fence) = fence(map)?;
        let mut claims = Claims::new(self.cluster, scope, fence, validity)
            .and_then(|claims| claims.with_audiences(audiences))
            .map_err(VerifyError::ClaimBounds)?;
        if map.contains_key("cnf") {
            claims = claims.with_confirmation(confirmation(map)?);
        }
        Ok(claims)
    }

    fn audiences(&self, map: &Map<String, Value>) -> Result<Vec<String>, VerifyError> {
        let malformed = || FieldError::Malformed {
            claim: "aud",
            expected: "text or a list of text, none twice",
        };
        let audiences = match map.get("aud") {
            None => Vec::new(),
            // One audience may stand without a list: RFC 7519, section 4.1.3.
            Some(Value::String(one)) => vec![one.clone()],
            Some(other) => {
                let list = other.as_array().filter(|list| !list.is_empty());
                let items = list.ok_or_else(malformed)?.iter();
                let texts = items.map(|item| item.as_str().map(str::to_owned));
                texts.collect::<Option<Vec<_>>>().ok_or_else(malformed)?
            }
        };
        if audiences.iter().collect::<BTreeSet<_>>().len() != audiences.len() {
            return Err(malformed().into());
        }
        match &self.audience {
            Some(expected) if audiences.is_empty() => Err(VerifyError::AudienceMissing {
                expected: expected.clone(),
            }),
            Some(expected) if !audiences.contains(expected) => Err(VerifyError::Audience),
            // Who is not among the audiences must refuse; so must who has no name to be among them.
            None if !audiences.is_empty() && !self.any_audience => Err(VerifyError::Audience),
            Some(_) | None => Ok(audiences),
        }
    }

    /// All that depends on the time, but `nbf`.
    pub(super) fn check_times(&self, claims: &Claims, now_ms: u64) -> Result<(), VerifyError> {
        let Validity {
            issued_at_s,
            expires_at_s,
            jti: _,
        } = *claims.validity();
        if self.is_past(expires_at_s, now_ms) {
            return Err(VerifyError::Expired {
                expires_at_s,
                now_ms,
            });
        }
        if self.is_ahead(issued_at_s, now_ms) {
            return Err(VerifyError::IssuedInFuture {
                issued_at_s,
                now_ms,
            });
        }
        let stated_ms = self.trust().and_then(|trust| trust.max_future_ms(now_ms));
        let max_future_ms = self.max_future_ms.max(stated_ms.unwrap_or(0));
        // 1,024 epochs a millisecond; the bound stops at the end of time rather than wrapping.
        let newest_ms = now_ms.saturating_add(max_future_ms);
        let epoch = claims.epoch();
        if epoch.get() > newest_ms.saturating_mul(1 << 10) {
            return Err(VerifyError::EpochTooFar { epoch, now_ms });
        }
        Ok(())
    }

    fn check_not_before(&self, map: &Map<String, Value>, now_ms: u64) -> Result<(), VerifyError> {
        if !map.contains_key("nbf") {
            return Ok(());
        }
        let not_before_s = number(map, "nbf")?;
        if self.is_ahead(not_before_s, now_ms) {
            return Err(VerifyError::NotYetValid {
                not_before_s,
                now_ms,
            });
        }
        Ok(())
    }

    /// Whether a date lies ahead, the skew allowed for.
    fn is_ahead(&self, at_s: u64, now_ms: u64) -> bool {
        at_s.saturating_mul(1_000) > now_ms.saturating_add(self.skew_ms)
    }
}

impl Claims {
    /// Reads the payload of a certificate that is still to be signed: everything is checked but its
    /// dates, and whether it is in the form of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// One variant for each check.
    pub fn from_json(cluster: ClusterId, payload: &str) -> Result<Self, VerifyError> {
        let map = json::object(payload.as_bytes())
            .map_err(|detail| VerifyError::ClaimsMalformed { detail })?;
        let verifier = Verifier::new(cluster, KeySet::default()).with_any_audience();
        verifier.read(&map)
    }
}

/// The holder's key. A confirmation of another kind is refused: it could not be checked.
fn confirmation(map: &Map<String, Value>) -> Result<Thumbprint, FieldError> {
    let confirmation = object(map, "cnf")?;
    only_members(confirmation, "the claim cnf", &["jkt"])?;
    let jkt = text(confirmation, "cnf.jkt")?;
    jkt.parse().map_err(|_malformed| FieldError::Malformed {
        claim: "cnf.jkt",
        expected: "32 bytes as base64url without padding",
    })
}
