//! Lines for stderr, which nobody has to read.

use std::io::Write as _;
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;
use std::time::Duration;

/// How many lines wait for a reader. More are dropped: nobody reads.
const LINES_MAX: usize = 64;

/// How long the end waits for lines to be taken.
const PATIENCE: Duration = Duration::from_secs(1);

enum Message {
    Line(String),
    /// All before it is written: tell that.
    Flush(Sender<()>),
}

/// To the thread that writes them: a command that has lost its grant has to be ended at once,
/// whether somebody reads or not.
static MESSAGES: LazyLock<SyncSender<Message>> = LazyLock::new(|| {
    let (messages, taken) = mpsc::sync_channel(LINES_MAX);
    // Without a thread the other end is gone, and every line is dropped.
    drop(thread::Builder::new().spawn(move || write(&taken)));
    messages
});

/// Has a line written. It is not waited for.
pub(crate) fn say(line: String) {
    drop(MESSAGES.try_send(Message::Line(line)));
}

/// Waits until all lines are written; not for long where nobody reads them.
pub(crate) fn flush() {
    let (written, all_written) = mpsc::channel();
    if MESSAGES.try_send(Message::Flush(written)).is_ok() {
        // Written or not, this is the end.
        let _ = all_written.recv_timeout(PATIENCE);
    }
}

fn write(messages: &Receiver<Message>) {
    for message in messages {
        match message {
            // The exit code tells it too, should nobody be listening.
            Message::Line(line) => drop(writeln!(std::io::stderr(), "{line}")),
            Message::Flush(written) => drop(written.send(())),
        }
    }
}
