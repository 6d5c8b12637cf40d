//! How long a certificate lives, and when a fresh one is asked for.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The longest token that is looked into, in bytes: the longest that a verifier reads.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// How soon after a failure a fresh certificate is asked for again: an eighth of what is left of
/// the old one, within these bounds.
const RETRY_PART: u64 = 8;
const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 600_000;

/// When a certificate was asked for and how long it lives, by the lease clock: it needs no wall
/// clock, and wrong ones do no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CertificateLife {
    asked_ms: u64,
    life_ms: u64,
}

impl CertificateLife {
    /// Of a token asked for at `asked_ms`; it is not verified here. `None` if it cannot be read.
    pub(crate) fn of(token: &str, asked_ms: u64) -> Option<Self> {
        // All parts of a quorum certificate say the same.
        let token = token.split(',').next()?;
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        let claims: serde_json::Value = serde_json::from_slice(&payload).ok()?;
        let seconds = |name| claims.get(name).and_then(serde_json::Value::as_u64);
        let life = Duration::from_secs(seconds("exp")?.checked_sub(seconds("iat")?)?);
        let life_ms = u64::try_from(life.as_millis()).ok()?;
        Some(Self { asked_ms, life_ms })
    }

    /// When a fresh one is asked for: in the first half of the last quarter of its life, spread by
    /// `draw` so that many do not ask at once. However short its life, it is not asked for at once.
    pub(crate) fn refresh_ms(&self, draw: u64) -> u64 {
        let spread = draw % (self.life_ms / 8).max(1);
        let age = (self.life_ms / 4 * 3).saturating_add(spread);
        self.asked_ms.saturating_add(age.max(RETRY_MS_MIN))
    }

    /// When to ask again after a failure at `now_ms`.
    pub(crate) fn retry_ms(&self, now_ms: u64) -> u64 {
        let ends_ms = self.asked_ms.saturating_add(self.life_ms);
        let pause = ends_ms.saturating_sub(now_ms) / RETRY_PART;
        now_ms.saturating_add(pause.clamp(RETRY_MS_MIN, RETRY_MS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    fn token(payload: &str) -> String {
        format!("header.{}.signature", URL_SAFE_NO_PAD.encode(payload))
    }

    #[test]
    fn a_fresh_certificate_is_asked_for_in_the_last_quarter_and_leaves_time_for_retries() {
        let token = token(r#"{"iat":1000000,"exp":1043200}"#);
        let life = CertificateLife::of(&token, 5_000).unwrap();
        for draw in [0, 1, 77_777_777, u64::MAX] {
            let refresh_ms = life.refresh_ms(draw);
            assert!(refresh_ms >= 5_000 + 9 * HOUR_MS, "{refresh_ms}");
            assert!(refresh_ms < 5_000 + 21 * HOUR_MS / 2, "{refresh_ms}");
        }
        assert_eq!(
            life.retry_ms(5_000 + 10 * HOUR_MS),
            5_000 + 10 * HOUR_MS + RETRY_MS_MAX
        );
        assert_eq!(life.retry_ms(5_000 + 13 * HOUR_MS), 6_000 + 13 * HOUR_MS);
    }

    #[test]
    fn a_certificate_of_several_signatures_has_the_life_of_its_parts() {
        let part = token(r#"{"iat":1000000,"exp":1043200}"#);
        let parts = vec![part.clone(); 9].join(",");
        assert_eq!(
            CertificateLife::of(&parts, 7),
            CertificateLife::of(&part, 7)
        );
        let long = token(&format!(
            r#"{{"iat":0,"exp":9,"x":"{}"}}"#,
            "x".repeat(1_000)
        ));
        let parts = vec![long; 9].join(",");
        assert!(parts.len() > TOKEN_BYTES_MAX);
        assert!(CertificateLife::of(&parts, 7).is_some());
    }

    #[test]
    fn one_that_has_no_life_is_not_asked_for_over_and_over() {
        let life = CertificateLife::of(&token(r#"{"iat":7,"exp":7}"#), 5_000).unwrap();
        assert_eq!(life.refresh_ms(77), 5_000 + RETRY_MS_MIN);
    }

    #[test]
    fn a_token_that_cannot_be_read_has_no_known_life() {
        for text in [
            "header.payload.signature",
            "",
            &token("{}"),
            &token(r#"{"iat":2,"exp":1}"#),
            &token(r#"{"iat":"1","exp":2}"#),
            &token(&format!(r#"{{"iat":0,"exp":{}}}"#, u64::MAX)),
        ] {
            assert_eq!(CertificateLife::of(text, 0), None, "{text}");
        }
    }
}
