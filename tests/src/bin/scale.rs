//! Puts a cluster under load and prints figures: scopes held by the million, sessions kept alive,
//! acquire latency, and churn over a pool of names.

#![expect(clippy::print_stdout, reason = "the command's data")]

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use epoch_tests::{clock, scale};

#[derive(Debug, Parser)]
struct Arguments {
    /// The nodes' client listeners, with commas between.
    #[arg(long, default_value = "127.0.0.1:7600,127.0.0.1:7601,127.0.0.1:7602")]
    endpoints: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Takes scopes and leaves them held, in sessions of 24 h.
    Hold {
        #[arg(long, default_value_t = 1_000)]
        sessions: u64,
        #[arg(long, default_value_t = 1_000_000)]
        scopes: u64,
        /// Length of each name.
        #[arg(long, default_value_t = 64)]
        bytes: usize,
        /// Calls under way at once.
        #[arg(long, default_value_t = 256)]
        clients: u64,
        /// What the names begin with.
        #[arg(long, default_value = "held")]
        prefix: String,
    },
    /// Keeps sessions alive, and measures the processor time that processes take meanwhile.
    Sessions {
        #[arg(long, default_value_t = 10_000)]
        sessions: u64,
        /// Of each session, in seconds.
        #[arg(long, default_value_t = 10)]
        ttl: u64,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// A process to measure, such as a node's.
        #[arg(long)]
        pid: Vec<u32>,
    },
    /// Measures how long an acquire takes.
    Latency {
        #[arg(long, default_value_t = 16)]
        clients: u64,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Takes and releases names drawn from a pool; each must come back with a higher epoch.
    Churn {
        #[arg(long, default_value_t = 1_000_000)]
        names: u64,
        #[arg(long, default_value_t = 64)]
        clients: u64,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let client = scale::client(&arguments.endpoints)?;
    let begun = clock::boot_ns();
    let elapsed = || Duration::from_nanos(clock::boot_ns() - begun);
    match arguments.command {
        Command::Hold {
            sessions,
            scopes,
            bytes,
            clients,
            prefix,
        } => {
            scale::hold(&client, &prefix, (sessions, scopes), bytes, clients).await?;
            println!("{scopes} scopes held after {:?}", elapsed());
        }
        Command::Sessions {
            sessions,
            ttl,
            seconds,
            pid,
        } => {
            let (ttl, time) = (Duration::from_secs(ttl), Duration::from_secs(seconds));
            let kept = scale::keep_alive(&client, sessions, ttl, time, &pid).await?;
            for (pid, share) in pid.iter().zip(kept.shares) {
                println!("process {pid}: {:.1} % of a core", share * 100.0);
            }
            println!(
                "{sessions} sessions, {} lost; {} log entries in {time:?}",
                kept.lost, kept.entries
            );
        }
        Command::Latency { clients, seconds } => {
            let seen = scale::latency(&client, clients, Duration::from_secs(seconds)).await?;
            println!(
                "{} acquires, p50 {} us, p99 {} us, max {} us",
                seen.len(),
                seen.value_at_quantile(0.5),
                seen.value_at_quantile(0.99),
                seen.max()
            );
        }
        Command::Churn {
            names,
            clients,
            seconds,
        } => {
            let draw = epoch_tests::seed::seed()?;
            let time = Duration::from_secs(seconds);
            let churned = scale::churn(&client, names, clients, time, draw).await?;
            println!(
                "{} grants, {} of names granted before, in {:?}",
                churned.grants,
                churned.again,
                elapsed()
            );
        }
    }
    Ok(())
}
