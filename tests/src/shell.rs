//! A cluster, and the command line pointed at it.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use crate::cluster::{Cluster, number, text};
use crate::command_line::{Ran, epochctl, run_epochctl};
use crate::wait;

/// A cluster, and the command line pointed at it.
#[derive(Debug)]
pub struct Shell {
    /// The cluster.
    pub cluster: Cluster,
    endpoints: String,
}

impl Shell {
    /// Starts three nodes.
    ///
    /// # Errors
    /// A node does not come up.
    pub async fn new() -> Result<Self> {
        Ok(Self::of(Cluster::start().await?))
    }

    /// The command line of a cluster that runs.
    #[must_use]
    pub fn of(cluster: Cluster) -> Self {
        Self {
            endpoints: cluster.endpoints(),
            cluster,
        }
    }

    /// A command, to its end.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub async fn run(&self, args: &[&str]) -> Result<Ran> {
        run_epochctl(&self.endpoints, args).await
    }

    /// A command of which nothing is awaited yet.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, args: &[&str]) -> Result<Running> {
        let child = self
            .command(args)?
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {args:?}"))?;
        Ok(Running(child))
    }

    /// A command whose stdout and stderr are somebody else's.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_into(&self, args: &[&str], stdout: Stdio, stderr: Stdio) -> Result<Running> {
        let mut command = self.command(args)?;
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let child = command
            .spawn()
            .with_context(|| format!("starting {args:?}"))?;
        Ok(Running(child))
    }

    /// A command that is started by `env` with an option, such as `--ignore-signal=HUP,INT`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_by_env(&self, option: &str, args: &[&str]) -> Result<Running> {
        let mut command = self.command_by_env(Some(option), args)?;
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {args:?}"))?;
        Ok(Running(child))
    }

    /// A command that has to succeed, with `input` on its stdin; its result as JSON.
    ///
    /// # Errors
    /// It fails.
    pub async fn json_with(&self, args: &[&str], input: &str) -> Result<Value> {
        let file = self.cluster.path().join("stdin");
        std::fs::write(&file, input)?;
        let mut all = vec!["-o", "json"];
        all.extend(args);
        let stdin = std::fs::File::open(&file)?;
        let child = self.command(&all)?.stdin(stdin).spawn()?;
        let ran = Running(child).ended().await?;
        ensure!(ran.code == Some(0), "{args:?}: {ran:?}");
        ran.json()
    }

    fn command(&self, args: &[&str]) -> Result<tokio::process::Command> {
        self.command_by_env(None, args)
    }

    /// What the tests themselves were started to ignore (by `nohup`, say) is not ignored.
    fn command_by_env(
        &self,
        option: Option<&str>,
        args: &[&str],
    ) -> Result<tokio::process::Command> {
        let plain = epochctl(&self.endpoints, args)?;
        let plain = plain.as_std();
        let variables = plain.get_envs();
        let variables = variables.filter_map(|(name, value)| Some((name, value?)));
        let mut command = tokio::process::Command::new("env");
        command
            .arg("--default-signal=HUP,INT,QUIT")
            .args(option)
            .arg(plain.get_program())
            .args(plain.get_args())
            .envs(variables)
            .env_remove("EPOCHCTL_OUTPUT")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// A command that has to succeed, its result as JSON.
    ///
    /// # Errors
    /// It fails, or prints more than one line.
    pub async fn json(&self, args: &[&str]) -> Result<Value> {
        let mut all = vec!["-o", "json"];
        all.extend(args);
        let ran = self.run(&all).await?;
        ensure!(ran.code == Some(0), "{args:?}: {ran:?}");
        ensure!(
            ran.stdout.lines().count() == 1,
            "{args:?}: not one line: {ran:?}"
        );
        ran.json()
    }

    /// A command that has to succeed, its result for people.
    ///
    /// # Errors
    /// It fails.
    pub async fn table(&self, args: &[&str]) -> Result<String> {
        let ran = self.run(args).await?;
        ensure!(ran.code == Some(0), "{args:?}: {ran:?}");
        Ok(ran.stdout)
    }

    /// A command that has to fail, with this exit code and reason, and nothing on stdout.
    ///
    /// # Errors
    /// It does not, or otherwise.
    pub async fn fails(&self, args: &[&str], code: i32, reason: &str) -> Result<()> {
        let mut all = vec!["-o", "json"];
        all.extend(args);
        let ran = self.run(&all).await?;
        refused(&ran, code, reason).with_context(|| format!("{args:?}"))
    }

    /// Opens a session of ten minutes; its id.
    ///
    /// # Errors
    /// It is refused.
    pub async fn session(&self, holder: &str) -> Result<String> {
        let open = ["session", "open", "--holder", holder, "--ttl", "10m"];
        Ok(text(&self.json(&open).await?, "session_id")?.to_owned())
    }

    /// Takes a scope; the epoch, as arguments take it.
    ///
    /// # Errors
    /// It is refused.
    pub async fn acquire(&self, scope: &str, session: &str) -> Result<String> {
        let acquire = ["acquire", scope, "--session", session];
        Ok(number(&self.json(&acquire).await?, "epoch")?.to_string())
    }

    /// Waits until a scope is held, or is not held any more.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn held(&self, scope: &str, held: bool) -> Result<Value> {
        wait::until("a scope is held or free", async || {
            let state = self.json(&["get", scope]).await?;
            ensure!(state["held"] == held, "it is {state}");
            Ok(state)
        })
        .await
    }

    /// Waits until so many wait for a scope.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn waiting(&self, scope: &str, count: u64) -> Result<Value> {
        wait::until("so many wait for a scope", async || {
            let state = self.json(&["get", scope]).await?;
            ensure!(state["waiting"] == count, "it is {state}");
            Ok(state)
        })
        .await
    }
}

/// Checks what a command with `-o json` said when it failed.
///
/// # Errors
/// It did not fail, or otherwise.
pub fn refused(ran: &Ran, code: i32, reason: &str) -> Result<()> {
    ensure!(ran.code == Some(code) && ran.stdout.is_empty(), "{ran:?}");
    let last = ran.stderr.lines().last().unwrap_or_default();
    let problem: Value = serde_json::from_str(last).with_context(|| format!("{ran:?}"))?;
    ensure!(
        problem["reason"] == reason && problem["message"].is_string(),
        "{ran:?}"
    );
    Ok(())
}

/// A command that runs. It is killed with this value.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(kill_process(id.context("it has ended")?, signal)?)
    }

    /// The lines of its stdout; then they are missing in [`ended`](Self::ended).
    ///
    /// # Errors
    /// They were taken before.
    pub fn lines(&mut self) -> Result<Lines<BufReader<ChildStdout>>> {
        let stdout = self.0.stdout.take().context("taken before")?;
        Ok(BufReader::new(stdout).lines())
    }

    /// Waits for its end, and for that of all who write to its stdout and stderr.
    ///
    /// # Errors
    /// It does not end.
    pub async fn ended(self) -> Result<Ran> {
        let output = timeout(wait::BOUND, self.0.wait_with_output()).await;
        let output = output.context("it did not end")??;
        Ok(Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// The next line, as JSON.
///
/// # Errors
/// None comes, or it is no JSON.
pub async fn next_json(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<Value> {
    let line = timeout(wait::BOUND, lines.next_line()).await;
    let line = line.context("no line came")??.context("it has ended")?;
    serde_json::from_str(&line).with_context(|| format!("no JSON: {line:?}"))
}
