//! A refusal on its way to the caller, whichever way it came.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use epoch_core::Reason;
use epoch_machine::Refusal;
use epoch_proto::{http_status, reason_of, refusal};
use serde_json::json;
use tonic::Status;

use crate::node::{CheckError, ProposeError};

/// Longest message, without the next step.
const MESSAGE_BYTES_MAX: usize = 512;

/// Why a call was refused, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// In order, such as `("epoch", "42")`.
    pub(crate) details: Vec<(String, String)>,
}

impl Failure {
    pub(crate) fn new(reason: Reason, message: impl std::fmt::Display) -> Self {
        let message = format!("{}; {}", bounded(message), reason.next_step());
        Self {
            reason,
            message,
            details: Vec::new(),
        }
    }

    /// A field that is malformed or out of range.
    pub(crate) fn field(field: &str, message: impl std::fmt::Display) -> Self {
        let details = vec![("field".to_owned(), field.to_owned())];
        Self {
            reason: Reason::InvalidArgument,
            message: format!("{field}: {}", bounded(message)),
            details,
        }
    }

    /// Something that a later version offers.
    pub(crate) fn unimplemented(what: &str) -> Self {
        Self::new(
            Reason::Unimplemented,
            format_args!("{what} is not offered by this version"),
        )
    }

    /// What another node answered; it may never have heard the question.
    pub(crate) fn relayed(status: &Status) -> Self {
        use tonic_types::StatusExt as _;
        let Some(reason) = reason_of(status) else {
            return Self::new(Reason::NoQuorum, "the leader did not answer");
        };
        let metadata = status.get_details_error_info().map(|info| info.metadata);
        let mut details: Vec<_> = metadata.unwrap_or_default().into_iter().collect();
        details.sort();
        Self {
            reason,
            message: status.message().to_owned(),
            details,
        }
    }
}

/// Parsers repeat what they could not read, however long it is.
fn bounded(message: impl std::fmt::Display) -> String {
    let mut message = message.to_string();
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
    }
    message
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let mut failure = Self::new(refusal.reason(), refusal);
        if let Some(epoch) = refusal.epoch() {
            failure
                .details
                .push(("epoch".to_owned(), epoch.to_string()));
        }
        failure
    }
}

impl From<ProposeError> for Failure {
    fn from(error: ProposeError) -> Self {
        let reason = match error {
            ProposeError::NotLeader => Reason::NoLeader,
            ProposeError::Overloaded => Reason::Overloaded,
            ProposeError::Unknown => Reason::NoQuorum,
        };
        Self::new(reason, error)
    }
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        let reason = match error {
            CheckError::NotLeader => Reason::NoLeader,
            CheckError::NoQuorum => Reason::NoQuorum,
            CheckError::Overloaded => Reason::Overloaded,
        };
        // Nothing was to be changed, so nothing is unknown.
        Self {
            reason,
            message: format!("{error}; try again"),
            details: Vec::new(),
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        refusal(failure.reason, &failure.message, &failure.details)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(http_status(self.reason));
        self.problem(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

impl Failure {
    /// As a problem document (RFC 9457) under an HTTP status.
    pub(super) fn problem(self, code: StatusCode) -> Response {
        let mut problem = json!({
            "type": "about:blank",
            "title": code.canonical_reason().unwrap_or("error"),
            "status": code.as_u16(),
            "reason": self.reason.as_str(),
            "detail": self.message,
        });
        if let Some(members) = problem.as_object_mut() {
            for (name, value) in self.details {
                // Epochs are numbers wherever they stand; below 2^53, exactly.
                let value = value
                    .parse::<u64>()
                    .map_or_else(|_text| json!(value), |n| json!(n));
                members.entry(name).or_insert(value);
            }
        }
        let mut response = Response::new(Body::from(problem.to_string()));
        *response.status_mut() = code;
        let content_type = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        if self.reason == Reason::Unauthenticated {
            let scheme = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
