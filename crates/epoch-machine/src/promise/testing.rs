//! Records for the checkers' own tests.

use std::ops::Range;

use epoch_core::{Epoch, Incarnation, OpenId, Position, RequestId, Scope, SessionId};
use uuid::Uuid;

use super::{Acquired, Committed};

pub(super) fn scope(name: &str) -> Scope {
    Scope::parse(name).unwrap()
}

pub(super) fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

pub(super) fn incarnation(number: u128) -> Incarnation {
    Incarnation(Uuid::from_u128(number))
}

pub(super) fn session(index: u64) -> SessionId {
    SessionId {
        open_id: OpenId(Uuid::from_u128(7)),
        index,
        offset: 0,
    }
}

pub(super) fn acquired(name: &str, number: u64, times: Range<u64>) -> Acquired {
    Acquired {
        scope: scope(name),
        incarnation: incarnation(1),
        epoch: epoch(number),
        session: session(1),
        request_id: RequestId::new(1).ok(),
        sent: times.start,
        returned: times.end,
    }
}

pub(super) fn of_request(request_id: u64, record: Acquired) -> Acquired {
    Acquired {
        request_id: RequestId::new(request_id).ok(),
        ..record
    }
}

pub(super) fn in_incarnation(number: u128, record: Acquired) -> Acquired {
    Acquired {
        incarnation: incarnation(number),
        ..record
    }
}

pub(super) fn committed(name: &str, number: u64, index: u64, offset: u32) -> Committed {
    Committed {
        scope: scope(name),
        incarnation: incarnation(1),
        epoch: epoch(number),
        session: session(1),
        request_id: RequestId::new(1).ok(),
        position: Position {
            group: 0,
            term: 1,
            leader: 1,
            index,
            offset,
        },
    }
}
