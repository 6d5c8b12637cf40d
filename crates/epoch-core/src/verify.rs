//! From a token to a certificate. Every byte is hostile until the last check has passed.

mod claims;

use crate::bundle::Bundle;
use crate::certificate::{Certificate, Claims, issuer};
use crate::id::{ClusterId, Incarnation};
use crate::json;
use crate::jws::{SignedText, TextKind};
use crate::jws_error::JwsError;
use crate::keys::{KeyId, KeySet, VerifyingKey};
use crate::signed_bundle::SignedBundle;
use crate::statement::StatementError;
use crate::trust::Trust;
use crate::trust_error::TrustError;
use crate::verify_error::VerifyError;

/// How far the issuer's clock and the verifier's may differ by default, in milliseconds.
pub const SKEW_MS_DEFAULT: u64 = 30_000;
/// How far an epoch's time may lie ahead by default, in milliseconds: 24 hours.
pub const MAX_FUTURE_MS_DEFAULT: u64 = 24 * 3_600_000;

/// Checks certificates of one cluster, offline.
#[derive(Debug, Clone)]
pub struct Verifier {
    cluster: ClusterId,
    issuer: String,
    source: Source,
    signatures: usize,
    audience: Option<String>,
    any_audience: bool,
    skew_ms: u64,
    max_future_ms: u64,
}

/// Where keys come from.
#[derive(Debug, Clone)]
enum Source {
    /// A plain key set: whoever served it is trusted.
    Plain(KeySet),
    /// Bundles that lead back to a pinned root.
    Pinned(Box<Trust>),
}

impl Verifier {
    /// A verifier for certificates of `cluster` signed by one of `keys`, with the default skew and
    /// future bound, and no audience: certificates restricted to an audience are refused.
    #[must_use]
    pub fn new(cluster: ClusterId, keys: KeySet) -> Self {
        Self::with_source(cluster, Source::Plain(keys))
    }

    /// A verifier that takes keys, nodes, incarnation and expiry from trust bundles, otherwise like
    /// [`new`](Self::new). Without an adopted bundle it refuses everything.
    #[must_use]
    pub fn pinned(trust: Trust) -> Self {
        Self::with_source(trust.pin().cluster, Source::Pinned(Box::new(trust)))
    }

    fn with_source(cluster: ClusterId, source: Source) -> Self {
        Self {
            cluster,
            issuer: issuer(cluster),
            source,
            signatures: 1,
            audience: None,
            any_audience: false,
            skew_ms: SKEW_MS_DEFAULT,
            max_future_ms: MAX_FUTURE_MS_DEFAULT,
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

    /// Demands that at least so many different nodes have signed, so that one stolen key forges
    /// nothing. More than one needs a pinned root: a plain key set does not tell nodes apart.
    #[must_use]
    pub fn with_signatures(mut self, nodes: usize) -> Self {
        self.signatures = nodes;
        self
    }

    /// How far the issuer's clock and this one may differ, in milliseconds.
    #[must_use]
    pub fn with_skew_ms(mut self, skew_ms: u64) -> Self {
        self.skew_ms = skew_ms;
        self
    }

    /// How far an epoch's time may lie ahead, in milliseconds. An operator's statement can raise
    /// it for a time.
    #[must_use]
    pub fn with_max_future_ms(mut self, max_future_ms: u64) -> Self {
        self.max_future_ms = max_future_ms;
        self
    }

    /// Replaces the plain key set, after it was fetched again.
    ///
    /// # Errors
    /// This verifier takes its keys from bundles.
    pub fn replace_keys(&mut self, keys: KeySet) -> Result<(), TrustError> {
        match &mut self.source {
            Source::Plain(old) => *old = keys,
            Source::Pinned(_) => return Err(TrustError::Pinned),
        }
        Ok(())
    }

    /// Adopts newer bundles: see [`Trust::adopt`].
    ///
    /// # Errors
    /// This verifier has a plain key set, or as [`Trust::adopt`].
    pub fn adopt(&mut self, chain: &[SignedBundle]) -> Result<bool, TrustError> {
        match &mut self.source {
            Source::Plain(_) => Err(TrustError::NotPinned),
            Source::Pinned(trust) => trust.adopt(chain),
        }
    }

    /// Adopts an operator's statement for guards: see [`Trust::adopt_statement`].
    ///
    /// # Errors
    /// This verifier has a plain key set, or as [`Trust::adopt_statement`].
    pub fn adopt_statement(&mut self, text: &str, now_ms: u64) -> Result<bool, StatementError> {
        match &mut self.source {
            Source::Plain(_) => Err(StatementError::NotPinned),
            Source::Pinned(trust) => trust.adopt_statement(text, now_ms),
        }
    }

    /// What is trusted under the pinned root, to be stored after each adoption.
    #[must_use]
    pub fn trust(&self) -> Option<&Trust> {
        match &self.source {
            Source::Plain(_) => None,
            Source::Pinned(trust) => Some(trust),
        }
    }

    /// The cluster whose certificates verify.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Checks `token` at the time `now_ms` (milliseconds since 1970). All its parts must verify.
    ///
    /// # Errors
    /// One variant for each check. Where [`VerifyError::is_for_want_of_keys`], the key set or the
    /// chain of bundles is to be fetched again; [`VerifyError::Expired`] asks for a fresh
    /// certificate.
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<Certificate, VerifyError> {
        let bundle = self.bundle(now_ms)?;
        let text = SignedText::parse(TextKind::Certificate, token)?;
        for part in text.parts() {
            let Some(key) = self.key(part.kid) else {
                return Err(unknown_key(&text, part.kid, bundle));
            };
            part.check(key)?;
        }
        if let Some(bundle) = bundle {
            let found = bundle.nodes_among(text.parts().iter().map(|part| part.kid));
            if found < self.signatures {
                let needed = self.signatures;
                return Err(VerifyError::TooFewSignatures { found, needed });
            }
        }
        let payload = text.payload()?;
        let map =
            json::object(&payload).map_err(|detail| VerifyError::ClaimsMalformed { detail })?;
        let claims = self.claims(&map, now_ms)?;
        if let Some(bundle) = bundle {
            check_incarnation(claims.incarnation(), bundle)?;
        }
        let mut kids = text.parts().iter().map(|part| part.kid);
        let key = kids.next().ok_or(JwsError::NoSignature)?;
        Ok(Certificate::verified(claims, key, kids.collect()))
    }

    /// Checks again what time can change in a certificate that this verifier has verified, under
    /// the same keys: its dates, the bundle's, and how far its epoch lies ahead.
    pub(crate) fn check_again(&self, claims: &Claims, now_ms: u64) -> Result<(), VerifyError> {
        self.bundle(now_ms)?;
        self.check_times(claims, now_ms)
    }

    /// The bundle, if it can be relied on now; none with a plain key set.
    fn bundle(&self, now_ms: u64) -> Result<Option<&Bundle>, VerifyError> {
        let trust = match &self.source {
            Source::Plain(_) if self.signatures > 1 => {
                let needed = self.signatures;
                return Err(VerifyError::BundleNeeded { needed });
            }
            Source::Plain(_) => return Ok(None),
            Source::Pinned(trust) => trust,
        };
        let bundle = trust.bundle().ok_or(VerifyError::NoBundle)?;
        let expires_at_s = bundle.terms().expires_at_s;
        if self.is_past(expires_at_s, now_ms) {
            return Err(VerifyError::BundleExpired {
                expires_at_s,
                now_ms,
            });
        }
        Ok(Some(bundle))
    }

    fn key(&self, id: KeyId) -> Option<&VerifyingKey> {
        match &self.source {
            Source::Plain(keys) => keys.find(id),
            Source::Pinned(trust) => trust.bundle()?.find(id).map(|key| &key.key),
        }
    }

    /// Whether an `exp` is past, the skew allowed for.
    fn is_past(&self, expires_at_s: u64, now_ms: u64) -> bool {
        // Dates are below 2^53, so that seconds become milliseconds without reaching the bound.
        let expires_ms = expires_at_s.saturating_mul(1_000);
        expires_ms.saturating_add(self.skew_ms) <= now_ms
    }
}

fn check_incarnation(presented: Incarnation, bundle: &Bundle) -> Result<(), VerifyError> {
    let current = bundle.terms().incarnation;
    if presented < current {
        return Err(VerifyError::IncarnationVoid { presented, current });
    }
    if presented > current {
        return Err(VerifyError::IncarnationUnknown { presented, current });
    }
    Ok(())
}

/// The refusal of a token by a key that is not known. A restore makes new keys, so a certificate of
/// before has none that is known: what it says itself, unverified, only words the refusal.
fn unknown_key(text: &SignedText<'_>, kid: KeyId, bundle: Option<&Bundle>) -> VerifyError {
    let said = || {
        let map = json::object(&text.payload().ok()?).ok()?;
        let fence = map.get("fence")?.as_object()?;
        crate::fields::incarnation(fence, "fence.incarnation").ok()
    };
    if let Some(bundle) = bundle
        && let Some(presented) = said()
        && let Err(void @ VerifyError::IncarnationVoid { .. }) =
            check_incarnation(presented, bundle)
    {
        return void;
    }
    VerifyError::UnknownKey { kid }
}

#[cfg(test)]
mod pinned_tests;
#[cfg(test)]
mod tests;
