//! Bugs planted around `apply` that concern who may do what: each must be found by the random run.

use super::machine::{Machine, permission};
use super::mutants::found_with_operators;
use super::promises::Failure;
use crate::admin::AdminRow;
use crate::apply::apply;
use crate::command::{Batch, Command, Entry};
use crate::event::{Event, GrantEvent, GrantEventKind, WaitEnd};
use crate::outcome::{Applied, ForeignLeadership, Outcome};
use crate::permission::Verb;
use crate::promise::{Violation, consistent};
use crate::state::State;

type Result = std::result::Result<Applied, ForeignLeadership>;

fn assert_inconsistent(failure: &Failure) {
    assert!(
        matches!(failure, Failure::Promise(Violation::Inconsistent(_))),
        "{failure}"
    );
}

/// Every session is opened as if its principal could do what the first operator can.
fn takes_everyone_for_an_operator(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let operator = state.admin_rows().find_map(|row| match row {
        AdminRow::Permission(its) if its.verbs.has(Verb::Acquire) => Some(its.principal),
        _ => None,
    });
    let mut batch = batch.clone();
    for command in &mut batch.commands {
        if let Command::Open { principal, .. } = command
            && principal.is_some()
        {
            principal.clone_from(&operator);
        }
    }
    apply(state, entry, &batch)
}

#[test]
fn a_session_of_another_principal_is_found() {
    let failure = found_with_operators(takes_everyone_for_an_operator);
    assert!(matches!(failure, Failure::Permitted(_)), "{failure}");
}

/// As if nobody had to ask: everything is applied as in an open cluster.
fn asks_nobody(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let concerns_permissions = batch.commands.iter().any(|command| {
        matches!(
            command,
            Command::GrantPermission { .. } | Command::RevokePermission { .. }
        )
    });
    if concerns_permissions {
        return apply(state, entry, batch);
    }
    let permissions: Vec<_> = state
        .admin_rows()
        .filter(|row| matches!(row, AdminRow::Permission(_)))
        .collect();
    for row in &permissions {
        state.rows.remove_admin(&row.key());
    }
    let applied = apply(state, entry, batch);
    for row in permissions {
        state.rows.put_admin(row);
    }
    applied
}

#[test]
fn a_command_that_nobody_permitted_is_found() {
    let failure = found_with_operators(asks_nobody);
    assert!(
        matches!(
            failure,
            Failure::Permitted(_) | Failure::Promise(Violation::Inconsistent(_))
        ),
        "{failure}"
    );
}

#[test]
fn a_wait_that_goes_on_without_its_permission_is_found() {
    let mut machine = Machine::new();
    let (first, second) = (machine.open(1), machine.open(2));
    machine.acquire("a", first, 1);
    machine.wait("a", second, 1);
    consistent(&machine.state).unwrap();
    // As if the first permission had closed the cluster, and nobody had looked at who waits.
    machine.state.add_admin(permission("root", "", "operate"));
    let violation = consistent(&machine.state).unwrap_err();
    assert!(
        violation.to_string().contains("which it may not"),
        "{violation}"
    );
}

fn counts_no_grant(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let before = state.clone();
    let applied = apply(state, entry, batch)?;
    let granted = |outcome: &Outcome| matches!(outcome, Outcome::Granted { new: true, .. });
    if applied.outcomes.iter().any(granted) {
        state.rows.forget_usage_since(&before.rows);
    }
    Ok(applied)
}

fn counts_no_transfer(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let before = state.clone();
    let applied = apply(state, entry, batch)?;
    let transferred = |event: &Event| {
        matches!(
            event,
            Event::Grant(GrantEvent {
                kind: GrantEventKind::Transferred,
                ..
            })
        )
    };
    if applied.events.iter().any(transferred) {
        state.rows.forget_usage_since(&before.rows);
    }
    Ok(applied)
}

fn counts_no_cancelled_wait(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let before = state.clone();
    let applied = apply(state, entry, batch)?;
    let cancelled = |event: &Event| {
        matches!(
            event,
            Event::WaitEnded {
                end: WaitEnd::Cancelled,
                ..
            }
        )
    };
    if applied.events.iter().any(cancelled) {
        state.rows.forget_usage_since(&before.rows);
    }
    Ok(applied)
}

fn counts_no_end(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let before = state.clone();
    let applied = apply(state, entry, batch)?;
    let ended = |event: &Event| matches!(event, Event::SessionEnded { .. });
    if applied.events.iter().any(ended) {
        state.rows.forget_usage_since(&before.rows);
    }
    Ok(applied)
}

#[test]
fn what_a_principal_has_and_is_not_counted_is_found() {
    assert_inconsistent(&found_with_operators(counts_no_grant));
    assert_inconsistent(&found_with_operators(counts_no_transfer));
    assert_inconsistent(&found_with_operators(counts_no_cancelled_wait));
    assert_inconsistent(&found_with_operators(counts_no_end));
}

fn knows_no_limits(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let sets = |command: &Command| matches!(command, Command::SetLimits { .. });
    if batch.commands.iter().any(sets) {
        return apply(state, entry, batch);
    }
    let limits: Vec<_> = state
        .admin_rows()
        .filter(|row| matches!(row, AdminRow::Limits { .. }))
        .collect();
    for row in &limits {
        state.rows.remove_admin(&row.key());
    }
    let applied = apply(state, entry, batch);
    for row in limits {
        state.rows.put_admin(row);
    }
    applied
}

#[test]
fn a_limit_that_is_not_kept_is_found() {
    let failure = found_with_operators(knows_no_limits);
    assert!(matches!(failure, Failure::Permitted(_)), "{failure}");
}

fn leaves_no_trace(state: &mut State, entry: Entry, batch: &Batch) -> Result {
    let numbers = state.audit_numbers();
    let applied = apply(state, entry, batch)?;
    if let (Some((_, before)), Some((_, after))) = (numbers, state.audit_numbers())
        && after > before
    {
        state
            .rows
            .remove_admin(&crate::admin::AdminKey::Audit(after));
    }
    Ok(applied)
}

#[test]
fn an_operators_action_without_a_trace_is_found() {
    let failure = found_with_operators(leaves_no_trace);
    assert!(matches!(failure, Failure::Audit), "{failure}");
}
