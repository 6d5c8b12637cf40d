//! Starting the processes that wait for a scope.

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::process::Command;

use crate::agent::Agent;
use crate::binaries::binary;
use crate::cluster::text;
use crate::json_client::JsonClient;
use crate::wait;

/// Longer than any test lasts.
const WAIT_SECONDS: u64 = 600;

/// Starts a process that opens a session and waits for a scope.
///
/// # Errors
/// It does not start.
pub async fn start(endpoints: &str, holder: &str, scope: &str, ttl_seconds: u64) -> Result<Agent> {
    let mut command = Command::new(binary("waiter")?);
    command
        .args(["--holder", holder, "--scope", scope])
        .args(["--endpoints", endpoints])
        .args(["--ttl-seconds", &ttl_seconds.to_string()])
        .args(["--wait-seconds", &WAIT_SECONDS.to_string()]);
    let mut waiter = Agent::run(holder, command)?;
    waiter.step("opened").await?;
    Ok(waiter)
}

/// Who waits for a scope, in order.
///
/// # Errors
/// Refused, or no answer came.
pub async fn queue(client: &JsonClient, scope: &str) -> Result<Vec<String>> {
    let query = [("scope", scope), ("queue_limit", "100")];
    let state = client.get("/v1/scope", &query).await?.ok()?;
    let queue = state["queue"].as_array().context("no queue")?;
    let holder = |wait: &Value| Ok(text(wait, "holder")?.to_owned());
    queue.iter().map(holder).collect()
}

/// Waits until exactly these wait for a scope, in this order.
///
/// # Errors
/// They do not in time.
pub async fn queue_is(client: &JsonClient, scope: &str, holders: &[String]) -> Result<()> {
    wait::until("the queue is as it has to be", async || {
        let queue = queue(client, scope).await?;
        anyhow::ensure!(queue == holders, "it is {queue:?}, not {holders:?}");
        Ok(())
    })
    .await
}
