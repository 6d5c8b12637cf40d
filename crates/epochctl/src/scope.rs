//! What an operator does with scopes: `get`, `list`, `revoke`.

use epoch_client::Client;
use epoch_core::{Epoch, Reason};
use epoch_proto::v1;

use crate::args::{Get, List, Revoke};
use crate::exit::Failure;
use crate::output::{Output, or_dash, pairs, rows};
use crate::times;

/// The most rows a node returns in one page.
const PAGE_ROWS_MAX: u32 = 1_000;

pub(crate) async fn get(client: &Client, output: Output, command: Get) -> Result<(), Failure> {
    let request = v1::GetRequest {
        scope: command.scope.as_str().to_owned(),
        ..v1::GetRequest::default()
    };
    let state = client.get(request).await?;
    output.result(&state, || {
        if !state.held {
            return format!("{} is free", state.scope);
        }
        pairs([
            ("scope", state.scope.clone()),
            ("epoch", or_dash(state.epoch.as_ref())),
            ("granted", granted(&state)),
            ("holder", or_dash(state.holder.as_ref())),
            ("session", or_dash(state.session.as_ref())),
            (
                "position",
                or_dash(state.position.as_ref().map(position).as_ref()),
            ),
        ])
    })
}

pub(crate) async fn list(client: &Client, output: Output, command: List) -> Result<(), Failure> {
    let mut all = v1::ListResponse {
        scopes: Vec::new(),
        next_page: command.page,
        ..v1::ListResponse::default()
    };
    let mut left = command.limit;
    loop {
        let request = v1::ListRequest {
            prefix: command.prefix.clone(),
            limit: left.unwrap_or(PAGE_ROWS_MAX).min(PAGE_ROWS_MAX),
            page: all.next_page.take(),
            ..v1::ListRequest::default()
        };
        let page = client.list(request).await?;
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
                granted(state),
            ]
        };
        rows(
            ["SCOPE", "EPOCH", "HOLDER", "GRANTED"],
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
        Some(epoch) => epoch.get(),
        None => {
            let state = client
                .get(v1::GetRequest {
                    scope: scope.clone(),
                    ..v1::GetRequest::default()
                })
                .await?;
            let free = || {
                let message = format!("{scope} is free: there is no grant to revoke");
                let failure = Failure::local(message, "nothing needs to be done");
                Failure {
                    reason: Reason::NotFound.to_string(),
                    ..failure
                }
            };
            state.epoch.filter(|_| state.held).ok_or_else(free)?
        }
    };
    let answer = client
        .revoke(v1::RevokeRequest {
            scope,
            epoch: Some(epoch),
        })
        .await;
    let answer = answer.map_err(|error| {
        if error.outcome_unknown() {
            output.note("an attempt may have taken effect: look with `epochctl get`");
        }
        Failure::from(error)
    })?;
    output.result(&answer, || {
        pairs([
            ("scope", answer.scope.clone()),
            ("revoked", epoch.to_string()),
            ("burnt", answer.epoch.to_string()),
            ("certificate", answer.certificate.clone()),
        ])
    })
}

/// When the current grant was made.
fn granted(state: &v1::ScopeState) -> String {
    match state.epoch.map(Epoch::new) {
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
