//! The calls about records.

use epoch_core::Scope;
use epoch_proto::v1;
use epoch_proto::v1::record_service_client::RecordServiceClient;
use uuid::Uuid;

use crate::call::Effect;
use crate::client::Client;
use crate::error::Error;
use crate::record::Record;

impl Client {
    /// Writes a scope's record. Without an `intent_id` one is made here, so that an attempt that
    /// arrives late, or twice, never undoes a later write.
    ///
    /// # Errors
    /// As for every call; `EPOCH_SUPERSEDED` when the grant is not the current one any more,
    /// `REVISION_MISMATCH` when the record is not at the expected revision.
    pub async fn record_put(
        &self,
        mut request: v1::PutRecordRequest,
    ) -> Result<v1::PutRecordResponse, Error> {
        request.intent_id.get_or_insert_with(intent_id);
        self.call(Effect::Repeatable, request, |channel, request| async move {
            RecordServiceClient::new(channel).put(request).await
        })
        .await
    }

    /// Reads a scope's record.
    ///
    /// # Errors
    /// As for every call.
    pub async fn record_get(&self, request: v1::GetRecordRequest) -> Result<v1::Record, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            RecordServiceClient::new(channel).get(request).await
        })
        .await
    }

    /// Removes a scope's record. As for [`Client::record_put`], an `intent_id` is made when there
    /// is none.
    ///
    /// # Errors
    /// As for [`Client::record_put`].
    pub async fn record_delete(
        &self,
        mut request: v1::DeleteRecordRequest,
    ) -> Result<v1::DeleteRecordResponse, Error> {
        request.intent_id.get_or_insert_with(intent_id);
        self.call(Effect::Repeatable, request, |channel, request| async move {
            RecordServiceClient::new(channel).delete(request).await
        })
        .await
    }

    /// A scope's record: whoever wrote it, and whether or not the scope is held.
    ///
    /// # Errors
    /// As for every call.
    pub async fn get_record(&self, scope: &Scope) -> Result<Record, Error> {
        let request = v1::GetRecordRequest {
            scope: scope.as_str().to_owned(),
        };
        Record::read(self.record_get(request).await?)
    }
}

fn intent_id() -> String {
    Uuid::new_v4().to_string()
}
