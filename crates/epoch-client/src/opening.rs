//! A session whose opening is given up does not stay for its TTL, of up to a day.

use epoch_proto::v1;

use crate::client::Client;
use crate::error::Error;

/// Opens a session. Should that be given up before there is an answer, or should there be none
/// within the deadline, the session that may have been opened is closed in the background, as far
/// as that succeeds within the time of another call. The request has an open id: asking again opens
/// the same session.
pub(crate) async fn open(client: &Client, request: v1::OpenRequest) -> Result<v1::Session, Error> {
    let mut unanswered = Unanswered {
        client,
        request: Some(request.clone()),
    };
    let opened = client.open(request).await;
    if !opened.as_ref().is_err_and(Error::outcome_unknown) {
        unanswered.request = None;
    }
    opened
}

struct Unanswered<'a> {
    client: &'a Client,
    request: Option<v1::OpenRequest>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        // Without a runtime the session is not closed, and expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move {
                if let Err(error) = undo(&client, request).await {
                    tracing::debug!(%error, "a session that nobody waits for may stay; it expires");
                }
            });
        }
    }
}

async fn undo(client: &Client, request: v1::OpenRequest) -> Result<(), Error> {
    // Only the answer tells its id.
    let session_id = client.open(request).await?.session_id;
    client.close(v1::CloseRequest { session_id }).await?;
    Ok(())
}
