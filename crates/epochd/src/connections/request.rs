//! A request of an unproven connection, from its arrival to the end of its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{StatusCode, header::HeaderName};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::Place;

/// Where gRPC says at once that it refuses.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    place: Arc<Place>,
    completed: bool,
}

impl UnderWay {
    /// Of a request that has just begun.
    pub(super) fn new(place: Arc<Place>) -> Self {
        Self {
            place,
            completed: false,
        }
    }

    /// Goes on until all of the answer is sent. One that denies the request completes nothing.
    pub(crate) fn with_answer(mut self, answer: Response) -> Response {
        self.completed = !is_denial(&answer);
        answer.map(|body| {
            Body::new(Answer {
                body,
                _under_way: self,
            })
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.place.end(self.completed);
    }
}

fn is_denial(answer: &Response) -> bool {
    use tonic::Code::{PermissionDenied, Unauthenticated};
    if let Some(status) = answer.headers().get(GRPC_STATUS) {
        let code = tonic::Code::from_bytes(status.as_bytes());
        return matches!(code, PermissionDenied | Unauthenticated);
    }
    matches!(
        answer.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    )
}

/// The body of an answer to such a request.
struct Answer {
    body: Body,
    _under_way: UnderWay,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn only_denials_complete_nothing() {
        for (status, denied) in [
            (200, false),
            (404, false),
            (503, false),
            (401, true),
            (403, true),
        ] {
            let answer = StatusCode::from_u16(status).unwrap().into_response();
            assert_eq!(is_denial(&answer), denied, "{status}");
        }
        for (status, denied) in [
            (tonic::Status::permission_denied(""), true),
            (tonic::Status::unauthenticated(""), true),
            (tonic::Status::not_found(""), false),
            (tonic::Status::ok(""), false),
        ] {
            let answer = status.clone().into_http::<Body>();
            assert_eq!(is_denial(&answer), denied, "{status}");
        }
    }
}
