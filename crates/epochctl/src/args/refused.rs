//! What clap refuses, said without secrets. clap repeats the argument that it refuses.

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use epoch_core::SessionId;

use crate::exit::USAGE;

/// Says what is wrong with the arguments `given`.
pub(crate) fn refused(mut error: clap::Error, given: &[String]) -> ExitCode {
    if let Some(ContextValue::StyledStr(said)) = error.get(ContextKind::Usage) {
        let usage = usage(&said.to_string());
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    }
    let secrets: Vec<_> = given.iter().flat_map(|arg| session_ids(arg)).collect();
    if secrets.is_empty() || !error.use_stderr() {
        error.exit()
    }
    let text = without(&error.render().to_string(), &secrets);
    // The exit code tells it too, should nobody be listening.
    drop(write!(std::io::stderr(), "{text}"));
    ExitCode::from(USAGE)
}

/// clap lists options that come from the environment as if they were required.
fn usage(said: &str) -> String {
    said.replace(" --endpoints <HOST:PORT,…>", "")
        .replace(" --output <OUTPUT>", "")
        .replace(" --ca <FILE>", "")
        .replace(" --cert <FILE>", "")
        .replace(" --key <FILE>", "")
        .replace(" --token-file <FILE>", "")
}

/// The session ids in an argument.
fn session_ids(arg: &str) -> impl Iterator<Item = &str> {
    let of_none = |letter: char| !matches!(letter, '0'..='9' | 'a'..='f' | '-' | '.');
    arg.split(of_none)
        .filter(|part| part.parse::<SessionId>().is_ok())
}

fn without(text: &str, secrets: &[&str]) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| {
        text.replace(secret, "<a session id>")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;

    const ID: &str = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.42.0";

    #[test]
    fn a_session_id_is_not_repeated_wherever_it_stands() {
        for line in [
            "session get x ID",
            "release s ID --epoch 1",
            "release s --epoch ID",
            "release s --epoch=ID",
            "session ID",
            "--endpoints ID status",
            "session open --holder h --ttl ID",
        ] {
            let line = line.replace("ID", ID);
            let given: Vec<_> = std::iter::once("epochctl").chain(line.split(' ')).collect();
            let error = Args::try_parse_from(&given).unwrap_err();
            let said = error.render().to_string();
            assert!(said.contains(ID), "clap does not repeat it: {said}");
            let secrets: Vec<_> = given.iter().flat_map(|arg| session_ids(arg)).collect();
            let said = without(&said, &secrets);
            assert!(!said.contains(ID), "{said}");
            assert!(said.contains("<a session id>"), "{said}");
        }
    }
}
