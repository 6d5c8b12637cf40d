//! Watches: what happens to grants, told to those who asked.

use epoch_machine::GrantEvent;

/// The latest events of grants, and who waits for more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches;

impl Watches {
    /// The entry at `index` brought these about.
    pub(crate) fn publish(&self, _index: u64, _events: Vec<GrantEvent>) {}

    /// Nothing is known of what happened up to `index`.
    pub(crate) fn skip_to(&self, _index: u64) {}
}
