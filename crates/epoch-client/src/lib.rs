//! The client: sessions that keep themselves alive, grants, the loss signal, leader following.
//!
//! A [`Session`] is a time-bounded lease; it renews itself in the background, and tells when it is
//! lost, before the cluster can hand its scopes on. A [`Grant`] is one scope held by it, with the
//! certificate to attach to each write.
//!
//! Choose a TTL of at least three round trips to the cluster: with nothing failing, a session is kept
//! at round trips of up to about a third of its TTL. Two keepalives in a row may be lost as long as
//! round trips take less than a tenth of it. (Over a connection that is yet to be made, the first
//! answer takes two round trips; and one must be shorter than [`Options::attempt_timeout`].)
//!
//! # Depend on it
//!
//! It is not on a registry: name it by its path in a checkout (or by `git`).
//!
//! ```toml
//! [dependencies]
//! epoch-client = { path = "../epochd/crates/epoch-client" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! Everyday work needs no other crate of the workspace: [`Scope`], [`Holder`], [`Epoch`],
//! [`Cursor`], [`Reason`] and the ids are re-exported here from `epoch-core`, and the messages of
//! the plain calls of [`Client`] from `epoch-proto` as [`v1`].
//!
//! # Hold one scope
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use epoch_client::{Client, Endpoint, Holder, Options, Scope};
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
//! Keep the grant for as long as the work goes on: when its last clone is dropped, the scope is
//! released, and another may have it. [`Grant::keep`] lets go of the handle and leaves the scope
//! held until the session ends; [`Session::adopt`] makes a handle of it again.
//!
//! # Say more about an acquire
//!
//! [`Session::request`] (and [`Session::request_many`]) is an acquire with options:
//! [`wait`](Acquire::wait) in the scope's queue, where [`Session::waits`] tells its place;
//! [`lock_delay`](Acquire::lock_delay), so that nobody is granted the scope for a while after this
//! session has expired, for a resource that cannot check certificates;
//! [`reissue`](Acquire::reissue), for the next epoch of a scope that the session holds already, to
//! fence its own stale threads. The grant before is lost by that.
//!
//! # Hold many scopes
//!
//! One session, and so one lease, covers them all. [`Session::acquire_many`] takes up to 64 of
//! them, all or none: who takes them one by one may hold what another waits for.
//!
//! ```no_run
//! use epoch_client::{Reason, Scope, Session};
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
//! use epoch_client::{Client, Reason, RecordOptions, Scope, Session};
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
//! # End a session whose work is stuck
//!
//! Keepalives go on by themselves, also when the work does not. With a stall limit the session is
//! renewed only while [`Session::progress`] is called at least once within that time; else it ends
//! as [`Loss::Stalled`], up to its TTL after that time has passed.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use epoch_client::{Client, Holder, Loss, OpenOptions};
//!
//! # async fn example(client: Client, holder: Holder) -> Result<(), epoch_client::Error> {
//! let options = OpenOptions::new(Duration::from_secs(10));
//! let options = options.with_stall_limit(Duration::from_secs(60));
//! let session = client.open_session_with(&holder, options).await?;
//! loop {
//!     tokio::select! {
//!         () = do_step() => session.progress(),
//!         () = session.lost() => break,
//!     }
//! }
//! if session.loss() == Some(Loss::Stalled) {
//!     println!("a step took more than a minute");
//! }
//! # Ok(())
//! # }
//! # async fn do_step() {}
//! ```
//!
//! # Hand a grant over
//!
//! [`Grant::transfer`] gives it to another session, named by that one's [`Session::hash`]. That
//! session learns of it by its next keepalive: it is among [`Session::unclaimed`] from then on, and
//! [`Session::until_unclaimed`] waits for it. (A watch of the scope tells at once.)
//! [`Session::adopt`] makes it a [`Grant`].
//!
//! ```no_run
//! # async fn example(grant: epoch_client::Grant, to: epoch_client::SessionHash) -> Result<(), epoch_client::Error> {
//! let epoch = grant.transfer(&to).await?; // the other session's
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # async fn example(session: epoch_client::Session) -> Result<(), epoch_client::Error> {
//! for given in session.until_unclaimed().await? {
//!     if let Some(grant) = session.adopt(&given.scope).await? {
//!         println!("{} at epoch {}", grant.scope(), grant.epoch());
//!         grant.keep();
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Connect over TLS
//!
//! `https://host:port` is called over TLS, and checked against the CAs that the system trusts or
//! those in [`Options::tls`], where the client's own certificate goes as well. With it, an endpoint
//! without a scheme is `https://`, and `http://` is refused: nothing is sent in plaintext by
//! mistake. A [`Token`] is never sent in plaintext to another host.
//!
//! ```no_run
//! use epoch_client::{Client, Endpoint, Options, Tls};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let ca = std::fs::read("client-ca.pem")?;
//! let options = Options {
//!     tls: Some(Tls::new(Some(&ca), None)?),
//!     token: Some("a-bearer-token".parse()?),
//!     ..Options::default()
//! };
//! let endpoint: Endpoint = "node-a.example:7600".parse()?;
//! let client = Client::connect([endpoint], options)?;
//! # drop(client);
//! # Ok(())
//! # }
//! ```
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
//! To go on later, or in another process, watch after the cursor of the last event that was dealt
//! with, or after [`Watch::cursor`] once all that were received have been. When the cluster has
//! forgotten what follows (`WATCH_COMPACTED`), list first, as here: what a holder has, and then
//! all that happens from that moment on.
//!
//! ```no_run
//! use epoch_client::v1::ListRequest;
//! use epoch_client::{Client, Cursor, Watched};
//!
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let mut cursor: Option<Cursor> = None;
//! let mut page = None;
//! loop {
//!     let request = ListRequest {
//!         holder: "agent-7".to_owned(),
//!         page,
//!         ..ListRequest::default()
//!     };
//!     let answer = client.list(request).await?;
//!     // With several pages, that of the first: what changes meanwhile is told again.
//!     if cursor.is_none() {
//!         cursor = Some(answer.cursor.parse()?);
//!     }
//!     for held in answer.scopes {
//!         println!("{} at epoch {}", held.scope, held.epoch.unwrap_or_default());
//!     }
//!     page = answer.next_page;
//!     if page.is_none() {
//!         break;
//!     }
//! }
//! // A watch is of scopes: the events of other holders are in it.
//! let mut watch = client.watch(Watched::All, cursor).await?;
//! loop {
//!     let event = watch.next().await?;
//!     println!("{} {} {}", event.kind, event.scope, event.epoch);
//! }
//! # }
//! ```
//!
//! # Verify certificates, in a resource
//!
//! A resource is given a pin by the operator (`epochctl key pin`), and follows the cluster's trust
//! bundles from there: rotated keys need nothing to be done. What is written goes through a guard as
//! well, which compares epochs; this tells who the cluster says may write.
//!
//! ```no_run
//! use std::time::{SystemTime, UNIX_EPOCH};
//!
//! use epoch_client::{Client, Pin, TrustFollower, TrustSettings};
//!
//! # async fn example(client: Client, pin: Pin, token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let settings = TrustSettings {
//!     audience: Some("ledger".to_owned()),
//!     // One stolen node key forges nothing; acquires ask for as many.
//!     signatures: 2,
//!     file: Some("/var/lib/ledger/trust.json".into()),
//!     ..TrustSettings::default()
//! };
//! let follower = TrustFollower::start(client, pin, settings).await?;
//! let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?;
//! let certificate = follower.verify(token, now_ms).await?;
//! println!("{} at epoch {}", certificate.scope(), certificate.epoch());
//! # Ok(())
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
//! use epoch_client::Reason;
//! use epoch_client::v1::AcquireRequest;
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
mod opening;
mod options;
mod pool;
mod record;
mod refresh;
mod registry;
mod request_id;
mod retry;
mod session;
mod tls;
mod tls_connector;
mod token;
mod transfer;
mod trust;
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
mod shutdown_tests;
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
pub use tls::Tls;
pub use token::{Token, TokenError};
pub use trust::{REFETCH_AFTER_DEFAULT, TrustFileError, TrustFollower, TrustSettings};
pub use watch::{Watch, Watched};

pub use epoch_core::{
    Certificate, Cursor, Epoch, Holder, Incarnation, IntentId, Pin, Position, Reason, RequestId,
    Scope, SessionHash, SessionId, Thumbprint, VerifyError,
};
pub use epoch_proto::v1;
