//! Handing a grant to another session, and taking over one that was handed over.

use epoch_core::{Epoch, Scope, SessionHash};
use epoch_proto::v1;

use crate::error::{Error, ErrorKind};
use crate::grant::{Grant, GrantLoss, malformed};
use crate::request_id::Terms;
use crate::session::Session;

impl Grant {
    /// Gives the grant to another session, named by [`Session::hash`], at the next epoch and
    /// before the scope's queue. Stop the work under this grant first. Returns the other
    /// session's epoch; that session takes it over with [`Session::adopt`].
    ///
    /// The grant is lost here unless the cluster refused, also when this was not waited for.
    ///
    /// # Errors
    /// As for every call. It may be called again after an error; of a grant that was lost
    /// otherwise nothing is asked.
    pub async fn transfer(&self, to: &SessionHash) -> Result<Epoch, Error> {
        self.check_but_for(GrantLoss::Transferred)?;
        let request = v1::TransferRequest {
            scope: self.scope().as_str().to_owned(),
            epoch: self.epoch().get(),
            session_id: self.session().id().to_string(),
            to: to.to_string(),
        };
        let mut leaving = Leaving {
            grant: self,
            kept: false,
        };
        let (session, key) = (self.session(), self.held().key());
        match session.until_lost(session.client().transfer(request)).await {
            Ok(answer) => {
                let shared = session.shared();
                shared.registry().end(&key, GrantLoss::Transferred);
                Epoch::new(answer.epoch).map_err(|error| malformed(&error.to_string()))
            }
            Err(error) => {
                session.shared().refused(&key, &error);
                leaving.kept =
                    matches!(error.kind(), ErrorKind::Refused(_)) && !error.outcome_unknown();
                Err(error)
            }
        }
    }
}

/// A grant that is given away: unless it is known to have been kept, it counts as lost.
struct Leaving<'a> {
    grant: &'a Grant,
    kept: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let shared = self.grant.session().shared();
            let key = self.grant.held().key();
            shared.registry().give_up(&key, GrantLoss::Transferred);
        }
    }
}

impl Session {
    /// Takes over a grant that was transferred to this session (or one of its own that was
    /// [kept](Grant::keep)), with a fresh certificate, which one node signs
    /// ([`Grant::set_signatures`] for the next ones). `None` when the session does not hold the scope.
    ///
    /// # Errors
    /// As for every call; `EPOCH_SUPERSEDED` when it lost the scope meanwhile.
    pub async fn adopt(&self, scope: &Scope) -> Result<Option<Grant>, Error> {
        let (holder, holdings) = self.holdings().await?;
        let Some(held) = holdings.into_iter().find(|held| held.scope == *scope) else {
            return Ok(None);
        };
        let request = v1::CertifyRequest {
            scope: scope.as_str().to_owned(),
            epoch: held.epoch.get(),
            session_id: self.id().to_string(),
            ..v1::CertifyRequest::default()
        };
        let certified = self.until_lost(self.client().certify(request)).await?;
        let status = self.until_lost(self.client().status()).await?;
        self.check()?;
        let granted = v1::Grant {
            scope: scope.as_str().to_owned(),
            epoch: held.epoch.get(),
            holder,
            session_id: self.id().to_string(),
            certificate: certified.certificate,
            incarnation: status.incarnation,
            position: Some(v1::Position {
                group: held.position.group,
                term: held.position.term,
                leader: held.position.leader,
                index: held.position.index,
                offset: held.position.offset,
            }),
        };
        Grant::new(self.clone(), scope, &Terms::default(), granted).map(Some)
    }
}
