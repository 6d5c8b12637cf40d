//! What becomes of a session whose grants are others than this client believes.

use std::sync::Arc;

use epoch_core::Reason;

use crate::client::Client;
use crate::holdings;
use crate::session::{Loss, Shared};

/// Compares what the session is believed to hold with what the cluster says: what is missing there
/// is lost.
pub(crate) async fn judge(client: Client, shared: Arc<Shared>) {
    let believed = shared.registry().believed();
    let listed = tokio::select! {
        biased;
        () = shared.cancelled() => return,
        listed = holdings::list(&client, shared.id) => listed,
    };
    match listed {
        Ok((_holder, listing)) => shared.registry().listed(&believed, listing),
        Err(error) => {
            tracing::debug!(%error, "the session's grants were not listed; asking again");
            shared.registry().not_listed();
            if error.reason() == Some(Reason::SessionExpired) {
                shared.lose(Loss::Expired);
            }
        }
    }
}
