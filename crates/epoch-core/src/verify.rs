//! From a token to a certificate. Every byte is hostile until the last check has passed.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::{CryptoProvider, aws_lc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde_json::{Map, Value};

use crate::certificate::{Certificate, Claims, TOKEN_BYTES_MAX, TOKEN_TYPE, Validity, issuer};
use crate::fields::{fence, number, text};
use crate::id::ClusterId;
use crate::json::{self, StrictValue};
use crate::keys::{KeyId, KeySet, VerifyingKey};
use crate::verify_error::{VerifyError, shown};

/// How far the issuer's clock and the verifier's may differ by default, in milliseconds.
pub const SKEW_MS_DEFAULT: u64 = 30_000;
/// How far an epoch's time may lie ahead by default, in milliseconds: 24 hours.
pub const MAX_FUTURE_MS_DEFAULT: u64 = 24 * 3_600_000;

/// Checks certificates of one cluster, offline.
#[derive(Debug, Clone)]
pub struct Verifier {
    cluster: ClusterId,
    issuer: String,
    keys: KeySet,
    audience: Option<String>,
    any_audience: bool,
    skew_ms: u64,
    max_future_ms: u64,
    validation: Validation,
}

impl Verifier {
    /// A verifier for certificates of `cluster` signed by one of `keys`, with the default skew and
    /// future bound, and no audience: certificates restricted to an audience are refused.
    #[must_use]
    pub fn new(cluster: ClusterId, keys: KeySet) -> Self {
        if CryptoProvider::try_get_default().is_none() {
            // Where another crate has switched on a second provider, the library panics at the
            // first token unless one was chosen. A choice made meanwhile by another is as good.
            let _chosen = aws_lc::DEFAULT_PROVIDER.install_default();
        }
        // The library checks algorithm and signature; all claims are checked here, since its time
        // checks read the clock, round floats and let claims of a wrong type pass.
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Self {
            cluster,
            issuer: issuer(cluster),
            keys,
            audience: None,
            any_audience: false,
            skew_ms: SKEW_MS_DEFAULT,
            max_future_ms: MAX_FUTURE_MS_DEFAULT,
            validation,
        }
    }

    /// Demands that certificates name `audience`.
    #[must_use]
    pub fn with_audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self.any_audience = false;
        self
    }

    /// Accepts whatever audience a certificate names: for the issuer and for tools that show a
    /// certificate, never for a resource.
    #[must_use]
    pub fn with_any_audience(mut self) -> Self {
        self.audience = None;
        self.any_audience = true;
        self
    }

    /// How far the issuer's clock and this one may differ, in milliseconds.
    #[must_use]
    pub fn with_skew_ms(mut self, skew_ms: u64) -> Self {
        self.skew_ms = skew_ms;
        self
    }

    /// How far an epoch's time may lie ahead, in milliseconds.
    #[must_use]
    pub fn with_max_future_ms(mut self, max_future_ms: u64) -> Self {
        self.max_future_ms = max_future_ms;
        self
    }

    /// Replaces the keys, after they were fetched again.
    pub fn replace_keys(&mut self, keys: KeySet) {
        self.keys = keys;
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// The cluster whose certificates verify.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Checks `token` at the time `now_ms` (milliseconds since 1970).
    ///
    /// # Errors
    /// One variant for each check. [`VerifyError::UnknownKey`] asks for the key set to be fetched
    /// again; [`VerifyError::Expired`] for a fresh certificate.
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<Certificate, VerifyError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(VerifyError::TooLarge { len: token.len() });
        }
        let mut parts = token.split('.');
        let (Some(header), Some(_payload), Some(_signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(VerifyError::NotCompact);
        };
        let key = self.key(header)?;
        let payload = jsonwebtoken::decode::<StrictValue>(token, key.decoding(), &self.validation)
            .map_err(|error| library_error(&error))?;
        let StrictValue(Value::Object(claims)) = payload.claims else {
            return Err(VerifyError::ClaimsMalformed {
                detail: "not an object".to_owned(),
            });
        };
        let claims = self.claims(&claims, now_ms)?;
        Ok(Certificate::verified(claims, key.id()))
    }

    /// The key that the header names, once the header holds nothing but what it must.
    fn key(&self, encoded: &str) -> Result<&VerifyingKey, VerifyError> {
        let bytes = URL_SAFE_NO_PAD
            .decode(encoded)
            .map_err(|_not_base64| VerifyError::NotCompact)?;
        let header =
            json::object(&bytes).map_err(|detail| VerifyError::HeaderMalformed { detail })?;
        if let Some(name) = header
            .keys()
            .find(|name| !matches!(name.as_str(), "alg" | "typ" | "kid"))
        {
            return Err(VerifyError::HeaderMember {
                name: json::excerpt(name),
            });
        }
        if header.get("alg").and_then(Value::as_str) != Some("EdDSA") {
            return Err(VerifyError::Algorithm {
                alg: shown(header.get("alg")),
            });
        }
        if header.get("typ").and_then(Value::as_str) != Some(TOKEN_TYPE) {
            return Err(VerifyError::Type {
                typ: shown(header.get("typ")),
            });
        }
        let kid = header
            .get("kid")
            .and_then(Value::as_str)
            .ok_or(VerifyError::KeyIdMissing)?;
        let unknown = || VerifyError::UnknownKey {
            kid: json::excerpt(kid),
        };
        let id: KeyId = kid.parse().map_err(|_not_a_thumbprint| unknown())?;
        self.keys.find(id).ok_or_else(unknown)
    }

    fn claims(&self, map: &Map<String, Value>, now_ms: u64) -> Result<Claims, VerifyError> {
        let found = text(map, "iss")?;
        if found != self.issuer {
            let found = json::excerpt(found);
            return Err(VerifyError::Issuer {
                found,
                expected: self.issuer.clone(),
            });
        }
        let audiences = self.audiences(map)?;
        let validity = self.validity(map, now_ms)?;
        let (scope, fence) = fence(map)?;
        // 1,024 epochs a millisecond; the bound stops at the end of time rather than wrapping.
        let newest_ms = now_ms.saturating_add(self.max_future_ms);
        if fence.epoch.get() > newest_ms.saturating_mul(1 << 10) {
            return Err(VerifyError::EpochTooFar {
                epoch: fence.epoch,
                now_ms,
            });
        }
        let mut claims = Claims::new(self.cluster, scope, fence, validity)
            .and_then(|claims| claims.with_audiences(audiences))
            .map_err(VerifyError::ClaimBounds)?;
        if let Some(confirmation) = map.get("cnf") {
            claims = claims
                .with_confirmation(confirmation.clone())
                .map_err(VerifyError::ClaimBounds)?;
        }
        Ok(claims)
    }

    fn audiences(&self, map: &Map<String, Value>) -> Result<Vec<String>, VerifyError> {
        let malformed = || VerifyError::ClaimMalformed {
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
            return Err(malformed());
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

    fn validity(&self, map: &Map<String, Value>, now_ms: u64) -> Result<Validity, VerifyError> {
        let issued_at_s = number(map, "iat")?;
        let expires_at_s = number(map, "exp")?;
        // Claims are below 2^53, so that seconds become milliseconds without reaching the bound.
        let ms = |seconds: u64| seconds.saturating_mul(1000);
        let latest_ms = now_ms.saturating_add(self.skew_ms);
        if ms(expires_at_s).saturating_add(self.skew_ms) <= now_ms {
            return Err(VerifyError::Expired {
                expires_at_s,
                now_ms,
            });
        }
        if ms(issued_at_s) > latest_ms {
            return Err(VerifyError::IssuedInFuture {
                issued_at_s,
                now_ms,
            });
        }
        if map.contains_key("nbf") {
            let not_before_s = number(map, "nbf")?;
            if ms(not_before_s) > latest_ms {
                return Err(VerifyError::NotYetValid {
                    not_before_s,
                    now_ms,
                });
            }
        }
        Ok(Validity {
            issued_at_s,
            expires_at_s,
            jti: text(map, "jti")?.to_owned(),
        })
    }
}

fn library_error(error: &jsonwebtoken::errors::Error) -> VerifyError {
    // The header was checked before and all claims are checked after: what remains to the library
    // is the base64 of payload and signature, the signature, and the payload's JSON.
    if let ErrorKind::Json(error) = error.kind() {
        VerifyError::ClaimsMalformed {
            detail: error.to_string(),
        }
    } else if let ErrorKind::Base64(_) = error.kind() {
        VerifyError::NotCompact
    } else {
        VerifyError::Signature
    }
}

#[cfg(test)]
mod tests;
