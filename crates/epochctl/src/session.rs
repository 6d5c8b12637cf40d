//! `session open`, `session keepalive`, `session close`.

use std::time::Duration;

use epoch_client::{Client, ErrorKind};
use epoch_core::{OpenId, SessionId};
use epoch_proto::{duration, v1};

use crate::args::SessionCommand;
use crate::exit::Failure;
use crate::output::{Output, pairs};

pub(crate) async fn session(
    client: &Client,
    output: Output,
    command: SessionCommand,
) -> Result<(), Failure> {
    match command {
        SessionCommand::Open {
            holder,
            ttl,
            open_id,
        } => {
            let request = v1::OpenRequest {
                holder: holder.as_str().to_owned(),
                ttl: Some(duration::from_ms(
                    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
                )),
                open_id: None,
                ..v1::OpenRequest::default()
            };
            open(client, output, request, open_id).await
        }
        SessionCommand::Keepalive { id, every } => keepalive(client, output, &id, every).await,
        SessionCommand::Close { id } => {
            let request = v1::CloseRequest {
                session_id: id.to_string(),
            };
            let closed = client.close(request).await?;
            output.result(&closed, || match closed.closed {
                true => "closed".to_owned(),
                false => "there was no such session any more".to_owned(),
            })
        }
    }
}

async fn open(
    client: &Client,
    output: Output,
    mut request: v1::OpenRequest,
    open_id: Option<OpenId>,
) -> Result<(), Failure> {
    let open_id = open_id.map_or_else(|| uuid::Uuid::new_v4().to_string(), |id| id.to_string());
    request.open_id = Some(open_id.clone());
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
            ("shown as", session.session.clone()),
            ("holder", session.holder.clone()),
            ("ttl", ttl(session.ttl.as_ref().and_then(duration::to_ms))),
        ])
    })
}

fn ttl(ms: Option<u64>) -> String {
    let shown = |ms| humantime::format_duration(Duration::from_millis(ms)).to_string();
    ms.map_or_else(|| "-".to_owned(), shown)
}

async fn keepalive(
    client: &Client,
    output: Output,
    id: &SessionId,
    every: Option<Duration>,
) -> Result<(), Failure> {
    loop {
        let request = v1::KeepAliveRequest {
            session_id: id.to_string(),
            ..v1::KeepAliveRequest::default()
        };
        match client.keepalive(request).await {
            Ok(answer) => output.result(&answer, || {
                format!(
                    "alive for {}",
                    ttl(answer.ttl.as_ref().and_then(duration::to_ms))
                )
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
