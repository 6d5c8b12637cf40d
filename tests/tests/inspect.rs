//! `epochd inspect`: what an operator learns of a folder, and what counts as damage.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use epoch_tests::binaries::binary;
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::command_line::{Ran, run};
use epoch_tests::folder;

/// A single node that has granted a few scopes, and is stopped.
async fn stopped() -> Result<Cluster> {
    let mut cluster = Cluster::init_nodes(1, &[])?;
    cluster.start_node(1)?;
    cluster.ready(1).await?;
    let client = cluster.client(1)?;
    let session = client.open("keeper", "1h").await?;
    for request_id in 1..=5 {
        let scope = format!("kept/{request_id}");
        client.acquire(&scope, &session, request_id).await?.ok()?;
    }
    cluster.terminate(1).await?;
    Ok(cluster)
}

async fn inspect(folder: &Path, arguments: &[&str]) -> Result<Ran> {
    let mut command = tokio::process::Command::new(binary("epochd")?);
    command
        .args(["inspect", "--data-dir"])
        .arg(folder)
        .args(arguments);
    run(&mut command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_folder_is_told_as_tables_and_as_json() -> Result<()> {
    let mut cluster = stopped().await?;
    let ran = inspect(&cluster.folder(1), &[]).await?;
    ensure!(ran.code == Some(0), "{ran:?}");
    for part in ["SEGMENT", "HASH", "no damage"] {
        ensure!(ran.stdout.contains(part), "no {part}: {}", ran.stdout);
    }
    let report = cluster.inspect(1, &[])?;
    assert_eq!(number(&report["state"], "grants")?, 5);
    assert_eq!(report["damage"], serde_json::json!([]));
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_not_there_is_said_and_is_no_damage() -> Result<()> {
    let mut cluster = stopped().await?;
    let last = number(&cluster.inspect(1, &[])?["state"], "index")?;
    let early = cluster.inspect(1, &["--index", "1"])?;
    assert_eq!(number(&early["state"], "index")?, 1);
    let ran = inspect(&cluster.folder(1), &["--index", &(last + 1).to_string()]).await?;
    ensure!(
        ran.code == Some(1) && ran.stderr.contains("is not on this disk yet"),
        "{ran:?}"
    );
    ensure!(!ran.stdout.contains("damage"), "{ran:?}");
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_and_a_folder_that_is_none_are_refused() -> Result<()> {
    let mut cluster = stopped().await?;
    cluster.start_node(1)?;
    cluster.ready(1).await?;
    let ran = inspect(&cluster.folder(1), &[]).await?;
    ensure!(
        ran.code == Some(1) && ran.stderr.contains("in use by another process"),
        "{ran:?}"
    );
    let ran = inspect(&cluster.path().join("nothing"), &[]).await?;
    ensure!(
        ran.code == Some(1) && ran.stderr.contains("is no folder"),
        "{ran:?}"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_never_started_is_sound() -> Result<()> {
    let mut cluster = Cluster::init_nodes(1, &[])?;
    let report = cluster.inspect(1, &[])?;
    ensure!(
        report["notes"].to_string().contains("never been started"),
        "{report}"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_gone_are_missed() -> Result<()> {
    let mut cluster = stopped().await?;
    let folder = cluster.folder(1);
    let good = folder.with_extension("good");
    folder::copy(&folder, &good)?;
    for gone in ["owner.json", "seed.json", "log/synced"] {
        fs::remove_file(folder.join(gone))?;
        let ran = inspect(&folder, &[]).await?;
        let name = gone.rsplit('/').next().context("a name")?;
        ensure!(
            ran.code == Some(1) && ran.stdout.contains(name),
            "{gone}: {ran:?}"
        );
        fs::copy(good.join(gone), folder.join(gone))?;
    }
    // A seed is not made for a folder that has been another cluster's.
    fs::remove_file(folder.join("seed.json"))?;
    let mut init = tokio::process::Command::new(binary("epochd")?);
    init.args(["init", "--nodes", "1", "--out"])
        .arg(cluster.path());
    let ran = run(&mut init).await?;
    ensure!(
        ran.code == Some(1) && ran.stderr.contains("has been a node's folder"),
        "{ran:?}"
    );
    cluster.unharmed()
}
