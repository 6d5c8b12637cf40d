//! `watch`: what happens to grants, a line an event.

use epoch_client::{Client, Error, Event, Watch, Watched};
use epoch_core::Reason;
use epoch_proto::v1;

use crate::args;
use crate::exit::Failure;
use crate::output::Output;
use crate::signals::Signals;
use crate::times;

/// Ends when it is told to, or when nobody reads any more.
pub(crate) async fn watch(
    client: &Client,
    output: Output,
    command: args::Watch,
) -> Result<(), Failure> {
    let mut signals = Signals::ending()?;
    let (watched, list) = match (command.scope, command.prefix) {
        (Some(scope), _) => {
            let list = format!("epochctl list -o json --prefix '{scope}'");
            (Watched::Scope(scope), list)
        }
        (None, Some(prefix)) => {
            let list = format!("epochctl list -o json --prefix '{prefix}'");
            (Watched::Prefix(prefix), list)
        }
        (None, None) => {
            let next_step = "name a scope, or --prefix ('' for all)";
            return Err(Failure::usage("nothing to watch is given", next_step));
        }
    };
    tokio::select! {
        biased;
        _signal = signals.next() => Ok(()),
        ended = async {
            let after = command.after;
            let opened = client.watch(watched, after).await;
            let mut watch = opened.map_err(|error| failure(error, &list))?;
            let ended = print(&mut watch, output).await;
            ended.map_err(|error| match error {
                Ended::Here(failure) => failure,
                Ended::Watch(error) => {
                    // After a compaction nothing is there to go on with.
                    if error.reason() != Some(Reason::WatchCompacted)
                        && let Some(cursor) = watch.cursor()
                    {
                        output.note(&format!("go on with --after {cursor}"));
                    }
                    failure(error, &list)
                }
            })
        } => ended,
    }
}

/// Why no more events are printed.
enum Ended {
    Watch(Error),
    Here(Failure),
}

async fn print(watch: &mut Watch, output: Output) -> Result<(), Ended> {
    loop {
        let event = watch.next().await.map_err(Ended::Watch)?;
        let json = v1::Event::from(event.clone());
        let is_read = output.line(&json, || line(&event)).await;
        if !is_read.map_err(Ended::Here)? {
            return Ok(());
        }
    }
}

fn failure(error: Error, list: &str) -> Failure {
    let is_compacted = error.reason() == Some(Reason::WatchCompacted);
    let failure = Failure::from(error);
    if !is_compacted {
        return failure;
    }
    // The node says what has happened: these are gone, or its log does not come to the cursor. Its
    // next step is told in the terms of this command line.
    let general = format!("; {}", failure.next_step);
    let said = failure.message.strip_suffix(&general);
    Failure {
        message: said.unwrap_or(&failure.message).to_owned(),
        next_step: format!(
            "take stock with `{list}`, and watch again with --after and the cursor it gives"
        ),
        ..failure
    }
}

fn line(event: &Event) -> String {
    let mut line = format!(
        "{}  {:<11}  {}  {}",
        times::rfc3339(event.time_ms),
        event.kind,
        event.epoch,
        event.scope
    );
    if let Some(holder) = &event.holder {
        line.push_str(&format!("  {holder}"));
    }
    if let Some(ended) = event.ended.filter(|ended| *ended != event.epoch) {
        line.push_str(&format!("  (ended {ended})"));
    }
    line
}
