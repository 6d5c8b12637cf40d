//! Seeing a command and all of its group to their end.

use std::time::Duration;

use epoch_client::Grant;
use rustix::process::Signal;
use tokio::time::{Instant, sleep_until};

use super::group::{Ended, Group};
use crate::output::Output;
use crate::signals::Signals;

/// Returns the command's exit code once nobody of its group is left.
///
/// The group is told to stop when the grant is lost, when the command has ended and has left others
/// behind, and when it waits for a terminal in vain; a signal to this process that asks it to end
/// is passed on as it is. After the first of these the group has the grace to end; then it is
/// killed. The signals with a meaning of the command's own are passed on, and that is all.
pub(super) async fn supervise(
    group: &mut Group,
    grant: &Grant,
    signals: &mut Signals,
    of_the_command: &mut Signals,
    grace: Duration,
    output: Output,
) -> u8 {
    let mut kill_at: Option<Instant> = None;
    let (mut is_lost, mut is_killed) = (false, false);
    // None for a grace that is longer than clocks reach.
    let after_grace = || Instant::now().checked_add(grace);
    loop {
        tokio::select! {
            biased;
            ended = group.ended() => match ended {
                Ended::All(code) => return code,
                Ended::Command => {
                    group.end(Signal::TERM);
                    output.note("the command has ended; what it left behind is told to stop");
                    kill_at = kill_at.or_else(after_grace);
                }
                Ended::Stopped => {
                    // It would hold the scope for ever while it does nothing.
                    group.end(Signal::TERM);
                    output.note(
                        "the command was stopped as it used the terminal (/dev/tty), which it does \
                         not have under `run`; it is told to stop",
                    );
                    kill_at = kill_at.or_else(after_grace);
                }
            },
            () = grant.lost(), if !is_lost => {
                is_lost = true;
                group.end(Signal::TERM);
                output.note("the grant is lost; the command is told to stop");
                kill_at = kill_at.or_else(after_grace);
            }
            signal = of_the_command.next() => group.signal(signal),
            signal = signals.next() => {
                group.end(signal);
                kill_at = kill_at.or_else(after_grace);
            }
            () = moment(kill_at), if !is_killed => {
                is_killed = true;
                group.end(Signal::KILL);
                output.note("the grace is over; the command is killed");
            }
        }
    }
}

async fn moment(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
