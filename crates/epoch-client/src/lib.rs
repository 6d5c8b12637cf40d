//! The client: sessions that keep themselves alive, grants, the loss signal, leader following.
//!
//! A [`Session`] is a time-bounded lease; it renews itself in the background, and tells when it is
//! lost, before the cluster can hand its scopes on. A [`Grant`] is one scope held by it, with the
//! certificate to attach to each write.
//!
//! # Hold one scope
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use epoch_client::{Client, Endpoint, Options};
//! use epoch_core::{Holder, Scope};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoints: [Endpoint; 2] = ["127.0.0.1:7600".parse()?, "127.0.0.1:7601".parse()?];
//! let client = Client::connect(endpoints, Options::default())?;
//!
//! let holder: Holder = "agent-7".parse()?;
//! let session = client.open_session(&holder, Duration::from_secs(10)).await?;
//! let scope: Scope = "reports/research-note".parse()?;
//! let grant = session.acquire(&scope).await?;
//!
//! let certificate = grant.certificate();
//! tokio::select! {
//!     () = write_report(&certificate) => {
//!         grant.release().await?;
//!     }
//!     // Another may hold the scope from now on: stop at once, save nothing under this grant.
//!     () = grant.lost() => {}
//! }
//! session.close().await?;
//! # Ok(())
//! # }
//! # async fn write_report(certificate: &str) {}
//! ```
//!
//! # Hold many scopes
//!
//! One session, and so one lease, covers them all. [`Session::acquire_many`] takes up to 64 of
//! them, all or none: who takes them one by one may hold what another waits for.
//!
//! ```no_run
//! use epoch_client::Session;
//! use epoch_core::{Reason, Scope};
//!
//! # async fn example(session: Session) -> Result<(), Box<dyn std::error::Error>> {
//! let scopes: [Scope; 2] = ["accounts/1".parse()?, "accounts/2".parse()?];
//! match session.acquire_many(&scopes).await {
//!     Ok(grants) => {
//!         for grant in &grants {
//!             println!("{} at epoch {}", grant.scope(), grant.epoch());
//!         }
//!         tokio::select! {
//!             () = move_money() => {}
//!             // One of them may be lost alone, by a revoke.
//!             () = grants[0].lost() => {}
//!             () = grants[1].lost() => {}
//!         }
//!     }
//!     Err(error) if error.reason() == Some(Reason::ScopeHeld) => println!("{error}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! # async fn move_money() {}
//! ```
//!
//! # Run a job
//!
//! Wait until it is one's turn, go on where the last holder stopped, and stop when told to. The
//! record takes a write from the current grant only, so a checkpoint is never put back by a
//! holder that came too late.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use epoch_client::{Client, RecordOptions, Session};
//! use epoch_core::{Reason, Scope};
//!
//! # async fn example(client: Client, session: Session) -> Result<(), Box<dyn std::error::Error>> {
//! let scope: Scope = "jobs/nightly".parse()?;
//! let grant = session
//!     .request(&scope)
//!     .wait(Duration::from_secs(3_600))
//!     .metadata("nightly build, host 3")
//!     .send()
//!     .await?;
//!
//! let checkpoint = client.get_record(&scope).await?.value.unwrap_or_default();
//! let done: u64 = String::from_utf8(checkpoint)?.parse().unwrap_or(0);
//! for step in done..100 {
//!     let certificate = grant.certificate();
//!     tokio::select! {
//!         () = do_step(step, &certificate) => {}
//!         // The step is broken off; the next holder begins it again.
//!         () = grant.lost() => return Ok(()),
//!     }
//!     let checkpoint = (step + 1).to_string();
//!     match grant.put_record(checkpoint, RecordOptions::default()).await {
//!         Ok(_written) => {}
//!         Err(error) if error.reason() == Some(Reason::EpochSuperseded) => return Ok(()),
//!         Err(error) => return Err(error.into()),
//!     }
//! }
//! grant.release().await?;
//! # Ok(())
//! # }
//! # async fn do_step(step: u64, certificate: &str) {}
//! ```
//!
//! A job that is to go on elsewhere hands its grant over with [`Grant::transfer`], and the other
//! session takes it with [`Session::adopt`].
//!
//! # Watch
//!
//! ```no_run
//! # async fn example(client: epoch_client::Client) -> Result<(), epoch_client::Error> {
//! use epoch_client::Watched;
//!
//! let mut watch = client.watch(Watched::Prefix("jobs/".to_owned()), None).await?;
//! loop {
//!     let event = watch.next().await?;
//!     println!("{} {} {}", event.kind, event.scope, event.epoch);
//! }
//! # }
//! ```
//!
//! # Errors
//!
//! Every call works to one overall deadline, and goes on to the next node when one does not
//! answer, with the same request id. When the deadline ends first, the outcome is unknown:
//! [`Error::outcome_unknown`] says so. A definite refusal is never retried:
//!
//! ```no_run
//! # async fn example(client: epoch_client::Client) {
//! use epoch_core::Reason;
//! use epoch_proto::v1::AcquireRequest;
//!
//! let request = AcquireRequest {
//!     scope: "reports/research-note".to_owned(),
//!     session_id: "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.42.0".to_owned(),
//!     request_id: 1,
//!     ..AcquireRequest::default()
//! };
//! match client.acquire(request).await {
//!     Ok(grant) => println!("epoch {}", grant.epoch),
//!     Err(error) if error.reason() == Some(Reason::ScopeHeld) => println!("{error}"),
//!     Err(error) if error.outcome_unknown() => println!("ask again with request id 1: {error}"),
//!     Err(error) => println!("{error}; {}", error.next_step()),
//! }
//! # }
//! ```

mod acquire;
mod boottime;
mod call;
mod certificate_life;
mod client;
mod connector;
mod endpoint;
mod error;
mod event;
mod grant;
mod holdings;
mod keepalive;
mod lease;
mod listing;
mod options;
mod pool;
mod record;
mod refresh;
mod registry;
mod request_id;
mod retry;
mod session;
mod transfer;
mod watch;

#[cfg(test)]
mod acquire_tests;
#[cfg(test)]
mod certificate_tests;
#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod give_back_tests;
#[cfg(test)]
mod grant_tests;
#[cfg(test)]
mod lease_tests;
#[cfg(test)]
mod listing_tests;
#[cfg(test)]
mod progress_tests;
#[cfg(test)]
mod runtime_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod watch_compaction_tests;
#[cfg(test)]
mod watch_tests;

pub use acquire::Acquire;
#[doc(hidden)]
pub use boottime::Clock;
pub use client::Client;
#[doc(hidden)]
pub use connector::Connector;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{Error, ErrorKind};
pub use event::{Event, EventKind};
pub use grant::{Grant, GrantLoss};
pub use holdings::{Holding, Waiting};
pub use options::{ATTEMPT_TIMEOUT_DEFAULT, DEADLINE_DEFAULT, OpenOptions, Options};
pub use record::{Record, RecordDeleted, RecordOptions, RecordWritten};
pub use session::{Loss, Session};
pub use watch::{Watch, Watched};

pub use epoch_core::{
    Cursor, Epoch, Holder, Incarnation, IntentId, Position, Reason, RequestId, Scope, SessionHash,
    SessionId,
};
pub use epoch_proto::v1;
