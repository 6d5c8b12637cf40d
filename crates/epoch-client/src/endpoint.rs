//! The address of a node's client port.

use std::fmt;
use std::str::FromStr;

use tonic::codegen::http::uri::Authority;

/// The longest address that is read, in bytes: a DNS name and a port fit.
const ENDPOINT_BYTES_MAX: usize = 300;

/// The address of a node's client port: `host:port`, with or without `http://`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    tls: bool,
    authority: String,
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an endpoint; write host:port, as in 127.0.0.1:7600")]
pub struct EndpointError {
    text: String,
}

impl Endpoint {
    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether it was given with `https://`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The leader that this endpoint's node named. Only a bare `host:port` is taken: a hint never
    /// chooses a scheme or a path. It names a plaintext address, so that an endpoint under TLS
    /// follows none: whoever can forge one answer could otherwise read all that follows.
    pub(crate) fn leader(&self, hint: &str) -> Option<Self> {
        if self.tls || hint.contains("//") {
            return None;
        }
        hint.parse().ok()
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let refused = || EndpointError {
            text: text.chars().take(ENDPOINT_BYTES_MAX).collect(),
        };
        let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            (None, None) => (false, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.len() > ENDPOINT_BYTES_MAX || rest.contains('@') {
            return Err(refused());
        }
        let authority: Authority = rest.parse().map_err(|_not_an_authority| refused())?;
        match authority.port_u16() {
            Some(1..) if !authority.host().is_empty() => Ok(Self {
                tls,
                authority: authority.to_string(),
            }),
            Some(_) | None => Err(refused()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_read_with_and_without_a_scheme() {
        for (text, shown) in [
            ("127.0.0.1:7600", "http://127.0.0.1:7600"),
            ("http://node-a:7600/", "http://node-a:7600"),
            ("[::1]:7600", "http://[::1]:7600"),
            ("https://node-a:7600", "https://node-a:7600"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_not_host_and_port_is_refused() {
        for text in [
            "",
            ":7600",
            "host",
            "host:0",
            "host:99999",
            "ftp://host:1",
            "u@host:1",
            "h:1/x",
            "a b:1",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_hint_is_followed_from_plaintext_only_and_never_chooses_a_scheme() {
        let plain: Endpoint = "127.0.0.1:7600".parse().unwrap();
        let tls: Endpoint = "https://127.0.0.1:7600".parse().unwrap();
        assert_eq!(
            plain.leader("127.0.0.1:7601"),
            Some("127.0.0.1:7601".parse().unwrap())
        );
        assert_eq!(tls.leader("127.0.0.1:7601"), None);
        for hint in [
            "http://127.0.0.1:7601",
            "https://127.0.0.1:7601",
            "",
            "x",
            "u@h:1",
        ] {
            assert_eq!(plain.leader(hint), None, "{hint:?}");
        }
    }
}
