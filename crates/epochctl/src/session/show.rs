//! What sessions hold and wait for: `session get`, `session list`.

use epoch_client::Client;
use epoch_core::SessionId;
use epoch_proto::v1;

use crate::args::SessionList;
use crate::exit::Failure;
use crate::output::{Output, pairs, rows};
use crate::scope::{PAGE_ROWS_MAX, granted};
use crate::times;

/// All pages of it, as one answer.
pub(super) async fn get(client: &Client, output: Output, id: &SessionId) -> Result<(), Failure> {
    let mut request = v1::GetSessionRequest {
        session_id: id.to_string(),
        limit: PAGE_ROWS_MAX,
        page: None,
    };
    let mut state = client.get_session(request.clone()).await?;
    while let Some(page) = state.next_page.take() {
        request.page = Some(page);
        let more = client.get_session(request.clone()).await?;
        // A page without rows would be asked for without end.
        if more.grants.is_empty() && more.waits.is_empty() {
            break;
        }
        state.grants.extend(more.grants);
        state.waits.extend(more.waits);
        state.next_page = more.next_page;
    }
    output.result(&state, || shown(&state))
}

fn shown(state: &v1::SessionState) -> String {
    let mut parts = vec![pairs([
        ("session hash", state.session.clone()),
        ("holder", state.holder.clone()),
        ("ttl", times::duration(state.ttl.as_ref())),
        ("left", times::duration(state.left.as_ref())),
        ("stall limit", times::duration(state.stall_limit.as_ref())),
    ])];
    if !state.grants.is_empty() {
        let row = |grant: &v1::SessionGrant| {
            [
                grant.scope.clone(),
                grant.epoch.to_string(),
                granted(Some(grant.epoch)),
                grant.metadata.clone(),
            ]
        };
        parts.push(rows(
            ["SCOPE", "EPOCH", "GRANTED", "METADATA"],
            state.grants.iter().map(row),
        ));
    }
    if !state.waits.is_empty() {
        let row = |wait: &v1::SessionWait| {
            [
                wait.scope.clone(),
                wait.request_id.to_string(),
                wait.ahead.to_string(),
            ]
        };
        parts.push(rows(
            ["WAITS FOR", "REQUEST ID", "AHEAD"],
            state.waits.iter().map(row),
        ));
    }
    parts.join("\n\n")
}

pub(super) async fn list(
    client: &Client,
    output: Output,
    command: SessionList,
) -> Result<(), Failure> {
    let mut all = v1::ListSessionsResponse {
        sessions: Vec::new(),
        next_page: command.page,
    };
    let holder = command.holder.map(|holder| holder.as_str().to_owned());
    let holder = holder.unwrap_or_default();
    let mut left = command.limit;
    loop {
        let request = v1::ListSessionsRequest {
            holder: holder.clone(),
            limit: left.unwrap_or(PAGE_ROWS_MAX).min(PAGE_ROWS_MAX),
            page: all.next_page.take(),
        };
        let page = client.list_sessions(request).await?;
        let rows = u32::try_from(page.sessions.len()).unwrap_or(u32::MAX);
        left = left.map(|left| left.saturating_sub(rows));
        all.sessions.extend(page.sessions);
        all.next_page = page.next_page;
        // A page without rows would be asked for without end.
        if all.next_page.is_none() || left == Some(0) || rows == 0 {
            break;
        }
    }
    output.result(&all, || {
        let row = |session: &v1::SessionSummary| {
            [
                session.session.clone(),
                session.holder.clone(),
                times::duration(session.ttl.as_ref()),
                times::duration(session.left.as_ref()),
                session.grants.to_string(),
                session.waits.to_string(),
            ]
        };
        rows(
            ["SESSION HASH", "HOLDER", "TTL", "LEFT", "GRANTS", "WAITS"],
            all.sessions.iter().map(row),
        )
    })?;
    if let Some(next) = &all.next_page {
        output.note(&format!("there is more: go on with --page {next}"));
    }
    Ok(())
}
