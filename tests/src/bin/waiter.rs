//! A client process that waits for one scope, holds it, and does what it is told to.
//!
//! It says each step as a line of JSON. The lines that it reads are `put VALUE`, which writes the
//! scope's record whether the grant is lost or not, and `release`.
#![expect(clippy::print_stdout, reason = "the steps are the output")]

use std::io::BufRead as _;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use epoch_client::{Client, Endpoint, Grant, Options};
use epoch_core::{Holder, Reason, Scope};
use epoch_proto::v1::PutRecordRequest;
use epoch_tests::{agent, clock};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

#[derive(Debug, Parser)]
#[command(about = "A client that waits for one scope and holds it")]
struct Arguments {
    /// Whom it acts for.
    #[arg(long)]
    holder: Holder,
    /// What it waits for.
    #[arg(long)]
    scope: Scope,
    /// Client listeners, separated by commas.
    #[arg(long, value_delimiter = ',')]
    endpoints: Vec<Endpoint>,
    /// The session's time to live.
    #[arg(long)]
    ttl_seconds: u64,
    /// How long it waits.
    #[arg(long)]
    wait_seconds: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let client = Client::connect(arguments.endpoints, Options::default())?;
    let ttl = Duration::from_secs(arguments.ttl_seconds);
    let session = client.open_session(&arguments.holder, ttl).await?;
    step("opened", &json!({}));
    let wait = Duration::from_secs(arguments.wait_seconds);
    let grant = session.request(&arguments.scope).wait(wait).send().await?;
    let granted_ns = clock::boot_ns();
    step(
        "granted",
        &json!({ "epoch": grant.epoch().get(), "granted_ns": granted_ns }),
    );
    hold(&client, &grant).await?;
    session.close().await?;
    Ok(())
}

/// Does what is told until the grant is released.
async fn hold(client: &Client, grant: &Grant) -> Result<()> {
    let mut orders = orders();
    let mut told = false;
    loop {
        let order = tokio::select! {
            () = grant.lost(), if !told => None,
            order = orders.recv() => match order {
                Some(order) => Some(order),
                None => return Ok(()),
            },
        };
        // After the process was held still an order may come first: then the clock tells.
        if !told && let Some(loss) = grant.loss() {
            let (lost_ns, lost_ms) = (clock::boot_ns(), clock::unix_ms());
            let loss = loss.to_string();
            step(
                "lost",
                &json!({ "loss": loss, "lost_ns": lost_ns, "lost_ms": lost_ms }),
            );
            told = true;
        }
        match order
            .as_deref()
            .map(|order| order.split_once(' ').unwrap_or((order, "")))
        {
            None => {}
            Some(("put", value)) => put(client, grant, value).await?,
            Some(("release", "")) => {
                let released = grant.release().await?;
                step("released", &json!({ "released": released }));
                return Ok(());
            }
            Some(order) => bail!("no such order: {order:?}"),
        }
    }
}

/// The write, straight to the cluster: the client library would not send one under a lost grant,
/// and it is the cluster that has to refuse.
async fn put(client: &Client, grant: &Grant, value: &str) -> Result<()> {
    let request = PutRecordRequest {
        scope: grant.scope().as_str().to_owned(),
        epoch: grant.epoch().get(),
        session_id: grant.session().id().to_string(),
        value: value.as_bytes().to_vec(),
        ..PutRecordRequest::default()
    };
    match client.record_put(request).await {
        Ok(written) => step("written", &json!({ "revision": written.revision })),
        Err(error) => {
            let reason = error.reason().map(Reason::as_str);
            step(
                "refused",
                &json!({ "reason": reason, "message": error.to_string() }),
            );
        }
    }
    Ok(())
}

fn orders() -> UnboundedReceiver<String> {
    let (sender, orders) = unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    orders
}

fn step(name: &str, fields: &Value) {
    println!("{}", agent::line(name, fields));
}
