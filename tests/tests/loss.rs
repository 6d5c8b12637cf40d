//! Whoever is cut off from the cluster knows that it has lost before another is granted.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use epoch_proto::v1::Event;
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::events::Tail;
use epoch_tests::json_client::JsonClient;
use epoch_tests::proxy::{Pass, Proxies};
use epoch_tests::{clock, waiter};
use serde_json::json;
use tokio::task::JoinSet;

const PREFIX: &str = "loss/";
const HOLDERS: usize = 20;
const TTL_SECONDS: u64 = 3;
const SUCCESSOR: &str = "successor";

/// Waits for a scope, past the proxies; when the answer was there, since the machine started.
async fn succeed(client: JsonClient, scope: String) -> Result<(String, u64)> {
    let session = client.open(SUCCESSOR, "10m").await?;
    let acquire = json!({
        "scope": scope, "session_id": session, "request_id": 1, "wait": "1m",
    });
    client.post("/v1/acquire", &acquire).await?.ok()?;
    Ok((scope, clock::boot_ns()))
}

/// When each successor was granted its scope, in milliseconds since 1970 by the clock of the leader
/// that granted.
async fn granted(tail: &mut Tail) -> Result<BTreeMap<String, u64>> {
    let is_successors =
        |event: &Event| event.kind == "granted" && event.holder.as_deref() == Some(SUCCESSOR);
    let mut granted = BTreeMap::new();
    while granted.len() < HOLDERS {
        let mut events = tail.next().await?;
        events.retain(is_successors);
        granted.extend(events.into_iter().map(|event| (event.scope, event.time_ms)));
    }
    Ok(granted)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_holders_that_are_cut_off_know_it_before_others_are_granted() -> Result<()> {
    let mut cluster = Cluster::init()?;
    let proxies = Proxies::install(&mut cluster).await?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    let client = cluster.client(cluster.leader().await?)?;
    let mut tail = Tail::of(&cluster, PREFIX).await?;
    let mut holders = Vec::new();
    let mut successors = JoinSet::new();
    for number in 0..HOLDERS {
        let (name, scope) = (format!("holder-{number}"), format!("{PREFIX}{number:02}"));
        let endpoints = proxies.endpoints();
        let mut holder = waiter::start(&endpoints, &name, &scope, TTL_SECONDS).await?;
        holder.step("granted").await?;
        successors.spawn(succeed(client.clone(), scope.clone()));
        waiter::queue_is(client, &scope, &[SUCCESSOR.to_owned()]).await?;
        holders.push((scope, holder));
    }

    proxies.pass(Pass::Nothing);
    let cut_ns = clock::boot_ns();
    let mut answered = BTreeMap::new();
    while let Some(successor) = successors.join_next().await {
        let (scope, granted_ns) = successor??;
        answered.insert(scope, granted_ns);
    }
    let granted = granted(&mut tail).await?;
    let mut ahead_ms = Vec::new();
    for (scope, mut holder) in holders {
        let lost = holder.step("lost").await?;
        let (lost_ns, lost_ms) = (number(&lost, "lost_ns")?, number(&lost, "lost_ms")?);
        let loss = text(&lost, "loss")?;
        ensure!(
            loss.contains("no keepalive"),
            "{scope} was lost otherwise: {loss}"
        );
        ensure!(lost_ns > cut_ns, "{scope} was lost before it was cut off");
        let answered_ns = *answered.get(&scope).context("no successor")?;
        ensure!(
            lost_ns < answered_ns,
            "{scope}: lost at {lost_ns} ns, and another had it at {answered_ns} ns"
        );
        // Without the time that the answer took.
        let granted_ms = *granted.get(&scope).context("no event")?;
        ensure!(
            lost_ms <= granted_ms,
            "{scope}: lost at {lost_ms} ms, and granted to another at {granted_ms} ms"
        );
        ahead_ms.push(granted_ms - lost_ms);
    }
    ahead_ms.sort_unstable();
    eprintln!("losses were known ahead of the next grants by so many ms: {ahead_ms:?}");
    cluster.unharmed()
}
