//! `run`: holds a scope while a command runs.

mod cert_file;
mod group;
mod members;
mod supervise;

use std::convert::Infallible;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use epoch_client::{Client, Error, Grant, GrantLoss, Session};
use epoch_core::Reason;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::args::Run;
use crate::exit::{Failure, RUN_FAILED, RUN_LOST};
use crate::output::Output;
use crate::signals::Signals;
use cert_file::CertFile;
use group::Group;
use supervise::supervise;

/// How long the end of a session may take, also of one that has yet to open; then it expires.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How often it is looked whether the client has a fresher certificate: it asks for one when three
/// quarters of a life of hours are over.
const FRESHEN_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn run(client: Client, output: Output, command: Run) -> Result<ExitCode, Failure> {
    let failed = |failure: Failure| failure.with_code(RUN_FAILED);
    // Before anything is held, so that no signal ends this process and leaves the command alone.
    let mut signals = Signals::ending().map_err(failed)?;
    // Those that come before there is a command are nobody's.
    drop(Signals::of_the_command().map_err(failed)?);
    let mut opening = pin!(client.open_session(&command.holder, command.ttl));
    let session = tokio::select! {
        biased;
        signal = signals.next() => {
            // It may be open already, and nobody would know it.
            let undoing = async {
                if let Ok(session) = opening.await {
                    close(&session, output).await;
                }
            };
            undo(&mut signals, output, undoing).await;
            return Err(interrupted(signal));
        }
        session = &mut opening => session.map_err(not_acquired)?,
    };
    let ended = in_session(&session, output, &command, &mut signals).await;
    close(&session, output).await;
    ended
}

/// Ends what was interrupted before there was a command. One more signal ends this process at once.
async fn undo(signals: &mut Signals, output: Output, undoing: impl Future<Output = ()>) {
    if signals.undo(CLOSE_TIMEOUT, undoing).await.is_none() {
        output.note("the session may be open; then it expires");
    }
}

async fn close(session: &Session, output: Output) {
    if session.loss().is_none() {
        match timeout(CLOSE_TIMEOUT, session.close()).await {
            Ok(Ok(_closed)) => {}
            Ok(Err(error)) => output.note(&format!("the session was not closed: {error}")),
            Err(_elapsed) => output.note("the session was not closed in time, and expires"),
        }
    }
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
        signal = signals.next() => {
            // The end of the session ends a wait.
            undo(signals, output, close(session, output)).await;
            return Err(interrupted(signal));
        }
        grant = acquire(session, command) => grant.map_err(not_acquired)?,
    };
    let file = CertFile::new(&grant.certificate()).map_err(|error| failed(unwritable(&error)))?;
    let mut of_the_command = Signals::of_the_command().map_err(failed)?;
    let mut group = Group::start(&command.command, &grant, file.path())?;
    let supervised = supervise(
        &mut group,
        &grant,
        signals,
        &mut of_the_command,
        command.grace,
        output,
    );
    let code = tokio::select! {
        code = supervised => code,
        never = keep_fresh(&grant, &file, output) => match never {},
    };
    // What was done last may have come after the loss.
    match grant.loss() {
        None => Ok(ExitCode::from(code)),
        Some(loss) => Err(lost(&grant, loss)),
    }
}

async fn acquire(session: &Session, command: &Run) -> Result<Grant, Error> {
    let terms = &command.terms;
    let mut request = session
        .request(&command.scope)
        .audience(&command.audience)
        .metadata(terms.metadata.as_str())
        .signatures(terms.signed.signatures);
    if let Some(wait) = terms.wait {
        request = request.wait(wait);
    }
    if let Some(lock_delay) = terms.lock_delay {
        request = request.lock_delay(lock_delay);
    }
    request.send().await
}

/// Puts each fresh certificate of the client into the file.
async fn keep_fresh(grant: &Grant, file: &CertFile, output: Output) -> Infallible {
    let mut written = grant.certificate();
    loop {
        tokio::time::sleep(FRESHEN_EVERY).await;
        let newest = grant.certificate();
        if Arc::ptr_eq(&written, &newest) {
            continue;
        }
        match file.replace(&newest) {
            Ok(()) => written = newest,
            Err(error) => output.note(&unwritable(&error).message),
        }
    }
}

fn unwritable(error: &std::io::Error) -> Failure {
    Failure::local(
        format!("cannot write the certificate's file: {error}"),
        "check the folder for temporary files (TMPDIR)",
    )
}

fn not_acquired(error: Error) -> Failure {
    let unknown = error.outcome_unknown();
    let failure = Failure::from(error).with_code(RUN_FAILED);
    match unknown {
        // Its ids are not the caller's: what may have been done ends with the session.
        true => Failure {
            next_step: "check that a majority of the nodes runs, then run it again".to_owned(),
            ..failure
        },
        false => failure,
    }
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

fn lost(grant: &Grant, loss: GrantLoss) -> Failure {
    let reason = match loss {
        GrantLoss::Session(_) => Reason::SessionExpired,
        GrantLoss::Superseded | GrantLoss::Transferred | GrantLoss::Released => {
            Reason::EpochSuperseded
        }
    };
    let scope = grant.scope();
    let message = format!("{scope} was lost while the command ran: {loss}");
    Failure::refused(reason, message).with_code(RUN_LOST)
}
