//! `run`: holds a scope while a command runs.

mod cert_file;
mod group;
mod signals;

use std::process::ExitCode;
use std::time::Duration;

use epoch_client::{Client, Grant, Loss, Session};
use epoch_core::Reason;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::args::Run;
use crate::exit::{Failure, RUN_FAILED, RUN_LOST};
use crate::output::Output;
use cert_file::CertFile;
use group::Group;
use signals::Signals;

/// How long the end of the session may take once the command has ended; then it expires.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn run(client: Client, output: Output, command: Run) -> Result<ExitCode, Failure> {
    let failed = |failure: Failure| failure.with_code(RUN_FAILED);
    // Before anything is held, so that no signal ends this process and leaves the command alone.
    let mut signals = Signals::install().map_err(failed)?;
    let session = tokio::select! {
        biased;
        signal = signals.next() => return Err(interrupted(signal)),
        session = client.open_session(&command.holder, command.ttl) => {
            session.map_err(Failure::from).map_err(failed)?
        }
    };
    let ended = in_session(&session, output, &command, &mut signals).await;
    if session.loss().is_none() {
        match timeout(CLOSE_TIMEOUT, session.close()).await {
            Ok(Ok(_closed)) => {}
            Ok(Err(error)) => output.note(&format!("the session was not closed: {error}")),
            Err(_elapsed) => output.note("the session was not closed in time, and expires"),
        }
    }
    ended
}

async fn in_session(
    session: &Session,
    output: Output,
    command: &Run,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let failed = |failure: Failure| failure.with_code(RUN_FAILED);
    let grant = tokio::select! {
        biased;
        signal = signals.next() => return Err(interrupted(signal)),
        grant = session.acquire_for(&command.scope, &command.audience) => {
            grant.map_err(Failure::from).map_err(failed)?
        }
    };
    let file = CertFile::new(&grant.certificate()).map_err(|error| failed(unwritable(&error)))?;
    let mut group = Group::start(&command.command, &grant, file.path())?;
    tokio::select! {
        code = supervise(&mut group, &grant, signals) => {
            let code = code.map_err(failed)?;
            match code {
                Some(code) => Ok(ExitCode::from(code)),
                None => {
                    output.note("lost; the command is told to stop");
                    group.stop(command.grace).await.map_err(failed)?;
                    Err(lost(&grant))
                }
            }
        }
        reason = renew(&grant, command.ttl, &file, output) => {
            output.note(&format!("the grant has ended ({reason}); the command is told to stop"));
            group.stop(command.grace).await.map_err(failed)?;
            Err(lost(&grant))
        }
    }
}

/// Waits for the command's end: its exit code, or `None` once the grant is lost.
async fn supervise(
    group: &mut Group,
    grant: &Grant,
    signals: &mut Signals,
) -> Result<Option<u8>, Failure> {
    loop {
        tokio::select! {
            biased;
            code = group.ended() => {
                // What it did last may have come after the loss.
                return code.map(|code| (!grant.is_lost()).then_some(code));
            }
            () = grant.lost() => return Ok(None),
            signal = signals.next() => group.signal(signal),
        }
    }
}

/// Asks for a fresh certificate three times in a TTL, for as long as the command runs. That keeps
/// the file fresh, and it is how a revoke is learnt, since keepalives know the session only.
/// Returns when the grant has ended.
async fn renew(grant: &Grant, ttl: Duration, file: &CertFile, output: Output) -> Reason {
    loop {
        tokio::time::sleep(ttl / 3).await;
        let renewed = match grant.certify().await {
            Ok(fresh) => file
                .replace(&fresh)
                .map_err(|error| unwritable(&error).message),
            Err(error) => match error.reason() {
                Some(reason @ (Reason::EpochSuperseded | Reason::SessionExpired)) => return reason,
                Some(_) | None => Err(error.to_string()),
            },
        };
        if let Err(error) = renewed {
            output.note(&format!("the certificate was not renewed: {error}"));
        }
    }
}

fn unwritable(error: &std::io::Error) -> Failure {
    Failure::local(
        format!("cannot write the certificate's file: {error}"),
        "check the folder for temporary files (TMPDIR)",
    )
}

fn interrupted(signal: Signal) -> Failure {
    Failure::local(
        format!(
            "stopped by signal {} before the command was started",
            signal.as_raw()
        ),
        "run it again",
    )
    .with_code(RUN_FAILED)
}

fn lost(grant: &Grant) -> Failure {
    let scope = grant.scope();
    match grant.session().loss() {
        Some(loss @ (Loss::Expired | Loss::Lapsed | Loss::Closed)) => Failure::refused(
            Reason::SessionExpired,
            format!("{scope} was lost while the command ran: {loss}"),
        ),
        None => Failure::refused(
            Reason::EpochSuperseded,
            format!("{scope} was lost while the command ran: a later epoch exists"),
        ),
    }
    .with_code(RUN_LOST)
}
