use epoch_core::Scope;

use super::machine::{Machine, epoch, refused, scope, write};
use crate::command::Command;
use crate::outcome::{Grant, Outcome, Refusal};
use crate::record::{INTENTS_KEPT, REMOVED_KEPT_MS, VALUE_BYTES_MAX, Value};
use crate::state::RECORD_BYTES_MAX;

/// A machine in which `a` is held.
fn holding() -> (Machine, Grant) {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let grant = machine.acquire("a", session, 1);
    (machine, grant)
}

fn value(machine: &Machine, name: &str) -> Option<Vec<u8>> {
    let record = machine.state.record(&scope(name))?;
    record.value.as_ref().map(|value| value.as_bytes().to_vec())
}

fn revision(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::RecordWritten { revision, .. } => *revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_current_grant_writes_and_the_next_holder_reads_and_goes_on() {
    let (mut machine, grant) = holding();
    let first = machine.one(write(&grant, Some(b"one"), Some(0), None));
    let expected = Outcome::RecordWritten {
        revision: grant.epoch.get(),
        had_effect: true,
        replayed: false,
    };
    assert_eq!((&first, machine.events.len()), (&expected, 0));
    let next = machine.open(2);
    machine.wait("a", next, 1);
    machine.release("a", grant.session, grant.epoch);
    assert_eq!(value(&machine, "a").unwrap(), b"one");

    // From the very entry that handed over, the old holder's writes are refused.
    let before = machine.state.clone();
    let next = machine.acquire("a", next, 1);
    for late in [Some(&b"late"[..]), None] {
        let superseded = Refusal::Superseded {
            epoch: Some(next.epoch),
        };
        let outcome = machine.one(write(&grant, late, None, None));
        assert_eq!(outcome, refused(superseded));
        assert_eq!(machine.state, before);
    }
    let second = machine.one(write(&next, Some(b"two"), Some(revision(&first)), None));
    assert!(revision(&second) > revision(&first));
    let record = machine.state.record(&scope("a")).unwrap();
    assert_eq!(record.epoch, next.epoch);
}

#[test]
fn who_does_not_hold_the_scope_writes_nothing() {
    let (mut machine, grant) = holding();
    let (other, gone) = (machine.open(2), machine.open(3));
    machine.close(gone);
    let above = epoch(grant.epoch.get() + 1);
    let of = |session, epoch| Grant {
        session,
        epoch,
        ..grant.clone()
    };
    let before = machine.state.clone();
    for (forged, refusal) in [
        (
            of(other, grant.epoch),
            Refusal::NotTheHolder { epoch: grant.epoch },
        ),
        (of(gone, grant.epoch), Refusal::SessionExpired),
        (
            of(grant.session, above),
            Refusal::EpochUnknown { epoch: above },
        ),
    ] {
        let outcome = machine.one(write(&forged, Some(b"x"), None, None));
        assert_eq!(outcome, refused(refusal));
        assert_eq!(machine.state, before);
    }
}

#[test]
fn a_write_names_the_revision_it_is_based_on_or_none() {
    let (mut machine, grant) = holding();
    let too_early = machine.one(write(&grant, Some(b"x"), Some(7), None));
    assert_eq!(
        too_early,
        refused(Refusal::RevisionMismatch { revision: 0 })
    );
    let first = revision(&machine.one(write(&grant, Some(b"x"), None, None)));
    let before = machine.state.clone();
    for expected in [0, first + 1, first - 1] {
        let outcome = machine.one(write(&grant, Some(b"y"), Some(expected), None));
        let mismatch = Refusal::RevisionMismatch { revision: first };
        assert_eq!(outcome, refused(mismatch));
        assert_eq!(machine.state, before);
    }
    machine.one(write(&grant, None, Some(first), None));
    // Removed: its revision is 0 for who expects one.
    let mismatch = refused(Refusal::RevisionMismatch { revision: 0 });
    let outcome = machine.one(write(&grant, Some(b"y"), Some(first), None));
    assert_eq!(outcome, mismatch);
    let again = machine.one(write(&grant, Some(b"y"), Some(0), None));
    assert!(revision(&again) > first + 1);
}

#[test]
fn an_intent_takes_effect_once_whoever_repeats_it() {
    let (mut machine, grant) = holding();
    let intent = Some("step 1");
    let first = revision(&machine.one(write(&grant, Some(b"1"), Some(0), intent)));
    machine.one(write(&grant, Some(b"2"), None, Some("step 2")));
    let before = machine.state.clone();
    let replayed = Outcome::RecordWritten {
        revision: first,
        had_effect: true,
        replayed: true,
    };
    // The revision it expected is not the current one any more, and need not be.
    for expected in [Some(0), None] {
        let again = machine.one(write(&grant, Some(b"1"), expected, intent));
        assert_eq!((&again, &machine.state), (&replayed, &before));
    }
    for other in [Some(&b"3"[..]), Some(&b""[..]), None] {
        let outcome = machine.one(write(&grant, other, None, intent));
        assert_eq!(outcome, refused(Refusal::IntentReused));
        assert_eq!(machine.state, before);
    }
    let other = machine.open(2);
    machine.transfer("a", grant.session, grant.epoch, other);
    let held = machine.state.scope(&scope("a"), 0).held.unwrap();
    let next = Grant {
        session: other,
        epoch: held.epoch,
        ..grant
    };
    let again = machine.one(write(&next, Some(b"1"), None, intent));
    assert_eq!(again, replayed);
    assert_eq!(value(&machine, "a").unwrap(), b"2");
}

#[test]
fn the_latest_16_intents_are_kept() {
    let (mut machine, grant) = holding();
    let kept = u64::try_from(INTENTS_KEPT).unwrap();
    for step in 1..=kept + 1 {
        let outcome = machine.one(write(&grant, Some(b"x"), None, Some(&step.to_string())));
        assert!(matches!(
            outcome,
            Outcome::RecordWritten {
                replayed: false,
                ..
            }
        ));
    }
    let record = machine.state.record(&scope("a")).unwrap();
    assert_eq!(record.intents.len(), INTENTS_KEPT);
    for (step, known) in [(2, true), (kept + 1, true), (1, false)] {
        let outcome = machine.one(write(&grant, Some(b"x"), None, Some(&step.to_string())));
        assert!(
            matches!(outcome, Outcome::RecordWritten { replayed, .. } if replayed == known),
            "{step}"
        );
    }
}

#[test]
fn a_removal_says_whether_there_was_something() {
    let (mut machine, grant) = holding();
    let nothing = Outcome::RecordWritten {
        revision: 0,
        had_effect: false,
        replayed: false,
    };
    let before = machine.state.clone();
    assert_eq!(machine.one(write(&grant, None, None, None)), nothing);
    assert_eq!(machine.state, before);
    // With an intent it is remembered, and keeps its answer.
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        outcomes.push(machine.one(write(&grant, None, Some(0), Some("away"))));
    }
    assert_eq!(revision(&outcomes[0]), revision(&outcomes[1]));
    assert!(matches!(
        outcomes[..],
        [
            Outcome::RecordWritten {
                had_effect: false,
                replayed: false,
                ..
            },
            Outcome::RecordWritten {
                had_effect: false,
                replayed: true,
                ..
            }
        ]
    ));
    let put = revision(&machine.one(write(&grant, Some(b""), None, None)));
    assert!(put > revision(&outcomes[0]));
    assert_eq!(value(&machine, "a").unwrap(), b"");
    let removed = machine.one(write(&grant, None, Some(put), None));
    assert!(revision(&removed) > put);
    assert_eq!(value(&machine, "a"), None);
}

#[test]
fn what_is_left_of_a_removed_record_is_forgotten_after_7_days() {
    let (mut machine, grant) = holding();
    machine.one(write(&grant, Some(b"x"), None, Some("put")));
    let removed = revision(&machine.one(write(&grant, None, None, None)));
    let other = machine.acquire("b", grant.session, 2);
    machine.one(write(&other, Some(b"stays"), None, None));
    machine.wall_ms += REMOVED_KEPT_MS;
    machine.apply(Vec::new());
    assert_eq!(machine.state.counts().records, 2);
    let again = machine.one(write(&grant, Some(b"x"), None, Some("put")));
    assert!(matches!(
        again,
        Outcome::RecordWritten { replayed: true, .. }
    ));
    machine.wall_ms += 1;
    machine.apply(Vec::new());
    assert_eq!(machine.state.counts().records, 1);
    assert_eq!(machine.state.record(&scope("a")), None);
    assert_eq!(value(&machine, "b").unwrap(), b"stays");
    // Its revisions do not come back.
    let again = machine.one(write(&grant, Some(b"x"), None, Some("put")));
    assert!(revision(&again) > removed);
}

#[test]
fn a_record_that_is_written_again_is_not_forgotten() {
    let (mut machine, grant) = holding();
    machine.one(write(&grant, Some(b"x"), None, None));
    machine.one(write(&grant, None, None, None));
    machine.one(write(&grant, Some(b"y"), None, None));
    machine.wall_ms += 2 * REMOVED_KEPT_MS;
    machine.apply(Vec::new());
    assert_eq!(value(&machine, "a").unwrap(), b"y");
}

#[test]
fn many_removed_records_are_forgotten_over_several_batches() {
    let mut machine = Machine::new();
    machine.checked = false;
    let session = machine.open(1);
    // As they are after many batches; one would not take this many bytes here.
    let count = 1_500;
    for n in 0..count {
        let record = crate::record::Record {
            revision: (machine.wall_ms << 10) + n,
            value: None,
            epoch: epoch(1),
            intents: std::sync::Arc::default(),
        };
        let name: Scope = scope(&n.to_string());
        machine.state.put_record(name.shared(), record);
    }
    machine.wall_ms += REMOVED_KEPT_MS + 1_000;
    let mut left = Vec::new();
    for _ in 0..2 {
        machine.close(session);
        left.push(machine.state.counts().records);
    }
    assert_eq!(left, [1_500 - 1_024, 0]);
    assert_eq!(machine.state.counts().record_bytes, 0);
}

#[test]
fn all_records_together_are_bounded_in_bytes() {
    let mut machine = Machine::new();
    let session = machine.open(1);
    let whole = [7; VALUE_BYTES_MAX];
    let each = VALUE_BYTES_MAX + 64 + 2;
    let fit = RECORD_BYTES_MAX / each;
    let mut grants = Vec::new();
    for n in 0..=u64::try_from(fit).unwrap() {
        let name = format!("{:02}", n % 100);
        grants.push(machine.acquire(&name, session, n + 1));
    }
    for grant in &grants[..fit] {
        let outcome = machine.one(write(grant, Some(&whole), None, None));
        assert!(revision(&outcome) > 0);
    }
    assert_eq!(machine.state.counts().record_bytes, fit * each);
    let before = machine.state.clone();
    let limit = refused(Refusal::RecordLimit);
    assert_eq!(
        machine.one(write(&grants[fit], Some(&whole), None, None)),
        limit
    );
    assert_eq!(machine.state, before);
    // Up to the last byte.
    let left = RECORD_BYTES_MAX - fit * each - 64 - 2;
    let over = machine.one(write(&grants[fit], Some(&whole[..=left]), None, None));
    assert_eq!(over, limit);
    machine.one(write(&grants[fit], Some(&whole[..left]), None, None));
    assert_eq!(machine.state.counts().record_bytes, RECORD_BYTES_MAX);
    // The same size and smaller still goes, and makes room.
    machine.one(write(&grants[0], Some(&[8; VALUE_BYTES_MAX]), None, None));
    assert_eq!(value(&machine, "00").unwrap(), [8; VALUE_BYTES_MAX]);
    machine.one(write(&grants[0], None, None, None));
    let grown = machine.one(write(&grants[fit], Some(&whole), None, None));
    assert!(revision(&grown) > 0);
}

#[test]
fn a_value_has_at_most_4_kib() {
    assert!(Value::new(&[0; VALUE_BYTES_MAX]).is_ok());
    assert!(Value::new(&[0; VALUE_BYTES_MAX + 1]).is_err());
}

#[test]
fn in_the_last_year_no_revision_is_left() {
    let (mut machine, grant) = holding();
    machine.one(write(&grant, Some(b"x"), None, Some("put")));
    machine.wall_ms = 1 << 43;
    machine.apply(Vec::new());
    let before = machine.state.clone();
    for value in [Some(&b"y"[..]), None] {
        let outcome = machine.one(write(&grant, value, None, None));
        assert_eq!(outcome, refused(Refusal::EpochExhausted));
        assert_eq!(machine.state, before);
    }
    let again = machine.one(write(&grant, Some(b"x"), None, Some("put")));
    assert!(matches!(
        again,
        Outcome::RecordWritten { replayed: true, .. }
    ));
    let other = machine.one(Command::Release {
        scope: scope("a"),
        session: grant.session,
        epoch: grant.epoch,
    });
    assert_eq!(other, Outcome::Released { released: true });
    assert_eq!(value(&machine, "a").unwrap(), b"x");
}
