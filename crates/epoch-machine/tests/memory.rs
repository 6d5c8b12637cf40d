//! Memory per held scope, as the operating system sees it. A file of its own, so that nothing else
//! runs in the process meanwhile.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test, which asks the operating system"
)]

use epoch_core::{ClusterId, Holder, Incarnation, OpenId, RequestId, Scope, SessionId};
use epoch_machine::{Batch, Command, Entry, Leadership, Outcome, State, Ttl, apply};
use uuid::Uuid;

const SESSIONS: u64 = 100;
const SCOPES: u64 = 100_000;
const BYTES_PER_SCOPE_MAX: u64 = 400;
const LEADERSHIP: Leadership = Leadership { term: 1, node: 1 };

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    kib * 1_024
}

fn applied(state: &mut State, index: u64, commands: Vec<Command>) -> Vec<Outcome> {
    let batch = Batch {
        leadership: LEADERSHIP,
        wall_ms: 1_800_000_000_000 + index,
        commands,
    };
    apply(
        state,
        Entry {
            leadership: LEADERSHIP,
            index,
        },
        &batch,
    )
    .unwrap()
    .outcomes
}

#[test]
fn a_held_scope_of_64_bytes_takes_at_most_400() {
    let mut state = State::new(
        ClusterId(Uuid::from_u128(1)),
        Incarnation(Uuid::from_u128(2)),
        0,
    );
    let open = |number: u64| Command::Open {
        open_id: OpenId(Uuid::from_u128(number.into())),
        holder: Holder::parse("agent").unwrap(),
        ttl: Ttl::from_ms(10_000).unwrap(),
        stall_limit: None,
        principal: None,
        holder_key: None,
    };
    let outcomes = applied(&mut state, 1, (0..SESSIONS).map(open).collect());
    let sessions: Vec<SessionId> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Opened { session, .. } => *session,
            other => panic!("{other:?}"),
        })
        .collect();

    let before = resident_bytes();
    for index in 0..SCOPES / 100 {
        let acquire = |session: &SessionId| {
            let number = index * 100 + u64::from(session.offset);
            // Multiplying by an odd number spreads the names: no order helps or hurts.
            let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Command::Acquire {
                scope: Scope::parse(&format!("{spread:016x}/{:0>47}", "")).unwrap(),
                session: *session,
                request_id: RequestId::new(index + 1).unwrap(),
                terms: epoch_machine::Terms::default(),
                wait: epoch_machine::Wait::default(),
                reissue: false,
            }
        };
        applied(
            &mut state,
            index + 2,
            sessions.iter().map(acquire).collect(),
        );
    }
    let used = resident_bytes() - before;

    assert_eq!(state.counts().grants, usize::try_from(SCOPES).unwrap());
    let each = used / SCOPES;
    assert!(
        each <= BYTES_PER_SCOPE_MAX,
        "{each} bytes for each held scope"
    );
    // Less than its name would mean that nothing was measured.
    assert!(each > 64, "{each} bytes for each held scope");
}
