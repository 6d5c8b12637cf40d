//! What a resource offers so that a new holder can shut the door before its first write.

use crate::id::{Epoch, Incarnation};
use crate::name::Scope;
use crate::reason::Reason;

/// A resource's fence that can be raised without a write.
///
/// Until the new epoch has reached a resource, an old holder can still write there. Raising every
/// resource's fence right after the acquire ends that, one resource at a time: barriers over
/// several resources are not one atomic switch.
pub trait Barrier: Send + Sync {
    /// The resource's name, for receipts and messages.
    fn resource(&self) -> &str;

    /// Raises the fence to the certificate's epoch. Blocks until that is durable. Calling it again
    /// with the same grant is harmless.
    ///
    /// # Errors
    /// Refused by the fence or the certificate's check, or the resource could not be reached.
    fn advance(&self, certificate: &str, now_ms: u64) -> Result<Receipt, BarrierError>;
}

/// What a resource confirms after a barrier: nothing below this is admitted there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The resource's name.
    pub resource: String,
    /// The scope whose fence it is.
    pub scope: Scope,
    /// The fence's incarnation.
    pub incarnation: Incarnation,
    /// The fence's epoch.
    pub epoch: Epoch,
    /// False when the fence stood there already.
    pub raised: bool,
}

/// Why a barrier gave no receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BarrierError {
    /// The resource refused; the same certificate will not fare better.
    #[error("{resource} refused the barrier ({reason}): {message}; {}", reason.next_step())]
    Refused {
        /// The resource's name.
        resource: String,
        /// Why.
        reason: Reason,
        /// In words.
        message: String,
    },
    /// The resource was not reached, or its answer was lost: the fence may or may not be raised.
    #[error("{resource} did not confirm the barrier: {message}; try again")]
    Unavailable {
        /// The resource's name.
        resource: String,
        /// In words.
        message: String,
    },
}

impl BarrierError {
    /// Whether the same call can succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused { .. } => false,
            Self::Unavailable { .. } => true,
        }
    }
}
