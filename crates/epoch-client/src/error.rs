//! What a caller is told.

use epoch_core::{Reason, Scope};
use tonic::Code;

use crate::grant::GrantLoss;
use crate::session::Loss;

/// Why a call failed. Its text says what happened; [`Error::next_step`] what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    outcome_unknown: bool,
    /// Where there is more to say than the kind does.
    next_step: Option<&'static str>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A node refused, with its reason.
    Refused(Reason),
    /// No node answered for good within the deadline; with the last reason, if one was given.
    Unavailable(Option<Reason>),
    /// The session is lost or closed.
    SessionLost(Loss),
    /// What was given cannot be used; nothing was sent.
    Usage,
    /// The answer is not what this version of the API says: another service, or another version.
    Protocol(Code),
}

impl Error {
    pub(crate) fn refused(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Refused(reason),
            message: message.into(),
            outcome_unknown: false,
            next_step: None,
        }
    }

    pub(crate) fn unavailable(reason: Option<Reason>, message: String) -> Self {
        Self {
            kind: ErrorKind::Unavailable(reason),
            message,
            outcome_unknown: false,
            next_step: None,
        }
    }

    pub(crate) fn session_lost(loss: Loss) -> Self {
        let message = format!("the session is lost: {loss}");
        Self {
            kind: ErrorKind::SessionLost(loss),
            message,
            outcome_unknown: false,
            next_step: None,
        }
    }

    /// Nothing is asked of a grant that is lost.
    pub(crate) fn grant_lost(scope: &Scope, loss: GrantLoss) -> Self {
        match loss {
            GrantLoss::Session(loss) => Self::session_lost(loss),
            GrantLoss::Superseded | GrantLoss::Transferred => Self::refused(
                Reason::EpochSuperseded,
                format!("the grant of {scope} is lost: {loss}"),
            ),
            GrantLoss::Released => Self::usage(format!("the grant of {scope} was released")),
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Usage,
            message: message.into(),
            outcome_unknown: false,
            next_step: None,
        }
    }

    pub(crate) fn protocol(code: Code, message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Protocol(code),
            message: message.into(),
            outcome_unknown: false,
            next_step: None,
        }
    }

    pub(crate) fn with_outcome_unknown(mut self, unknown: bool) -> Self {
        self.outcome_unknown = unknown;
        self
    }

    pub(crate) fn with_next_step(mut self, next_step: Option<&'static str>) -> Self {
        self.next_step = next_step;
        self
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The reason a node gave: of the refusal, or of the last attempt before the deadline.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self.kind {
            ErrorKind::Refused(reason) => Some(reason),
            ErrorKind::Unavailable(reason) => reason,
            ErrorKind::SessionLost(Loss::Expired | Loss::Lapsed | Loss::Stalled) => {
                Some(Reason::SessionExpired)
            }
            ErrorKind::SessionLost(Loss::Closed) | ErrorKind::Usage | ErrorKind::Protocol(_) => {
                None
            }
        }
    }

    /// Whether the call, or an attempt at it, may have taken effect, or may still: ask again with
    /// the same request id (or open id) to learn.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.outcome_unknown
    }

    /// What to do next.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        if let Some(next_step) = self.next_step {
            return next_step;
        }
        match self.kind {
            ErrorKind::Refused(reason) => reason.next_step(),
            ErrorKind::Unavailable(_) if self.outcome_unknown => {
                "the outcome is unknown; try again with the same ids"
            }
            ErrorKind::Unavailable(_) => "check that a majority of the nodes runs, then try again",
            ErrorKind::SessionLost(_) => Reason::SessionExpired.next_step(),
            ErrorKind::Usage => "correct the call",
            ErrorKind::Protocol(_) => "check that the endpoints are epochd nodes of this version",
        }
    }
}
