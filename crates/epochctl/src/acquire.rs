//! Taking scopes: `acquire`, `cancel-wait`.

use epoch_client::{Client, Error};
use epoch_core::{Epoch, Reason, RequestId, Scope};
use epoch_proto::v1;

use crate::args::{Acquire, CancelWait};
use crate::exit::Failure;
use crate::output::{Output, or_dash, pairs};
use crate::scope::position;
use crate::signals::Signals;
use crate::times;

pub(crate) async fn acquire(
    client: &Client,
    output: Output,
    command: Acquire,
) -> Result<(), Failure> {
    let id = match command.request_id {
        Some(id) => id,
        None => request_id_now()?,
    };
    match &command.scopes[..] {
        [scope] => one(client, output, &command, scope, id).await,
        _several => many(client, output, &command, id).await,
    }
}

async fn one(
    client: &Client,
    output: Output,
    command: &Acquire,
    scope: &Scope,
    id: RequestId,
) -> Result<(), Failure> {
    let request = v1::AcquireRequest {
        scope: scope.as_str().to_owned(),
        session_id: command.session.id()?.to_string(),
        request_id: id.get(),
        audience: command.audience.clone(),
        wait: command.terms.wait.map(times::of_api),
        reissue: command.reissue,
        lock_delay: command.terms.lock_delay.map(times::of_api),
        metadata: command.terms.metadata.clone(),
    };
    let granted = match command.terms.wait {
        Some(_) => {
            if command.request_id.is_none() {
                // It is needed for `cancel-wait`.
                output.note(&format!(
                    "if it has to wait, that is under --request-id {id}"
                ));
            }
            waiting(client, output, request).await?
        }
        None => client.acquire(request).await,
    };
    let grant = granted.map_err(|error| failure(output, error, id))?;
    output.result(&grant, || shown(&grant))
}

async fn many(
    client: &Client,
    output: Output,
    command: &Acquire,
    id: RequestId,
) -> Result<(), Failure> {
    let refused = match command {
        Acquire { reissue: true, .. } => Some("--reissue"),
        command => command.terms.wait.map(|_wait| "--wait"),
    };
    if let Some(refused) = refused {
        let message = format!("{refused} is for one scope: several are taken at once or not");
        return Err(Failure::usage(message, "leave it out, or name one scope"));
    }
    let scopes = command.scopes.iter().map(|scope| scope.as_str().to_owned());
    let request = v1::AcquireManyRequest {
        scopes: scopes.collect(),
        session_id: command.session.id()?.to_string(),
        request_id: id.get(),
        audience: command.audience.clone(),
        lock_delay: command.terms.lock_delay.map(times::of_api),
        metadata: command.terms.metadata.clone(),
    };
    let granted = client.acquire_many(request).await;
    let granted = granted.map_err(|error| failure(output, error, id))?;
    output.result(&granted, || {
        let each: Vec<_> = granted.grants.iter().map(shown).collect();
        each.join("\n\n")
    })
}

/// Waits for a scope until told to end; then the wait is cancelled first.
async fn waiting(
    client: &Client,
    output: Output,
    request: v1::AcquireRequest,
) -> Result<Result<v1::Grant, Error>, Failure> {
    // Before there is a wait to be cancelled.
    let mut signals = Signals::ending()?;
    let cancel = v1::CancelWaitRequest {
        scope: request.scope.clone(),
        session_id: request.session_id.clone(),
        request_id: request.request_id,
    };
    tokio::select! {
        biased;
        granted = client.acquire(request) => Ok(granted),
        _signal = signals.next() => Err(cancelled(client, output, cancel).await),
    }
}

/// Ends a wait, and gives back what it has been granted before. What to exit with.
async fn cancelled(client: &Client, output: Output, request: v1::CancelWaitRequest) -> Failure {
    let (scope, session_id) = (request.scope.clone(), request.session_id.clone());
    let ended = async {
        if let Some(epoch) = client.cancel_wait(request).await?.epoch {
            let request = v1::ReleaseRequest {
                scope: scope.clone(),
                epoch,
                session_id,
            };
            client.release(request).await?;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = ended.await {
        output.note(&format!(
            "the wait was not cancelled, and ends by itself after 10s: {error}"
        ));
    }
    let message = format!("the wait for {scope} was interrupted");
    Failure::refused(Reason::WaitCancelled, message)
}

fn failure(output: Output, error: Error, id: RequestId) -> Failure {
    if error.outcome_unknown() {
        output.note(&format!(
            "the outcome is unknown; ask again with --request-id {id}"
        ));
    }
    Failure::from(error)
}

fn shown(grant: &v1::Grant) -> String {
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

pub(crate) async fn cancel_wait(
    client: &Client,
    output: Output,
    command: CancelWait,
) -> Result<(), Failure> {
    let request = v1::CancelWaitRequest {
        scope: command.scope.as_str().to_owned(),
        session_id: command.session.id()?.to_string(),
        request_id: command.request_id.get(),
    };
    let answer = client.cancel_wait(request).await?;
    output.result(&answer, || match (answer.cancelled, answer.epoch) {
        (true, _) => "cancelled".to_owned(),
        (false, Some(epoch)) => {
            format!("granted before, at epoch {epoch}: release it if it is not wanted")
        }
        (false, None) => "there was no such wait; one that comes late does not begin".to_owned(),
    })
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
