//! The one way out when going on would break a promise: say why, and stop. The supervisor
//! restarts the process, and what was acknowledged is on the disk.

use std::panic;

/// Exit code after a failure that the process must not survive.
const EXIT_FATAL: i32 = 70;

/// Says why and ends the process.
pub fn stop(why: &str) -> ! {
    tracing::error!(why, "stopping: restart the node once the cause is mended");
    #[expect(
        clippy::exit,
        reason = "the one place: a dead core must not answer any more"
    )]
    std::process::exit(EXIT_FATAL)
}

/// Lets this process open as many files and connections as the system allows it: running out of
/// them fails the log's and the snapshots' files just as it fails connections.
pub fn raise_open_files_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit on open files cannot be raised");
    }
}

/// Makes every panic end the process: a panic in a replication task would otherwise die silently
/// and leave a node that looks alive.
pub fn stop_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if epoch_store::checkpoint::contains_panic() {
            // The checkpoint's table has failed: the store says so, and goes on without it.
            tracing::warn!(%info, "a panic in the checkpoint's table");
            return;
        }
        report(info);
        stop(&format!("a bug: {info}"));
    }));
}
