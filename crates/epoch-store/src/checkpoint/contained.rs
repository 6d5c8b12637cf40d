//! Keeps trouble inside sled from ending the process or stopping it: sled panics, and now and then
//! waits for ever, when its files are damaged.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::error::{OffReason, TableError};

/// Name of the threads in which the checkpoint calls sled.
const THREAD_NAME: &str = "checkpoint";

/// How the names of sled's own threads begin.
const SLED_THREAD_PREFIX: &str = "sled-io-";
/// How often a waiting caller looks whether one of sled's threads has died.
const LOOK: Duration = Duration::from_millis(100);

/// One of sled's threads has died, and with it what it was to write: whoever waits for that waits
/// for ever. sled's threads serve all of its tables, so this holds for the whole process.
static SLED_THREAD_DIED: AtomicBool = AtomicBool::new(false);

/// For a panic hook that ends the process, to be called first, in the thread that panics: `true`
/// when the panic is the checkpoint's, which goes on without its table. The process must then be
/// left to live.
#[must_use]
pub fn contains_panic() -> bool {
    contains_panic_of(thread::current().name(), &SLED_THREAD_DIED)
}

fn contains_panic_of(thread: Option<&str>, sled_thread_died: &AtomicBool) -> bool {
    match thread {
        Some(THREAD_NAME) => true,
        Some(name) if name.starts_with(SLED_THREAD_PREFIX) => {
            sled_thread_died.store(true, Ordering::SeqCst);
            true
        }
        Some(_) | None => false,
    }
}

/// How contained work ended when it did not end well.
#[derive(Debug)]
pub(super) enum Trouble {
    /// With an error.
    Failed(TableError),
    /// With a panic, or not at all. What it had open is left behind.
    Gone(OffReason),
}

/// By which contained work tells its caller that it gets on.
#[derive(Debug)]
pub(super) struct Steps {
    taken: SyncSender<()>,
    go_on: Receiver<()>,
}

impl Steps {
    /// Reports a step, and waits while the caller paces.
    ///
    /// # Errors
    /// The caller has given up.
    pub(super) fn step(&self) -> Result<(), TableError> {
        self.taken.send(()).map_err(|_gone| TableError::Abandoned)?;
        self.go_on.recv().map_err(|_gone| TableError::Abandoned)
    }
}

/// Runs `work` in a thread of its own, calling `pace` here after each of its steps. Gives up when
/// it takes no step for `step_time_max`.
pub(super) fn contained<T: Send + 'static>(
    step_time_max: Duration,
    pace: &mut dyn FnMut(),
    work: impl FnOnce(&Steps) -> Result<T, TableError> + Send + 'static,
) -> Result<T, Trouble> {
    watched(&SLED_THREAD_DIED, step_time_max, pace, work)
}

fn watched<T: Send + 'static>(
    sled_thread_died: &AtomicBool,
    step_time_max: Duration,
    pace: &mut dyn FnMut(),
    work: impl FnOnce(&Steps) -> Result<T, TableError> + Send + 'static,
) -> Result<T, Trouble> {
    let (taken, steps) = sync_channel(1);
    let (go, go_on) = sync_channel(1);
    let (done, result) = sync_channel(1);
    let run = move || {
        let steps = Steps { taken, go_on };
        let result = catch_unwind(AssertUnwindSafe(|| work(&steps)));
        // Nobody may be waiting any more.
        drop(done.send(result));
    };
    thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(run)
        .map_err(|source| Trouble::Failed(TableError::Thread(source)))?;
    let mut waited = Duration::ZERO;
    loop {
        match steps.recv_timeout(LOOK) {
            Ok(()) => {
                pace();
                waited = Duration::ZERO;
                // Fails when the work has panicked meanwhile: then its end is the next to be seen.
                let _ended = go.send(());
            }
            // The steps end just before the result comes.
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if sled_thread_died.load(Ordering::SeqCst) {
                    return Err(Trouble::Gone(OffReason::ThreadDied));
                }
                waited += LOOK;
                if waited > step_time_max {
                    return Err(Trouble::Gone(OffReason::Stalled(step_time_max)));
                }
            }
        }
    }
    let panicked = |message| Trouble::Gone(OffReason::Panicked(message));
    match result.recv() {
        Ok(Ok(result)) => result.map_err(Trouble::Failed),
        Ok(Err(panic)) => Err(panicked(message(panic.as_ref()))),
        Err(_no_result) => Err(panicked(String::from("while ending"))),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| String::from("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(300);

    fn run<T: Send + 'static>(
        died: &AtomicBool,
        step_time_max: Duration,
        work: impl FnOnce(&Steps) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, Trouble> {
        watched(died, step_time_max, &mut || (), work)
    }

    #[test]
    fn each_step_waits_for_the_caller() {
        let mut paced = 0;
        let result = contained(LONG, &mut || paced += 1, |steps| {
            for _ in 0..5 {
                steps.step()?;
            }
            Ok("done")
        });
        assert_eq!(result.unwrap(), "done");
        assert_eq!(paced, 5);
    }

    #[test]
    fn a_panic_is_named_and_goes_no_further() {
        let died = AtomicBool::new(false);
        let trouble = run::<()>(&died, LONG, |_| panic!("broken")).unwrap_err();
        assert!(
            matches!(&trouble, Trouble::Gone(OffReason::Panicked(why)) if why == "broken"),
            "{trouble:?}"
        );
        let trouble = run::<()>(&died, LONG, |steps| {
            steps.step()?;
            std::panic::panic_any(7)
        });
        let trouble = trouble.unwrap_err();
        assert!(
            matches!(&trouble, Trouble::Gone(OffReason::Panicked(_))),
            "{trouble:?}"
        );
    }

    #[test]
    fn work_that_hangs_or_has_lost_a_thread_of_sleds_is_left_behind() {
        let died = AtomicBool::new(false);
        // Kept until the end, so that the work hangs until then.
        let (_never, wait) = sync_channel::<()>(1);
        let trouble = run(&died, SHORT, move |_| Ok(wait.recv().is_ok())).unwrap_err();
        assert!(
            matches!(trouble, Trouble::Gone(OffReason::Stalled(_))),
            "{trouble:?}"
        );

        let (_never, wait) = sync_channel::<()>(1);
        assert!(contains_panic_of(Some("sled-io-3"), &died));
        let trouble = run(&died, LONG, move |_| Ok(wait.recv().is_ok())).unwrap_err();
        assert!(
            matches!(trouble, Trouble::Gone(OffReason::ThreadDied)),
            "{trouble:?}"
        );
    }

    #[test]
    fn panics_of_others_are_not_contained() {
        let died = AtomicBool::new(false);
        assert!(!contains_panic_of(Some("raft"), &died));
        assert!(!contains_panic_of(None, &died));
        assert!(contains_panic_of(Some(THREAD_NAME), &died));
        assert!(!died.load(Ordering::SeqCst));
    }
}
