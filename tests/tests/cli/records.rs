//! Records: one value a scope, written by its holder only.

use anyhow::{Result, ensure};
use epoch_tests::cluster::{number, text};
use epoch_tests::shell::Shell;

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_put_got_and_deleted() -> Result<()> {
    let mut shell = Shell::new().await?;
    let a = shell.session("a").await?;
    let epoch = shell.acquire("s", &a).await?;
    let held = ["--session", a.as_str(), "--epoch", epoch.as_str()];
    let put = |tail: &[&'static str]| [&["record", "put", "s"], &held[..], tail].concat();
    let get = ["record", "get", "s"];

    let none = shell.run(&get).await?;
    ensure!(
        none.code == Some(0) && none.stdout.is_empty() && none.stderr.contains("no record"),
        "{none:?}"
    );
    assert_eq!(shell.json(&get).await?["revision"], 0);

    let written = shell.json(&put(&["one", "--intent", "first"])).await?;
    assert_eq!(written["replayed"], false);
    assert_eq!(shell.table(&get).await?, "one", "not as it is");
    let record = shell.json(&get).await?;
    assert_eq!(text(&record, "value")?, "b25l", "base64url");
    assert_eq!(record["revision"], written["revision"]);
    assert_eq!(number(&record, "epoch")?.to_string(), epoch);

    let again = shell.json(&put(&["one", "--intent", "first"])).await?;
    assert_eq!(
        (&again["replayed"], &again["revision"]),
        (&true.into(), &written["revision"])
    );
    let other = put(&["two", "--intent", "first"]);
    shell.fails(&other, 1, "INTENT_REUSED").await?;
    let stale = put(&["two", "--expected-revision", "0"]);
    shell.fails(&stale, 1, "REVISION_MISMATCH").await?;

    shell.json_with(&put(&["-"]), "from stdin\n").await?;
    assert_eq!(shell.table(&get).await?, "from stdin\n");
    let file = shell.cluster.path().join("value");
    std::fs::write(&file, [0_u8, 1])?;
    let file = file.display().to_string();
    let put_file = ["record", "put", "s", "--file", &file];
    shell.json(&[&put_file[..], &held[..]].concat()).await?;
    assert_eq!(shell.table(&get).await?, "\u{0}\u{1}");
    std::fs::write(&file, vec![b'x'; 4_097])?;
    let too_much = [&put_file[..], &held[..]].concat();
    shell.fails(&too_much, 1, "INVALID_ARGUMENT").await?;

    let delete = [&["record", "delete", "s"], &held[..]].concat();
    assert_eq!(shell.json(&delete).await?["deleted"], true);
    assert_eq!(shell.json(&delete).await?["deleted"], false);
    ensure!(shell.json(&get).await?.get("value").is_none());
    shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_takes_nothing_from_a_holder_of_before() -> Result<()> {
    let mut shell = Shell::new().await?;
    let (a, b) = (shell.session("a").await?, shell.session("b").await?);
    let epoch = shell.acquire("s", &a).await?;
    let held = ["--session", a.as_str(), "--epoch", epoch.as_str()];
    let put = [&["record", "put", "s", "mine"], &held[..]].concat();
    shell.json(&put).await?;
    shell.json(&["revoke", "s"]).await?;
    shell.acquire("s", &b).await?;
    shell.fails(&put, 4, "EPOCH_SUPERSEDED").await?;
    let delete = [&["record", "delete", "s"], &held[..]].concat();
    shell.fails(&delete, 4, "EPOCH_SUPERSEDED").await?;
    // It outlives its writer's grant.
    assert_eq!(shell.table(&["record", "get", "s"]).await?, "mine");
    shell.cluster.unharmed()
}
