//! The scripts of `tests/scenarios`: what comes of each command, as text that people read.

mod language;
mod script;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::promises::refusal_name;
use crate::command::Command;
use crate::outcome::{Outcome, Refusal};

use script::Script;

/// Every script by its name.
#[expect(clippy::disallowed_methods, reason = "a test, whose scripts are files")]
fn scripts() -> BTreeMap<PathBuf, String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/scenarios");
    let files = std::fs::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .map(|path| (path.clone(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "one command rewrites what the scripts expect"
)]
fn every_script_comes_to_what_it_says() {
    let rewrite = std::env::var_os("EPOCH_REWRITE").is_some();
    let mut differ = Vec::new();
    for (path, text) in scripts() {
        let came = match Script::default().run(&text) {
            Ok(came) => came,
            Err(why) => panic!("{}: {why}", path.display()),
        };
        if rewrite {
            std::fs::write(&path, came).unwrap();
        } else if let Some((line, (said, came))) = (1..)
            .zip(text.lines().zip(came.lines().chain(std::iter::repeat(""))))
            .find(|(_, (said, came))| said != came)
        {
            differ.push(format!(
                "{}:{line}: {said:?} came to {came:?}",
                path.display()
            ));
        } else if text != came {
            differ.push(format!("{}: there is more than it says", path.display()));
        }
    }
    assert!(
        differ.is_empty(),
        "{}; EPOCH_REWRITE=1 writes what came of them",
        differ.join("\n")
    );
}

#[test]
fn what_a_script_expects_is_replaced_by_what_came() {
    let text = "at 5\nopen alice\n  nonsense\nacquire alice a id=1\n\n# Over.\n";
    let came = Script::default().run(text).unwrap();
    assert_eq!(
        came,
        "at 5\n\
         open alice\n  \
           opened: 1.0 for alice, ttl 10s\n  \
           * alice opened, ttl 10s\n\
         acquire alice a id=1\n  \
           granted: a 5+1 alice id=1 at 2.0\n  \
           * 2.1 granted: a 5+1 alice id=1\n\
         \n\
         # Over.\n"
    );
    assert_eq!(Script::default().run(&came).unwrap(), came);
    for wrong in [
        "opne alice",
        "close nobody",
        "open alice tll=1s",
        "acquire alice",
    ] {
        assert!(Script::default().run(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn scripts_have_every_command_and_every_refusal() {
    let (mut commands, mut refusals) = (BTreeSet::new(), BTreeSet::new());
    for text in scripts().values() {
        let mut script = Script::default();
        script.run(text).unwrap();
        for (command, outcome) in script.done {
            commands.insert(command_name(&command));
            if let Outcome::Refused(refusal) | Outcome::RefusedMany { refusal, .. } = outcome {
                refusals.insert(refusal_name(&format!("{refusal:?}")));
                // A new one that is missing below does not compile.
                listed(&refusal);
            }
        }
    }
    let commands: Vec<_> = commands.into_iter().collect();
    assert_eq!(commands, COMMANDS);
    let refusals: Vec<_> = refusals.iter().map(String::as_str).collect();
    assert_eq!(refusals, REFUSALS);
}

const COMMANDS: [&str; 22] = [
    "Acquire",
    "AcquireMany",
    "AddToken",
    "CancelWait",
    "Close",
    "EndDelay",
    "EndWait",
    "Expire",
    "GrantPermission",
    "OfferKey",
    "Open",
    "PutBundle",
    "PutStatement",
    "Release",
    "RemoveToken",
    "RetireKey",
    "Revoke",
    "RevokePermission",
    "RotateKeys",
    "SetLimits",
    "Transfer",
    "WriteRecord",
];

fn command_name(command: &Command) -> &'static str {
    // A new one has a name here, and then a place in the list.
    match command {
        Command::Open { .. } => "Open",
        Command::Close { .. } => "Close",
        Command::Expire { .. } => "Expire",
        Command::Acquire { .. } => "Acquire",
        Command::AcquireMany { .. } => "AcquireMany",
        Command::CancelWait { .. } => "CancelWait",
        Command::EndWait { .. } => "EndWait",
        Command::EndDelay { .. } => "EndDelay",
        Command::Transfer { .. } => "Transfer",
        Command::Release { .. } => "Release",
        Command::Revoke { .. } => "Revoke",
        Command::WriteRecord { .. } => "WriteRecord",
        Command::GrantPermission { .. } => "GrantPermission",
        Command::RevokePermission { .. } => "RevokePermission",
        Command::AddToken { .. } => "AddToken",
        Command::RemoveToken { .. } => "RemoveToken",
        Command::SetLimits { .. } => "SetLimits",
        Command::PutBundle { .. } => "PutBundle",
        Command::OfferKey(_) => "OfferKey",
        Command::RotateKeys { .. } => "RotateKeys",
        Command::RetireKey { .. } => "RetireKey",
        Command::PutStatement { .. } => "PutStatement",
    }
}

const REFUSALS: [&str; 44] = [
    "AlreadyHeld",
    "AlreadyWaiting",
    "BundleInvalid",
    "BundleLimit",
    "EpochExhausted",
    "EpochUnknown",
    "FirstOperator",
    "GrantLimit",
    "IntentReused",
    "KeyLimit",
    "KeyUnknown",
    "LastKey",
    "LastOperator",
    "LimitsLimit",
    "LockDelayed",
    "NodeUnknown",
    "NotTheHolder",
    "OfferInvalid",
    "OfferLimit",
    "OpenIdReused",
    "PermissionDenied",
    "PermissionLimit",
    "PrincipalGrantLimit",
    "PrincipalSessionLimit",
    "PrincipalWaitLimit",
    "QueueFull",
    "RecordLimit",
    "RequestIdReused",
    "RequestIdTooOld",
    "RequestIdsOver",
    "RevisionMismatch",
    "ScopeHeld",
    "SessionExpired",
    "SessionLimit",
    "StatementInvalid",
    "StatementOlder",
    "Superseded",
    "TargetExpired",
    "TargetIsSelf",
    "TokenLimit",
    "TokenReused",
    "WaitCancelled",
    "WaitExpired",
    "WaitLimit",
];

fn listed(refusal: &Refusal) {
    match refusal {
        Refusal::AlreadyHeld { .. }
        | Refusal::AlreadyWaiting
        | Refusal::EpochExhausted
        | Refusal::EpochUnknown { .. }
        | Refusal::GrantLimit
        | Refusal::IntentReused
        | Refusal::FirstOperator
        | Refusal::BundleInvalid
        | Refusal::BundleLimit
        | Refusal::OfferInvalid
        | Refusal::OfferLimit
        | Refusal::NodeUnknown
        | Refusal::KeyUnknown
        | Refusal::LastKey
        | Refusal::StatementInvalid
        | Refusal::StatementOlder
        | Refusal::KeyLimit
        | Refusal::LastOperator
        | Refusal::LimitsLimit
        | Refusal::PermissionDenied
        | Refusal::PermissionLimit
        | Refusal::PrincipalGrantLimit
        | Refusal::PrincipalSessionLimit
        | Refusal::PrincipalWaitLimit
        | Refusal::TokenLimit
        | Refusal::TokenReused
        | Refusal::LockDelayed { .. }
        | Refusal::NotTheHolder { .. }
        | Refusal::OpenIdReused
        | Refusal::QueueFull
        | Refusal::RecordLimit
        | Refusal::RequestIdReused
        | Refusal::RequestIdTooOld { .. }
        | Refusal::RequestIdsOver
        | Refusal::RevisionMismatch { .. }
        | Refusal::ScopeHeld { .. }
        | Refusal::SessionExpired
        | Refusal::SessionLimit
        | Refusal::Superseded { .. }
        | Refusal::TargetExpired
        | Refusal::TargetIsSelf
        | Refusal::WaitCancelled
        | Refusal::WaitExpired
        | Refusal::WaitLimit => {}
    }
}
