//! One request id is one epoch: when the answer was lost after the grant, and when thousands of
//! retries came while there was no quorum.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use epoch_client::{Client, Endpoint, Options};
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::events::Tail;
use epoch_tests::json_client::JsonClient;
use epoch_tests::proxy::{Pass, Proxies};
use epoch_tests::setting::setting;
use epoch_tests::{clock, scale, wait};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

const SCOPE: &str = "retries/scope";

async fn behind_proxies() -> Result<(Cluster, Proxies)> {
    let mut cluster = Cluster::init()?;
    let proxies = Proxies::install(&mut cluster).await?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    Ok((cluster, proxies))
}

/// Waits until the cluster has made the grant whose answer is held back; its epoch.
async fn committed<T>(client: &JsonClient, call: &JoinHandle<T>) -> Result<u64> {
    let epoch = wait::until("the scope is held", async || {
        number(&client.scope(SCOPE).await?, "epoch")
    });
    let epoch = epoch.await?;
    ensure!(!call.is_finished(), "the call had an answer");
    Ok(epoch)
}

/// Gives the grant back, has another session take the scope, and checks that those two grants are
/// all that there have been since `tail` began.
async fn one_epoch_was_spent(
    client: &JsonClient,
    tail: &mut Tail,
    session: &str,
    epoch: u64,
) -> Result<()> {
    client.release(SCOPE, session, epoch).await?.ok()?;
    let other = client.open("other", "10m").await?;
    let next = client.acquire(SCOPE, &other, 1).await?.ok()?;
    let next = number(&next, "epoch")?;
    ensure!(next > epoch, "{next} was granted after {epoch}");
    let events = tail.until(|event| event.epoch == next).await?;
    let told: Vec<(&str, u64)> = events
        .iter()
        .map(|event| (event.kind.as_str(), event.epoch))
        .collect();
    ensure!(
        told == [("granted", epoch), ("released", epoch), ("granted", next)],
        "the watch tells of {told:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_the_grant_is_given_again_by_another_node_over_json() -> Result<()> {
    let (mut cluster, proxies) = behind_proxies().await?;
    let leader = cluster.leader().await?;
    let direct = cluster.client(leader)?.clone();
    // Once the leader grants, once a follower has passed the call on.
    for first in cluster.ids() {
        let mut tail = Tail::of(&cluster, SCOPE).await?;
        let session = direct.open("worker", "10m").await?;
        let proxied = JsonClient::new(proxies.address(first)?)?;
        proxies.pass(Pass::Requests);
        let asking = session.clone();
        let call = tokio::spawn(async move { proxied.acquire(SCOPE, &asking, 1).await });
        let committed = committed(&direct, &call).await?;
        proxies.cut();
        proxies.pass(Pass::All);
        ensure!(
            call.await?.is_err(),
            "an answer came over a connection that was cut"
        );

        for other in cluster.all_but(first) {
            let proxied = JsonClient::new(proxies.address(other)?)?;
            let again = proxied.acquire(SCOPE, &session, 1).await?.ok()?;
            let again = number(&again, "epoch")?;
            ensure!(
                again == committed,
                "{committed} was granted, and {again} given again"
            );
        }
        one_epoch_was_spent(&direct, &mut tail, &session, committed).await?;
        // The next round begins with a free scope.
        let held = number(&direct.scope(SCOPE).await?, "epoch")?;
        let revoke = json!({ "scope": SCOPE, "epoch": held });
        direct.post("/v1/revoke", &revoke).await?.ok()?;
    }
    cluster.unharmed()
}

/// Of which nodes the number has risen.
fn risen(then: &BTreeMap<u64, u64>, now: &BTreeMap<u64, u64>) -> Vec<u64> {
    let risen = now
        .iter()
        .filter(|(id, number)| then.get(id) < Some(number));
    risen.map(|(id, _)| *id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_the_grant_is_given_again_by_another_node_to_the_client() -> Result<()>
{
    let (mut cluster, proxies) = behind_proxies().await?;
    let direct = cluster.client(cluster.leader().await?)?.clone();
    let mut tail = Tail::of(&cluster, SCOPE).await?;
    let endpoints = proxies.endpoints();
    let endpoints = endpoints.split(',').map(str::parse::<Endpoint>);
    let client = Client::connect(
        endpoints.collect::<Result<Vec<_>, _>>()?,
        Options::default(),
    )?;
    let session = scale::open(&client, "worker").await?;

    let before = proxies.requested();
    proxies.pass(Pass::Requests);
    let asking = session.clone();
    let call = tokio::spawn(async move { scale::acquire(&client, SCOPE, &asking, 1).await });
    let committed = committed(&direct, &call).await?;
    let asked = proxies.requested();
    proxies.cut();
    proxies.pass(Pass::All);
    let epoch = call.await??;
    ensure!(
        epoch == committed,
        "{committed} was granted, and {epoch} given again"
    );

    let after = proxies.requested();
    let (first, second) = (risen(&before, &asked), risen(&asked, &after));
    ensure!(
        second.iter().any(|id| !first.contains(id)),
        "nodes {first:?} were asked first, and then {second:?}"
    );
    one_epoch_was_spent(&direct, &mut tail, &session, epoch).await?;
    cluster.unharmed()
}

/// Retries of one acquire by many connections at once.
#[derive(Debug)]
struct Retries {
    /// Not sent yet.
    left: AtomicU64,
    /// Answers by reason; connections that broke among them.
    refused: Mutex<BTreeMap<String, u64>>,
}

impl Retries {
    /// Sends retries until none is left to send.
    async fn send(&self, client: &JsonClient, session: &str) -> Result<()> {
        let one_less = |left: u64| left.checked_sub(1);
        while self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
        {
            let reason = match client.acquire(SCOPE, session, 1).await {
                Ok(answer) => answer.reason().unwrap_or("none").to_owned(),
                Err(_broken) => "no answer".to_owned(),
            };
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            *refused.entry(reason).or_default() += 1;
        }
        Ok(())
    }
}

/// Retries, in all, and over how many connections at once.
const RETRIES: u64 = 10_000;
const CONNECTIONS: usize = 32;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_retries_without_a_quorum_are_at_most_one_epoch() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let mut tail = Tail::of(&cluster, SCOPE).await?;
    let client = cluster.client(leader)?.clone();
    let session = client.open("worker", "1h").await?;
    let before = grants_total(&cluster, leader).await?;
    for follower in cluster.all_but(leader) {
        cluster.kill(follower)?;
    }

    let retries = Arc::new(Retries {
        left: AtomicU64::new(setting("EPOCH_RETRIES", RETRIES)?),
        refused: Mutex::default(),
    });
    let begun = clock::boot();
    let mut sending = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let retries = Arc::clone(&retries);
        // A pool of its own each.
        let client = JsonClient::new(client.url().trim_start_matches("http://"))?.impatient();
        let session = session.clone();
        sending.spawn(async move { retries.send(&client, &session).await });
    }
    while let Some(sent) = sending.join_next().await {
        sent??;
    }
    let refused = retries
        .refused
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    eprintln!(
        "refused in {:?}: {refused:?}",
        clock::boot().saturating_sub(begun)
    );
    ensure!(!refused.contains_key("none"), "granted without a quorum");

    // More of them, which go on until there is a quorum again.
    let mut granted = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, session) = (client.clone(), session.clone());
        granted.spawn(async move { client.acquire(SCOPE, &session, 1).await?.ok() });
    }
    for follower in cluster.all_but(leader) {
        cluster.start_node(follower)?;
    }
    cluster.all_ready().await?;
    let mut epochs = BTreeSet::new();
    while let Some(grant) = granted.join_next().await {
        epochs.insert(number(&grant??, "epoch")?);
    }
    for client in cluster.clients() {
        let grant = client.acquire(SCOPE, &session, 1).await?.ok()?;
        epochs.insert(number(&grant, "epoch")?);
    }
    ensure!(
        epochs.len() == 1,
        "one request id has the epochs {epochs:?}"
    );
    let epoch = epochs.pop_first().context("no epoch")?;
    let after = grants_total(&cluster, leader).await?;
    ensure!(
        after == before + 1,
        "node {leader} has counted {before} grants, then {after}"
    );
    one_epoch_was_spent(&client, &mut tail, &session, epoch).await?;
    cluster.unharmed()
}

/// How many grants a node has applied since it started.
async fn grants_total(cluster: &Cluster, id: u64) -> Result<u64> {
    let metrics = cluster.admin(id)?.get("/metrics", &[]).await?.ok_text()?;
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with("epochd_grants_total{"));
    let value = line.and_then(|line| line.rsplit(' ').next());
    Ok(value.context("no epochd_grants_total")?.parse()?)
}
