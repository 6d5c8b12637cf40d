//! The background task of a session.

use std::sync::Arc;
use std::time::Duration;

use epoch_core::Reason;
use epoch_proto::v1::session_service_client::SessionServiceClient;
use epoch_proto::v1::{KeepAliveRequest, KeepAliveResponse};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::boottime;
use crate::client::{Client, ended, refusal_of};
use crate::pool::Node;
use crate::retry::pauses;
use crate::session::{Loss, Shared};

/// Keeps a session alive until it is lost.
pub(crate) async fn keep(client: Client, shared: Arc<Shared>) {
    tokio::select! {
        () = shared.cancelled() => {}
        () = lapse(&shared) => {}
        () = renew(&client, &shared) => {}
    }
}

/// Returns once the lease has lapsed, whatever the keepalives do.
async fn lapse(shared: &Shared) {
    while shared.current_loss().is_none() {
        boottime::sleep_until(shared.lease().ends_ms()).await;
    }
}

async fn renew(client: &Client, shared: &Shared) {
    let attempt = client.options().attempt_timeout;
    let attempt = attempt.min(Duration::from_millis(shared.lease().ttl_ms() / 3));
    let mut stream = None;
    let mut pauses = pauses();
    loop {
        // After a failure the next one is due at once: the lease has not moved.
        boottime::sleep_until(shared.lease().keepalive_ms()).await;
        let node = match &stream {
            Some(Stream { node, .. }) => Arc::clone(node),
            None => client.pool().pick(),
        };
        let sent_ms = boottime::now_ms();
        let asked = timeout(attempt, ask(client, shared, &node, &mut stream)).await;
        let status = match asked {
            Ok(Ok(())) => {
                shared.acknowledged(sent_ms);
                pauses = crate::retry::pauses();
                // Another node leads by now: a forwarded keepalive costs one more hop.
                if client.pool().pick().endpoint != node.endpoint {
                    stream = None;
                }
                continue;
            }
            Ok(Err(status)) => {
                client.judge(&node, &status);
                status
            }
            Err(_elapsed) => {
                client.pool().unanswered(&node);
                Status::deadline_exceeded("the node did not answer in time")
            }
        };
        if epoch_proto::reason_of(&status) == Some(Reason::SessionExpired) {
            shared.lose(Loss::Expired);
            return;
        }
        tracing::debug!(node = %node.endpoint, error = status.message(), "keepalive failed");
        // An answer still under way belongs to a request given up: it goes with its stream.
        stream = None;
        tokio::time::sleep(pauses.next().unwrap_or_default()).await;
    }
}

/// A stream of keepalives to one node.
struct Stream {
    node: Arc<Node>,
    requests: mpsc::Sender<KeepAliveRequest>,
    answers: Streaming<KeepAliveResponse>,
}

/// Sends one keepalive and waits for its acknowledgement, over a new stream if there is none.
async fn ask(
    client: &Client,
    shared: &Shared,
    node: &Arc<Node>,
    stream: &mut Option<Stream>,
) -> Result<(), Status> {
    let session_id = shared.id.to_string();
    let request = KeepAliveRequest {
        session_id: session_id.clone(),
        ..KeepAliveRequest::default()
    };
    let open = match stream {
        Some(open) => {
            open.requests
                .send(request)
                .await
                .map_err(|_closed| ended())?;
            open
        }
        None => {
            let (requests, received) = mpsc::channel(1);
            requests.send(request).await.map_err(|_closed| ended())?;
            let response = SessionServiceClient::new(node.channel.clone())
                .keep_alive(ReceiverStream::new(received))
                .await?;
            client.pool().answered(node, response.metadata());
            let answers = response.into_inner();
            stream.insert(Stream {
                node: Arc::clone(node),
                requests,
                answers,
            })
        }
    };
    let answer = open.answers.message().await?.ok_or_else(ended)?;
    if answer.session_id != session_id {
        return Err(Status::internal("the node answered for another session"));
    }
    refusal_of(&answer).map_or(Ok(()), Err)
}
