//! The operator's statements: signed by the root key, one of a kind.

use std::sync::Arc;

use epoch_core::StatementKind;

use super::keys::{NOW_S, ROOT, statement};
use super::machine::{Machine, permission, principal, refused};
use crate::command::Command;
use crate::outcome::{Outcome, Refusal};

const DAY: StatementKind = StatementKind::MaxFuture { seconds: 86_400 };
const YEAR: StatementKind = StatementKind::MaxFuture {
    seconds: 365 * 86_400,
};

impl Machine {
    fn put_statement(&mut self, text: &Arc<str>) -> Outcome {
        self.one(Command::PutStatement {
            by: None,
            text: Arc::clone(text),
        })
    }

    fn statement(&self, kind: StatementKind, validity: (u64, u64)) -> Arc<str> {
        statement(&self.state, kind, validity, ROOT)
    }

    fn kept(&self) -> Vec<&str> {
        self.state.statements().collect()
    }
}

#[test]
fn one_statement_of_each_kind_is_kept_the_one_that_was_issued_last() {
    let mut machine = Machine::with_bundle();
    let clock = machine.statement(StatementKind::Clock, (NOW_S, NOW_S + 60));
    let old = machine.statement(YEAR, (NOW_S - 9, NOW_S + 9_000));
    let new = machine.statement(DAY, (NOW_S - 1, NOW_S + 60));
    for text in [&clock, &old, &new] {
        assert_eq!(machine.put_statement(text), Outcome::StatementPut);
    }
    assert_eq!(machine.kept(), [&*clock, &*new]);
    let older = refused(Refusal::StatementOlder);
    assert_eq!(machine.put_statement(&old), older);
    // Once more, and another of the same second, are not older.
    assert_eq!(machine.put_statement(&new), Outcome::StatementPut);
    let same_second = machine.statement(YEAR, (NOW_S - 1, NOW_S + 60));
    assert_eq!(machine.put_statement(&same_second), Outcome::StatementPut);
    assert_eq!(machine.kept(), [&*clock, &*same_second]);
    // The newer one has expired: what it took the place of does not come back.
    machine.wall_ms += 61_000;
    assert_eq!(machine.put_statement(&old), older);
    let again = machine.statement(DAY, (machine.now_s(), machine.now_s() + 60));
    assert_eq!(machine.put_statement(&again), Outcome::StatementPut);
    assert_eq!(machine.kept(), [&*clock, &*again]);
}

#[test]
fn statements_that_do_not_verify_are_refused() {
    let mut machine = Machine::new();
    let good = machine.statement(DAY, (NOW_S, NOW_S + 60));
    let invalid = refused(Refusal::StatementInvalid);
    // Nobody knows the root yet.
    assert_eq!(machine.put_statement(&good), invalid);
    machine.first_bundle();
    for bad in [
        statement(&machine.state, DAY, (NOW_S, NOW_S + 60), 1),
        machine.statement(DAY, (NOW_S - 60, NOW_S)),
        machine.statement(DAY, (NOW_S + 31, NOW_S + 60)),
        format!("{good}x").into(),
        "".into(),
    ] {
        assert_eq!(machine.put_statement(&bad), invalid);
    }
    assert!(machine.kept().is_empty());
    assert_eq!(machine.put_statement(&good), Outcome::StatementPut);
}

#[test]
fn statements_are_for_operators() {
    let mut machine = Machine::with_bundle();
    machine.state.add_admin(permission("root", "", "operate"));
    machine
        .state
        .add_admin(permission("bot", "", "acquire,read,revoke"));
    let text = machine.statement(DAY, (NOW_S, NOW_S + 60));
    let mut put = |by: Option<&str>| {
        let (by, text) = (by.map(principal), Arc::clone(&text));
        machine.one(Command::PutStatement { by, text })
    };
    let denied = refused(Refusal::PermissionDenied);
    assert_eq!((put(None), put(Some("bot"))), (denied.clone(), denied));
    assert_eq!(put(Some("root")), Outcome::StatementPut);
    let page = machine.state.audit(None, 2);
    let told = page.records.iter().map(|record| record.target.as_str());
    assert_eq!(told.collect::<Vec<_>>(), ["max_future of 86400 s"; 2]);
}
