//! Scopes, whoever holds them: `get`, `list`, `revoke`.

use epoch_client::Client;
use epoch_core::{Epoch, Reason};
use epoch_proto::v1;

use crate::args::{Get, List, Revoke};
use crate::exit::Failure;
use crate::output::{Output, or_dash, pairs, rows};
use crate::times;

/// The most rows a node returns in one page.
pub(crate) const PAGE_ROWS_MAX: u32 = 1_000;

pub(crate) async fn get(client: &Client, output: Output, command: Get) -> Result<(), Failure> {
    let request = v1::GetRequest {
        scope: command.scope.as_str().to_owned(),
        queue_limit: command.queue_limit.unwrap_or_default(),
    };
    let state = client.get(request).await?;
    output.result(&state, || shown(&state))
}

fn shown(state: &v1::ScopeState) -> String {
    let head = if state.held {
        pairs([
            ("scope", state.scope.clone()),
            ("epoch", or_dash(state.epoch.as_ref())),
            ("granted", granted(state.epoch)),
            ("holder", or_dash(state.holder.as_ref())),
            ("session hash", or_dash(state.session.as_ref())),
            (
                "position",
                or_dash(state.position.as_ref().map(position).as_ref()),
            ),
            ("metadata", or_dash(state.metadata.as_ref())),
            ("waiting", state.waiting.to_string()),
        ])
    } else if state.delayed {
        let scope = &state.scope;
        let waiting = state.waiting;
        format!("{scope} was lost, and is kept from all for its lock delay ({waiting} waiting)")
    } else {
        format!("{} is free", state.scope)
    };
    if state.queue.is_empty() {
        return head;
    }
    let row = |(ahead, wait): (u32, &v1::QueuedWait)| {
        [ahead.to_string(), wait.holder.clone(), wait.session.clone()]
    };
    let queue = rows(
        ["AHEAD", "HOLDER", "SESSION HASH"],
        (0..).zip(&state.queue).map(row),
    );
    format!("{head}\n\n{queue}")
}

pub(crate) async fn list(client: &Client, output: Output, command: List) -> Result<(), Failure> {
    let mut all = v1::ListResponse {
        scopes: Vec::new(),
        next_page: command.page,
        ..v1::ListResponse::default()
    };
    let holder = command.holder.map(|holder| holder.as_str().to_owned());
    let holder = holder.unwrap_or_default();
    let mut left = command.limit;
    loop {
        let request = v1::ListRequest {
            prefix: command.prefix.clone(),
            limit: left.unwrap_or(PAGE_ROWS_MAX).min(PAGE_ROWS_MAX),
            page: all.next_page.take(),
            holder: holder.clone(),
        };
        let page = client.list(request).await?;
        if all.cursor.is_empty() {
            // That of the first page: what happens while the others are read is not missed.
            all.cursor = page.cursor;
        }
        let rows = u32::try_from(page.scopes.len()).unwrap_or(u32::MAX);
        left = left.map(|left| left.saturating_sub(rows));
        all.scopes.extend(page.scopes);
        all.next_page = page.next_page;
        // A page without rows would be asked for without end.
        if all.next_page.is_none() || left == Some(0) || rows == 0 {
            break;
        }
    }
    output.result(&all, || {
        let row = |state: &v1::ScopeState| {
            let holder = or_dash(state.holder.as_ref());
            [
                state.scope.clone(),
                or_dash(state.epoch.as_ref()),
                holder,
                granted(state.epoch),
                state.waiting.to_string(),
            ]
        };
        rows(
            ["SCOPE", "EPOCH", "HOLDER", "GRANTED", "WAITING"],
            all.scopes.iter().map(row),
        )
    })?;
    if let Some(next) = &all.next_page {
        output.note(&format!("there is more: go on with --page {next}"));
    }
    Ok(())
}

pub(crate) async fn revoke(
    client: &Client,
    output: Output,
    command: Revoke,
) -> Result<(), Failure> {
    let scope = command.scope.as_str().to_owned();
    let epoch = match command.epoch {
        Some(epoch) => Some(epoch.get()),
        None => to_revoke(client, &scope).await?,
    };
    let request = v1::RevokeRequest {
        scope,
        epoch,
        signatures: command.signed.signatures,
    };
    let answer = client.revoke(request).await;
    let answer = answer.map_err(|error| {
        if error.outcome_unknown() {
            output.note("an attempt may have taken effect: look with `epochctl get`");
        }
        Failure::from(error)
    })?;
    let revoked = epoch.map_or_else(|| "the lock delay".to_owned(), |epoch| epoch.to_string());
    output.result(&answer, || {
        pairs([
            ("scope", answer.scope.clone()),
            ("revoked", revoked),
            ("burnt", answer.epoch.to_string()),
            ("certificate", answer.certificate.clone()),
        ])
    })
}

/// The epoch to revoke of a scope: none where only its lock delay is to be ended.
async fn to_revoke(client: &Client, scope: &str) -> Result<Option<u64>, Failure> {
    let request = v1::GetRequest {
        scope: scope.to_owned(),
        ..v1::GetRequest::default()
    };
    let state = client.get(request).await?;
    if state.held || state.delayed {
        return Ok(state.epoch.filter(|_| state.held));
    }
    let message = format!("{scope} is free: there is no grant to revoke");
    Err(Failure {
        reason: Reason::NotFound.to_string(),
        ..Failure::local(message, "nothing needs to be done")
    })
}

/// When a grant was made.
pub(crate) fn granted(epoch: Option<u64>) -> String {
    match epoch.map(Epoch::new) {
        Some(Ok(epoch)) => times::moment(times::granted_ms(epoch), times::now_ms()),
        Some(Err(_)) | None => "-".to_owned(),
    }
}

/// A position for people, as the certificate's own type writes it.
pub(crate) fn position(position: &v1::Position) -> epoch_core::Position {
    epoch_core::Position {
        group: position.group,
        term: position.term,
        leader: position.leader,
        index: position.index,
        offset: position.offset,
    }
}
