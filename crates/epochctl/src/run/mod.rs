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
use crate::times;
use cert_file::CertFile;
use group::Group;
use signals::Signals;

/// How long the end of the session may take once the command has ended; then it expires.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause after a certificate could not be renewed.
const RENEW_PAUSE: Duration = Duration::from_secs(10);

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
        never = renew(&grant, &file, output) => match never {},
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

/// Renews the certificate before it expires, for as long as the command runs.
async fn renew(grant: &Grant, file: &CertFile, output: Output) -> std::convert::Infallible {
    let mut pause = cert_file::renewal_in(&grant.certificate(), times::now_ms());
    loop {
        tokio::time::sleep(pause).await;
        let renewed = match grant.certify().await {
            Ok(fresh) => match file.replace(&fresh) {
                Ok(()) => Ok(cert_file::renewal_in(&fresh, times::now_ms())),
                Err(error) => Err(unwritable(&error).message),
            },
            Err(error) => Err(error.to_string()),
        };
        pause = renewed.unwrap_or_else(|error| {
            output.note(&format!("the certificate was not renewed: {error}"));
            RENEW_PAUSE
        });
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
