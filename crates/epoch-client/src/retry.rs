//! Which failures are worth another attempt: one exhaustive match for reasons, one for codes.

use std::error::Error as _;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use epoch_core::Reason;
use tonic::{Code, ConnectError, Status};

/// The first pause between attempts. With jitter, up to twice this.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause before jitter: by so much, at most doubled, a client is late for the end of an
/// election.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// What a failed attempt says about the request, and about another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was refused, and would be again.
    Refused,
    /// It had no effect; another node, or the same one later, may take it.
    NotDone,
    /// It may have had its effect, or may still have it; asking again is right.
    Unknown,
    /// It may have had its effect, and asking again is not known to help.
    Failed,
}

/// The verdict on an answer that is not a success.
pub(crate) fn verdict(status: &Status) -> Verdict {
    match epoch_proto::reason_of(status) {
        Some(reason) => of_reason(reason),
        None if never_sent(status) => Verdict::NotDone,
        None => of_code(status.code()),
    }
}

fn of_reason(reason: Reason) -> Verdict {
    match reason {
        // A node whose clock is off stands down: another one may serve in a moment.
        // So may one that keeps a watch.
        Reason::NoLeader
        | Reason::Overloaded
        | Reason::RateLimited
        | Reason::ClockUntrusted
        | Reason::WatchLimit => Verdict::NotDone,
        Reason::NoQuorum => Verdict::Unknown,
        Reason::Internal => Verdict::Failed,
        Reason::EpochSuperseded
        | Reason::ScopeHeld
        | Reason::AlreadyHeld
        | Reason::AlreadyWaiting
        | Reason::LockDelayed
        | Reason::WaitExpired
        | Reason::WaitCancelled
        | Reason::RequestIdReused
        | Reason::RequestIdTooOld
        | Reason::SessionExpired
        | Reason::SessionStalled
        | Reason::TargetExpired
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
        | Reason::TooLarge
        | Reason::ClockPoisoned
        | Reason::InvalidArgument
        | Reason::RevisionMismatch
        | Reason::IntentReused
        | Reason::EpochForked
        | Reason::IncarnationVoid
        | Reason::EpochExhausted
        | Reason::Unimplemented
        | Reason::NotFound => Verdict::Refused,
    }
}

/// A status without one of our reasons comes from the transport, or from something that is not
/// epochd.
fn of_code(code: Code) -> Verdict {
    match code {
        // A connection that breaks shows as any of these.
        Code::Unavailable
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Unknown
        | Code::Internal
        | Code::Aborted => Verdict::Unknown,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => Verdict::Refused,
    }
}

/// Whether there was no connection to send on.
fn never_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The pauses between attempts: exponential, with jitter so that many clients spread out, and
/// without end (the caller's deadline is the end).
pub(crate) fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(PAUSE_MIN)
        .with_max_delay(PAUSE_MAX)
        .with_factor(2.0)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_that_asks_for_the_same_ids_is_retried() {
        for &reason in Reason::ALL {
            let again = matches!(of_reason(reason), Verdict::NotDone | Verdict::Unknown);
            if reason.next_step().contains("same ids") {
                assert!(again, "{reason}");
            }
            if reason.next_step().contains("do not retry") {
                assert!(!again, "{reason}");
            }
        }
    }

    #[test]
    fn pauses_have_no_end_and_a_bound() {
        let pauses: Vec<_> = pauses().take(100).collect();
        assert_eq!(pauses.len(), 100);
        assert!(
            pauses.iter().all(|pause| *pause <= PAUSE_MAX * 2),
            "{pauses:?}"
        );
    }
}
