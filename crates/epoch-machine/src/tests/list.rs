use super::machine::{Machine, scope};
use crate::state::Page;

fn names(page: &Page) -> Vec<&str> {
    page.scopes
        .iter()
        .map(|state| state.scope.as_str())
        .collect()
}

fn machine_with(names: &[&str]) -> Machine {
    let mut machine = Machine::new();
    let session = machine.open(1);
    for (id, name) in (1..).zip(names) {
        machine.acquire(name, session, id);
    }
    machine
}

#[test]
fn a_list_has_the_held_scopes_of_a_prefix_in_byte_order() {
    let machine = machine_with(&["a/2", "a/1", "b", "a", "A", "a0"]);
    let list = |prefix| machine.state.list(prefix, None, None, 100);
    assert_eq!(names(&list("")), ["A", "a", "a/1", "a/2", "a0", "b"]);
    assert_eq!(names(&list("a/")), ["a/1", "a/2"]);
    assert_eq!(names(&list("a")), ["a", "a/1", "a/2", "a0"]);
    assert!(names(&list("c")).is_empty());
    assert_eq!(list("").next, None);
}

#[test]
fn pages_have_every_scope_once() {
    let machine = machine_with(&["a/1", "a/2", "a/3", "a/4", "a/5", "b"]);
    for limit in 0..7 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = machine.state.list("a/", None, after.as_ref(), limit);
            assert!(page.scopes.len() <= limit.max(1));
            seen.extend(page.scopes.into_iter().map(|state| state.scope));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(
            seen,
            ["a/1", "a/2", "a/3", "a/4", "a/5"].map(scope),
            "limit {limit}"
        );
    }
}

#[test]
fn a_page_goes_on_after_a_scope_that_is_gone_or_of_another_prefix() {
    let machine = machine_with(&["a/1", "a/3", "b"]);
    let after = |name| machine.state.list("a/", None, Some(&scope(name)), 100);
    assert_eq!(names(&after("a/2")), ["a/3"]);
    assert_eq!(names(&after("A")), ["a/1", "a/3"]);
    assert!(names(&after("b")).is_empty());
}

#[test]
fn a_page_over_many_free_rows_ends_early_and_can_be_continued() {
    let mut machine = Machine::new();
    machine.checked = false;
    let burn = |number| crate::Command::Revoke {
        scope: scope(&format!("{number:05}")),
        epoch: None,
        by: None,
    };
    machine.apply((0..25_000).map(burn).collect());
    let session = machine.open(1);
    machine.acquire("99999", session, 1);
    let (mut pages, mut after) = (0, None);
    let found = loop {
        let page = machine.state.list("", None, after.as_ref(), 100);
        pages += 1;
        match page.next {
            Some(next) => {
                assert!(page.scopes.is_empty());
                after = Some(next);
            }
            None => break page,
        }
    };
    assert_eq!(names(&found), ["99999"]);
    assert_eq!(pages, 3);
}
