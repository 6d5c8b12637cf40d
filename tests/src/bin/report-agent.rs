//! An agent that writes one report as the holder of one scope.
//!
//! It says each step as a line of JSON, and waits for a line on stdin before it writes: the point
//! where a real agent hangs in a long call. It does not look at its session again before the
//! write, on purpose: the late write has to be stopped by the resource, not by the writer's care.
#![expect(clippy::print_stdout, reason = "the steps are the output")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use epoch_client::{Client, Endpoint, Grant, Options, Session, TrustFollower, TrustSettings};
use epoch_core::{GrantHash, Holder, Pin, Reason, RequestId, Scope};
use epoch_guard::sqlite::{SqliteGuard, SqliteSettings, WriteError};
use epoch_tests::report::{Report, Reports};
use epoch_tests::{agent, clock};
use serde_json::{Value, json};

/// Between two tries to take a held scope.
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// Request ids count from 1, one for each try.
const REQUEST_IDS_TRIED: u64 = 10_000;

#[derive(Debug, Parser)]
#[command(about = "An agent that writes one report as the holder of one scope")]
struct Arguments {
    /// Whom it acts for.
    #[arg(long)]
    holder: Holder,
    /// What it reports on.
    #[arg(long)]
    scope: Scope,
    /// Client listeners, separated by commas.
    #[arg(long, value_delimiter = ',')]
    endpoints: Vec<Endpoint>,
    /// The cluster's root key.
    #[arg(long)]
    pin: Pin,
    /// The resource.
    #[arg(long)]
    database: PathBuf,
    /// The session's time to live, in whole seconds, such as 2s.
    #[arg(long)]
    ttl: String,
    /// Raises the resource's fence right after the acquire.
    #[arg(long)]
    barrier: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let ttl = arguments
        .ttl
        .strip_suffix('s')
        .and_then(|text| text.parse().ok());
    let ttl = Duration::from_secs(ttl.context("--ttl must be in whole seconds, such as 2s")?);

    let client = Client::connect(arguments.endpoints.clone(), Options::default())?;
    // The bundles are fetched before the work: at the time of a write no cluster is needed.
    let trust = TrustFollower::start(client.clone(), arguments.pin, TrustSettings::default());
    let trust = trust.await?;
    let guard = SqliteGuard::new(Arc::clone(trust.verifier()), SqliteSettings::default());
    let session = client.open_session(&arguments.holder, ttl).await?;
    let sent_ns = clock::boot_ns();
    let grant = acquire(&session, &arguments.scope).await?;
    let certificate = grant.certificate().to_string();
    step(
        "acquired",
        &json!({
            "epoch": grant.epoch().get(),
            "certificate": certificate,
            "session_id": session.id().to_string(),
            "request_id": request_id(&session, &guard, &certificate)?,
            "sent_ns": sent_ns,
            "returned_ns": clock::boot_ns(),
        }),
    );

    let mut reports = Reports::open(&arguments.database)?;
    if arguments.barrier {
        let verified = guard.verifier().verify(&certificate, clock::unix_ms())?;
        let receipt = reports.advance(&guard, &arguments.scope, &verified)?;
        step(
            "barrier",
            &json!({ "raised": receipt.raised, "epoch": receipt.epoch.get() }),
        );
    }
    let report = reports.compute(arguments.holder.as_str(), grant.epoch().get())?;
    step("computed", &serde_json::to_value(&report)?);
    wait_for_line().await?;

    if let Some(code) = write(
        &mut reports,
        &guard,
        &arguments.scope,
        &certificate,
        &report,
    )? {
        return Ok(code);
    }
    release(&grant, &session).await
}

async fn acquire(session: &Session, scope: &Scope) -> Result<Grant> {
    loop {
        match session.acquire(scope).await {
            Ok(grant) => return Ok(grant),
            Err(error) if error.reason() == Some(Reason::ScopeHeld) => {
                tokio::time::sleep(TRY_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The id that the client library gave the acquire, as the certificate's grant hash proves it.
fn request_id(session: &Session, guard: &SqliteGuard, certificate: &str) -> Result<u64> {
    let certificate = guard.verifier().verify(certificate, clock::unix_ms())?;
    let hash = certificate
        .grant()
        .context("the certificate is holderless")?
        .hash;
    for id in 1..REQUEST_IDS_TRIED {
        if GrantHash::of(&session.id(), Some(RequestId::new(id)?)) == hash {
            return Ok(id);
        }
    }
    bail!("the grant hash is of no request id below {REQUEST_IDS_TRIED}")
}

async fn wait_for_line() -> Result<()> {
    let reading = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    let read = reading.await.context("reading stdin panicked")??;
    ensure!(read > 0, "stdin ended before the agent was to go on");
    Ok(())
}

/// The write; an exit code when it was refused: whoever is refused stops by itself.
fn write(
    reports: &mut Reports,
    guard: &SqliteGuard,
    scope: &Scope,
    certificate: &str,
    report: &Report,
) -> Result<Option<ExitCode>> {
    match reports.write(guard, scope, certificate, report) {
        Ok(admitted) => {
            step("written", &json!({ "revision": admitted.revision }));
            Ok(None)
        }
        Err(WriteError::Guard(error)) if error.refusal().is_some() => {
            step(
                "refused",
                &json!({
                    "reason": error.reason().as_str(),
                    "message": error.to_string(),
                    "next_step": error.reason().next_step(),
                }),
            );
            let code = u8::try_from(agent::EXIT_SUPERSEDED).context("exit code")?;
            Ok(Some(ExitCode::from(code)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives the scope back, or learns that it is gone.
async fn release(grant: &Grant, session: &Session) -> Result<ExitCode> {
    match grant.release().await {
        Ok(released) => {
            session.close().await?;
            step("released", &json!({ "released": released }));
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let reason = error.reason().map(Reason::as_str);
            step(
                "lost",
                &json!({ "reason": reason, "message": error.to_string() }),
            );
            let code = u8::try_from(agent::EXIT_SUPERSEDED).context("exit code")?;
            Ok(ExitCode::from(code))
        }
    }
}

fn step(name: &str, fields: &Value) {
    println!("{}", agent::line(name, fields));
}
