//! Taking scopes: `acquire`, `cancel-wait`.

use std::time::Duration;

use epoch_client::{Client, Error, ErrorKind};
use epoch_core::{Epoch, Reason, RequestId, Scope};
use epoch_proto::v1;

use crate::args::{Acquire, CancelWait};
use crate::exit::{Failure, UNAVAILABLE};
use crate::output::{Output, or_dash, pairs};
use crate::scope::position;
use crate::signals::Signals;
use crate::times;

/// How long it may take to cancel a wait that was interrupted.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

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
        signatures: command.terms.signed.signatures,
    };
    let granted = match command.terms.wait {
        Some(_) => {
            if command.request_id.is_none() {
                // It is needed for `cancel-wait`.
                output.note(&format!(
                    "if it has to wait, that is under --request-id {id}"
                ));
            }
            waiting(client, request).await?
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
        signatures: command.terms.signed.signatures,
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
        _signal = signals.next() => {
            let cancelling = client.give_up_wait(cancel.clone());
            let ended = signals.undo(CANCEL_TIMEOUT, cancelling).await;
            Err(interrupted(ended, &cancel))
        }
    }
}

/// What to exit with after a wait was interrupted, by what came of cancelling it; `None` when that
/// was given up.
fn interrupted(ended: Option<Result<(), Error>>, wait: &v1::CancelWaitRequest) -> Failure {
    let scope = &wait.scope;
    let message = format!("the wait for {scope} was interrupted");
    let why = match ended {
        Some(Ok(())) => return Failure::refused(Reason::WaitCancelled, message),
        Some(Err(error)) if matches!(error.kind(), ErrorKind::Refused(_)) => {
            let refused = Failure::from(error);
            return Failure {
                message: format!("{message}; cancelling it was refused: {}", refused.message),
                ..refused
            };
        }
        Some(Err(error)) => error.to_string(),
        None => "no answer was waited for any longer".to_owned(),
    };
    Failure {
        code: UNAVAILABLE,
        reason: "UNAVAILABLE".to_owned(),
        message: format!(
            "{message}, and is not known to be cancelled ({why}): it may stand for 10s more, and \
             what it is granted may stay with the session until that ends"
        ),
        next_step: format!(
            "cancel it with `epochctl cancel-wait '{scope}' --request-id {}`, or close the session",
            wait.request_id
        ),
    }
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
    fn an_interrupted_wait_counts_as_cancelled_only_when_it_is() {
        let wait = v1::CancelWaitRequest {
            scope: "a/b".to_owned(),
            session_id: "secret".to_owned(),
            request_id: 7,
        };
        let cancelled = interrupted(Some(Ok(())), &wait);
        assert_eq!((cancelled.code, &*cancelled.reason), (3, "WAIT_CANCELLED"));
        let unknown = interrupted(None, &wait);
        assert_eq!((unknown.code, &*unknown.reason), (6, "UNAVAILABLE"));
        let command = "cancel-wait 'a/b' --request-id 7";
        assert!(unknown.next_step.contains(command), "{unknown:?}");
    }

    #[test]
    fn one_shot_request_ids_are_in_bounds_and_do_not_fall() {
        let (first, second) = (request_id_now().unwrap(), request_id_now().unwrap());
        assert!(first.get() <= second.get());
        // Microseconds since 1970, not milliseconds: ids of two commands in a row differ.
        assert!(first.get() > 1_000_000_000_000_000);
    }
}
