//! Records: one small value a scope, written by its current grant only.

use epoch_core::{Epoch, Scope, SessionId};
use epoch_machine::{Command, IntentDigest, Outcome, Value};
use epoch_proto::v1;

use super::access::{self, About, Call};
use super::{Api, Result, Server, forward, parse, unexpected};

/// What is to be written.
struct Write {
    scope: Scope,
    session: SessionId,
    epoch: Epoch,
    /// `None` removes it.
    value: Option<Value>,
    expected_revision: Option<u64>,
    intent: Option<IntentDigest>,
}

/// What a record's write came to.
struct Written {
    revision: u64,
    had_effect: bool,
    replayed: bool,
}

impl Api {
    pub(super) async fn put_record(
        &self,
        request: v1::PutRecordRequest,
    ) -> Result<v1::PutRecordResponse> {
        let value = parse::value(&request.value)?;
        let write = write(
            &request.scope,
            &request.session_id,
            request.epoch,
            Some(value),
            request.expected_revision,
            request.intent_id.as_deref(),
        )?;
        if let Server::Leader(leader) = self.server()? {
            return forward::put_record(leader, request).await;
        }
        let written = self.write_record(access::PUT_RECORD, write).await?;
        Ok(v1::PutRecordResponse {
            revision: written.revision,
            replayed: written.replayed,
        })
    }

    pub(super) async fn delete_record(
        &self,
        request: v1::DeleteRecordRequest,
    ) -> Result<v1::DeleteRecordResponse> {
        let write = write(
            &request.scope,
            &request.session_id,
            request.epoch,
            None,
            request.expected_revision,
            request.intent_id.as_deref(),
        )?;
        if let Server::Leader(leader) = self.server()? {
            return forward::delete_record(leader, request).await;
        }
        let written = self.write_record(access::DELETE_RECORD, write).await?;
        Ok(v1::DeleteRecordResponse {
            revision: written.revision,
            deleted: written.had_effect,
            replayed: written.replayed,
        })
    }

    async fn write_record(&self, call: Call, write: Write) -> Result<Written> {
        let Write {
            scope,
            session,
            epoch,
            value,
            expected_revision,
            intent,
        } = write;
        self.admit_in(call, About::Scope(&scope), &session)?;
        let current = self
            .node
            .state
            .read()
            .current_grant(&scope, &session, epoch);
        if let Ok(grant) = current {
            self.claimed(&grant);
        }
        let write = Command::WriteRecord {
            scope,
            session,
            epoch,
            value,
            expected_revision,
            intent,
        };
        match self.propose(write).await? {
            Outcome::RecordWritten {
                revision,
                had_effect,
                replayed,
            } => Ok(Written {
                revision,
                had_effect,
                replayed,
            }),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn get_record(&self, request: v1::GetRecordRequest) -> Result<v1::Record> {
        let scope = parse::scope(&request.scope)?;
        if let Server::Leader(leader) = self.server()? {
            return forward::get_record(leader, request).await;
        }
        self.admit(access::GET_RECORD, About::Scope(&scope))?;
        self.node.reads.confirm().await?;
        let state = self.node.state.read();
        let record = state.record(&scope);
        let found = record.and_then(|record| Some((record, record.value.as_ref()?)));
        Ok(match found {
            Some((record, value)) => v1::Record {
                scope: request.scope,
                value: Some(value.as_bytes().to_vec()),
                revision: record.revision,
                epoch: Some(record.epoch.get()),
            },
            None => v1::Record {
                scope: request.scope,
                ..v1::Record::default()
            },
        })
    }
}

fn write(
    scope: &str,
    session_id: &str,
    epoch: u64,
    value: Option<Value>,
    expected_revision: Option<u64>,
    intent_id: Option<&str>,
) -> Result<Write> {
    let intent_id = intent_id.map(parse::intent_id).transpose()?;
    Ok(Write {
        scope: parse::scope(scope)?,
        session: parse::session_id(session_id)?,
        epoch: parse::epoch(epoch)?,
        expected_revision,
        intent: intent_id.map(|id| IntentDigest::of(&id, value.as_ref())),
        value,
    })
}
