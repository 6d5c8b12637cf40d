//! The calls about grants, as a test says.

use epoch_core::Reason;
use epoch_proto::v1;
use epoch_proto::v1::epoch_service_server::EpochService;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Fake, Said};

fn grant(scope: String, session_id: String, epoch: u64, certificate: String) -> v1::Grant {
    v1::Grant {
        scope,
        epoch,
        holder: "agent".to_owned(),
        session_id,
        certificate,
        incarnation: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        position: Some(v1::Position {
            group: 0,
            term: 1,
            leader: 1,
            index: 8,
            offset: 0,
        }),
    }
}

fn said(events: Vec<(&str, &str, &str)>, cursor: &str) -> v1::WatchResponse {
    let event = |(kind, scope, cursor): (&str, &str, &str)| v1::Event {
        kind: kind.to_owned(),
        scope: scope.to_owned(),
        epoch: 42,
        cursor: cursor.to_owned(),
        ..v1::Event::default()
    };
    v1::WatchResponse {
        events: events.into_iter().map(event).collect(),
        cursor: cursor.to_owned(),
    }
}

#[tonic::async_trait]
impl EpochService for Fake {
    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::Grant>, Status> {
        let request = request.into_inner();
        let answer = self.next(|script| {
            script.seen_acquires.push(request.clone());
            &mut script.acquires
        });
        let (epoch, certificate) = self.seen(|script| (script.epoch, script.certificate.clone()));
        let granted = grant(request.scope, request.session_id, epoch, certificate);
        self.play(answer, granted).await
    }

    async fn acquire_many(
        &self,
        request: Request<v1::AcquireManyRequest>,
    ) -> Result<Response<v1::AcquireManyResponse>, Status> {
        let request = request.into_inner();
        let answer = self.next(|script| {
            script.seen_many.push(request.clone());
            &mut script.many
        });
        let (first, certificate) = self.seen(|script| (script.epoch, script.certificate.clone()));
        let (session, grants) = (request.session_id, request.scopes.into_iter().zip(first..));
        let grants = grants
            .map(|(scope, epoch)| grant(scope, session.clone(), epoch, certificate.clone()))
            .collect();
        self.play(answer, v1::AcquireManyResponse { grants }).await
    }

    async fn cancel_wait(
        &self,
        request: Request<v1::CancelWaitRequest>,
    ) -> Result<Response<v1::CancelWaitResponse>, Status> {
        self.script(|script| script.seen_cancels.push(request.into_inner()));
        let epoch = self.seen(|script| script.cancelled_epoch);
        Ok(self.answer(v1::CancelWaitResponse {
            cancelled: epoch.is_none(),
            epoch,
        }))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let answer = self.next(|script| {
            script.seen_releases.push(request.into_inner());
            &mut script.releases
        });
        self.play(answer, v1::ReleaseResponse { released: true })
            .await
    }

    async fn transfer(
        &self,
        request: Request<v1::TransferRequest>,
    ) -> Result<Response<v1::TransferResponse>, Status> {
        let request = request.into_inner();
        let answer = self.next(|script| {
            script.seen_transfers.push(request.clone());
            &mut script.transfers
        });
        let transferred = v1::TransferResponse {
            scope: request.scope,
            epoch: request.epoch + 1,
        };
        self.play(answer, transferred).await
    }

    async fn revoke(
        &self,
        _request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        Err(self.refuse(Reason::NoQuorum))
    }

    async fn certify(
        &self,
        _request: Request<v1::CertifyRequest>,
    ) -> Result<Response<v1::CertifyResponse>, Status> {
        let answer = self.next(|script| {
            script.seen_certifies += 1;
            &mut script.certifies
        });
        let certificate = self.seen(|script| script.fresh.clone());
        self.play(answer, v1::CertifyResponse { certificate }).await
    }

    async fn get(
        &self,
        _request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::ScopeState>, Status> {
        Ok(self.answer(v1::ScopeState::default()))
    }

    async fn list(
        &self,
        _request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        Ok(self.answer(v1::ListResponse::default()))
    }

    type WatchStream = ReceiverStream<Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let mut says = Vec::new();
        self.script(|script| {
            script.seen_watches.push(request.into_inner());
            if !script.watches.is_empty() {
                says = script.watches.remove(0);
            }
        });
        let (sender, receiver) = mpsc::channel(1);
        let fake = self.clone();
        tokio::spawn(async move {
            for say in says {
                let sent = match say {
                    Said::Events(events, cursor) => sender.send(Ok(said(events, cursor))).await,
                    Said::Refuse(reason) => sender.send(Err(fake.refuse(reason))).await,
                    Said::End => return,
                };
                if sent.is_err() {
                    return;
                }
            }
            sender.closed().await;
        });
        Ok(self.answer(ReceiverStream::new(receiver)))
    }
}
