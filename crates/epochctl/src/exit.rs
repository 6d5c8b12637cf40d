//! What the command line fails with: one exit code for each reason.

use std::process::ExitCode;

use epoch_client::{Error, ErrorKind, Loss};
use epoch_core::Reason;

/// Something failed.
pub(crate) const ERROR: u8 = 1;
/// The command line itself is wrong.
pub(crate) const USAGE: u8 = 2;
/// The scope is held, or waiting for it ended.
pub(crate) const HELD: u8 = 3;
/// The grant or its session has ended: stop.
pub(crate) const SUPERSEDED: u8 = 4;
/// No node could serve the call.
pub(crate) const UNAVAILABLE: u8 = 6;
/// `run`: the grant was lost while the command ran.
pub(crate) const RUN_LOST: u8 = 124;
/// `run`: not acquired, or a failure of its own.
pub(crate) const RUN_FAILED: u8 = 125;
/// `run`: the command cannot be executed.
pub(crate) const RUN_CANNOT_EXECUTE: u8 = 126;
/// `run`: there is no such command.
pub(crate) const RUN_NOT_FOUND: u8 = 127;

/// A failure: what happened, what to do next, and with which code to exit.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// A stable name: a reason, or UNAVAILABLE or ERROR where no node gave one.
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) next_step: String,
}

impl Failure {
    /// A failure on this side, not a node's refusal.
    pub(crate) fn local(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self {
            code: ERROR,
            reason: "ERROR".to_owned(),
            message: message.into(),
            next_step: next_step.into(),
        }
    }

    /// Input that is seen to be wrong here.
    pub(crate) fn usage(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        let reason = Reason::InvalidArgument.to_string();
        Self {
            code: USAGE,
            reason,
            ..Self::local(message, next_step)
        }
    }

    /// A refusal found here, with a public reason.
    pub(crate) fn refused(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code: code_of(reason),
            reason: reason.to_string(),
            ..Self::local(message, reason.next_step())
        }
    }

    /// The same failure under another exit code.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (code, fallback) = match error.kind() {
            ErrorKind::Refused(reason) => (code_of(reason), "ERROR"),
            ErrorKind::Unavailable(_) => (UNAVAILABLE, "UNAVAILABLE"),
            ErrorKind::SessionLost(Loss::Expired | Loss::Lapsed | Loss::Stalled | Loss::Closed)
            | ErrorKind::Protocol(_) => (ERROR, "ERROR"),
            ErrorKind::Usage => (USAGE, "INVALID_ARGUMENT"),
        };
        Self {
            code,
            reason: error.reason().map_or(fallback, Reason::as_str).to_owned(),
            message: error.to_string(),
            next_step: error.next_step().to_owned(),
        }
    }
}

/// The exit code of a reason.
fn code_of(reason: Reason) -> u8 {
    match reason {
        Reason::ScopeHeld
        | Reason::AlreadyHeld
        | Reason::AlreadyWaiting
        | Reason::LockDelayed
        | Reason::WaitExpired
        | Reason::WaitCancelled => HELD,
        Reason::EpochSuperseded | Reason::SessionExpired | Reason::IncarnationVoid => SUPERSEDED,
        Reason::NoLeader
        | Reason::NoQuorum
        | Reason::ClockUntrusted
        | Reason::ClockPoisoned
        | Reason::Overloaded
        | Reason::RateLimited
        | Reason::WatchLimit => UNAVAILABLE,
        Reason::RequestIdReused
        | Reason::RequestIdTooOld
        | Reason::CertificateInvalid
        | Reason::Unauthenticated
        | Reason::PermissionDenied
        | Reason::SessionLimit
        | Reason::GrantLimit
        | Reason::KeyLimit
        | Reason::QueueFull
        | Reason::WaitLimit
        | Reason::RecordLimit
        | Reason::PermissionLimit
        | Reason::WatchCompacted
        | Reason::SessionStalled
        | Reason::TargetExpired
        | Reason::TooLarge
        | Reason::InvalidArgument
        | Reason::RevisionMismatch
        | Reason::IntentReused
        | Reason::EpochForked
        | Reason::EpochExhausted
        | Reason::Unimplemented
        | Reason::NotFound
        | Reason::Internal => ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_exit_codes() {
        for (reason, code) in [
            (Reason::ScopeHeld, 3),
            (Reason::AlreadyHeld, 3),
            (Reason::WaitExpired, 3),
            (Reason::EpochSuperseded, 4),
            (Reason::NoLeader, 6),
            (Reason::NoQuorum, 6),
            (Reason::SessionExpired, 4),
            (Reason::CertificateInvalid, 1),
            (Reason::InvalidArgument, 1),
        ] {
            assert_eq!(Failure::refused(reason, "").code, code, "{reason}");
        }
    }

    #[test]
    fn the_codes_that_run_uses_for_itself_are_never_those_of_a_reason() {
        for &reason in Reason::ALL {
            assert!((ERROR..RUN_LOST).contains(&code_of(reason)), "{reason}");
        }
    }
}
