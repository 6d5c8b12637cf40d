//! `epochctl run`: a command that holds a scope, and all that it starts.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use epoch_tests::cluster::{Cluster, number};
use epoch_tests::pipe::FullPipe;
use epoch_tests::proxy::{Pass, Proxies};
use epoch_tests::shell::{Running, Shell};
use epoch_tests::wait;
use rustix::process::Signal;

/// Tells a file that the command is there, and then does nothing for ever.
const STAY: &str = "echo $$ > $DIR/ready; while :; do sleep 0.05; done";

/// The letter of a process's state, if there is such a process: `Z` for one that has ended and was
/// not reaped.
fn state(id: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Its name comes before, in parentheses, and may hold anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A cluster, and a folder in which commands leave word.
struct Jobs {
    shell: Shell,
    folder: PathBuf,
}

impl Jobs {
    async fn new() -> Result<Self> {
        let shell = Shell::new().await?;
        let folder = shell.cluster.path().join("words");
        fs::create_dir(&folder)?;
        Ok(Self { shell, folder })
    }

    /// Starts `run job` of a script, which finds the folder as `$DIR`.
    fn start(&self, settings: &[&str], script: &str) -> Result<Running> {
        self.with_arguments(settings, script, |args| self.shell.start(args))
    }

    fn with_arguments(
        &self,
        settings: &[&str],
        script: &str,
        start: impl FnOnce(&[&str]) -> Result<Running>,
    ) -> Result<Running> {
        let script = format!("DIR='{}'; {script}", self.folder.display());
        let head = ["run", "job", "--holder", "runner", "--ttl", "2s"];
        let tail = ["--", "sh", "-c", &script];
        start(&[&head[..], settings, &tail].concat())
    }

    /// What the script has written to a file of the folder, once the line is whole.
    async fn word(&self, name: &str) -> Result<String> {
        wait::until("the command leaves word", async || {
            let text = fs::read_to_string(self.folder.join(name))?;
            let line = text.strip_suffix('\n').context("half a line")?;
            Ok(line.to_owned())
        })
        .await
    }

    fn forget(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.folder.join(name))?)
    }

    /// Checks that the process whose id is in a file has ended. Its parent, which is not its
    /// starter's, may not have reaped it yet.
    async fn is_gone(&self, name: &str) -> Result<()> {
        let id = self.word(name).await?;
        let is = state(&id);
        ensure!(
            matches!(is, None | Some('Z' | 'X')),
            "process {id} of {name} goes on: {is:?}"
        );
        Ok(())
    }

    /// Waits until the process whose id is in a file is in a state, by the letter of the system's.
    async fn is_in_state(&self, name: &str, state: char) -> Result<()> {
        let id = self.word(name).await?;
        wait::until("the process is in a state", async || {
            let is = self::state(&id);
            ensure!(is == Some(state), "it is {is:?}");
            Ok(())
        })
        .await
    }

    /// Checks that the scope was given back, not left to expire.
    async fn is_free(&self) -> Result<()> {
        let state = self.shell.json(&["get", "job"]).await?;
        ensure!(state["held"] == false, "it is {state}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_has_the_grant_and_its_exit_code_is_passed_on() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let told = r#"test -r "$EPOCH_CERT_FILE" && test -n "$EPOCH_SESSION" && echo "$EPOCH_SCOPE $EPOCH"; exit 7"#;
    let ran = jobs.start(&[], told)?.ended().await?;
    ensure!(ran.code == Some(7), "{ran:?}");
    let (scope, epoch) = ran.stdout.trim().split_once(' ').context("not told")?;
    assert_eq!(scope, "job");
    jobs.is_free().await?;

    let session = jobs.shell.session("other").await?;
    let next = jobs.shell.acquire("job", &session).await?;
    ensure!(next.parse::<u64>()? > epoch.parse()?, "not higher");
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_has_codes_of_its_own() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let head = ["run", "job", "--holder", "runner", "--ttl", "2s", "--"];
    let file = jobs.folder.join("text");
    fs::write(&file, "no program")?;
    let file = file.display().to_string();
    for (command, code) in [
        ("/nowhere/command", 127),
        ("no-such-command", 127),
        (file.as_str(), 126),
        ("/", 126),
    ] {
        let ran = jobs.shell.run(&[&head[..], &[command]].concat()).await?;
        ensure!(ran.code == Some(code), "{command}: {ran:?}");
        ensure!(ran.stderr.contains(command), "{ran:?}");
        jobs.is_free().await?;
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let ran = jobs.start(&[], &format!("kill -{signal} $$"))?;
        let ran = ran.ended().await?;
        ensure!(ran.code == Some(code), "killed by {signal}: {ran:?}");
    }
    let session = jobs.shell.session("other").await?;
    jobs.shell.acquire("job", &session).await?;
    let ran = jobs.start(&[], "true")?.ended().await?;
    ensure!(
        ran.code == Some(125) && ran.stderr.contains("SCOPE_HELD"),
        "{ran:?}"
    );
    let ran = jobs.start(&["--wait", "100ms"], "true")?.ended().await?;
    ensure!(
        ran.code == Some(125) && ran.stderr.contains("WAIT_EXPIRED"),
        "{ran:?}"
    );
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_its_turn_with_what_it_was_told_and_can_be_ended_meanwhile() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let session = jobs.shell.session("other").await?;
    let epoch = jobs.shell.acquire("job", &session).await?;
    let terms = ["--wait", "10m", "--metadata", "nightly"];

    let waiting = jobs.start(&terms, "true")?;
    jobs.shell.waiting("job", 1).await?;
    waiting.signal(Signal::TERM)?;
    let ran = waiting.ended().await?;
    ensure!(
        ran.code == Some(125) && ran.stderr.contains("before the command"),
        "{ran:?}"
    );
    let state = jobs.shell.json(&["get", "job"]).await?;
    assert_eq!(state["waiting"], 0, "its place was not given up");

    let waiting = jobs.start(&terms, STAY)?;
    jobs.shell.waiting("job", 1).await?;
    let release = ["release", "job", "--session", &session, "--epoch", &epoch];
    jobs.shell.json(&release).await?;
    jobs.word("ready").await?;
    let state = jobs.shell.json(&["get", "job"]).await?;
    assert_eq!(state["metadata"], "nightly", "{state}");
    waiting.signal(Signal::TERM)?;
    ensure!(waiting.ended().await?.code == Some(143));
    jobs.is_free().await?;
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_opens_when_it_is_not_wanted_any_more_is_closed() -> Result<()> {
    let mut cluster = Cluster::init()?;
    let proxies = Proxies::install(&mut cluster).await?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    let mut direct = Shell::of(cluster);
    // It is open, and the answer does not come.
    proxies.pass(Pass::Requests);
    let endpoints = proxies.endpoints();
    let run = [
        "--endpoints",
        &endpoints,
        "run",
        "job",
        "--holder",
        "runner",
    ];
    let running = direct.start(&[&run[..], &["--ttl", "10m", "--", "true"]].concat())?;
    let sessions = async |count: usize| {
        wait::until("so many sessions are there", async || {
            let list = direct.json(&["session", "list"]).await?;
            let found = list["sessions"].as_array().map_or(0, Vec::len);
            ensure!(found == count, "it is {list}");
            Ok(())
        })
        .await
    };
    sessions(1).await?;
    running.signal(Signal::TERM)?;
    proxies.pass(Pass::All);
    let ran = running.ended().await?;
    ensure!(ran.code == Some(125), "{ran:?}");
    sessions(0).await?;
    direct.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_are_passed_on_and_the_command_ends_as_it_likes() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    for (signal, name, code) in [
        (Signal::TERM, "TERM", 21),
        (Signal::INT, "INT", 22),
        (Signal::HUP, "HUP", 23),
        (Signal::QUIT, "QUIT", 24),
    ] {
        let script = format!("trap 'echo got > $DIR/{name}; exit {code}' {name}; {STAY}");
        let running = jobs.start(&[], &script)?;
        jobs.word("ready").await?;
        running.signal(signal)?;
        let ran = running.ended().await?;
        ensure!(ran.code == Some(code), "{name}: {ran:?}");
        jobs.word(name).await?;
        jobs.is_free().await?;
        jobs.forget("ready")?;
    }
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_of_the_commands_own_are_passed_on_and_end_nothing() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    // Longer than the grace.
    let script = format!(
        "for name in USR1 USR2; do
            trap \"sleep 0.3; echo got > $DIR/$name\" $name
        done; {STAY}"
    );
    let running = jobs.start(&["--grace", "100ms"], &script)?;
    jobs.word("ready").await?;
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::USR2, "USR2")] {
        running.signal(signal)?;
        jobs.word(name).await?;
    }
    running.signal(Signal::TERM)?;
    let ran = running.ended().await?;
    ensure!(ran.code == Some(143), "{ran:?}");
    jobs.is_free().await?;
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_was_started_to_ignore_it_and_the_command_ignore() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let script = format!("kill -HUP $$; kill -INT $$; {STAY}");
    let running = jobs.with_arguments(&[], &script, |args| {
        jobs.shell.start_by_env("--ignore-signal=HUP,INT", args)
    })?;
    jobs.word("ready").await?;
    running.signal(Signal::HUP)?;
    running.signal(Signal::INT)?;
    running.signal(Signal::TERM)?;
    let ran = running.ended().await?;
    ensure!(ran.code == Some(143), "{ran:?}");
    jobs.is_free().await?;
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_its_starter_blocks_reach_it() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    for (script, code) in [("echo $$ > $DIR/ready; exit 7", 7), (STAY, 143)] {
        let running = jobs.with_arguments(&[], script, |args| {
            let blocked = "--block-signal=CHLD,TERM";
            jobs.shell.start_by_env(blocked, args)
        })?;
        jobs.word("ready").await?;
        if code == 143 {
            running.signal(Signal::TERM)?;
        }
        let ran = running.ended().await?;
        ensure!(ran.code == Some(code), "{ran:?}");
        jobs.is_free().await?;
        jobs.forget("ready")?;
    }
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_ignores_a_signal_is_killed_after_the_grace() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    for signal in [Signal::TERM, Signal::INT] {
        let script = format!("trap '' TERM INT; {STAY}");
        let running = jobs.start(&["--grace", "200ms"], &script)?;
        jobs.word("ready").await?;
        running.signal(signal)?;
        let ran = running.ended().await?;
        ensure!(ran.code == Some(137), "{ran:?}");
        jobs.is_gone("ready").await?;
        jobs.is_free().await?;
        jobs.forget("ready")?;
    }
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_command_is_ended_as_well() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let running = jobs.start(&["--grace", "10m"], "echo $$ > $DIR/ready; kill -STOP $$")?;
    jobs.is_in_state("ready", 'T').await?;
    running.signal(Signal::TERM)?;
    let ran = running.ended().await?;
    ensure!(ran.code == Some(143), "{ran:?}");
    jobs.is_free().await?;
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_leaves_behind_has_ended_before_the_scope_is_given_back() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    // One that ends on TERM, one that ignores it, and one whose parent has ended already.
    let script = "
        sleep 600 & echo $! > $DIR/meek
        (trap '' TERM; echo > $DIR/trapped; while :; do sleep 0.05; done) & echo $! > $DIR/deaf
        (sleep 600 & echo $! > $DIR/orphan)
        while ! test -e $DIR/trapped || ! test -e $DIR/go; do sleep 0.02; done
        exit 3";
    let running = jobs.start(&["--grace", "200ms"], script)?;
    for name in ["meek", "deaf", "orphan", "trapped"] {
        jobs.word(name).await?;
    }
    // Who comes next finds none of them; at the most what has ended and init has not reaped yet.
    let find = "
        for name in meek deaf orphan; do
            grep -q '^State:.[^ZX]' /proc/$(cat $DIR/$name)/status 2>/dev/null && exit 9
        done
        exit 0";
    let next = jobs.start(&["--wait", "10m"], find)?;
    jobs.shell.waiting("job", 1).await?;
    fs::write(jobs.folder.join("go"), "")?;
    let ran = running.ended().await?;
    ensure!(ran.code == Some(3), "{ran:?}");
    let found = next.ended().await?;
    ensure!(
        found.code == Some(0),
        "the next holder found one: {found:?}"
    );
    for name in ["meek", "deaf", "orphan"] {
        jobs.is_gone(name).await?;
    }
    jobs.is_free().await?;
    jobs.shell.cluster.unharmed()
}

/// A command that ends in order on TERM, with a child that does not listen.
const FAMILY: &str = "
    trap 'echo told > $DIR/told; exit 0' TERM
    (trap '' TERM; echo > $DIR/trapped; while :; do sleep 0.05; done) & echo $! > $DIR/child
    while ! test -e $DIR/trapped; do sleep 0.02; done
    echo $$ > $DIR/ready; while :; do sleep 0.05; done";

impl Jobs {
    /// After the loss: the code says it, the command was told, and nobody of the family is left.
    async fn family_has_ended(&self, running: Running, reason: &str) -> Result<()> {
        let ran = running.ended().await?;
        ensure!(
            ran.code == Some(124) && ran.stderr.contains(reason),
            "{ran:?}"
        );
        self.word("told").await?;
        self.is_gone("ready").await?;
        self.is_gone("child").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_grant_ends_the_whole_group() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let running = jobs.start(&["--grace", "200ms"], FAMILY)?;
    jobs.word("ready").await?;
    let session = jobs.shell.session("next").await?;
    let wait = ["-o", "json", "acquire", "job", "--session", &session];
    let next = jobs
        .shell
        .start(&[&wait[..], &["--wait", "10m"]].concat())?;
    jobs.shell.waiting("job", 1).await?;
    let revoked = jobs.shell.json(&["revoke", "job"]).await?;
    jobs.family_has_ended(running, "EPOCH_SUPERSEDED").await?;
    // The next one has had it since.
    let granted = next.ended().await?.json()?;
    ensure!(number(&granted, "epoch")? > number(&revoked, "epoch")?);
    let state = jobs.shell.json(&["get", "job"]).await?;
    assert_eq!(state["epoch"], granted["epoch"], "{state}");
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_ends_the_whole_group_also_when_nobody_reads_what_is_said() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let pipe = FullPipe::new()?;
    // The shell tells there of children that signals have ended, and would wait too.
    let family = format!("exec 2> /dev/null; {FAMILY}");
    let running = jobs.with_arguments(&["--grace", "200ms"], &family, |args| {
        jobs.shell.start_into(args, Stdio::null(), pipe.end()?)
    })?;
    jobs.word("ready").await?;
    jobs.shell.json(&["revoke", "job"]).await?;
    let ran = running.ended().await?;
    ensure!(ran.code == Some(124), "{ran:?}");
    jobs.word("told").await?;
    jobs.is_gone("ready").await?;
    jobs.is_gone("child").await?;
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_reached_for_a_ttl_ends_the_whole_group() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let running = jobs.start(&["--grace", "200ms"], FAMILY)?;
    jobs.word("ready").await?;
    for id in jobs.shell.cluster.ids() {
        jobs.shell.cluster.kill(id)?;
    }
    jobs.family_has_ended(running, "SESSION_EXPIRED").await?;
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_while_it_was_stopped_ends_the_whole_group() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let running = jobs.start(&["--grace", "200ms"], FAMILY)?;
    jobs.word("ready").await?;
    running.signal(Signal::STOP)?;
    jobs.shell.held("job", false).await?;
    running.signal(Signal::CONT)?;
    jobs.family_has_ended(running, "SESSION_EXPIRED").await?;
    jobs.shell.cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ends_well_after_the_loss_has_not_done_well() -> Result<()> {
    let mut jobs = Jobs::new().await?;
    let script = "echo $$ > $DIR/ready; while ! test -e $DIR/go; do sleep 0.02; done";
    let running = jobs.start(&[], script)?;
    jobs.word("ready").await?;
    running.signal(Signal::STOP)?;
    jobs.shell.held("job", false).await?;
    // It ends while nobody looks.
    fs::write(jobs.folder.join("go"), "")?;
    jobs.is_in_state("ready", 'Z').await?;
    running.signal(Signal::CONT)?;
    let ran = running.ended().await?;
    ensure!(ran.code == Some(124), "{ran:?}");
    jobs.shell.cluster.unharmed()
}
