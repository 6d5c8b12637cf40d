//! `epochd dev`: what a newcomer starts first.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use epoch_tests::binaries::binary;
use epoch_tests::cluster::number;
use epoch_tests::json_client::JsonClient;
use epoch_tests::ports::Ports;
use epoch_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// A running `epochd dev`, and its first node's client.
struct Dev {
    process: Child,
    client: JsonClient,
}

impl Dev {
    async fn start(ports: &Ports, arguments: &[&str], temporary: &Path) -> Result<Self> {
        let process = Command::new(binary("epochd")?)
            .arg("dev")
            .args(arguments)
            .args(["--client-port", &ports.client().to_string()])
            .args(["--peer-port", &ports.peer().to_string()])
            .args(["--admin-port", &ports.admin().to_string()])
            .env("TMPDIR", temporary)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let client = JsonClient::new(&format!("127.0.0.1:{}", ports.client()))?;
        wait::until("epochd dev serves", async || {
            client.get("/readyz", &[]).await?.ok_text()
        })
        .await?;
        Ok(Self { process, client })
    }

    /// Stops it as a terminal's Ctrl-C or a supervisor would.
    async fn stop(mut self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.process.id().context("it has ended")?)?;
        kill_process(Pid::from_raw(id).context("process id 0")?, signal)?;
        let ended = tokio::time::timeout(wait::BOUND, self.process.wait()).await??;
        ensure!(ended.success(), "it ended with {ended}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_serve_from_one_process_and_keep_their_data() -> Result<()> {
    let ports = Ports::claim()?;
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data").display().to_string();
    let arguments = ["--data-dir", data.as_str()];
    let dev = Dev::start(&ports, &arguments, folder.path()).await?;
    let nodes = dev.client.cluster().await?["nodes"].clone();
    ensure!(
        nodes.as_array().is_some_and(|nodes| nodes.len() == 3),
        "{nodes}"
    );
    let session = dev.client.open("newcomer", "1h").await?;
    let grant = dev.client.acquire("first", &session, 1).await?.ok()?;
    dev.stop(Signal::INT).await?;

    let dev = Dev::start(&ports, &arguments, folder.path()).await?;
    let again = dev.client.acquire("first", &session, 1).await?.ok()?;
    ensure!(
        number(&again, "epoch")? == number(&grant, "epoch")?,
        "another epoch: {again}"
    );
    dev.stop(Signal::TERM).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_cluster_leaves_nothing_behind() -> Result<()> {
    let ports = Ports::claim()?;
    let temporary = tempfile::tempdir()?;
    let dev = Dev::start(&ports, &["--ephemeral"], temporary.path()).await?;
    let session = dev.client.open("newcomer", "1h").await?;
    dev.client.acquire("first", &session, 1).await?.ok()?;
    ensure!(
        temporary.path().read_dir()?.next().is_some(),
        "its data is elsewhere"
    );
    dev.stop(Signal::TERM).await?;
    let left: Vec<_> = temporary.path().read_dir()?.collect();
    ensure!(left.is_empty(), "it left {left:?}");
    Ok(())
}
