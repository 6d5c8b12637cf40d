//! Fresh certificates, on demand and in time.

use std::sync::Arc;

use crate::client::Client;
use crate::error::Error;
use crate::grant::Held;
use crate::session::Shared;

/// Asks for a fresh certificate of a grant.
pub(crate) async fn certify(
    client: &Client,
    shared: &Shared,
    held: &Arc<Held>,
) -> Result<Arc<str>, Error> {
    let asked_ms = shared.clock().now_ms();
    let request = held.certify_request(shared.id.to_string());
    match client.certify(request).await {
        Ok(response) => {
            let fresh: Arc<str> = response.certificate.into();
            held.renew(Arc::clone(&fresh), asked_ms);
            plan(shared, held);
            Ok(fresh)
        }
        Err(error) => {
            shared.refused(&held.key(), &error);
            Err(error)
        }
    }
}

/// Plans the refresh of a grant's certificate, if its life is known.
pub(crate) fn plan(shared: &Shared, held: &Held) {
    if let Some(life) = held.certificate_life() {
        plan_at(shared, held, life.refresh_ms(held.epoch().get()));
    }
}

fn plan_at(shared: &Shared, held: &Held, at_ms: u64) {
    // Apart, so that the lock is free by then.
    let first = shared.registry().plan_refresh(&held.key(), at_ms);
    if first {
        shared.wake();
    }
}

/// Refreshes certificates that are due, one after another: their number is as large as the
/// session's.
pub(crate) async fn refresh(client: Client, shared: Arc<Shared>, due: Vec<Arc<Held>>) {
    for held in due {
        let refreshed = tokio::select! {
            biased;
            () = shared.cancelled() => return,
            refreshed = certify(&client, &shared, &held) => refreshed,
        };
        if let Err(error) = refreshed
            && !held.is_lost()
            && let Some(life) = held.certificate_life()
        {
            tracing::debug!(%error, "a certificate was not refreshed; asking again later");
            plan_at(&shared, &held, life.retry_ms(shared.clock().now_ms()));
        }
    }
}
