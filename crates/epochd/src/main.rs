//! The server's command line.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use epochd::dev::{Dev, DevArgs};
use epochd::init::{self, InitArgs};
use epochd::inspect::{self, InspectArgs};
use epochd::server::Server;
use epochd::settings::{NodeArgs, SettingsError};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// A Raft-replicated cluster that hands out epochs: fencing tokens that only ever rise, with
/// signed certificates that say where they came from.
#[derive(Debug, Parser)]
#[command(name = "epochd", version)]
struct Cli {
    /// What to log, as a tracing filter. The consensus library reports every message that a peer
    /// did not answer as an error; it is left out unless asked for (info,openraft=info).
    #[arg(
        long,
        env = "EPOCHD_LOG",
        global = true,
        default_value = "info,openraft=off"
    )]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run three nodes in this process, on loopback.
    Dev(DevArgs),
    /// Run one node.
    Serve(ServeArgs),
    /// Make a cluster: one seed folder for each of its first nodes.
    Init(InitArgs),
    /// Tell what is in the data folder of a node that is not running, every checksum verified.
    /// Changes nothing. Exits with 1 if anything is damaged.
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// A settings file (TOML). The environment beats it, and flags beat both.
    #[arg(long, env = "EPOCHD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
}

/// Exit code for wrong arguments, as clap's.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            // The log may not be set up yet, and nobody may be listening.
            drop(writeln!(std::io::stderr(), "epochd: {error:#}"));
            if error.is::<SettingsError>() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

#[tokio::main]
async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    start_log(&cli.log)?;
    // A file beyond the limit on file sizes is then an error, as on a full disk, and not the end.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    match cli.command {
        Command::Init(args) => {
            let made = init::run(&args)?;
            for folder in &made.folders {
                say(&folder.display().to_string())?;
            }
            // All is made, whoever hears of it.
            drop(writeln!(std::io::stderr(), "{}", made.to_keep()));
            Ok(ExitCode::SUCCESS)
        }
        Command::Inspect(args) => {
            epochd::fatal::stop_on_panic();
            let report = inspect::run(&args)?;
            if args.json {
                say(&serde_json::to_string(&report)?)?;
            } else {
                say(&report.tables())?;
            }
            let sound = report.is_sound();
            Ok(if sound {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Dev(args) => {
            epochd::fatal::stop_on_panic();
            epochd::fatal::raise_open_files_limit();
            let mut stopping = pin!(stop_signal()?);
            let dev = tokio::select! {
                started = Dev::start(&args) => started?,
                () = &mut stopping => return Ok(ExitCode::SUCCESS),
            };
            tracing::info!(endpoints = dev.endpoints(), "three nodes are up");
            stopping.await;
            dev.stop().await;
            Ok(ExitCode::SUCCESS)
        }
        Command::Serve(args) => {
            epochd::fatal::stop_on_panic();
            epochd::fatal::raise_open_files_limit();
            let file = match &args.config {
                Some(path) => NodeArgs::read(path)?,
                None => NodeArgs::default(),
            };
            let settings = args.node.over(file).settings()?;
            let mut stopping = pin!(stop_signal()?);
            let hangup = signal(SignalKind::hangup())?;
            // Stopped while it starts, it may end anywhere, as in a crash.
            let server = tokio::select! {
                started = Server::start(&settings, Some(hangup)) => started?,
                () = &mut stopping => return Ok(ExitCode::SUCCESS),
            };
            tracing::info!(client = %server.client_address(), "up");
            stopping.await;
            server.stop().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("the output cannot be written"),
    }
}

/// Plain text on a terminal, JSON lines elsewhere; always on standard error.
fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("--log {filter:?} is not a tracing filter"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A log that cannot be written must not end the node.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        log.init();
    } else {
        log.json().flatten_event(true).init();
    }
    Ok(())
}

/// Listens for SIGTERM and SIGINT from now on.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    })
}
