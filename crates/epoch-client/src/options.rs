//! How a client connects, how long it waits, and how a session is opened.

use std::time::Duration;

use epoch_core::Thumbprint;

use crate::boottime::Clock;
use crate::connector::Connector;
use crate::tls::Tls;
use crate::token::Token;

/// How long a call may take in all by default: an election (about one second) and a slow node
/// fit in it several times.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(10);
/// How long one node may take to answer by default, before the next one is asked.
pub const ATTEMPT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// How a client connects, and how long it waits. Times of more than a year count as one.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a call may take in all, retries included.
    pub deadline: Duration,
    /// How long one node may take to answer, before the next one is asked.
    pub attempt_timeout: Duration,
    /// How often an HTTP/2 ping goes out while a call is under way: a partition kills connections
    /// without a word.
    pub ping_interval: Duration,
    /// How long a ping's answer may take before the connection counts as broken.
    pub ping_timeout: Duration,
    /// What `https://` endpoints are called with; without, the CAs that the system trusts. Given, it
    /// makes endpoints without a scheme `https://` ones.
    pub tls: Option<Tls>,
    /// Says who this client is. It is not sent in plaintext, except to this host.
    pub token: Option<Token>,
    /// What leases are measured by.
    #[doc(hidden)]
    pub clock: Clock,
    /// How nodes are reached, when not over TCP.
    #[doc(hidden)]
    pub connector: Option<Connector>,
}

/// As good as for ever: what can be added to any instant, and said in any header.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 86_400);

impl Options {
    /// The same without times that nothing can count with.
    pub(crate) fn bounded(self) -> Self {
        Self {
            deadline: self.deadline.min(LONGEST),
            attempt_timeout: self.attempt_timeout.min(LONGEST),
            ping_interval: self.ping_interval.min(LONGEST),
            ping_timeout: self.ping_timeout.min(LONGEST),
            ..self
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: DEADLINE_DEFAULT,
            attempt_timeout: ATTEMPT_TIMEOUT_DEFAULT,
            ping_interval: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(1),
            tls: None,
            token: None,
            clock: Clock::default(),
            connector: None,
        }
    }
}

/// How a session is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// How long the session lives without an acknowledged keepalive: from 1 s to 24 h, in whole
    /// milliseconds.
    pub ttl: Duration,
    /// The session is renewed only while [`Session::progress`](crate::Session::progress) has been
    /// called within this time, from 1 s to 24 h; it ends at most a TTL later. Without a limit it is renewed for as long as
    /// the process runs, also when the work in it is stuck.
    pub stall_limit: Option<Duration>,
    /// The name of the holder's own public key. Certificates name it, and a gateway demands a proof
    /// of it: a certificate that was merely seen is of no use then.
    pub holder_key: Option<Thumbprint>,
}

impl OpenOptions {
    /// A session of this TTL, without a stall limit.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            stall_limit: None,
            holder_key: None,
        }
    }

    /// The same with a stall limit.
    #[must_use]
    pub fn with_stall_limit(mut self, stall_limit: Duration) -> Self {
        self.stall_limit = Some(stall_limit);
        self
    }

    /// The same with the holder's own key.
    #[must_use]
    pub fn with_holder_key(mut self, holder_key: Thumbprint) -> Self {
        self.holder_key = Some(holder_key);
        self
    }
}
