//! What is kept with a scope: `record put`, `record get`, `record delete`.

use std::fs::File;
use std::io::Read;

use epoch_client::{Client, Error};
use epoch_proto::v1;

use crate::args::{RecordCommand, RecordDelete, RecordGet, RecordPut};
use crate::exit::Failure;
use crate::output::Output;

/// More than a node takes: enough for it to say so, and an end to what has none.
const READ_BYTES_MAX: u64 = 16 * 1_024;

pub(crate) async fn record(
    client: &Client,
    output: Output,
    command: RecordCommand,
) -> Result<(), Failure> {
    match command {
        RecordCommand::Put(command) => put(client, output, command).await,
        RecordCommand::Get(command) => get(client, output, command).await,
        RecordCommand::Delete(command) => delete(client, output, command).await,
    }
}

async fn put(client: &Client, output: Output, command: RecordPut) -> Result<(), Failure> {
    let value = value(&command)?;
    let intent = intent(command.change.intent.as_ref());
    let request = v1::PutRecordRequest {
        scope: command.held.scope.as_str().to_owned(),
        epoch: command.held.epoch.get(),
        session_id: command.held.session.id()?.to_string(),
        value,
        expected_revision: command.change.expected_revision,
        intent_id: Some(intent.clone()),
    };
    let written = client.record_put(request).await;
    let written = written.map_err(|error| failure(output, error, &intent))?;
    output.result(&written, || {
        format!("revision {}{}", written.revision, again(written.replayed))
    })
}

async fn get(client: &Client, output: Output, command: RecordGet) -> Result<(), Failure> {
    let request = v1::GetRecordRequest {
        scope: command.scope.as_str().to_owned(),
    };
    let record = client.record_get(request).await?;
    if record.value.is_none() {
        output.note(&format!("{} has no record", command.scope));
    }
    output.raw(&record, record.value.as_deref().unwrap_or_default())
}

async fn delete(client: &Client, output: Output, command: RecordDelete) -> Result<(), Failure> {
    let intent = intent(command.change.intent.as_ref());
    let request = v1::DeleteRecordRequest {
        scope: command.held.scope.as_str().to_owned(),
        epoch: command.held.epoch.get(),
        session_id: command.held.session.id()?.to_string(),
        expected_revision: command.change.expected_revision,
        intent_id: Some(intent.clone()),
    };
    let deleted = client.record_delete(request).await;
    let deleted = deleted.map_err(|error| failure(output, error, &intent))?;
    output.result(&deleted, || match deleted.deleted {
        true => format!(
            "deleted, revision {}{}",
            deleted.revision,
            again(deleted.replayed)
        ),
        false => "there was no record".to_owned(),
    })
}

/// The value that is to be written.
fn value(command: &RecordPut) -> Result<Vec<u8>, Failure> {
    match (&command.value, &command.file) {
        (Some(text), _) if text != "-" => Ok(text.clone().into_bytes()),
        (_, Some(path)) => {
            let file = File::open(path).map_err(|error| unreadable(&path.display(), &error))?;
            read(&path.display(), file)
        }
        (_, None) => read(&"stdin", std::io::stdin()),
    }
}

fn read(what: &impl std::fmt::Display, source: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let taken = source.take(READ_BYTES_MAX).read_to_end(&mut bytes);
    taken.map_err(|error| unreadable(what, &error))?;
    Ok(bytes)
}

fn unreadable(what: &impl std::fmt::Display, error: &std::io::Error) -> Failure {
    let message = format!("cannot read the value from {what}: {error}");
    Failure::usage(message, "check its name and permissions")
}

/// The name of a change: one is made where none is given, so that it can be asked for again.
fn intent(given: Option<&epoch_core::IntentId>) -> String {
    given.map_or_else(
        || uuid::Uuid::new_v4().to_string(),
        |intent| intent.as_str().to_owned(),
    )
}

fn failure(output: Output, error: Error, intent: &str) -> Failure {
    if error.outcome_unknown() {
        output.note(&format!(
            "the outcome is unknown; ask again with --intent {intent}"
        ));
    }
    Failure::from(error)
}

fn again(replayed: bool) -> &'static str {
    match replayed {
        true => " (of then: this intent had taken effect before)",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_tells_that_it_is_too_much() {
        let read = read(&"zeros", std::io::repeat(0)).unwrap();
        assert_eq!(u64::try_from(read.len()).unwrap(), READ_BYTES_MAX);
    }
}
