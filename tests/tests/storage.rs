//! What was acknowledged is on the disk: all processes killed at once under load, states compared
//! between nodes, churn within bounds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use epoch_machine::{Loader, StandingRow};
use epoch_store::RealFs;
use epoch_store::snapshot::{self, Snapshots};
use epoch_tests::cluster::Cluster;
use epoch_tests::keeper::Keeper;
use epoch_tests::load::{Load, Running};
use epoch_tests::setting::setting;
use epoch_tests::{folder, scale, seed, wait};
use rand::RngExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_are_killed_at_once_under_load_and_nothing_acknowledged_is_lost() -> Result<()> {
    let rounds = setting("EPOCH_ROUNDS", 3)?;
    let seed = seed::seed()?;
    let mut random = seed::source(seed, u64::MAX - 1);
    // Small, so that checkpoints, snapshots and purges are under way when the processes end.
    let mut cluster = Cluster::start_with(&["--snapshot-log-bytes", "65536"]).await?;
    let load = Load {
        clients: 32,
        scopes: 500,
        seed,
    };
    let running = Running::start(&cluster, load).await?;
    let keeper = Keeper::start(&cluster).await?;
    for round in 1..=rounds {
        let before = keeper.count();
        wait::until("some more grants are kept", async || {
            ensure!(keeper.count() > before + 100, "{}", keeper.count());
            Ok(())
        })
        .await?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..2_000))).await;
        for id in cluster.ids() {
            cluster.kill(id)?;
        }
        for id in cluster.ids() {
            cluster.start_node(id)?;
        }
        cluster.all_ready().await?;
        let checked = keeper.check(&cluster).await?;
        eprintln!("round {round}: all killed; {checked} kept grants are there");
    }
    keeper.stop().await?;
    let history = running.stop().await?;
    history.check()?;
    eprintln!("{}", history.summary());
    cluster.unharmed()?;
    cluster.stop_and_compare().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_a_million_names_is_churned_within_bounds() -> Result<()> {
    const SNAPSHOT_LOG_BYTES: u64 = 4 << 20;
    let seconds = setting("EPOCH_CHURN_SECONDS", 120)?;
    let seed = seed::seed()?;
    let bytes = SNAPSHOT_LOG_BYTES.to_string();
    let mut cluster = Cluster::start_with(&["--snapshot-log-bytes", &bytes]).await?;
    let client = scale::client(&cluster.endpoints())?;
    let time = Duration::from_secs(seconds / 2);
    let mut seen = Vec::new();
    for half in 0..2 {
        let churned = scale::churn(&client, 1_000_000, 64, time, seed + half).await?;
        let mut sizes = Sizes::default();
        for id in cluster.ids() {
            let folder = cluster.folder(id);
            sizes.disk = sizes.disk.max(folder::bytes(&folder)?);
            sizes.snapshots = sizes
                .snapshots
                .max(folder::bytes(&folder.join("snapshots"))?);
            sizes.resident = sizes.resident.max(cluster.resident_bytes(id)?);
        }
        eprintln!(
            "{} grants ({} of names granted before), {} a second; at most on a node: {sizes:?}",
            churned.grants,
            churned.again,
            churned.grants / time.as_secs().max(1)
        );
        ensure!(churned.grants > 1_000, "hardly any load");
        seen.push(sizes);
    }
    let [first, second] = seen[..] else {
        anyhow::bail!("two halves")
    };
    // Released names are forgotten, so nothing grows with the names that were ever used. The log
    // kept covers two snapshots, and segments are given back whole.
    ensure!(second.disk < 512 << 20, "the disk: {first:?}, {second:?}");
    ensure!(
        second.snapshots < 8 << 20,
        "snapshots: {first:?}, {second:?}"
    );
    ensure!(second.resident < 256 << 20, "memory: {first:?}, {second:?}");
    cluster.unharmed()?;
    cluster.stop_and_compare().await?;
    Ok(())
}

/// Writes the newest snapshot of a folder anew with one byte of one row changed, its checksums
/// right, and leaves nothing else to start from.
fn plant_divergence(folder: &Path) -> Result<()> {
    let path = folder.join("snapshots");
    let fs = RealFs::shared();
    let newest = Snapshots::open(Arc::clone(&fs), &path)?.newest();
    let newest = newest.context("it has no snapshot")?;
    let (state, meta) = snapshot::load(&RealFs, &newest)?;
    let mut loader = Loader::new(state.head());
    for row in state.session_rows() {
        loader.session(row)?;
    }
    let mut planted = false;
    for mut row in state.scope_rows() {
        if row.scope.as_str().starts_with("keep/")
            && !planted
            && let StandingRow::Held(held) = &mut row.standing
        {
            held.offset ^= 0x10;
            planted = true;
        }
        loader.scope(row)?;
    }
    for row in state.spent_rows() {
        loader.spent(row)?;
    }
    for row in state.wait_rows() {
        loader.wait(row)?;
    }
    for row in state.record_rows() {
        loader.record(row)?;
    }
    ensure!(planted, "no row to change");
    std::fs::remove_file(&newest.path)?;
    snapshot::write(&fs, &path, &loader.finish()?, &meta, &mut || ())?;
    std::fs::remove_dir_all(folder.join("checkpoint"))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_state_differs_in_one_byte_stops_and_says_where() -> Result<()> {
    let mut cluster = Cluster::start_with(&["--snapshot-log-bytes", "65536"]).await?;
    let leader = cluster.leader().await?;
    let odd = cluster.ids().into_iter().find(|id| *id != leader);
    let odd = odd.context("no follower")?;
    let keeper = Keeper::start(&cluster).await?;
    wait::until("the follower has a snapshot with kept grants", async || {
        ensure!(keeper.count() > 500, "{} are kept", keeper.count());
        let folder = cluster.folder(odd).join("snapshots");
        // Not one that is being written: it goes with the process.
        let whole = snapshot::files(&RealFs, &folder)?;
        ensure!(!whole.is_empty(), "no snapshot");
        Ok(())
    })
    .await?;
    cluster.kill(odd)?;
    plant_divergence(&cluster.folder(odd))?;
    cluster.start_node(odd)?;
    let ended = cluster.exited(odd).await?;
    keeper.stop().await?;
    ensure!(ended.code() == Some(70), "it ended with {ended}");
    let log = cluster.raw_log(odd)?;
    let last = log.lines().last().context("an empty log")?;
    ensure!(
        last.contains("has diverged: its hash at index"),
        "its last word: {last}"
    );
    // The others go on.
    for id in cluster.running() {
        ensure!(cluster.is_running(id)?, "node {id} has ended");
    }
    cluster.ready(cluster.leader().await?).await?;
    cluster.unharmed()
}

/// The most that any node has, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    disk: u64,
    snapshots: u64,
    resident: u64,
}
