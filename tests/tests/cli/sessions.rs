//! Sessions: what they hold and wait for, and stall limits.

use anyhow::{Context as _, Result, ensure};
use epoch_tests::cluster::text;
use epoch_tests::command_line::{epochctl, run};
use epoch_tests::shell::Shell;
use epoch_tests::wait;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_shows_what_it_holds_and_waits_for() -> Result<()> {
    let mut shell = Shell::new().await?;
    let (a, b) = (shell.session("a").await?, shell.session("b").await?);
    shell.acquire("theirs", &b).await?;
    let noted = ["acquire", "mine", "--metadata", "a note", "--session", &a];
    shell.json(&noted).await?;
    let wait = ["acquire", "theirs", "--wait", "10m", "--session", &a];
    let waiting = shell.start(&[&wait[..], &["--request-id", "7"]].concat())?;
    shell.waiting("theirs", 1).await?;

    let state = shell.json(&["session", "get", &a]).await?;
    assert_eq!(text(&state, "holder")?, "a");
    assert_eq!(text(&state, "ttl")?, "10m");
    ensure!(state["left"].is_string(), "{state}");
    let grant = &state["grants"][0];
    assert_eq!(
        (text(grant, "scope")?, text(grant, "metadata")?),
        ("mine", "a note")
    );
    let queued = &state["waits"][0];
    assert_eq!(
        (&queued["scope"], &queued["request_id"], &queued["ahead"]),
        (&"theirs".into(), &7.into(), &0.into())
    );
    ensure!(!state.to_string().contains(&a), "the id is a secret");
    // The environment is the better place for it.
    let mut command = epochctl(&shell.cluster.endpoints(), ["session", "get"])?;
    let ran = run(command.env("EPOCHCTL_SESSION", &a)).await?;
    ensure!(
        ran.stdout.contains("a note") && ran.stdout.contains("WAITS FOR"),
        "{ran:?}"
    );

    let list = shell.json(&["session", "list"]).await?;
    let holders: Vec<_> = list["sessions"].as_array().into_iter().flatten().collect();
    assert_eq!(holders.len(), 2, "{list}");
    ensure!(!list.to_string().contains(&a), "the id is a secret");
    let list = shell.json(&["session", "list", "--holder", "a"]).await?;
    let first = &list["sessions"][0];
    assert_eq!((&first["grants"], &first["waits"]), (&1.into(), &1.into()));
    assert_eq!(first["session"], state["session"]);
    let page = ["session", "list", "--limit", "1"];
    let next = shell.json(&page).await?;
    let next = text(&next, "next_page")?;
    let last = shell.json(&["session", "list", "--page", next]).await?;
    assert_eq!(last["sessions"][0]["holder"], "b", "{last}");
    ensure!(
        shell
            .table(&["session", "list"])
            .await?
            .contains("SESSION HASH")
    );

    assert_eq!(shell.json(&["session", "close", &a]).await?["closed"], true);
    ensure!(waiting.ended().await?.code == Some(4), "the wait went on");
    let gone = ["session", "get", &a];
    shell.fails(&gone, 4, "SESSION_EXPIRED").await?;
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_under_a_grant_has_no_other_sessions_id() -> Result<()> {
    let mut shell = Shell::new().await?;
    let other = shell.session("other").await?;
    let head = ["run", "s", "--holder", "h", "--ttl", "2s", "--", "sh", "-c"];
    let told = "echo ${EPOCHCTL_SESSION-none} $EPOCH_SESSION";
    let mut command = epochctl(&shell.cluster.endpoints(), [&head[..], &[told]].concat())?;
    let ran = run(command.env("EPOCHCTL_SESSION", &other)).await?;
    let (id, hash) = ran.stdout.trim().split_once(' ').context("not told")?;
    assert_eq!((id, hash.len()), ("none", 43), "{ran:?}");
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_stall_limit_is_renewed_by_progress_only() -> Result<()> {
    let mut shell = Shell::new().await?;
    let open_id = "0198c0de-0000-4000-8000-000000000001";
    let open = ["session", "open", "--holder", "h", "--ttl", "10m"];
    let open = [&open[..], &["--stall-limit", "1s", "--open-id", open_id]].concat();
    let opened = shell.json(&open).await?;
    assert_eq!(text(&opened, "stall_limit")?, "1s");
    let id = text(&opened, "session_id")?;
    let keepalive = |mark| ["session", "keepalive", id, "--progress", mark];
    shell.json(&keepalive("1")).await?;
    let stalled = wait::until("the same mark is refused", async || {
        shell.fails(&keepalive("1"), 1, "SESSION_STALLED").await
    });
    stalled.await?;
    // An open that is sent again would renew it.
    shell.fails(&open, 1, "SESSION_STALLED").await?;
    shell.json(&keepalive("2")).await?;
    let again = shell.json(&open).await?;
    assert_eq!(text(&again, "session_id")?, id);
    shell.cluster.unharmed()
}
