//! The command line against a running cluster: results, exit codes, and bad input.

mod records;
mod sessions;
mod waits;
mod watch;

use anyhow::{Result, ensure};
use epoch_tests::cluster::{number, text};
use epoch_tests::command_line::{epochctl, run, run_epochctl};
use epoch_tests::shell::Shell;

#[tokio::test(flavor = "multi_thread")]
async fn each_command_does_its_part() -> Result<()> {
    let mut shell = Shell::new().await?;
    let a = shell.session("agent-a").await?;
    let kept = shell.json(&["session", "keepalive", &a]).await?;
    assert_eq!(kept["session_id"], a.as_str());
    assert_eq!(kept["ttl"], "10m");

    let acquire = ["acquire", "cli/a", "--session", &a, "--request-id", "7"];
    let grant = shell.json(&acquire).await?;
    assert_eq!(
        (&grant["scope"], &grant["holder"]),
        (&"cli/a".into(), &"agent-a".into())
    );
    assert_eq!(
        shell.json(&acquire).await?["epoch"],
        grant["epoch"],
        "the same request"
    );
    let epoch = number(&grant, "epoch")?.to_string();

    let state = shell.json(&["get", "cli/a"]).await?;
    assert_eq!(
        (&state["held"], &state["epoch"]),
        (&true.into(), &grant["epoch"])
    );
    let list = shell.json(&["list", "--prefix", "cli/"]).await?;
    assert_eq!(list["scopes"].as_array().map(Vec::len), Some(1));
    let table = shell.run(&["list"]).await?;
    ensure!(
        table.stdout.contains("cli/a") && table.stdout.contains("agent-a"),
        "{table:?}"
    );

    let held = ["--session", a.as_str(), "--epoch", epoch.as_str()];
    let certify = ["certify", "cli/a", held[0], held[1], held[2], held[3]];
    let fresh = shell.json(&certify).await?;
    let certificate = text(&fresh, "certificate")?;
    let jwks = shell.cluster.client(1)?.jwks_url();
    let shown = shell
        .json(&["verify", "--jwks", &jwks, "--", certificate])
        .await?;
    ensure!(shown.to_string().contains("cli/a"), "{shown}");

    let release = ["release", "cli/a", held[0], held[1], held[2], held[3]];
    assert_eq!(shell.json(&release).await?["released"], true);
    assert_eq!(shell.json(&release).await?["released"], false);
    shell.fails(&acquire, 4, "EPOCH_SUPERSEDED").await?;
    shell.fails(&certify, 4, "EPOCH_SUPERSEDED").await?;

    let b = shell.session("agent-b").await?;
    shell.json(&["acquire", "cli/a", "--session", &b]).await?;
    shell
        .fails(&["acquire", "cli/a", "--session", &a], 3, "SCOPE_HELD")
        .await?;
    shell
        .fails(&["acquire", "cli/a", "--session", &b], 3, "ALREADY_HELD")
        .await?;
    shell.fails(&release, 4, "EPOCH_SUPERSEDED").await?;
    let revoked = shell.json(&["revoke", "cli/a"]).await?;
    ensure!(
        number(&revoked, "epoch")? > number(&grant, "epoch")?,
        "{revoked}"
    );
    assert_eq!(shell.json(&["get", "cli/a"]).await?["held"], false);

    assert_eq!(shell.json(&["session", "close", &b]).await?["closed"], true);
    assert_eq!(
        shell.json(&["session", "close", &b]).await?["closed"],
        false
    );
    shell
        .fails(&["acquire", "cli/b", "--session", &b], 4, "SESSION_EXPIRED")
        .await?;

    let status = shell.json(&["status"]).await?;
    ensure!(
        shell.cluster.ids().contains(&number(&status, "leader")?),
        "{status}"
    );
    let table = shell.run(&["status"]).await?;
    ensure!(
        table.code == Some(0) && table.stdout.contains("leader"),
        "{table:?}"
    );
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_with_the_usage_code() -> Result<()> {
    let mut shell = Shell::new().await?;
    let session = shell.session("tester").await?;
    let session = session.as_str();
    let long = "x".repeat(513);
    let scopes = ["", long.as_str(), "a\nb", "a\u{7f}b", "\t"];
    for scope in scopes {
        for args in [
            vec!["get", scope],
            vec!["acquire", scope, "--session", session],
            vec!["revoke", scope],
            vec!["run", scope, "--holder", "h", "--ttl", "10s", "--", "true"],
        ] {
            usage(&shell, &args).await?;
        }
    }
    for number in [
        "-1",
        "0",
        "1.5",
        "x",
        "9007199254740992",
        "18446744073709551616",
        "1e3",
        "",
    ] {
        let (epoch, request) = (
            format!("--epoch={number}"),
            format!("--request-id={number}"),
        );
        usage(&shell, &["release", "s", "--session", session, &epoch]).await?;
        usage(&shell, &["certify", "s", "--session", session, &epoch]).await?;
        usage(&shell, &["revoke", "s", &epoch]).await?;
        usage(&shell, &["acquire", "s", "--session", session, &request]).await?;
    }
    for bad in [
        "",
        "x",
        "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11",
        "2f1c0a52.1.0",
    ] {
        usage(&shell, &["acquire", "s", "--session", bad]).await?;
        usage(&shell, &["session", "close", bad]).await?;
    }
    for ttl in ["0s", "999ms", "25h", "-1s", "10", "", "s"] {
        let ttl = format!("--ttl={ttl}");
        usage(&shell, &["session", "open", "--holder", "h", &ttl]).await?;
    }
    usage(&shell, &["session", "open", "--holder", "", "--ttl", "10s"]).await?;
    for wait in ["0s", "25h", "1us", "x", ""] {
        let wait = format!("--wait={wait}");
        usage(&shell, &["acquire", "s", "--session", session, &wait]).await?;
    }
    let many = ["acquire", "a", "b", "--session", session];
    usage(&shell, &[&many[..], &["--wait", "1s"]].concat()).await?;
    usage(&shell, &[&many[..], &["--reissue"]].concat()).await?;
    says(&shell, &["watch"], "name a scope, or --prefix ('' for all)").await?;
    let release = ["release", "s", "--epoch", "1"];
    let open = ["session", "open", "--holder", "h"];
    let said = usage(&shell, &open).await?;
    // What stands in the environment is not missing.
    ensure!(
        said.contains("--ttl") && !said.contains("--endpoints"),
        "{said}"
    );
    for args in [&release[..], &["session", "close"]] {
        says(&shell, args, "or set EPOCHCTL_SESSION").await?;
    }
    usage(&shell, &["watch", "s", "--after", "7"]).await?;
    let put = ["record", "put", "s", "--session", session, "--epoch", "1"];
    usage(&shell, &put).await?;
    usage(&shell, &[&put[..], &["--file", "/nowhere/value"]].concat()).await?;
    usage(&shell, &[]).await?;
    usage(
        &shell,
        &["verify", "--jwks", "/nowhere/keys.json", "--", "a.b.c"],
    )
    .await?;
    shell
        .json(&["acquire", "still/here", "--session", session])
        .await?;
    shell.cluster.unharmed()
}

async fn says(shell: &Shell, args: &[&str], what: &str) -> Result<()> {
    let said = usage(shell, args).await?;
    ensure!(said.contains(what), "{args:?}: {said}");
    Ok(())
}

/// A command that has to be refused as not well put; what it says.
async fn usage(shell: &Shell, args: &[&str]) -> Result<String> {
    let ran = shell.run(args).await?;
    ensure!(
        ran.code == Some(2) && ran.stdout.is_empty(),
        "{args:?}: {ran:?}"
    );
    ensure!(
        !ran.stderr.is_empty() && !ran.stderr.contains("panicked"),
        "{args:?}: {ran:?}"
    );
    Ok(ran.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_id_is_repeated_in_an_error() -> Result<()> {
    let nobody = "127.0.0.1:1";
    let id = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.42.0";
    let almost = &id[..id.len() - 1];
    let held = ["--session", almost, "--epoch", "1"];
    let transfer = ["transfer", "s", "--to", id, "--session", id, "--epoch", "1"];
    for args in [
        &transfer[..],
        &[&["release", "s"], &held[..]].concat(),
        &["acquire", "s", "--session", almost],
        &["session", "get", almost],
        &["session", "keepalive", almost],
        &["session", "close", almost],
        &["session", "get", "x", id],
        &["release", "s", "--session", id, "--epoch", id],
    ] {
        let ran = run_epochctl(nobody, args).await?;
        ensure!(ran.code == Some(2), "{args:?}: {ran:?}");
        ensure!(!ran.stderr.contains(almost), "{args:?}: {ran:?}");
    }
    let told = run_epochctl(nobody, &transfer).await?.stderr;
    ensure!(told.contains("give the session's hash"), "{told}");
    let mut command = epochctl(nobody, ["session", "get"])?;
    let ran = run(command.env("EPOCHCTL_SESSION", almost)).await?;
    ensure!(
        ran.code == Some(2) && !ran.stderr.contains(almost),
        "{ran:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cluster_the_code_is_unavailable_and_the_rest_still_works() -> Result<()> {
    let nobody = "127.0.0.1:1";
    for args in [&["status"][..], &["get", "s"], &["list"]] {
        let mut all = vec!["--deadline", "1s"];
        all.extend(args);
        let ran = run_epochctl(nobody, &all).await?;
        ensure!(
            ran.code == Some(6) && ran.stdout.is_empty(),
            "{args:?}: {ran:?}"
        );
    }
    for shell in ["bash", "zsh", "fish"] {
        let ran = run_epochctl(nobody, &["completion", shell]).await?;
        ensure!(
            ran.code == Some(0) && ran.stdout.contains("epochctl"),
            "{shell}: {ran:?}"
        );
    }
    let help = run_epochctl(nobody, &["--help"]).await?;
    ensure!(
        help.code == Some(0) && help.stdout.contains("acquire"),
        "{help:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_what_is_wrong_with_its_own_command_line() -> Result<()> {
    let epochd = epoch_tests::binaries::binary("epochd")?;
    let empty = tempfile::tempdir()?;
    let folder = empty.path().display().to_string();
    for (args, told) in [
        (vec!["serve", "--data-dir", folder.as_str()], "init"),
        (vec!["serve"], "data-dir"),
        (vec!["serve", "--config", "/nowhere.toml"], "/nowhere.toml"),
        (
            vec!["init", "--out", folder.as_str(), "--nodes", "0"],
            "node",
        ),
        (
            vec!["--log", "!!", "serve", "--data-dir", folder.as_str()],
            "filter",
        ),
    ] {
        let mut command = tokio::process::Command::new(&epochd);
        let ran = run(command.args(&args)).await?;
        ensure!(
            ran.code.is_some_and(|code| code == 1 || code == 2),
            "{args:?}: {ran:?}"
        );
        ensure!(
            ran.stderr.contains(told) && ran.stdout.is_empty(),
            "{args:?}: {ran:?}"
        );
        ensure!(!ran.stderr.contains("panicked"), "{args:?}: {ran:?}");
    }
    Ok(())
}
