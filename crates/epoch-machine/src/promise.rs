//! The promises, as checkers over plain records of what happened.
//!
//! One function per promise. They know nothing of how a history came about, so that the same ones
//! judge a state machine driven by hand, a recorded run of real processes, and a simulation.
//!
//! | promise | checker |
//! | --- | --- |
//! | P1 unique and rising | [`unique_and_rising`] |
//! | P2 committed before seen | [`committed_before_seen`] |
//! | P3 exactly one | [`exactly_one`] |
//! | P4 provenance | [`provenance`] |
//! | P5 no late write | [`no_late_write`] |
//! | P6 no early loss | [`no_early_loss`] |
//!
//! [`first_come_first_served`] checks that queues are fair, [`consistent`] that a state's parts agree with each other.

mod consistent;
mod exactly_one;
mod fair;
mod no_early_loss;
mod no_late_write;
mod provenance;
mod record;
mod seen;
mod unique;
mod violation;

pub use consistent::consistent;
pub use exactly_one::exactly_one;
pub use fair::first_come_first_served;
pub use no_early_loss::no_early_loss;
pub use no_late_write::no_late_write;
pub use provenance::provenance;
pub use record::{Acquired, Admission, AdmissionKind, AppliedEntry, Committed, Expiry, KeptAlive};
pub use seen::committed_before_seen;
pub use unique::unique_and_rising;
pub use violation::Violation;

#[cfg(test)]
mod testing;
