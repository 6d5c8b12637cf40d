//! A chain of trust bundles, read page by page.

use epoch_core::{BundleError, SignedBundle};
use epoch_proto::v1;

/// Bundles of one chain at most: the nodes renew a bundle when half of its lifetime is over, and
/// the operator is to sign one long before there are so many.
pub(crate) const CHAIN_MAX: usize = 1_024;

/// Why a chain cannot be read, whoever vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChainError {
    /// A bundle in it is none.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A page does not go on after the one before it.
    #[error("the node's bundles do not rise in number; check what listens at its address")]
    NotRising,
    /// There is no end.
    #[error(
        "the chain has more than {CHAIN_MAX} bundles; have an operator sign one with the root key \
         (`epochctl key sign`)"
    )]
    TooLong,
}

/// What has been read of a chain.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Oldest first.
    pub(crate) bundles: Vec<SignedBundle>,
    /// As of the last page.
    pub(crate) statements: Vec<String>,
}

impl Chain {
    /// Takes the next page. Whether there is more: then it is asked for after
    /// [`last`](Self::last).
    pub(crate) fn take(&mut self, page: v1::BundleResponse) -> Result<bool, ChainError> {
        let ended = page.bundles.is_empty();
        for text in &page.bundles {
            let bundle = SignedBundle::parse(text)?;
            let last = self.bundles.last().map(|last| last.bundle().rank());
            if last.is_some_and(|last| bundle.bundle().rank() <= last) {
                return Err(ChainError::NotRising);
            }
            if self.bundles.len() == CHAIN_MAX {
                return Err(ChainError::TooLong);
            }
            self.bundles.push(bundle);
        }
        self.statements = page.statements;
        Ok(!ended && self.last() < page.sequence)
    }

    /// The sequence number of its newest bundle; 0 without one.
    pub(crate) fn last(&self) -> u64 {
        let last = self.bundles.last();
        last.map_or(0, |last| last.bundle().rank().sequence)
    }
}
