//! What is left after processes end: leadership only by a won election, and every grant.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::json_client::JsonClient;
use epoch_tests::{load, wait};
use serde_json::Value;

/// Takes `count` scopes in a session that outlives the test; scope to epoch.
async fn take(client: &JsonClient, prefix: &str, count: u64) -> Result<BTreeMap<String, u64>> {
    let session = client.open("keeper", "1h").await?;
    let mut held = BTreeMap::new();
    for request_id in 1..=count {
        let scope = format!("{prefix}/{request_id}");
        let grant = client.acquire(&scope, &session, request_id).await?.ok()?;
        held.insert(scope, number(&grant, "epoch")?);
    }
    Ok(held)
}

async fn held(client: &JsonClient, prefix: &str) -> Result<BTreeMap<String, u64>> {
    let rows = client.scopes(prefix, 1_000).await?;
    rows.iter().map(|row| Ok((text(row, "scope")?.to_owned(), number(row, "epoch")?))).collect()
}

/// The terms in which a node began to lead, over all its lives, as its log says.
fn terms_led(cluster: &Cluster, id: u64) -> Result<Vec<u64>> {
    let log = cluster.log(id)?;
    let leading = log.iter().filter(|line| line.message() == "leading");
    leading.map(|line| line.number("term").context("a line \"leading\" without a term")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_leader_leads_only_after_a_new_election() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let mut terms = Vec::new();
    for _ in 0..4 {
        let leader = cluster.leader().await?;
        let status = cluster.client(leader)?.cluster().await?;
        terms.push(number(&status, "term")?);
        // All at once: nobody else is there to take over, and the old vote is on every disk.
        for id in cluster.ids() {
            cluster.kill(id)?;
        }
        for id in cluster.ids() {
            cluster.start_node(id)?;
        }
        cluster.all_ready().await?;
    }
    let leader = cluster.leader().await?;
    terms.push(number(&cluster.client(leader)?.cluster().await?, "term")?);
    ensure!(terms.is_sorted_by(|a, b| a < b), "a leadership outlived a restart: {terms:?}");

    let mut led = Vec::new();
    for id in cluster.ids() {
        let own = terms_led(&cluster, id)?;
        ensure!(own.is_sorted_by(|a, b| a < b), "node {id} led a term again: {own:?}");
        led.extend(own);
    }
    led.sort_unstable();
    ensure!(led.is_sorted_by(|a, b| a < b), "a term was led by two nodes: {led:?}");
    ensure!(led.len() >= terms.len(), "the logs name {led:?}, the nodes said {terms:?}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_alone_comes_back_as_a_follower() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let old = cluster.leader().await?;
    let before = number(&cluster.client(old)?.cluster().await?, "term")?;
    cluster.kill(old)?;
    let new = cluster.leader().await?;
    ensure!(new != old, "a dead node leads");
    cluster.start_node(old)?;
    cluster.all_ready().await?;
    cluster.agreed().await?;
    ensure!(cluster.leader().await? == new, "the node that came back took the leadership");
    let after = terms_led(&cluster, old)?;
    ensure!(after.iter().all(|term| *term <= before), "it led again: {after:?}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_outlive_the_end_of_all_processes_at_once() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let client = cluster.client(cluster.leader().await?)?.clone();
    let taken = take(&client, "kept", 50).await?;
    let session = client.open("short", "1h").await?;
    let grant = client.acquire("again", &session, 7).await?.ok()?;
    for id in cluster.ids() {
        cluster.kill(id)?;
    }
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    let client = cluster.client(cluster.leader().await?)?;
    ensure!(held(client, "kept/").await? == taken, "grants were lost or changed");

    let same = client.acquire("again", &session, 7).await?.ok()?;
    assert_eq!(same["epoch"], grant["epoch"], "the same request got another epoch");
    assert_eq!(same["position"], grant["position"]);
    let other = client.open("other", "1h").await?;
    let refused = client.acquire("again", &other, 1).await?;
    assert_eq!((refused.status, refused.reason()), (409, Some("SCOPE_HELD")));
    let epoch = number(&grant, "epoch")?;
    client.release("again", &session, epoch).await?.ok()?;
    let next = client.acquire("again", &other, 2).await?.ok()?;
    ensure!(number(&next, "epoch")? > epoch, "the next epoch is not higher");
    // A certificate signed before still verifies: keys outlive processes.
    let verifier = load::verifier(&cluster).await?;
    verifier.verify(text(&grant, "certificate")?, epoch_tests::clock::unix_ms())?;
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lags_behind_the_log_is_caught_up_by_a_snapshot() -> Result<()> {
    // So small that a few hundred grants fill the log several times.
    let mut cluster = Cluster::start_with(&["--snapshot-log-bytes", "16384"]).await?;
    let leader = cluster.leader().await?;
    let lagging = cluster.ids().into_iter().find(|id| *id != leader).context("no follower")?;
    let client = cluster.client(leader)?.clone();
    let mut taken = take(&client, "before", 20).await?;
    cluster.kill(lagging)?;
    let behind = number(&client.cluster().await?, "applied")?;
    taken.extend(take(&client, "meanwhile", 600).await?);
    wait::until("the log is purged past what the dead node has", async || {
        let purged = gauge(&cluster, leader, "epochd_log_purged_index").await?;
        ensure!(purged > behind, "the log is purged to {purged}, the node stopped at {behind}");
        Ok(())
    })
    .await?;

    cluster.start_node(lagging)?;
    cluster.all_ready().await?;
    cluster.agreed().await?;
    // It has the state, not only the index: make it lead, and ask it.
    for _ in 0..20 {
        let leader = cluster.leader().await?;
        if leader == lagging {
            break;
        }
        cluster.kill(leader)?;
        cluster.start_node(leader)?;
        cluster.all_ready().await?;
    }
    ensure!(cluster.leader().await? == lagging, "the node that was caught up never led");
    let client = cluster.client(lagging)?;
    let mut found = held(client, "before/").await?;
    found.extend(held(client, "meanwhile/").await?);
    ensure!(found == taken, "the snapshot lost {} of {}", taken.len() - found.len(), taken.len());
    cluster.unharmed()
}

async fn gauge(cluster: &Cluster, id: u64, name: &str) -> Result<u64> {
    let metrics = cluster.admin(id)?.get("/metrics", &[]).await?.text;
    let line = metrics.lines().find(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
    });
    let value = line.and_then(|line| line.rsplit(' ').next()).context("no such gauge")?;
    Ok(value.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_quorum_answers_unavailable_and_recovers() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    let client = cluster.client(leader)?.clone();
    let session = client.open("alone", "1h").await?;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    for id in &others {
        cluster.kill(*id)?;
    }
    let refused = client.acquire("alone", &session, 1).await?;
    ensure!(refused.status == 503, "a minority answered: {refused:?}");
    let reason = refused.reason().context("no reason")?;
    ensure!(["NO_QUORUM", "NO_LEADER"].contains(&reason), "another reason: {refused:?}");
    let read = client.get("/v1/scope", &[("scope", "alone")]).await?;
    ensure!(read.status == 503, "a minority answered a read: {read:?}");
    wait::until("the node is not ready", async || {
        let ready = client.get("/readyz", &[]).await?;
        ensure!(ready.status == 503, "it says {}", ready.status);
        Ok(())
    })
    .await?;
    assert_eq!(client.get("/livez", &[]).await?.status, 200);

    for id in &others {
        cluster.start_node(*id)?;
    }
    cluster.all_ready().await?;
    let leader = cluster.leader().await?;
    let same = wait::until("the same request is granted", async || {
        cluster.client(leader)?.acquire("alone", &session, 1).await?.ok()
    });
    let epoch = number(&same.await?, "epoch")?;
    let again: Value = cluster.client(leader)?.acquire("alone", &session, 1).await?.ok()?;
    assert_eq!(number(&again, "epoch")?, epoch);
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_gives_nothing_away_when_it_goes_on() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let old = cluster.leader().await?;
    let session = cluster.client(old)?.open("holder", "5s").await?;
    let grant = cluster.client(old)?.acquire("paused", &session, 1).await?.ok()?;
    cluster.pause(old)?;
    let new = wait::until("another node leads", async || {
        for id in cluster.ids().into_iter().filter(|id| *id != old) {
            let client = cluster.client(id)?;
            let leads = client.cluster().await?["leader"] == id;
            if leads && client.get("/readyz", &[]).await?.status == 200 {
                return Ok(id);
            }
        }
        anyhow::bail!("none yet")
    })
    .await?;
    // The session lives on under the new leader while it is renewed there.
    let client = cluster.client(new)?;
    let path = format!("/v1/sessions/{session}/keepalive");
    client.post(&path, &serde_json::json!({})).await?.ok()?;
    cluster.resume(old)?;
    client.post(&path, &serde_json::json!({})).await?.ok()?;
    cluster.agreed().await?;
    let state = cluster.client(old)?.scope("paused").await?;
    assert_eq!(state["epoch"], grant["epoch"], "the pause cost the holder its grant");
    let terms = terms_led(&cluster, old)?;
    let term = number(&client.cluster().await?, "term")?;
    ensure!(terms.iter().all(|led| *led < term), "the paused leader went on leading: {terms:?}");
    cluster.unharmed()
}
