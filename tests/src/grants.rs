//! Taking scopes and finding them again.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::cluster::{number, text};
use crate::json_client::JsonClient;

/// Takes `count` scopes in a session that outlives the test; scope to epoch.
///
/// # Errors
/// One is not granted.
pub async fn take(client: &JsonClient, prefix: &str, count: u64) -> Result<BTreeMap<String, u64>> {
    let session = client.open("keeper", "1h").await?;
    let mut held = BTreeMap::new();
    for request_id in 1..=count {
        let scope = format!("{prefix}/{request_id}");
        let grant = client.acquire(&scope, &session, request_id).await?.ok()?;
        held.insert(scope, number(&grant, "epoch")?);
    }
    Ok(held)
}

/// What is held, of the scopes that begin with `prefix`; scope to epoch.
///
/// # Errors
/// The node does not tell.
pub async fn held(client: &JsonClient, prefix: &str) -> Result<BTreeMap<String, u64>> {
    let rows = client.scopes(prefix, 1_000).await?;
    rows.iter()
        .map(|row| Ok((text(row, "scope")?.to_owned(), number(row, "epoch")?)))
        .collect()
}
