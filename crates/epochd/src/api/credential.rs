//! How a caller shows who it is: by a bearer token or a client certificate. A follower passes on what
//! it was shown, the token as its hash, to the leader, which alone decides what it is worth.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_machine::TokenHash;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::token::hash_of_token;

/// Longest bearer token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 512;
/// Between nodes: the hash of the token, as base64url.
const TOKEN_HASH: &str = "epochd-token-hash";
/// Between nodes: the URI of the client certificate, as base64url.
const URI: &str = "epochd-uri";

/// What a caller has shown, not yet judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Credential {
    #[default]
    None,
    /// The SHA-256 of a bearer token.
    Token(TokenHash),
    /// The URI that a client certificate was made out to.
    Uri(Arc<str>),
    /// What cannot be one.
    Malformed(&'static str),
}

impl Credential {
    /// Of a client's call. A token counts before a certificate: it was chosen for the call.
    pub(crate) fn of_client(headers: &HeaderMap, uris: &[String]) -> Self {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            (None, _) => match uris {
                [] => Self::None,
                [uri] => Self::Uri(uri.as_str().into()),
                _ => Self::Malformed("the client certificate has more than one URI"),
            },
            (Some(value), None) => Self::of_header(value),
            (Some(_), Some(_)) => Self::Malformed("authorization is given twice"),
        }
    }

    fn of_header(value: &HeaderValue) -> Self {
        const FORM: &str = "authorization is not of the form: Bearer <token>";
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match token {
            Some(token) if (1..=TOKEN_BYTES_MAX).contains(&token.len()) => {
                Self::Token(hash_of_token(token))
            }
            _ => Self::Malformed(FORM),
        }
    }

    /// Of a call that another node passes on.
    pub(crate) fn of_peer(headers: &HeaderMap) -> Self {
        let given = |name: &str| {
            let value = headers.get(name)?;
            Some(URL_SAFE_NO_PAD.decode(value.as_bytes()).unwrap_or_default())
        };
        const FORM: &str = "the node that passed the call on garbled who asks";
        match (given(TOKEN_HASH), given(URI)) {
            (None, None) => Self::None,
            (Some(hash), _) => match hash.try_into() {
                Ok(hash) => Self::Token(TokenHash(hash)),
                Err(_length) => Self::Malformed(FORM),
            },
            (None, Some(uri)) => match String::from_utf8(uri) {
                Ok(uri) => Self::Uri(uri.into()),
                Err(_not_text) => Self::Malformed(FORM),
            },
        }
    }

    /// Says it to the leader.
    pub(super) fn pass_on<T>(&self, request: &mut tonic::Request<T>) {
        let (name, value) = match self {
            Self::None | Self::Malformed(_) => return,
            Self::Token(hash) => (TOKEN_HASH, URL_SAFE_NO_PAD.encode(hash.0)),
            Self::Uri(uri) => (URI, URL_SAFE_NO_PAD.encode(uri.as_bytes())),
        };
        // Base64url is always a header's value.
        if let Ok(value) = AsciiMetadataValue::try_from(value) {
            let name = AsciiMetadataKey::from_static(name);
            request.metadata_mut().insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let values = values.iter().map(|value| {
            let value = HeaderValue::from_str(value).unwrap();
            (header::AUTHORIZATION, value)
        });
        values.collect()
    }

    #[test]
    fn a_token_counts_before_a_certificate_and_what_is_unclear_counts_for_nothing() {
        let uris = |uris: &[&str]| uris.iter().map(|uri| (*uri).to_owned()).collect::<Vec<_>>();
        let of = |values: &[&str], of: &[&str]| Credential::of_client(&headers(values), &uris(of));
        let token = Credential::Token(hash_of_token("secret"));
        assert_eq!(of(&[], &[]), Credential::None);
        assert_eq!(of(&["Bearer secret"], &["u:a"]), token);
        assert_eq!(of(&["bearer  secret "], &[]), token);
        assert_eq!(of(&[], &["u:a"]), Credential::Uri("u:a".into()));
        let long = format!("Bearer {}", "x".repeat(TOKEN_BYTES_MAX + 1));
        for values in [
            &["Basic c2VjcmV0"][..],
            &["Bearer"],
            &["Bearer "],
            &[&long],
            &["Bearer a", "Bearer a"],
        ] {
            let found = of(values, &["u:a"]);
            assert!(matches!(found, Credential::Malformed(_)), "{values:?}");
        }
        assert!(matches!(of(&[], &["u:a", "u:b"]), Credential::Malformed(_)));
    }

    #[test]
    fn what_is_passed_on_arrives() {
        for credential in [
            Credential::None,
            Credential::Token(hash_of_token("secret")),
            Credential::Uri("epochd-user:ops\u{e9}".into()),
        ] {
            let mut request = tonic::Request::new(());
            credential.pass_on(&mut request);
            let headers = request.metadata().clone().into_headers();
            assert_eq!(Credential::of_peer(&headers), credential);
        }
        let garbled = [("epochd-token-hash", "AA")].map(|(name, value)| {
            let name = axum::http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let found = Credential::of_peer(&garbled.into_iter().collect());
        assert!(matches!(found, Credential::Malformed(_)));
    }
}
