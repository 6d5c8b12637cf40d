//! What a holder does with a scope: `acquire`, `release`, `certify`.

use epoch_client::Client;
use epoch_core::{Epoch, RequestId};
use epoch_proto::v1;

use crate::args::{Acquire, Certify, Held};
use crate::exit::Failure;
use crate::output::{Output, or_dash, pairs};
use crate::scope::position;
use crate::times;

pub(crate) async fn acquire(
    client: &Client,
    output: Output,
    command: Acquire,
) -> Result<(), Failure> {
    let request_id = match command.request_id {
        Some(id) => id,
        None => request_id_now()?,
    };
    let request = v1::AcquireRequest {
        scope: command.scope.as_str().to_owned(),
        session_id: command.session.id.to_string(),
        request_id: request_id.get(),
        audience: command.audience,
        ..v1::AcquireRequest::default()
    };
    let grant = client.acquire(request).await.map_err(|error| {
        if error.outcome_unknown() {
            output.note(&format!(
                "the outcome is unknown; ask again with --request-id {request_id}"
            ));
        }
        Failure::from(error)
    })?;
    output.result(&grant, || {
        let granted = Epoch::new(grant.epoch).map(times::granted_ms);
        let now_ms = times::now_ms();
        pairs([
            ("scope", grant.scope.clone()),
            ("epoch", grant.epoch.to_string()),
            (
                "granted",
                granted.map_or("-".to_owned(), |ms| times::moment(ms, now_ms)),
            ),
            ("holder", grant.holder.clone()),
            ("incarnation", grant.incarnation.clone()),
            (
                "position",
                or_dash(grant.position.as_ref().map(position).as_ref()),
            ),
            ("certificate", grant.certificate.clone()),
        ])
    })
}

/// A one-shot request id: the time in microseconds, so that it rises from call to call.
fn request_id_now() -> Result<RequestId, Failure> {
    let now = std::time::SystemTime::now();
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    RequestId::new(us).map_err(|error| {
        Failure::local(
            format!("this machine's clock makes no request id: {error}"),
            "give one with --request-id",
        )
    })
}

pub(crate) async fn release(client: &Client, output: Output, command: Held) -> Result<(), Failure> {
    let request = v1::ReleaseRequest {
        scope: command.scope.as_str().to_owned(),
        epoch: command.epoch.get(),
        session_id: command.session.id.to_string(),
    };
    let answer = client.release(request).await?;
    output.result(&answer, || match answer.released {
        true => "released".to_owned(),
        false => "this session does not hold it any more".to_owned(),
    })
}

pub(crate) async fn certify(
    client: &Client,
    output: Output,
    command: Certify,
) -> Result<(), Failure> {
    let request = v1::CertifyRequest {
        scope: command.held.scope.as_str().to_owned(),
        epoch: command.held.epoch.get(),
        session_id: command.held.session.id.to_string(),
        audience: command.audience,
    };
    let answer = client.certify(request).await?;
    output.result(&answer, || answer.certificate.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shot_request_ids_are_in_bounds_and_do_not_fall() {
        let (first, second) = (request_id_now().unwrap(), request_id_now().unwrap());
        assert!(first.get() <= second.get());
        // Microseconds since 1970, not milliseconds: ids of two commands in a row differ.
        assert!(first.get() > 1_000_000_000_000_000);
    }
}
