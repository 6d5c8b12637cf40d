//! Acquires and releases from many clients while the leader is killed and restarted again and
//! again: epochs stay unique and rising, a request has one epoch, and every node comes back.

#![expect(clippy::print_stderr, reason = "victims and times have to be seen")]

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::load::{Load, Running};
use epoch_tests::seed;
use rand::RngExt as _;
use rand::rngs::StdRng;

/// How long, unless `EPOCH_FAILOVER_SECONDS` says otherwise.
const SECONDS: u64 = 60;
/// Between two kills, on average.
const KILL_EVERY: Duration = Duration::from_secs(5);
/// How far a kill's time may be drawn from that.
const SPREAD_MS: u64 = 500;

#[tokio::test(flavor = "multi_thread")]
async fn leaders_are_killed_under_load_and_no_promise_breaks() -> Result<()> {
    let seconds = match env::var("EPOCH_FAILOVER_SECONDS") {
        Ok(text) => text
            .parse()
            .context("EPOCH_FAILOVER_SECONDS must be a number")?,
        Err(_unset) => SECONDS,
    };
    let seed = seed::seed()?;
    let mut cluster = Cluster::start().await?;
    storm(&mut cluster, seed, Duration::from_secs(seconds)).await?;
    states_agree(&mut cluster).await?;
    cluster.unharmed()?;
    cluster.stop_and_compare().await?;
    Ok(())
}

async fn storm(cluster: &mut Cluster, seed: u64, duration: Duration) -> Result<()> {
    let load = Load {
        clients: 64,
        scopes: 1_000,
        seed,
    };
    let running = Running::start(cluster, load).await?;
    let mut random = seed::source(seed, u64::MAX);
    let mut elapsed = Duration::ZERO;
    let mut kills = 0_usize;
    loop {
        let pause = next_pause(&mut random);
        if elapsed + pause > duration {
            tokio::time::sleep(duration.saturating_sub(elapsed)).await;
            break;
        }
        tokio::time::sleep(pause).await;
        elapsed += pause;
        strike(cluster, &mut random, elapsed).await?;
        kills += 1;
    }
    let history = running.stop().await?;
    history.check()?;
    eprintln!("{kills} kills, {}", history.summary());
    ensure!(
        kills > 0,
        "nothing was killed: run longer than {KILL_EVERY:?}"
    );
    ensure!(
        history.grants() > 100 * kills,
        "hardly any grants: {}",
        history.summary()
    );

    cluster.all_ready().await?;
    cluster.agreed().await?;
    cluster.unharmed()
}

fn next_pause(random: &mut StdRng) -> Duration {
    let spread = Duration::from_millis(random.random_range(0..=2 * SPREAD_MS));
    KILL_EVERY - Duration::from_millis(SPREAD_MS) + spread
}

/// Kills the leader, at times a follower with it, so that a quorum is lost until they are back.
async fn strike(cluster: &mut Cluster, random: &mut StdRng, at: Duration) -> Result<()> {
    let leader = cluster.leader().await?;
    let mut victims = vec![leader];
    let followers: Vec<u64> = cluster
        .running()
        .into_iter()
        .filter(|id| *id != leader)
        .collect();
    let with_follower = random.random_ratio(1, 4);
    let which = random.random_range(0..followers.len().max(1));
    if with_follower && let Some(follower) = followers.get(which) {
        victims.push(*follower);
    }
    eprintln!("at {at:?}: kill -9 of {victims:?}, node {leader} leads");
    for id in &victims {
        cluster.kill(*id)?;
    }
    // Back at once it may win the next election itself; later, another node has.
    if random.random_bool(0.5) && victims.len() == 1 {
        cluster.leader().await?;
    }
    for id in &victims {
        cluster.start_node(*id)?;
    }
    Ok(())
}

/// Every node, made leader in turn by killing the one before, tells the same state.
async fn states_agree(cluster: &mut Cluster) -> Result<()> {
    // Some grants to compare: the clients have given all of theirs back.
    let leader = cluster.leader().await?;
    let client = cluster.client(leader)?;
    let session = client.open("keeper", "10m").await?;
    for number in 0..20 {
        client
            .acquire(&format!("kept/{number}"), &session, number + 1)
            .await?
            .ok()?;
    }
    let mut told: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    for _ in 0..20 {
        let leader = cluster.leader().await?;
        let rows = cluster.client(leader)?.scopes("kept/", 7).await?;
        let rows = rows
            .iter()
            .map(|row| Ok((text(row, "scope")?.to_owned(), number(row, "epoch")?)));
        told.insert(leader, rows.collect::<Result<_>>()?);
        if told.len() == cluster.ids().len() {
            break;
        }
        cluster.replace_leader().await?;
    }
    let first = told.values().next().context("no node told its state")?;
    ensure!(first.len() == 20, "{} of 20 grants are left", first.len());
    ensure!(
        told.values().all(|rows| rows == first),
        "nodes tell different states: {told:?}"
    );
    ensure!(told.len() > 1, "only one node ever led");
    Ok(())
}
