//! One scope held by a session.

use std::sync::{Arc, Mutex, PoisonError};

use epoch_core::{Epoch, Incarnation, Position, Reason, Scope};
use epoch_proto::v1;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::error::Error;
use crate::session::Session;

/// One scope held by a session, with the certificate to attach to each write.
///
/// It keeps its session open. Dropping it does not release the scope; [`Grant::release`] and the
/// session's end do.
#[derive(Debug)]
pub struct Grant {
    session: Session,
    scope: Scope,
    epoch: Epoch,
    incarnation: Incarnation,
    position: Position,
    audience: Vec<String>,
    certificate: Mutex<Arc<str>>,
    lost: CancellationToken,
}

impl Grant {
    pub(crate) fn new(
        session: Session,
        scope: &Scope,
        audience: &[String],
        granted: v1::Grant,
    ) -> Result<Self, Error> {
        if granted.scope != scope.as_str() || granted.session_id != session.id().to_string() {
            return Err(malformed("it is for another scope or session"));
        }
        let position = granted
            .position
            .ok_or_else(|| malformed("it has no position"))?;
        let lost = session.lost_token().child_token();
        Ok(Self {
            session,
            scope: scope.clone(),
            epoch: Epoch::new(granted.epoch).map_err(|error| malformed(&error.to_string()))?,
            incarnation: granted
                .incarnation
                .parse()
                .map_err(|error| malformed(&format!("{error}")))?,
            position: Position {
                group: position.group,
                term: position.term,
                leader: position.leader,
                index: position.index,
                offset: position.offset,
            },
            audience: audience.to_vec(),
            certificate: Mutex::new(granted.certificate.into()),
            lost,
        })
    }

    /// The scope.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The incarnation of the cluster that granted it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Where the grant stands in the log.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The newest certificate: a compact JWT.
    #[must_use]
    pub fn certificate(&self) -> Arc<str> {
        Arc::clone(
            &self
                .certificate
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// The session that holds it.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns once the grant is known to be lost: with its session, when a call said that it was
    /// superseded, or when it was released.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Cancelled once the grant is known to be lost, to be handed to what must stop then.
    #[must_use]
    pub fn lost_token(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Whether the grant is known to be lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled() || self.session.loss().is_some()
    }

    /// Asks for a fresh certificate, and returns it.
    ///
    /// # Errors
    /// As for every call. After `EPOCH_SUPERSEDED` the grant is lost.
    pub async fn certify(&self) -> Result<Arc<str>, Error> {
        let request = v1::CertifyRequest {
            scope: self.scope.as_str().to_owned(),
            epoch: self.epoch.get(),
            session_id: self.session.id().to_string(),
            audience: self.audience.clone(),
        };
        let answer = self.ask(self.session.client().certify(request)).await?;
        let fresh: Arc<str> = answer.certificate.into();
        *self
            .certificate
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }

    /// Gives the scope back; it is lost here at once. Whether it was still held. May be called
    /// again after an error.
    ///
    /// # Errors
    /// As for every call.
    pub async fn release(&self) -> Result<bool, Error> {
        // Nobody may go on working under it while the call is on its way.
        self.lose();
        let request = v1::ReleaseRequest {
            scope: self.scope.as_str().to_owned(),
            epoch: self.epoch.get(),
            session_id: self.session.id().to_string(),
        };
        Ok(self.session.client().release(request).await?.released)
    }

    /// The result of a call in this grant. Once the cluster says that it was superseded, it is
    /// lost.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.session.check()?;
        let result = self.session.until_lost(call).await;
        if let Err(error) = &result
            && error.reason() == Some(Reason::EpochSuperseded)
        {
            self.lose();
        }
        result
    }

    /// Nobody may go on working under it.
    pub(crate) fn lose(&self) {
        self.lost.cancel();
    }
}

pub(crate) fn malformed(what: &str) -> Error {
    let message = format!("the node's answer to Acquire is malformed: {what}");
    Error::protocol(Code::Internal, message).with_outcome_unknown(true)
}
