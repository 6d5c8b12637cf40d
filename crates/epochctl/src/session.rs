//! `session open`, `keepalive`, `get`, `list`, `close`.

mod show;

use std::time::Duration;

use epoch_client::{Client, ErrorKind};
use epoch_core::SessionId;
use epoch_proto::v1;

use crate::args::{SessionCommand, SessionOpen};
use crate::exit::Failure;
use crate::output::{Output, or_dash, pairs};
use crate::times;

pub(crate) async fn session(
    client: &Client,
    output: Output,
    command: SessionCommand,
) -> Result<(), Failure> {
    match command {
        SessionCommand::Open(command) => open(client, output, command).await,
        SessionCommand::Keepalive {
            session,
            every,
            progress,
        } => keepalive(client, output, &session.id()?, every, progress).await,
        SessionCommand::Get { session } => show::get(client, output, &session.id()?).await,
        SessionCommand::List(command) => show::list(client, output, command).await,
        SessionCommand::Close { session } => {
            let request = v1::CloseRequest {
                session_id: session.id()?.to_string(),
            };
            let closed = client.close(request).await?;
            output.result(&closed, || match closed.closed {
                true => "closed".to_owned(),
                false => "there was no such session any more".to_owned(),
            })
        }
    }
}

async fn open(client: &Client, output: Output, command: SessionOpen) -> Result<(), Failure> {
    // Made here, so that it can be told when the outcome is unknown.
    let open_id = command
        .open_id
        .map_or_else(|| uuid::Uuid::new_v4().to_string(), |id| id.to_string());
    let request = v1::OpenRequest {
        holder: command.holder.as_str().to_owned(),
        ttl: Some(times::of_api(command.ttl)),
        open_id: Some(open_id.clone()),
        stall_limit: command.stall_limit.map(times::of_api),
        holder_key: command.holder_key.map(|key| key.to_string()),
    };
    let session = client.open(request).await.map_err(|error| {
        if error.outcome_unknown() {
            output.note(&format!(
                "the outcome is unknown; ask again with --open-id {open_id}"
            ));
        }
        Failure::from(error)
    })?;
    output.result(&session, || {
        pairs([
            ("session id", session.session_id.clone()),
            ("session hash", session.session.clone()),
            ("holder", session.holder.clone()),
            ("ttl", times::duration(session.ttl.as_ref())),
            ("stall limit", times::duration(session.stall_limit.as_ref())),
            ("holder key", or_dash(session.holder_key.as_ref())),
        ])
    })
}

async fn keepalive(
    client: &Client,
    output: Output,
    id: &SessionId,
    every: Option<Duration>,
    progress: Option<u64>,
) -> Result<(), Failure> {
    loop {
        let request = v1::KeepAliveRequest {
            session_id: id.to_string(),
            progress,
            ..v1::KeepAliveRequest::default()
        };
        match client.keepalive(request).await {
            Ok(answer) => output.result(&answer, || {
                format!("alive for {}", times::duration(answer.ttl.as_ref()))
            })?,
            // The cluster may be back before the session's TTL ends.
            Err(error) if every.is_some() && matches!(error.kind(), ErrorKind::Unavailable(_)) => {
                output.note(&error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
        match every {
            Some(every) => tokio::time::sleep(every).await,
            None => return Ok(()),
        }
    }
}
