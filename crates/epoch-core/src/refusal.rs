//! Why a guard refuses, and the one mapping to the public reasons.

use crate::id::{Epoch, Incarnation};
use crate::name::Scope;
use crate::reason::Reason;
use crate::verify_error::VerifyError;

/// Why a guard refused a write or a barrier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No certificate came with the write: guards deny by default.
    #[error("no certificate came with the write; acquire the scope and attach its certificate")]
    NoCertificate,
    /// The certificate does not verify.
    #[error("the certificate does not verify: {0}")]
    Certificate(VerifyError),
    /// The certificate is for another scope than the resource's.
    #[error(
        "the certificate is for scope {certificate:?}, the resource is {resource:?}; present the certificate of the resource's own scope"
    )]
    ScopeDiffers {
        /// The resource's scope.
        resource: Scope,
        /// The certificate's scope.
        certificate: Scope,
    },
    /// Nobody holds this epoch: a revoke burned it.
    #[error(
        "the certificate has no holder and is good for barriers only; a write needs the certificate of a grant"
    )]
    Holderless,
    /// The fence is higher.
    #[error("epoch {presented} is below the fence at {fence}; {}, {}", recorded(*intent_recorded), Reason::EpochSuperseded.next_step())]
    Superseded {
        /// The certificate's epoch.
        presented: Epoch,
        /// The fence's epoch.
        fence: Epoch,
        /// Whether this intent, with this payload, had taken effect before.
        intent_recorded: bool,
    },
    /// The fence is of a higher incarnation.
    #[error("incarnation {presented} is below the fence's {fence}; {}", Reason::IncarnationVoid.next_step())]
    IncarnationVoid {
        /// The certificate's incarnation.
        presented: Incarnation,
        /// The fence's incarnation.
        fence: Incarnation,
    },
    /// Two grants carry one (incarnation, epoch).
    #[error("epoch {epoch} was admitted here for another grant; {}", Reason::EpochForked.next_step())]
    Forked {
        /// The epoch given twice.
        epoch: Epoch,
    },
    /// The intent id was used before with another payload.
    #[error(
        "the intent id was used before with another payload; use a new intent id for a new action"
    )]
    IntentReused,
    /// The content is not at the expected revision.
    #[error(
        "the content is at revision {actual}, not {expected}; read again and redo the change on what is there"
    )]
    RevisionDiffers {
        /// What the caller expected.
        expected: u64,
        /// What is there.
        actual: u64,
    },
}

fn recorded(intent_recorded: bool) -> &'static str {
    if intent_recorded {
        "this intent took effect before"
    } else {
        "this intent is not recorded"
    }
}

impl Refusal {
    /// The public reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoCertificate | Self::ScopeDiffers { .. } | Self::Holderless => {
                Reason::CertificateInvalid
            }
            Self::Certificate(error) => error.reason(),
            Self::Superseded { .. } => Reason::EpochSuperseded,
            Self::IncarnationVoid { .. } => Reason::IncarnationVoid,
            Self::Forked { .. } => Reason::EpochForked,
            Self::IntentReused => Reason::IntentReused,
            Self::RevisionDiffers { .. } => Reason::RevisionMismatch,
        }
    }
}

impl From<VerifyError> for Refusal {
    fn from(error: VerifyError) -> Self {
        Self::Certificate(error)
    }
}
