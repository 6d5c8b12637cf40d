//! Data on stdout, messages on stderr.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use comfy_table::{Table, presets};
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::args::Format;
use crate::exit::Failure;
use crate::messages;

/// Prints results and failures in the chosen format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
}

/// A failure as JSON. The names are stable.
#[derive(Serialize)]
struct FailureJson<'a> {
    reason: &'a str,
    message: &'a str,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Prints `message` as one line of JSON, or `table`.
    pub(crate) fn result(
        self,
        message: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        // A reader that has gone away (`| head`) has had what it wanted.
        print(self.text(message, table)?.as_bytes()).map(drop)
    }

    /// The same, once there is room for it; false when nobody reads any more. It may be dropped
    /// while it waits, and then its process may end.
    pub(crate) async fn line(
        self,
        message: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<bool, Failure> {
        let line = self.text(message, table)?;
        let printed = spawn_blocking(move || print(line.as_bytes())).await;
        printed.map_err(|error| unwritable(&error))?
    }

    fn text(
        self,
        message: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        let text = match self.format {
            Format::Table => table(),
            Format::Json => serde_json::to_string(message).map_err(|error| {
                Failure::local(
                    format!("the answer cannot be written as JSON: {error}"),
                    "report it",
                )
            })?,
        };
        Ok(format!("{text}\n"))
    }

    /// Prints `message` as one line of JSON, or else bytes as they are.
    pub(crate) fn raw(self, message: &impl Serialize, bytes: &[u8]) -> Result<(), Failure> {
        match self.format {
            Format::Table => print(bytes).map(drop),
            Format::Json => self.result(message, String::new),
        }
    }

    /// Says something beside the result. Whether it is read is not waited for.
    pub(crate) fn note(self, text: &str) {
        messages::say(format!("note: {text}"));
    }

    /// Prints a failure, and gives its exit code.
    pub(crate) fn failure(self, failure: &Failure) -> ExitCode {
        messages::say(self.failure_text(failure));
        failure.exit_code()
    }

    fn failure_text(self, failure: &Failure) -> String {
        let Failure {
            reason,
            message,
            next_step,
            ..
        } = failure;
        // A node's own text says already what to do next.
        let text = if message.contains(next_step.as_str()) {
            message.clone()
        } else {
            format!("{message}; {next_step}")
        };
        match self.format {
            Format::Table => format!("error: {text} [{reason}]"),
            Format::Json => serde_json::to_string(&FailureJson {
                reason,
                message: &text,
            })
            .unwrap_or_else(|_unreachable| format!("error: {text} [{reason}]")),
        }
    }
}

/// Writes to stdout; false when nobody reads any more.
fn print(bytes: &[u8]) -> Result<bool, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(unwritable(&error)),
    }
}

fn unwritable(error: &impl Display) -> Failure {
    let message = format!("cannot write to stdout: {error}");
    Failure::local(message, "check where it goes")
}

/// Names and values, one pair a line.
pub(crate) fn pairs<const N: usize>(rows: [(&str, String); N]) -> String {
    let mut table = plain();
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    text(&table)
}

/// Rows under a header.
pub(crate) fn rows<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = plain();
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    text(&table)
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn text(table: &Table) -> String {
    let lines: Vec<_> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

/// A value that may be absent.
pub(crate) fn or_dash<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}

#[cfg(test)]
mod tests {
    use epoch_core::Reason;

    use super::*;

    #[test]
    fn an_error_says_what_happened_and_what_to_do_once_and_its_reason() {
        let output = Output::new(Format::Table);
        let failure = Failure::refused(Reason::ScopeHeld, "the scope is held");
        assert_eq!(
            output.failure_text(&failure),
            "error: the scope is held; try again later [SCOPE_HELD]"
        );
        let failure = Failure::refused(Reason::ScopeHeld, "held; try again later");
        assert_eq!(
            output.failure_text(&failure),
            "error: held; try again later [SCOPE_HELD]"
        );
    }

    #[test]
    fn an_error_as_json_has_reason_and_message() {
        let failure = Failure::refused(Reason::ScopeHeld, "\"a\" is held");
        assert_eq!(
            Output::new(Format::Json).failure_text(&failure),
            r#"{"reason":"SCOPE_HELD","message":"\"a\" is held; try again later"}"#
        );
    }

    #[test]
    fn tables_are_aligned_and_have_no_trailing_space() {
        let table = rows(["A", "B"], [["1".to_owned(), "x".to_owned()]]);
        assert_eq!(table, "A  B\n1  x");
    }
}
