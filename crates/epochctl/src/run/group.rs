//! The command, in a process group of its own.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use epoch_client::Grant;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, set_child_subreaper, wait,
};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::sleep;

use super::members::Members;
use crate::exit::{Failure, RUN_CANNOT_EXECUTE, RUN_FAILED, RUN_NOT_FOUND};

/// How often it is looked whether the rest of the group has ended: nothing tells when processes
/// end that are not one's own children.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The command, in a process group of its own, with all that it starts and that stays in it.
///
/// This process takes over, and reaps, what the command leaves behind: otherwise it would depend
/// on process 1, which in containers often reaps nobody, when a group counts as gone. So there can
/// be one group at a time, and no other children.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    members: Members,
    children: unix::Signal,
    code: Option<u8>,
    is_gone: bool,
    terminal: Terminal,
}

/// What the command has to do with a terminal: it has none, being in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Terminal {
    LetItRun,
    HasStoppedIt,
    /// That was told.
    Told,
}

/// What has come of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command, and others of its group go on.
    Command,
    /// Nothing: the command wanted the terminal and was stopped for it, for good, as it is not given
    /// that. Told once.
    Stopped,
    /// The whole group; with the command's exit code, or 128 and the signal that ended it.
    All(u8),
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
                OsString::from(grant.session().hash().to_string()),
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
        let unready = |error: std::io::Error| {
            let message = format!("cannot look after a command: {error}");
            Failure::local(message, "try again").with_code(RUN_FAILED)
        };
        set_child_subreaper(Some(getpid())).map_err(|error| unready(error.into()))?;
        let children = unix::signal(SignalKind::child()).map_err(unready)?;
        let mut command = Command::new(program);
        // An id that this process was given is another session's than the grant's.
        command.args(arguments).envs(variables);
        command.env_remove("EPOCHCTL_SESSION").process_group(0);
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
        let id = Pid::from_child(&child);
        Ok(Self {
            id,
            members: Members::of(id),
            children,
            code: None,
            is_gone: false,
            terminal: Terminal::LetItRun,
        })
    }

    /// Waits for the command's end, or that the terminal stops it, and after that for the end of
    /// the group. It may be dropped while it waits: nothing is lost by it.
    pub(crate) async fn ended(&mut self) -> Ended {
        let command_ran = self.code.is_none();
        loop {
            self.reap();
            match self.code {
                None if self.terminal == Terminal::HasStoppedIt => {
                    self.terminal = Terminal::Told;
                    return Ended::Stopped;
                }
                None => {
                    self.children.recv().await;
                }
                Some(code) if self.members.are_gone() => {
                    self.is_gone = true;
                    return Ended::All(code);
                }
                Some(_) if command_ran => return Ended::Command,
                Some(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((id, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if id != self.id {
                continue;
            }
            match status.stopping_signal() {
                None => self.code = Some(code(status)),
                Some(signal) if is_of_terminal(signal) && self.terminal != Terminal::Told => {
                    self.terminal = Terminal::HasStoppedIt;
                }
                // By somebody who may let it go on.
                Some(_signal) => {}
            }
        }
    }

    /// Passes a signal on to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // It fails where nobody is left to get it, and that is as good.
        let _nobody_left = kill_process_group(self.id, signal);
    }

    /// Tells the whole group to end by a signal, also those in it that are stopped.
    pub(crate) fn end(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_gone {
            // Nobody looks after it any more.
            self.end(Signal::KILL);
        }
    }
}

/// Whether a process is stopped by this signal that uses a terminal from the background.
fn is_of_terminal(signal: i32) -> bool {
    [Signal::TTIN, Signal::TTOU]
        .map(Signal::as_raw)
        .contains(&signal)
}

fn code(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(RUN_FAILED)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use rustix::process::kill_process;
    use tokio::sync::{Mutex, MutexGuard};

    use super::*;

    /// One group at a time: each reaps all children of this process.
    static ONE: Mutex<()> = Mutex::const_new(());

    async fn shell(script: &str) -> (Group, MutexGuard<'static, ()>) {
        let one = ONE.lock().await;
        let command = ["sh", "-c", script].map(OsString::from);
        let group = Group::spawn(&command, [("EPOCH", OsString::from("42"))]).unwrap();
        (group, one)
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
        let (mut group, _one) = shell("test $EPOCH = 42 && exit 7").await;
        assert_eq!(group.ended().await, Ended::All(7));
    }

    #[tokio::test]
    async fn a_command_ended_by_a_signal_gives_128_and_the_signal() {
        let (mut group, _one) = shell("kill -KILL $$").await;
        assert_eq!(group.ended().await, Ended::All(137));
    }

    #[tokio::test]
    async fn what_is_not_found_and_what_cannot_be_executed_are_told_apart() {
        let _one = ONE.lock().await;
        let start = |program: &str| {
            Group::spawn(&[OsString::from(program)], [])
                .unwrap_err()
                .code
        };
        assert_eq!(start("/nowhere/at/all"), RUN_NOT_FOUND);
        assert_eq!(start("/"), RUN_CANNOT_EXECUTE);
    }

    #[tokio::test]
    async fn what_the_command_leaves_behind_is_seen_and_ends_with_the_group() {
        // Stopped: it has to be woken to be told.
        let (mut group, _one) = shell("sleep 600 & kill -STOP $!; exit 3").await;
        assert_eq!(group.ended().await, Ended::Command);
        group.end(Signal::TERM);
        assert_eq!(group.ended().await, Ended::All(3));
    }

    #[tokio::test]
    async fn one_that_has_ended_and_is_not_reaped_by_a_parent_outside_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("parent");
        // It waits until the child has ended, in a session of its own, and never reaps it.
        let script = format!(
            "(sh -c 'exit 0' & exec setsid sh -c 'echo $$ > {}; exec sleep 600') & exit 3",
            file.display()
        );
        let (mut group, _one) = shell(&script).await;
        while group.ended().await != Ended::All(3) {}
        let parent = written(&file).await.trim().parse().unwrap();
        kill_process(Pid::from_raw(parent).unwrap(), Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn who_ignores_a_signal_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ready");
        let script = format!(
            "(trap '' TERM; echo > {}; while :; do sleep 1; done) & wait",
            file.display()
        );
        let (mut group, _one) = shell(&script).await;
        written(&file).await;
        group.end(Signal::TERM);
        assert_eq!(group.ended().await, Ended::Command);
        group.end(Signal::KILL);
        assert_eq!(group.ended().await, Ended::All(128 + 15));
    }

    #[tokio::test]
    async fn a_command_that_the_terminal_has_stopped_is_told_of_and_can_be_ended() {
        for signal in ["TTIN", "TTOU"] {
            let (mut group, _one) = shell(&format!("kill -{signal} $$; exit 3")).await;
            assert_eq!(group.ended().await, Ended::Stopped);
            group.end(Signal::TERM);
            assert_eq!(group.ended().await, Ended::All(128 + 15));
        }
    }

    #[tokio::test]
    async fn it_is_told_once_that_the_terminal_has_stopped_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("on");
        let script = format!(
            "trap '' TERM; kill -TTIN $$; echo > {}; kill -TTIN $$; exit 3",
            file.display()
        );
        let (mut group, _one) = shell(&script).await;
        assert_eq!(group.ended().await, Ended::Stopped);
        group.end(Signal::TERM);
        written(&file).await;
        let id = group.id;
        let stat = format!("/proc/{}/stat", id.as_raw_pid());
        let killed_once_stopped = async {
            while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
                sleep(LOOK_EVERY).await;
            }
            // It would be told by now.
            sleep(LOOK_EVERY).await;
            kill_process_group(id, Signal::KILL).unwrap();
        };
        let (ended, ()) = tokio::join!(group.ended(), killed_once_stopped);
        assert_eq!(ended, Ended::All(128 + 9));
    }

    #[tokio::test]
    async fn a_command_that_another_has_stopped_is_waited_for() {
        let wakes = "until grep -q ') T ' /proc/$$/stat; do :; done; kill -CONT $$";
        let (mut group, _one) = shell(&format!("({wakes}) & kill -STOP $$; wait; exit 3")).await;
        assert_eq!(group.ended().await, Ended::All(3));
    }

    #[tokio::test]
    async fn a_signal_reaches_the_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ready");
        let script = format!(
            "trap 'exit 9' INT; echo > {}; while :; do sleep 0.05; done",
            file.display()
        );
        let (mut group, _one) = shell(&script).await;
        written(&file).await;
        group.end(Signal::INT);
        assert_eq!(group.ended().await, Ended::All(9));
    }

    #[tokio::test]
    async fn a_group_that_nobody_looks_after_any_more_is_killed() {
        let (group, _one) = shell("sleep 600").await;
        let id = group.id;
        drop(group);
        let (reaped, status) = rustix::process::waitpid(Some(id), WaitOptions::empty())
            .unwrap()
            .unwrap();
        assert_eq!((reaped, status.terminating_signal()), (id, Some(9)));
    }
}
