//! Who is left in a process group.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

/// Looks who is left in a process group.
///
/// A process that has ended and that its parent does not reap stays in its group, perhaps for ever
/// where the parent is outside: such a one does nothing any more, and does not count.
#[derive(Debug)]
pub(super) struct Members {
    group: Pid,
    /// One that was alive at the last look. All processes are looked at only without it.
    known: Option<i32>,
}

impl Members {
    pub(super) fn of(group: Pid) -> Self {
        Self { group, known: None }
    }

    /// Whether nobody of the group is alive.
    pub(super) fn are_gone(&mut self) -> bool {
        // Who may not be signalled is there all the same.
        if test_kill_process_group(self.group) == Err(Errno::SRCH) {
            return true;
        }
        // Twice: one that was started while its parent ended may have been missed.
        (0..2).all(|_look| self.only_ended_ones_are_left())
    }

    fn only_ended_ones_are_left(&mut self) -> bool {
        if let Some(known) = self.known
            && self.look_at(known) == Some(State::Alive)
        {
            return false;
        }
        let Ok(processes) = fs::read_dir("/proc") else {
            return false;
        };
        let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut has_ended_ones = false;
        for id in ids {
            match self.look_at(id) {
                Some(State::Alive) => {
                    self.known = Some(id);
                    return false;
                }
                Some(State::Ended) => has_ended_ones = true,
                None => {}
            }
        }
        // Without any, those that are there are hidden.
        has_ended_ones
    }

    /// None for a process that is not of the group.
    fn look_at(&self, process: i32) -> Option<State> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (group, state) = parse(&stat)?;
        (group == self.group.as_raw_pid()).then_some(state)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    Ended,
}

/// The group and the state in a `/proc/…/stat`.
fn parse(stat: &str) -> Option<(i32, State)> {
    // The name before it may have spaces and parentheses.
    let (_id_and_name, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let letter = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let threads: u64 = fields.nth(14)?.parse().ok()?;
    // The first thread of a process may end before the others.
    let has_ended = matches!(letter, "Z" | "X") && threads <= 1;
    let state = match has_ended {
        true => State::Ended,
        false => State::Alive,
    };
    Some((group, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: &str, threads: u64) -> String {
        format!("77 ({name}) {state} 1 42 42 0 -1 4228364 0 0 0 0 0 0 0 0 20 0 {threads} 0 9000 0")
    }

    #[test]
    fn only_a_process_without_a_thread_that_runs_has_ended() {
        assert_eq!(parse(&stat("a", "S", 1)), Some((42, State::Alive)));
        assert_eq!(parse(&stat("a", "T", 1)), Some((42, State::Alive)));
        assert_eq!(parse(&stat("a", "Z", 1)), Some((42, State::Ended)));
        assert_eq!(parse(&stat("a", "Z", 2)), Some((42, State::Alive)));
        assert_eq!(parse(&stat("a) Z 1 (b", "S", 1)), Some((42, State::Alive)));
        assert_eq!(parse("77 (a) Z"), None);
    }
}
