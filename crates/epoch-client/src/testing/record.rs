//! The calls about records and the cluster, as a test says.

use epoch_core::Reason;
use epoch_proto::v1;
use epoch_proto::v1::cluster_service_server::ClusterService;
use epoch_proto::v1::record_service_server::RecordService;
use tonic::{Request, Response, Status};

use super::Fake;

#[tonic::async_trait]
impl RecordService for Fake {
    async fn put(
        &self,
        request: Request<v1::PutRecordRequest>,
    ) -> Result<Response<v1::PutRecordResponse>, Status> {
        let answer = self.next(|script| {
            script.seen_puts.push(request.into_inner());
            &mut script.writes
        });
        let written = v1::PutRecordResponse {
            revision: 7,
            replayed: false,
        };
        self.play(answer, written).await
    }

    async fn get(
        &self,
        request: Request<v1::GetRecordRequest>,
    ) -> Result<Response<v1::Record>, Status> {
        let scope = request.into_inner().scope;
        let last = self.seen(|script| script.seen_puts.last().cloned());
        let last = last.ok_or_else(|| self.refuse(Reason::Internal))?;
        Ok(self.answer(v1::Record {
            scope,
            value: Some(last.value),
            revision: 7,
            epoch: Some(last.epoch),
        }))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRecordRequest>,
    ) -> Result<Response<v1::DeleteRecordResponse>, Status> {
        let answer = self.next(|script| {
            script.seen_deletes.push(request.into_inner());
            &mut script.writes
        });
        let deleted = v1::DeleteRecordResponse {
            revision: 8,
            deleted: true,
            replayed: false,
        };
        self.play(answer, deleted).await
    }
}

#[tonic::async_trait]
impl ClusterService for Fake {
    async fn status(
        &self,
        _request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        Ok(self.answer(v1::StatusResponse {
            incarnation: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
            ..v1::StatusResponse::default()
        }))
    }

    async fn audit(
        &self,
        _request: Request<v1::AuditRequest>,
    ) -> Result<Response<v1::AuditResponse>, Status> {
        Err(self.refuse(Reason::Unimplemented))
    }
}
