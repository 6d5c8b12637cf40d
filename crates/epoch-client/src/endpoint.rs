//! The address of a node's client port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use tonic::codegen::http::uri::Authority;

/// The longest address that is read, in bytes: a DNS name and a port fit.
const ENDPOINT_BYTES_MAX: usize = 300;

/// The address of a node's client port: `host:port`, with or without `http://` or `https://`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    scheme: Scheme,
    authority: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Scheme {
    /// Plaintext, unless the client goes by certificates.
    Unsaid,
    Plaintext,
    Tls,
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
        self.scheme == Scheme::Tls
    }

    /// The same, with what it did not say: `https://` where `tls` is given, else `http://`.
    pub(crate) fn said(self, tls: bool) -> Self {
        let scheme = match self.scheme {
            Scheme::Unsaid if tls => Scheme::Tls,
            Scheme::Unsaid => Scheme::Plaintext,
            said => said,
        };
        Self { scheme, ..self }
    }

    /// Whether it is on this host, by its address alone: names other than `localhost` are not
    /// looked up.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.authority.rsplit_once(':').map(|(host, _port)| host);
        let bare = host.map(|host| host.trim_start_matches('[').trim_end_matches(']'));
        bare.is_some_and(|host| {
            host.eq_ignore_ascii_case("localhost")
                || host
                    .parse::<IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        })
    }

    /// The leader that this endpoint's node named, called as this one is. Only a bare `host:port`
    /// is taken: a hint never chooses a scheme or a path.
    pub(crate) fn leader(&self, hint: &str) -> Option<Self> {
        if hint.contains("//") {
            return None;
        }
        let leader: Self = hint.parse().ok()?;
        Some(leader.said(self.is_tls()))
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let refused = || EndpointError {
            text: text.chars().take(ENDPOINT_BYTES_MAX).collect(),
        };
        let (scheme, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (Scheme::Plaintext, rest),
            (_, Some(rest)) => (Scheme::Tls, rest),
            (None, None) => (Scheme::Unsaid, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.len() > ENDPOINT_BYTES_MAX || rest.contains('@') {
            return Err(refused());
        }
        let authority: Authority = rest.parse().map_err(|_not_an_authority| refused())?;
        match authority.port_u16() {
            Some(1..) if !authority.host().is_empty() => Ok(Self {
                scheme,
                authority: authority.to_string(),
            }),
            Some(_) | None => Err(refused()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls() { "https" } else { "http" };
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
    fn a_hint_is_called_as_the_node_that_gave_it_and_never_chooses_a_scheme() {
        let plain: Endpoint = "http://127.0.0.1:7600".parse().unwrap();
        let tls: Endpoint = "https://127.0.0.1:7600".parse().unwrap();
        let led = |from: &Endpoint| from.leader("127.0.0.1:7601").unwrap().to_string();
        assert_eq!(led(&plain), "http://127.0.0.1:7601");
        assert_eq!(led(&tls), "https://127.0.0.1:7601");
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

    #[test]
    fn this_host_is_known_by_its_addresses_and_localhost() {
        for (text, is_loopback) in [
            ("127.0.0.1:1", true),
            ("https://[::1]:1", true),
            ("Localhost:1", true),
            ("10.0.0.1:1", false),
            ("localhost.example:1", false),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.is_loopback(), is_loopback, "{text}");
        }
    }
}
