//! Running the command line.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::process::Command;

use crate::binaries::binary;

/// The longest a command may take.
const BOUND: Duration = Duration::from_secs(60);

/// What a command did.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Data.
    pub stdout: String,
    /// Messages.
    pub stderr: String,
}

impl Ran {
    /// stdout as JSON.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("stdout is not JSON: {:?} ({:?})", self.stdout, self.stderr))
    }
}

/// A command of `epochctl`, without settings from the environment.
///
/// # Errors
/// The binary is not there.
pub fn epochctl<S: AsRef<std::ffi::OsStr>>(
    endpoints: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<Command> {
    let mut command = Command::new(binary("epochctl")?);
    command
        .env_remove("EPOCHCTL_OUTPUT")
        .env("EPOCHCTL_ENDPOINTS", endpoints)
        .args(args);
    Ok(command)
}

/// Runs a command to its end with stdin closed.
///
/// # Errors
/// It cannot be started, or does not end in a minute.
pub async fn run(command: &mut Command) -> Result<Ran> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let output = tokio::time::timeout(BOUND, child.wait_with_output())
        .await
        .with_context(|| format!("{command:?} did not end"))??;
    Ok(Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs `epochctl` to its end.
///
/// # Errors
/// As [`run`].
pub async fn run_epochctl(endpoints: &str, args: &[&str]) -> Result<Ran> {
    run(&mut epochctl(endpoints, args)?).await
}
