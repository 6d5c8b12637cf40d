//! The command, in a process group of its own.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use epoch_client::Grant;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::exit::{Failure, RUN_CANNOT_EXECUTE, RUN_FAILED, RUN_NOT_FOUND};

/// How often it is looked whether the group has ended: nothing tells when processes end that are
/// not one's own children.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The command, in a process group of its own.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    id: Pid,
}

impl Group {
    /// Starts the command for a grant.
    pub(crate) fn start(
        command: &[OsString],
        grant: &Grant,
        certificate: &Path,
    ) -> Result<Self, Failure> {
        let variables = [
            ("EPOCH", OsString::from(grant.epoch().get().to_string())),
            ("EPOCH_SCOPE", OsString::from(grant.scope().as_str())),
            ("EPOCH_CERT_FILE", certificate.as_os_str().to_owned()),
            (
                "EPOCH_SESSION",
                OsString::from(grant.session().id().hash().to_string()),
            ),
        ];
        Self::spawn(command, variables)
    }

    fn spawn<const N: usize>(
        command: &[OsString],
        variables: [(&str, OsString); N],
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::usage("no command was given", "name one after --"));
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(variables)
            .process_group(0)
            .kill_on_drop(true);
        if std::io::stdin().is_terminal() {
            // A group in the background that reads from a terminal is stopped, and would hold the
            // scope while it does nothing.
            command.stdin(Stdio::null());
        }
        let child = command.spawn().map_err(|error| {
            let (code, next) = match error.kind() {
                ErrorKind::NotFound => (RUN_NOT_FOUND, "check its name and PATH"),
                _other => (
                    RUN_CANNOT_EXECUTE,
                    "check that it is a program that may be run",
                ),
            };
            let program = program.display();
            Failure::local(format!("cannot run {program}: {error}"), next).with_code(code)
        })?;
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let id = id.ok_or_else(|| {
            let failure = Failure::local("the command has no process id", "report it");
            failure.with_code(RUN_FAILED)
        })?;
        Ok(Self { child, id })
    }

    /// Waits for the command's end: its exit code, or 128 and the signal that ended it.
    pub(crate) async fn ended(&mut self) -> Result<u8, Failure> {
        let status = self.child.wait().await;
        status.map(code).map_err(|error| {
            Failure::local(
                format!("cannot wait for the command: {error}"),
                "check what it did",
            )
        })
    }

    /// Passes a signal on to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // It fails where nobody is left to get it, and that is as good.
        let _nobody_left = kill_process_group(self.id, signal);
    }

    /// Ends the whole group: TERM, the grace, KILL.
    pub(crate) async fn stop(&mut self, grace: Duration) -> Result<(), Failure> {
        self.signal(Signal::TERM);
        let id = self.id;
        let gone = async {
            self.ended().await?;
            // The command may have ended and left others of its group behind, which go on.
            while test_kill_process_group(id).is_ok() {
                sleep(LOOK_EVERY).await;
            }
            Ok(())
        };
        match timeout(grace, gone).await {
            Ok(gone) => gone,
            Err(_elapsed) => {
                self.signal(Signal::KILL);
                self.ended().await.map(drop)
            }
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(RUN_FAILED)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn shell(script: &str) -> Group {
        let command = ["sh", "-c", script].map(OsString::from);
        Group::spawn(&command, [("EPOCH", OsString::from("42"))]).unwrap()
    }

    /// A file that the command has written to.
    async fn written(path: &Path) -> String {
        loop {
            let mut text = String::new();
            if let Ok(mut file) = std::fs::File::open(path)
                && file.read_to_string(&mut text).is_ok()
                && text.ends_with('\n')
            {
                return text;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    #[tokio::test]
    async fn the_commands_code_is_passed_on_and_it_has_the_epoch() {
        assert_eq!(
            shell("test $EPOCH = 42 && exit 7").ended().await.unwrap(),
            7
        );
    }

    #[tokio::test]
    async fn a_command_ended_by_a_signal_gives_128_and_the_signal() {
        assert_eq!(shell("kill -KILL $$").ended().await.unwrap(), 137);
    }

    #[tokio::test]
    async fn what_is_not_found_and_what_cannot_be_executed_are_told_apart() {
        let start = |program: &str| {
            Group::spawn(&[OsString::from(program)], [])
                .unwrap_err()
                .code
        };
        assert_eq!(start("/nowhere/at/all"), RUN_NOT_FOUND);
        assert_eq!(start("/"), RUN_CANNOT_EXECUTE);
    }

    #[tokio::test]
    async fn stopping_ends_the_whole_group_also_what_ignores_term() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ready");
        // A grandchild that ignores TERM, in a shell that ends on it.
        let script = format!(
            "(trap '' TERM; echo ready > {}; while :; do sleep 1; done) & wait",
            file.display()
        );
        let mut group = shell(&script);
        written(&file).await;
        group.stop(Duration::from_millis(200)).await.unwrap();
        while is_alive(group.id) {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether a process of the group is more than a zombie: who has to reap it may not have yet.
    fn is_alive(group: Pid) -> bool {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let stats = processes
            .filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
        stats.into_iter().any(|stat| {
            // After the name in parentheses: state, parent, group.
            let fields = stat
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .split_whitespace();
            let [state, _parent, id] = fields.take(3).collect::<Vec<_>>()[..] else {
                return false;
            };
            state != "Z" && id == group.as_raw_nonzero().to_string()
        })
    }

    #[test]
    fn a_group_that_runs_is_seen_to_be_alive() {
        assert!(is_alive(rustix::process::getpgrp()));
    }

    #[tokio::test]
    async fn a_signal_reaches_the_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ready");
        let script = format!(
            "trap 'exit 9' INT; echo > {}; while :; do sleep 0.05; done",
            file.display()
        );
        let mut group = shell(&script);
        written(&file).await;
        group.signal(Signal::INT);
        assert_eq!(group.ended().await.unwrap(), 9);
    }
}
