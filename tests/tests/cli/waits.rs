//! Queues, several scopes at once, and handing on.

use anyhow::{Result, ensure};
use epoch_tests::cluster::{number, text};
use epoch_tests::shell::{Shell, refused};
use rustix::process::Signal;

#[tokio::test(flavor = "multi_thread")]
async fn several_scopes_are_taken_all_or_none() -> Result<()> {
    let mut shell = Shell::new().await?;
    let (a, b) = (shell.session("a").await?, shell.session("b").await?);
    let both = ["acquire", "x", "y", "--metadata", "of both", "--session"];
    let taken = shell.json(&[&both[..], &[&a]].concat()).await?;
    let scopes: Vec<_> = taken["grants"].as_array().into_iter().flatten().collect();
    let [x, y] = scopes[..] else {
        anyhow::bail!("not two grants: {taken}")
    };
    assert_eq!((text(x, "scope")?, text(y, "scope")?), ("x", "y"));
    assert_eq!(
        text(&shell.json(&["get", "y"]).await?, "metadata")?,
        "of both"
    );
    let none = ["acquire", "free", "y", "--session", b.as_str()];
    shell.fails(&none, 3, "SCOPE_HELD").await?;
    assert_eq!(shell.json(&["get", "free"]).await?["held"], false);
    let table = shell.table(&["acquire", "v", "w", "--session", &b]).await?;
    assert_eq!(table.matches("certificate").count(), 2, "{table}");
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_seen_in_the_queue_and_ends_with_the_grant() -> Result<()> {
    let mut shell = Shell::new().await?;
    let (a, b) = (shell.session("a").await?, shell.session("b").await?);
    let epoch = shell.acquire("s", &a).await?;
    let waiting = shell.start(&[
        "-o",
        "json",
        "acquire",
        "s",
        "--session",
        &b,
        "--wait",
        "10m",
    ])?;
    let state = shell.waiting("s", 1).await?;
    assert_eq!(state["queue"][0]["holder"], "b", "{state}");
    let table = shell.table(&["get", "s"]).await?;
    ensure!(
        table.contains("AHEAD") && table.lines().any(|line| line.starts_with("0  ")),
        "{table}"
    );
    let list = shell.table(&["list"]).await?;
    ensure!(list.contains("WAITING"), "{list}");

    let held = ["--session", &a, "--epoch", &epoch];
    shell.json(&[&["release", "s"], &held[..]].concat()).await?;
    let granted = waiting.ended().await?;
    ensure!(granted.code == Some(0), "{granted:?}");
    ensure!(number(&granted.json()?, "epoch")? > epoch.parse()?);
    assert_eq!(shell.json(&["get", "s"]).await?["holder"], "b");
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_without_a_grant_exits_with_three() -> Result<()> {
    let mut shell = Shell::new().await?;
    let (a, b) = (shell.session("a").await?, shell.session("b").await?);
    shell.acquire("s", &a).await?;
    let wait = |time: &'static str, id: &'static str| {
        let tail = ["--wait", time, "--request-id", id];
        [&["acquire", "s", "--session", &b], &tail[..]].concat()
    };
    shell.fails(&wait("100ms", "1"), 3, "WAIT_EXPIRED").await?;

    let start = |args: Vec<&str>| shell.start(&[&["-o", "json"], &args[..]].concat());
    // Interrupted: nothing of it is left in the queue.
    for (signal, id) in [(Signal::INT, "2"), (Signal::TERM, "3")] {
        let waiting = start(wait("10m", id))?;
        shell.waiting("s", 1).await?;
        waiting.signal(signal)?;
        refused(&waiting.ended().await?, 3, "WAIT_CANCELLED")?;
        assert_eq!(shell.json(&["get", "s"]).await?["waiting"], 0);
    }

    let waiting = start(wait("10m", "4"))?;
    shell.waiting("s", 1).await?;
    let other = [&["acquire", "s", "--session", &b], &["--wait", "1m"][..]].concat();
    shell.fails(&other, 3, "ALREADY_WAITING").await?;
    let cancel = ["cancel-wait", "s", "--session", &b, "--request-id", "4"];
    assert_eq!(shell.json(&cancel).await?["cancelled"], true);
    refused(&waiting.ended().await?, 3, "WAIT_CANCELLED")?;
    assert_eq!(shell.json(&cancel).await?["cancelled"], false);
    ensure!(shell.table(&cancel).await?.contains("no such wait"));
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_lost_by_expiry_is_kept_for_its_lock_delay_unless_it_is_revoked() -> Result<()> {
    let mut shell = Shell::new().await?;
    let open = ["session", "open", "--holder", "short", "--ttl", "1s"];
    let short = shell.json(&open).await?;
    let acquire = ["acquire", "s", "--lock-delay", "10m", "--session"];
    let acquire = [&acquire[..], &[text(&short, "session_id")?]].concat();
    shell.json(&acquire).await?;
    let state = shell.held("s", false).await?;
    assert_eq!(state["delayed"], true, "{state}");
    ensure!(shell.table(&["get", "s"]).await?.contains("lock delay"));
    let other = shell.session("other").await?;
    let try_it = ["acquire", "s", "--session", &other];
    shell.fails(&try_it, 3, "LOCK_DELAYED").await?;

    let table = shell.table(&["revoke", "s"]).await?;
    ensure!(table.contains("lock delay"), "{table}");
    shell.json(&try_it).await?;
    shell.json(&["revoke", "s"]).await?;
    shell.fails(&["revoke", "s"], 1, "NOT_FOUND").await?;
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn reissue_takes_the_next_epoch_of_ones_own_scope() -> Result<()> {
    let mut shell = Shell::new().await?;
    let a = shell.session("a").await?;
    let epoch = shell.acquire("s", &a).await?;
    let again = ["acquire", "s", "--session", &a];
    shell.fails(&again, 3, "ALREADY_HELD").await?;
    let next = shell.json(&[&again[..], &["--reissue"]].concat()).await?;
    ensure!(number(&next, "epoch")? > epoch.parse()?, "{next}");
    let certify = ["certify", "s", "--session", &a, "--epoch", &epoch];
    shell.fails(&certify, 4, "EPOCH_SUPERSEDED").await?;
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transferred_grant_is_the_other_sessions() -> Result<()> {
    let mut shell = Shell::new().await?;
    let a = shell.session("a").await?;
    let open = ["session", "open", "--holder", "b", "--ttl", "10m"];
    let other = shell.json(&open).await?;
    let (b, hash) = (text(&other, "session_id")?, text(&other, "session")?);
    let epoch = shell.acquire("s", &a).await?;
    let held = ["--session", a.as_str(), "--epoch", epoch.as_str()];
    let to = |hash| [&["transfer", "s", "--to", hash], &held[..]].concat();

    let nobody = "A".repeat(43);
    shell.fails(&to(&nobody), 1, "TARGET_EXPIRED").await?;
    let given = shell.json(&to(hash)).await?;
    assert_eq!(text(&given, "scope")?, "s");
    let next = number(&given, "epoch")?.to_string();
    let certify = ["certify", "s", "--session", b, "--epoch", &next];
    shell.json(&certify).await?;
    assert_eq!(shell.json(&to(hash)).await?, given, "the same again");
    let ended = [&["certify", "s"], &held[..]].concat();
    shell.fails(&ended, 4, "EPOCH_SUPERSEDED").await?;
    let back = ["transfer", "s", "--session", b, "--epoch", &next, "--to"];
    let hash = shell.json(&["session", "get", &a]).await?;
    let back = [&back[..], &[text(&hash, "session")?]].concat();
    ensure!(shell.table(&back).await?.contains("ended"));
    shell.json(&["revoke", "s"]).await?;
    shell.fails(&back, 4, "EPOCH_SUPERSEDED").await?;
    shell.cluster.unharmed()
}
