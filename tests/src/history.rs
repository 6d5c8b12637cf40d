//! What clients saw, judged by the promises.

use anyhow::{Context as _, Result};
use epoch_core::{Certificate, Epoch, RequestId, SessionId};
use epoch_machine::promise::{
    Acquired, Admission, AdmissionKind, exactly_one, no_late_write, unique_and_rising,
};

/// All that a number of clients saw, and what a resource let through.
#[derive(Debug, Clone, Default)]
pub struct History {
    acquired: Vec<Acquired>,
    refused: usize,
    admissions: Vec<Admission>,
}

/// One call, from when it was sent to when its answer was there, by [`crate::clock::boot_ns`].
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// When it was sent.
    pub sent_ns: u64,
    /// When its answer was there.
    pub returned_ns: u64,
}

impl History {
    /// An acquire that was answered with a certificate, which has been verified.
    pub fn acquired(
        &mut self,
        certificate: &Certificate,
        session: SessionId,
        request_id: RequestId,
        span: Span,
    ) {
        self.acquired.push(Acquired {
            scope: certificate.scope().clone(),
            incarnation: certificate.incarnation(),
            epoch: certificate.epoch(),
            session,
            request_id: Some(request_id),
            sent: span.sent_ns,
            returned: span.returned_ns,
        });
    }

    /// An acquire that was refused.
    pub fn refused(&mut self) {
        self.refused += 1;
    }

    /// A write or barrier that the resource let through, after all those noted before.
    pub fn admitted(&mut self, certificate: &Certificate, kind: AdmissionKind) {
        self.admissions.push(Admission {
            scope: certificate.scope().clone(),
            incarnation: certificate.incarnation(),
            epoch: certificate.epoch(),
            kind,
        });
    }

    /// Takes in what another client saw.
    pub fn append(&mut self, mut other: Self) {
        self.acquired.append(&mut other.acquired);
        self.admissions.append(&mut other.admissions);
        self.refused += other.refused;
    }

    /// Checks every promise that can be judged from what was seen.
    ///
    /// # Errors
    /// The first broken one, with the records that show it.
    pub fn check(&self) -> Result<()> {
        unique_and_rising(&self.acquired).context("a promise is broken")?;
        exactly_one(&self.acquired).context("a promise is broken")?;
        no_late_write(&self.admissions).context("a promise is broken")
    }

    /// How many acquires were answered with a grant, repeated answers included.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.acquired.len()
    }

    /// The highest epoch seen.
    #[must_use]
    pub fn highest_epoch(&self) -> Option<Epoch> {
        self.acquired.iter().map(|acquired| acquired.epoch).max()
    }

    /// What it consists of, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut scopes: Vec<&str> = self
            .acquired
            .iter()
            .map(|acquired| acquired.scope.as_str())
            .collect();
        scopes.sort_unstable();
        scopes.dedup();
        let grants = self.acquired.len();
        format!(
            "{grants} grants in {} scopes, {} refusals",
            scopes.len(),
            self.refused
        )
    }
}

#[cfg(test)]
mod tests {
    use epoch_core::{ClusterId, Incarnation, OpenId, Scope};

    use super::*;

    fn acquired(epoch: u64, request_id: u64, sent: u64) -> Acquired {
        let id = uuid::Uuid::from_u128(1);
        Acquired {
            scope: Scope::parse("a").unwrap(),
            incarnation: Incarnation(id),
            epoch: Epoch::new(epoch).unwrap(),
            session: SessionId {
                open_id: OpenId(id),
                index: 1,
                offset: 0,
            },
            request_id: RequestId::new(request_id).ok(),
            sent,
            returned: sent + 1,
        }
    }

    #[test]
    fn each_broken_promise_is_found() {
        let good = vec![acquired(5, 1, 10), acquired(6, 2, 20), acquired(6, 2, 30)];
        let history = |acquired| History {
            acquired,
            ..History::default()
        };
        assert!(history(good.clone()).check().is_ok());
        for planted in [acquired(6, 3, 40), acquired(4, 3, 40), acquired(7, 2, 40)] {
            let mut bad = good.clone();
            bad.push(planted.clone());
            assert!(history(bad).check().is_err(), "{planted:?}");
        }
        let admission = |epoch| Admission {
            scope: Scope::parse("a").unwrap(),
            incarnation: Incarnation(ClusterId(uuid::Uuid::from_u128(1)).0),
            epoch: Epoch::new(epoch).unwrap(),
            kind: AdmissionKind::Write,
        };
        let late = History {
            admissions: vec![admission(6), admission(5)],
            ..History::default()
        };
        assert!(late.check().is_err());
    }
}
