//! Reading the body of a JSON request, within bounds of size and time.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use epoch_core::Reason;
use futures::StreamExt as _;

use super::Result;
use super::failure::Failure;

/// Largest JSON request: every field at its longest, escaped, fits.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How much of a larger body is still read: a caller that is cut off while it sends may never see
/// the answer.
const DRAINED_BYTES_MAX: usize = 4 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The whole body, or why there is none.
#[derive(Debug)]
pub(super) struct Body(pub(super) Result<Bytes>);

impl<S: Sync> FromRequest<S> for Body {
    type Rejection = std::convert::Infallible;

    async fn from_request(
        request: Request,
        _state: &S,
    ) -> std::result::Result<Self, Self::Rejection> {
        let reading = tokio::time::timeout(BODY_TIMEOUT, read(request));
        Ok(Self(reading.await.unwrap_or_else(|_elapsed| {
            let message = format!("the body has not arrived within {BODY_TIMEOUT:?}");
            Err(Failure::new(Reason::InvalidArgument, message))
        })))
    }
}

async fn read(request: Request) -> Result<Bytes> {
    let mut parts = request.into_body().into_data_stream();
    let mut body = Vec::new();
    let mut length = 0_usize;
    while let Some(part) = parts.next().await {
        let part = part.map_err(|_broken_off| {
            Failure::new(Reason::InvalidArgument, "the body did not arrive whole")
        })?;
        length = length.saturating_add(part.len());
        if length <= BODY_BYTES_MAX {
            body.extend_from_slice(&part);
        } else if length > DRAINED_BYTES_MAX {
            break;
        }
    }
    if length > BODY_BYTES_MAX {
        let message = format!("the body is over {BODY_BYTES_MAX} bytes");
        return Err(Failure::new(Reason::TooLarge, message));
    }
    Ok(body.into())
}
