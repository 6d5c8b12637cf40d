//! Records: one small value a scope, written by its current grant only.

use epoch_core::{Epoch, IntentId};
use epoch_proto::v1;
use tonic::Code;

use crate::error::Error;
use crate::grant::Grant;

/// A scope's record. It outlives the grant that wrote it: the next holder reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The value, if there is one.
    pub value: Option<Vec<u8>>,
    /// The revision of the value, or of its removal; 0 when nothing is known of one.
    pub revision: u64,
    /// The epoch of the grant that wrote or removed it.
    pub epoch: Option<Epoch>,
}

impl Record {
    pub(crate) fn read(record: v1::Record) -> Result<Self, Error> {
        let epoch = record.epoch.map(Epoch::new).transpose().map_err(|error| {
            let message = format!("the node's answer about the record is malformed: {error}");
            Error::protocol(Code::Internal, message)
        })?;
        Ok(Self {
            value: record.value,
            revision: record.revision,
            epoch,
        })
    }
}

/// What a change of a record depends on, beside the grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordOptions {
    /// The revision that must be the current one, 0 for none; any when absent.
    pub expected_revision: Option<u64>,
    /// The name of this action: the same again changes nothing. Of each scope the 16 latest are
    /// kept. One is made when absent, so that the retries of one call count once.
    pub intent_id: Option<IntentId>,
}

/// What became of a record's new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordWritten {
    /// Its revision. Revisions rise with every change of the scope's record.
    pub revision: u64,
    /// The intent had taken effect before, with this revision; nothing was changed now.
    pub replayed: bool,
}

/// What became of a record that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordDeleted {
    /// The revision of the removal.
    pub revision: u64,
    /// Whether there was a value.
    pub deleted: bool,
    /// The intent had taken effect before, with this revision; nothing was changed now.
    pub replayed: bool,
}

impl Grant {
    /// Writes the scope's record, at most 4 KiB. The cluster takes it only while this grant is
    /// the current one, in the same step: here a handover blocks the old holder at the instant it
    /// happens.
    ///
    /// # Errors
    /// As for every call. After `EPOCH_SUPERSEDED` the grant is lost; `REVISION_MISMATCH` when
    /// the record is not at the expected revision.
    pub async fn put_record(
        &self,
        value: impl Into<Vec<u8>>,
        options: RecordOptions,
    ) -> Result<RecordWritten, Error> {
        let request = v1::PutRecordRequest {
            scope: self.scope().as_str().to_owned(),
            epoch: self.epoch().get(),
            session_id: self.session().id().to_string(),
            value: value.into(),
            expected_revision: options.expected_revision,
            intent_id: options.intent_id.map(|id| id.as_str().to_owned()),
        };
        let answer = self
            .ask(self.session().client().record_put(request))
            .await?;
        Ok(RecordWritten {
            revision: answer.revision,
            replayed: answer.replayed,
        })
    }

    /// Removes the scope's record.
    ///
    /// # Errors
    /// As for [`Grant::put_record`].
    pub async fn delete_record(&self, options: RecordOptions) -> Result<RecordDeleted, Error> {
        let request = v1::DeleteRecordRequest {
            scope: self.scope().as_str().to_owned(),
            epoch: self.epoch().get(),
            session_id: self.session().id().to_string(),
            expected_revision: options.expected_revision,
            intent_id: options.intent_id.map(|id| id.as_str().to_owned()),
        };
        let call = self.session().client().record_delete(request);
        let answer = self.ask(call).await?;
        Ok(RecordDeleted {
            revision: answer.revision,
            deleted: answer.deleted,
            replayed: answer.replayed,
        })
    }
}
