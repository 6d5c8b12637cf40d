//! What happens to grants, as a watch tells it.

use std::fmt;
use std::str::FromStr;

use epoch_core::{Cursor, Epoch, Holder, Scope, SessionHash};
use epoch_proto::v1;

/// What happened to a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it was.
    pub kind: EventKind,
    /// Where.
    pub scope: Scope,
    /// The scope's epoch from then on. Granted, transferred: the new holder's; revoked: the one
    /// burnt; released, expired: the one that ended.
    pub epoch: Epoch,
    /// The epoch that ended by it, if there was one.
    pub ended: Option<Epoch>,
    /// Granted, transferred: the new holder; else the one that lost it. None when a free scope was
    /// revoked.
    pub holder: Option<Holder>,
    /// That holder's session.
    pub session: Option<SessionHash>,
    /// Where it stands in the log: a watch after this cursor begins with the event that follows.
    pub cursor: Cursor,
    /// The cluster's time, in milliseconds since 1970.
    pub time_ms: u64,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A session was granted the scope.
    Granted,
    /// Its holder gave it back, or closed its session.
    Released,
    /// Its session expired.
    Expired,
    /// An operator ended the grant.
    Revoked,
    /// Its holder gave it to another session.
    Transferred,
}

impl EventKind {
    const ALL: [Self; 5] = [
        Self::Granted,
        Self::Released,
        Self::Expired,
        Self::Revoked,
        Self::Transferred,
    ];

    /// The name, as on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Transferred => "transferred",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Event {
    /// Reads one off the wire; what is wrong with it otherwise.
    pub(crate) fn read(event: v1::Event) -> Result<Self, String> {
        let mut kinds = EventKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.as_str() == event.kind);
        Ok(Self {
            kind: kind.ok_or_else(|| format!("an event of the unknown kind {:?}", event.kind))?,
            scope: parsed(&event.scope)?,
            epoch: epoch(event.epoch)?,
            ended: event.ended.map(epoch).transpose()?,
            holder: event.holder.as_deref().map(parsed).transpose()?,
            session: event.session.as_deref().map(parsed).transpose()?,
            cursor: parsed(&event.cursor)?,
            time_ms: event.time_ms,
        })
    }
}

impl From<Event> for v1::Event {
    fn from(event: Event) -> Self {
        Self {
            kind: event.kind.as_str().to_owned(),
            scope: event.scope.as_str().to_owned(),
            epoch: event.epoch.get(),
            ended: event.ended.map(Epoch::get),
            holder: event.holder.map(|holder| holder.as_str().to_owned()),
            session: event.session.map(|session| session.to_string()),
            cursor: event.cursor.to_string(),
            time_ms: event.time_ms,
        }
    }
}

fn epoch(number: u64) -> Result<Epoch, String> {
    Epoch::new(number).map_err(|error| error.to_string())
}

fn parsed<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(kind: &str) -> v1::Event {
        v1::Event {
            kind: kind.to_owned(),
            scope: "s".to_owned(),
            epoch: 42,
            cursor: "7.1".to_owned(),
            time_ms: 9,
            ..v1::Event::default()
        }
    }

    #[test]
    fn every_kind_is_read_and_written_the_same() {
        for kind in EventKind::ALL {
            let event = Event::read(wire(kind.as_str())).unwrap();
            assert_eq!(event.kind, kind);
            assert_eq!(v1::Event::from(event), wire(kind.as_str()));
        }
    }

    #[test]
    fn what_is_no_event_of_this_version_is_refused() {
        assert!(Event::read(wire("eaten")).is_err());
        let spoils: [fn(&mut v1::Event); 5] = [
            |event| event.scope.clear(),
            |event| event.epoch = 0,
            |event| event.ended = Some(0),
            |event| event.cursor = "7".to_owned(),
            |event| event.session = Some("x".to_owned()),
        ];
        for spoil in spoils {
            let mut event = wire("granted");
            spoil(&mut event);
            assert!(Event::read(event.clone()).is_err(), "{event:?}");
        }
    }
}
