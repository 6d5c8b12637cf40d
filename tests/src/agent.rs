//! Driving an agent: one process that holds a scope, says each step as a line of JSON, and does what
//! it is told to by lines on its stdin.

use std::fs;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use epoch_core::Pin;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::binaries::binary;
use crate::wait;

/// The exit code of an agent that was told that it has been replaced.
pub const EXIT_SUPERSEDED: i32 = 4;

/// The line by which an agent says a step.
#[must_use]
pub fn line(name: &str, fields: &Value) -> String {
    let mut line = json!({ "step": name });
    if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object()) {
        line.extend(fields.clone());
    }
    line.to_string()
}

/// What a report agent is started with.
#[derive(Debug, Clone)]
pub struct Task<'a> {
    /// Whom it acts for.
    pub holder: &'a str,
    /// What it reports on.
    pub scope: &'a str,
    /// The cluster's client listeners, separated by commas.
    pub endpoints: &'a str,
    /// The cluster's root key.
    pub pin: &'a Pin,
    /// The resource: a SQLite file.
    pub database: &'a Path,
    /// Its session's time to live, such as `2s`.
    pub ttl: &'a str,
    /// Whether it raises the resource's fence right after it has acquired.
    pub barrier: bool,
}

/// A running agent. Killed when dropped.
#[derive(Debug)]
pub struct Agent {
    holder: String,
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Agent {
    /// Starts a report agent. Before its write it waits for [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// The binary is not there or does not start.
    pub fn start(task: &Task<'_>) -> Result<Self> {
        let mut command = Command::new(binary("report-agent")?);
        command
            .args([
                "--holder",
                task.holder,
                "--scope",
                task.scope,
                "--ttl",
                task.ttl,
            ])
            .args(["--endpoints", task.endpoints])
            .args(["--pin", &task.pin.to_string(), "--database"])
            .arg(task.database);
        if task.barrier {
            command.arg("--barrier");
        }
        Self::run(task.holder, command)
    }

    /// Starts an agent that acts for `holder`.
    ///
    /// # Errors
    /// It does not start.
    pub fn run(holder: &str, mut command: Command) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the agent")?;
        let stdin = process.stdin.take().context("the agent has no stdin")?;
        let stdout = process.stdout.take().context("the agent has no stdout")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Self {
            holder: holder.to_owned(),
            process,
            stdin,
            lines,
        })
    }

    /// Whom it acts for.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The agent's process id.
    ///
    /// # Errors
    /// It has ended.
    pub fn process_id(&self) -> Result<u32> {
        self.process
            .id()
            .with_context(|| format!("{} has ended", self.holder))
    }

    /// Waits for the agent's next line, which has to be of the step named.
    ///
    /// # Errors
    /// Another step came, or none in time.
    pub async fn step(&mut self, name: &str) -> Result<Value> {
        let line = tokio::time::timeout(wait::BOUND, self.lines.next_line());
        let line = line
            .await
            .with_context(|| format!("{}: no step {name:?}", self.holder))??;
        let line = line.with_context(|| format!("{} ended before {name:?}", self.holder))?;
        let step: Value = serde_json::from_str(&line).with_context(|| format!("line {line:?}"))?;
        if step["step"] != name {
            bail!("{}: expected step {name:?}, got {line}", self.holder);
        }
        Ok(step)
    }

    /// Lets the agent go on from where it waits.
    ///
    /// # Errors
    /// It has ended.
    pub async fn go_on(&mut self) -> Result<()> {
        self.tell("go").await
    }

    /// Gives the agent a line to read.
    ///
    /// # Errors
    /// It has ended.
    pub async fn tell(&mut self, order: &str) -> Result<()> {
        self.stdin
            .write_all(format!("{order}\n").as_bytes())
            .await?;
        self.stdin.flush().await?;
        Ok(())
    }

    /// Ends the agent at once (`kill -9`).
    ///
    /// # Errors
    /// The system refuses.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }

    /// Holds the agent still (SIGSTOP), and waits until every thread of it is.
    ///
    /// # Errors
    /// It has ended.
    pub async fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let stat = format!("/proc/{}/stat", self.process_id()?);
        wait::until("the agent is stopped", async || {
            let stat = fs::read_to_string(&stat)?;
            // The state is the first field behind the name, which is in parentheses.
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            ensure!(state == Some('T'), "its state is {state:?}");
            Ok(())
        })
        .await
    }

    /// Lets a held agent go on (SIGCONT).
    ///
    /// # Errors
    /// It has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.process_id()?).context("process id")?;
        kill_process(Pid::from_raw(id).context("process id 0")?, signal)?;
        Ok(())
    }

    /// Waits until the agent has ended by itself.
    ///
    /// # Errors
    /// It did not.
    pub async fn ended(mut self) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(wait::BOUND, self.process.wait()).await;
        Ok(ended.with_context(|| format!("{} did not end", self.holder))??)
    }
}
