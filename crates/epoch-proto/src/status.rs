//! Reasons as gRPC and HTTP say them: one exhaustive table each.

use epoch_core::Reason;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of every `google.rpc.ErrorInfo` that epochd sends.
pub const ERROR_DOMAIN: &str = "epochd";

/// The gRPC code of a reason.
#[must_use]
pub fn grpc_code(reason: Reason) -> Code {
    match reason {
        Reason::EpochSuperseded | Reason::IncarnationVoid | Reason::SessionStalled => {
            Code::FailedPrecondition
        }
        Reason::ScopeHeld
        | Reason::LockDelayed
        | Reason::WaitCancelled
        | Reason::RevisionMismatch => Code::Aborted,
        Reason::AlreadyHeld | Reason::AlreadyWaiting => Code::AlreadyExists,
        Reason::WaitExpired => Code::DeadlineExceeded,
        Reason::RequestIdReused
        | Reason::RequestIdTooOld
        | Reason::InvalidArgument
        | Reason::IntentReused => Code::InvalidArgument,
        Reason::SessionExpired | Reason::TargetExpired | Reason::NotFound => Code::NotFound,
        Reason::CertificateInvalid | Reason::Unauthenticated => Code::Unauthenticated,
        Reason::PermissionDenied => Code::PermissionDenied,
        Reason::SessionLimit
        | Reason::GrantLimit
        | Reason::KeyLimit
        | Reason::QueueFull
        | Reason::WaitLimit
        | Reason::RecordLimit
        | Reason::PermissionLimit
        | Reason::WatchLimit
        | Reason::Overloaded
        | Reason::RateLimited
        | Reason::TooLarge => Code::ResourceExhausted,
        Reason::NoLeader | Reason::NoQuorum | Reason::ClockUntrusted | Reason::ClockPoisoned => {
            Code::Unavailable
        }
        Reason::EpochForked => Code::DataLoss,
        Reason::EpochExhausted | Reason::WatchCompacted => Code::OutOfRange,
        Reason::Unimplemented => Code::Unimplemented,
        Reason::Internal => Code::Internal,
    }
}

/// The HTTP status of a reason.
#[must_use]
pub fn http_status(reason: Reason) -> u16 {
    match reason {
        Reason::EpochSuperseded
        | Reason::RevisionMismatch
        | Reason::IncarnationVoid
        | Reason::SessionStalled => 412,
        Reason::ScopeHeld
        | Reason::AlreadyHeld
        | Reason::AlreadyWaiting
        | Reason::LockDelayed
        | Reason::WaitCancelled
        | Reason::EpochForked
        | Reason::EpochExhausted => 409,
        Reason::WatchCompacted => 410,
        Reason::WaitExpired => 504,
        Reason::RequestIdReused | Reason::RequestIdTooOld | Reason::IntentReused => 422,
        Reason::SessionExpired | Reason::TargetExpired | Reason::NotFound => 404,
        Reason::CertificateInvalid | Reason::Unauthenticated => 401,
        Reason::PermissionDenied => 403,
        Reason::SessionLimit
        | Reason::GrantLimit
        | Reason::KeyLimit
        | Reason::QueueFull
        | Reason::WaitLimit
        | Reason::RecordLimit
        | Reason::PermissionLimit
        | Reason::WatchLimit
        | Reason::Overloaded
        | Reason::RateLimited
        | Reason::TooLarge => 429,
        Reason::NoLeader | Reason::NoQuorum | Reason::ClockUntrusted | Reason::ClockPoisoned => 503,
        Reason::InvalidArgument => 400,
        Reason::Unimplemented => 501,
        Reason::Internal => 500,
    }
}

/// A refusal as a gRPC status, with `google.rpc.ErrorInfo`.
///
/// `details` are ordered pairs such as `("epoch", "42")`.
#[must_use]
pub fn refusal(reason: Reason, message: &str, details: &[(String, String)]) -> Status {
    let info = details
        .iter()
        .cloned()
        .collect::<std::collections::HashMap<_, _>>();
    let details = ErrorDetails::with_error_info(reason.as_str(), ERROR_DOMAIN, info);
    Status::with_error_details(grpc_code(reason), message, details)
}

/// The reason that a status carries; `None` when it is not one of ours (a broken connection, say).
#[must_use]
pub fn reason_of(status: &Status) -> Option<Reason> {
    let info = status.get_details_error_info()?;
    (info.domain == ERROR_DOMAIN)
        .then(|| Reason::parse(&info.reason))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_wire() {
        for &reason in Reason::ALL {
            let status = refusal(reason, "text", &[("epoch".into(), "42".into())]);
            assert_eq!(reason_of(&status), Some(reason));
            assert!((400..=599).contains(&http_status(reason)), "{reason}");
            assert_ne!(status.code(), Code::Ok);
        }
    }
}
