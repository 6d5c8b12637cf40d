//! Outcomes and events in words, for scripts and tests that people read.

use std::collections::BTreeMap;

use epoch_core::{Epoch, Position, RequestId};

use crate::command::SessionKey;
use crate::event::{Event, GrantEvent, WaitEnd};
use crate::outcome::{Grant, Outcome, Refusal};
use crate::terms::Terms;

/// An epoch is shown as the milliseconds of its grant and a number within them, `1000+1`; a position
/// or cursor as index and offset, `7.0`.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// What sessions are called; others go by their position.
    pub(super) sessions: BTreeMap<SessionKey, String>,
    /// Epochs' milliseconds count from here.
    pub(super) base_ms: u64,
}

impl Text {
    pub(super) fn session(&self, key: SessionKey) -> String {
        match self.sessions.get(&key) {
            Some(name) => name.clone(),
            None => format!("session-{}.{}", key.index, key.offset),
        }
    }

    pub(super) fn epoch(&self, epoch: Epoch) -> String {
        self.stamp(epoch.get())
    }

    /// An epoch, or a record's revision, which is made like one.
    pub(super) fn stamp(&self, number: u64) -> String {
        if number == 0 {
            return "0".to_owned();
        }
        format!("{}+{}", (number >> 10) - self.base_ms, number & 1_023)
    }

    pub(super) fn grant(&self, grant: &Grant) -> String {
        let Grant {
            scope,
            epoch,
            holder: _,
            session,
            request_id,
            position,
            terms,
        } = grant;
        let session = self.session(session.into());
        format!(
            "{scope} {} {session} {}at {}{}",
            self.epoch(*epoch),
            id(*request_id),
            at(position),
            with(terms)
        )
    }

    pub(super) fn outcome(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Opened {
                session,
                ttl,
                stall_limit,
                holder,
                new,
            } => {
                let stall = stall_limit.map_or(String::new(), |stall| {
                    format!(", may stall {}", seconds(stall.ms()))
                });
                let found = if *new { "opened" } else { "open already" };
                format!(
                    "{found}: {} for {holder}, ttl {}{stall}",
                    at_key(session.into()),
                    seconds(ttl.ms())
                )
            }
            Outcome::Closed { closed, ended } => {
                format!("{}, grants: {ended}", done("closed", *closed))
            }
            Outcome::Expired { expired, ended } => {
                format!("{}, grants: {ended}", done("expired", *expired))
            }
            Outcome::Granted { grant, new } => format!("{}: {}", granted(*new), self.grant(grant)),
            Outcome::Waiting => "waiting".to_owned(),
            Outcome::GrantedMany { grants, new } => {
                let grants: Vec<_> = grants.iter().map(|grant| self.grant(grant)).collect();
                format!("{}: {}", granted(*new), grants.join("; "))
            }
            Outcome::RefusedMany { scope, refusal } => {
                format!("for {scope}: {}", self.refusal(refusal))
            }
            Outcome::WaitCancelled { cancelled, granted } => match granted {
                Some(epoch) => format!("not cancelled: granted at {}", self.epoch(*epoch)),
                None => done("cancelled", *cancelled),
            },
            Outcome::WaitEnded { ended } => done("wait ended", *ended),
            Outcome::DelayEnded { ended } => done("delay ended", *ended),
            Outcome::Transferred { epoch, new } => {
                let transferred = if *new {
                    "transferred"
                } else {
                    "transferred before"
                };
                format!("{transferred}: {}", self.epoch(*epoch))
            }
            Outcome::RecordWritten {
                revision,
                had_effect,
                replayed,
            } => format!(
                "{}: revision {}{}",
                if *had_effect {
                    "written"
                } else {
                    "nothing there"
                },
                self.stamp(*revision),
                if *replayed { ", replayed" } else { "" }
            ),
            Outcome::Released { released } => done("released", *released),
            Outcome::Revoked {
                scope,
                epoch,
                position,
                ended,
            } => format!(
                "revoked: {scope} {} at {}{}",
                self.epoch(*epoch),
                at(position),
                if *ended { ", ended a grant" } else { "" }
            ),
            Outcome::PermissionGranted => "permitted".to_owned(),
            Outcome::PermissionRevoked { revoked } => done("forbidden", *revoked),
            Outcome::TokenAdded { new } => if *new { "added" } else { "added before" }.to_owned(),
            Outcome::TokenRemoved { removed } => done("removed", *removed),
            Outcome::LimitsSet => "limited".to_owned(),
            Outcome::BundlePut => "bundle taken in".to_owned(),
            Outcome::KeyOffered => "offered".to_owned(),
            Outcome::RotationWanted { nodes } => format!("keys wanted: of nodes {nodes:?}"),
            Outcome::KeyRetired { retired } => done("retired", *retired),
            Outcome::StatementPut => "statement kept".to_owned(),
            Outcome::Refused(refusal) => self.refusal(refusal),
        }
    }

    pub(super) fn refusal(&self, refusal: &Refusal) -> String {
        let detail = match refusal {
            Refusal::ScopeHeld { epoch }
            | Refusal::AlreadyHeld { epoch }
            | Refusal::LockDelayed { epoch } => format!("at {}", self.epoch(*epoch)),
            Refusal::Superseded { epoch: Some(epoch) } => format!("by {}", self.epoch(*epoch)),
            Refusal::NotTheHolder { epoch } => {
                format!("{} is another session's grant", self.epoch(*epoch))
            }
            Refusal::EpochUnknown { epoch } => format!("{} was never granted", self.epoch(*epoch)),
            Refusal::RevisionMismatch { revision } => format!("it is {}", self.stamp(*revision)),
            Refusal::RequestIdTooOld { forgotten } => format!("up to {forgotten} are forgotten"),
            Refusal::TargetIsSelf => "to the session itself".to_owned(),
            Refusal::RequestIdsOver => "ids end at 2^53".to_owned(),
            Refusal::OpenIdReused => "an open id".to_owned(),
            Refusal::KeyLimit => "too many keys of the node".to_owned(),
            Refusal::BundleInvalid => "the bundle".to_owned(),
            Refusal::BundleLimit => "too many bundles".to_owned(),
            Refusal::OfferInvalid => "the offer".to_owned(),
            Refusal::OfferLimit => "too many offers".to_owned(),
            Refusal::NodeUnknown => "no such node".to_owned(),
            Refusal::KeyUnknown => "no such key".to_owned(),
            Refusal::LastKey => "too few nodes could sign".to_owned(),
            Refusal::StatementInvalid => "the statement".to_owned(),
            Refusal::StatementOlder => "a newer statement is kept".to_owned(),
            Refusal::FirstOperator => "the first must be to operate".to_owned(),
            Refusal::LastOperator => "it is the last to operate".to_owned(),
            Refusal::PermissionLimit => "too many permissions".to_owned(),
            Refusal::TokenLimit => "too many tokens".to_owned(),
            Refusal::LimitsLimit => "too many limits".to_owned(),
            Refusal::TokenReused => "a token".to_owned(),
            Refusal::PrincipalSessionLimit
            | Refusal::PrincipalGrantLimit
            | Refusal::PrincipalWaitLimit => "of the principal".to_owned(),
            Refusal::Superseded { epoch: None }
            | Refusal::SessionExpired
            | Refusal::AlreadyWaiting
            | Refusal::WaitExpired
            | Refusal::WaitCancelled
            | Refusal::QueueFull
            | Refusal::WaitLimit
            | Refusal::TargetExpired
            | Refusal::IntentReused
            | Refusal::RecordLimit
            | Refusal::RequestIdReused
            | Refusal::EpochExhausted
            | Refusal::SessionLimit
            | Refusal::GrantLimit
            | Refusal::PermissionDenied => String::new(),
        };
        let colon = if detail.is_empty() { "" } else { ": " };
        format!("refused {}{colon}{detail}", refusal.reason())
    }

    pub(super) fn event(&self, event: &Event) -> String {
        match event {
            Event::SessionOpened { session, ttl, new } => {
                let opened = if *new { "opened" } else { "opened again" };
                format!(
                    "{} {opened}, ttl {}",
                    self.session(*session),
                    seconds(ttl.ms())
                )
            }
            Event::SessionEnded { session, expired } => {
                let how = if *expired { "expired" } else { "closed" };
                format!("{} {how}", self.session(*session))
            }
            Event::Grant(event) => self.grant_event(event),
            Event::WaitBegun {
                scope,
                session,
                request_id,
                wait,
            } => format!(
                "wait begun: {scope} {} id={request_id} for {}",
                self.session(*session),
                seconds(wait.ms())
            ),
            Event::WaitEnded {
                scope,
                session,
                request_id,
                end,
            } => {
                let end = match end {
                    WaitEnd::Granted => "granted",
                    WaitEnd::Expired => "expired",
                    WaitEnd::Cancelled => "cancelled",
                    WaitEnd::SessionEnded => "session ended",
                };
                format!(
                    "wait {end}: {scope} {} id={request_id}",
                    self.session(*session)
                )
            }
            Event::DelayBegun {
                scope,
                epoch,
                delay,
            } => {
                let epoch = self.epoch(*epoch);
                format!("delay begun: {scope} {epoch} for {}", seconds(delay.ms()))
            }
            Event::DelayEnded { scope } => format!("delay ended: {scope}"),
        }
    }

    fn grant_event(&self, event: &GrantEvent) -> String {
        let GrantEvent {
            cursor,
            time_ms: _,
            kind,
            scope,
            epoch,
            ended,
            request_id,
            who,
        } = event;
        let mut text = format!("{cursor} {}: {scope} {}", kind.as_str(), self.epoch(*epoch));
        if let Some((_, session)) = who {
            text += &format!(" {} {}", self.session(session.into()), id(*request_id));
        }
        text.truncate(text.trim_end().len());
        match ended {
            Some(ended) if ended != epoch => text + &format!(", ended {}", self.epoch(*ended)),
            Some(_) | None => text,
        }
    }
}

fn id(request_id: Option<RequestId>) -> String {
    request_id.map_or(String::new(), |id| format!("id={id} "))
}

fn at(position: &Position) -> String {
    format!("{}.{}", position.index, position.offset)
}

fn at_key(key: SessionKey) -> String {
    format!("{}.{}", key.index, key.offset)
}

fn with(terms: &Terms) -> String {
    let mut text = String::new();
    if !terms.lock_delay.is_zero() {
        text += &format!(", delay {}", seconds(terms.lock_delay.ms()));
    }
    if !terms.metadata.as_str().is_empty() {
        text += &format!(", {:?}", terms.metadata.as_str());
    }
    text
}

fn granted(new: bool) -> &'static str {
    if new { "granted" } else { "granted before" }
}

fn done(what: &str, done: bool) -> String {
    if done {
        what.to_owned()
    } else {
        format!("not {what}")
    }
}

pub(super) fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1_000) {
        format!("{}s", ms / 1_000)
    } else {
        format!("{ms}ms")
    }
}
