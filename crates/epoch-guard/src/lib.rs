//! Guards: the one fencing decision inside a resource's own atomic step.
//!
//! Each adapter reads the fence, asks [`epoch_core::decide`], raises the fence, does the business
//! write and records the intent as one step of the resource, so that nothing can come in between.
//! One feature each; `sqlite` is on by default.

#[cfg(feature = "sqlite")]
pub mod sqlite;
