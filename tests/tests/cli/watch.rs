//! What happens to grants, as it happens; and lists by holder.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use epoch_tests::cluster::{Cluster, number, text};
use epoch_tests::pipe::FullPipe;
use epoch_tests::shell::{Shell, next_json};
use epoch_tests::wait;
use rustix::process::Signal;

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_a_line_an_event_until_it_is_interrupted() -> Result<()> {
    let mut shell = Shell::new().await?;
    let a = shell.session("agent a").await?;
    let cursor = shell.json(&["list"]).await?;
    let cursor = text(&cursor, "cursor")?;
    let watch = ["-o", "json", "watch", "--prefix", "w/", "--after", cursor];
    let mut watching = shell.start(&watch)?;
    let mut lines = watching.lines()?;

    shell.acquire("other", &a).await?;
    let epoch = shell.acquire("w/1", &a).await?;
    let granted = next_json(&mut lines).await?;
    assert_eq!(text(&granted, "kind")?, "granted");
    assert_eq!(text(&granted, "scope")?, "w/1", "{granted}");
    assert_eq!(text(&granted, "holder")?, "agent a");
    assert_eq!(number(&granted, "epoch")?.to_string(), epoch);
    ensure!(granted["time_ms"].is_u64() && granted["session"].is_string());
    shell.json(&["revoke", "w/1"]).await?;
    let revoked = next_json(&mut lines).await?;
    assert_eq!(text(&revoked, "kind")?, "revoked");
    watching.signal(Signal::INT)?;
    let ended = watching.ended().await?;
    ensure!(ended.code == Some(0), "{ended:?}");

    // For people, one scope, right after the first event.
    let after = text(&granted, "cursor")?;
    let mut watching = shell.start(&["watch", "w/1", "--after", after])?;
    let mut lines = watching.lines()?;
    let line = lines.next_line().await?.context("it has ended")?;
    ensure!(
        line.contains("  revoked ") && line.contains("w/1"),
        "{line}"
    );
    // Nobody reads any more: the next event ends it.
    drop(lines);
    shell.acquire("w/1", &a).await?;
    let ended = watching.ended().await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_nobody_reads_can_be_ended() -> Result<()> {
    let mut shell = Shell::new().await?;
    let a = shell.session("a").await?;
    shell.acquire("s", &a).await?;
    let list = shell.json(&["list"]).await?;
    let mut pipe = FullPipe::new()?;
    pipe.take_a_page()?;
    let room = pipe.room()?;
    let watch = ["watch", "s", "--after", text(&list, "cursor")?];
    let watching = shell.start_into(&watch, pipe.end()?, Stdio::null())?;
    // Events of one length.
    let next = ["acquire", "s", "--session", &a, "--reissue"];
    shell.json(&next).await?;
    let line = wait::until("a line is written", async || {
        let line = room - pipe.room()?;
        ensure!(line > 0, "none is");
        Ok(line)
    })
    .await?;
    wait::until("another line finds no room", async || {
        shell.json(&next).await?;
        let room = pipe.room()?;
        ensure!(room < line, "there is room for {room} bytes");
        Ok(())
    })
    .await?;
    // It gets to the first while these are made.
    for _event in 0..3 {
        shell.json(&next).await?;
    }
    watching.signal(Signal::TERM)?;
    let ended = watching.ended().await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_started_to_ignore_hangups_goes_on_after_one() -> Result<()> {
    let mut shell = Shell::new().await?;
    let a = shell.session("a").await?;
    let list = shell.json(&["list"]).await?;
    let watch = [
        "-o",
        "json",
        "watch",
        "s",
        "--after",
        text(&list, "cursor")?,
    ];
    let mut watching = shell.start_by_env("--ignore-signal=HUP", &watch)?;
    let mut lines = watching.lines()?;
    shell.acquire("s", &a).await?;
    assert_eq!(text(&next_json(&mut lines).await?, "kind")?, "granted");
    watching.signal(Signal::HUP)?;
    shell.json(&["revoke", "s"]).await?;
    assert_eq!(text(&next_json(&mut lines).await?, "kind")?, "revoked");
    watching.signal(Signal::TERM)?;
    let ended = watching.ended().await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_what_is_forgotten_says_so_and_what_to_do() -> Result<()> {
    let cluster = Cluster::start_with(&["--snapshot-log-bytes", "4096"]).await?;
    let mut shell = Shell::of(cluster);
    let a = shell.session("a").await?;
    let cursor = shell.json(&["list"]).await?;
    let cursor = text(&cursor, "cursor")?;
    shell.acquire("s", &a).await?;
    for id in shell.cluster.ids() {
        let mut scopes = 0_u32;
        let admin = shell.cluster.admin(id)?;
        wait::until("a node has made a snapshot", async || {
            scopes += 1;
            shell.acquire(&format!("{id}/{scopes}"), &a).await?;
            let metrics = admin.get("/metrics", &[]).await?.ok_text()?;
            let made = metrics
                .lines()
                .filter(|line| line.starts_with("epochd_snapshot_index"))
                .any(|line| !line.ends_with(" 0"));
            ensure!(made, "none is made");
            Ok(())
        })
        .await?;
    }
    // What a snapshot stands for is not told event by event any more.
    for id in shell.cluster.ids() {
        shell.cluster.terminate(id).await?;
    }
    for id in shell.cluster.ids() {
        shell.cluster.start_node(id)?;
    }
    shell.cluster.all_ready().await?;
    let watch = ["watch", "s", "--after", cursor];
    shell.fails(&watch, 1, "WATCH_COMPACTED").await?;
    let said = shell.run(&watch).await?.stderr;
    ensure!(
        said.contains("epochctl list -o json --prefix 's'") && said.contains("--after"),
        "{said}"
    );
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_of_one_holder_when_asked_for() -> Result<()> {
    let mut shell = Shell::new().await?;
    let (a, b) = (shell.session("a").await?, shell.session("b").await?);
    shell.acquire("x/1", &a).await?;
    shell.acquire("x/2", &b).await?;
    shell.acquire("y/1", &a).await?;
    let list = shell.json(&["list", "--holder", "a"]).await?;
    assert_eq!(scopes(&list), ["x/1", "y/1"], "{list}");
    let list = shell
        .json(&["list", "--holder", "a", "--prefix", "x/"])
        .await?;
    assert_eq!(scopes(&list), ["x/1"], "{list}");
    let first = shell.json(&["list", "--limit", "2"]).await?;
    let next = text(&first, "next_page")?;
    let list = shell.json(&["list", "--page", next]).await?;
    assert_eq!(scopes(&list), ["y/1"], "{list}");
    shell.cluster.unharmed()
}

fn scopes(list: &serde_json::Value) -> Vec<&str> {
    let rows = list["scopes"].as_array().into_iter().flatten();
    rows.filter_map(|row| row["scope"].as_str()).collect()
}
