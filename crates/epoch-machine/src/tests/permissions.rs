use std::num::NonZeroU64;

use epoch_core::Reason;

use super::machine::{Machine, audit_record, permission, principal, scope, token, verbs};
use crate::admin::AdminRow;
use crate::audit::{AuditAction, AuditTarget, TARGET_BYTES_MAX};
use crate::outcome::Refusal;
use crate::permission::{PREFIX_BYTES_MAX, Prefix, PrefixError, Verb, Verbs, VerbsError};
use crate::state::State;
use crate::token::{LABEL_BYTES_MAX, LabelError, Token, TokenHash, TokenLabel};

/// A state with these rare rows.
fn with(rows: impl IntoIterator<Item = AdminRow>) -> State {
    let mut state = Machine::new().state;
    for row in rows {
        assert!(state.add_admin(row));
    }
    state
}

#[test]
fn verbs_are_one_or_more_and_survive_as_bits_and_names() {
    for bits in 1..=15 {
        let some = Verbs::from_bits(bits).unwrap();
        assert_eq!((some.bits(), verbs(&some.to_string())), (bits, some));
        assert_eq!(Verbs::new(some.iter()), Ok(some));
    }
    for bits in [0, 16, 17, 256, 257, u32::MAX] {
        assert_eq!(Verbs::from_bits(bits), Err(VerbsError));
    }
    assert_eq!(Verbs::new([]), Err(VerbsError));
    assert_eq!(Verbs::ALL.to_string(), "acquire,read,revoke,operate");
    assert_eq!(Verb::parse("Acquire"), None);
}

#[test]
fn prefixes_and_labels_are_checked() {
    assert!(Prefix::parse(&"p".repeat(PREFIX_BYTES_MAX)).is_ok());
    let long = "p".repeat(PREFIX_BYTES_MAX + 1);
    assert_eq!(Prefix::parse(&long), Err(PrefixError::TooLong(513)));
    let control = Err(PrefixError::ControlCharacter('\n'));
    assert_eq!(Prefix::parse("a\n"), control);
    assert_eq!(Prefix::parse(""), Ok(Prefix::default()));

    assert!(TokenLabel::parse(&"l".repeat(LABEL_BYTES_MAX)).is_ok());
    assert!(TokenLabel::parse("A-z.0_9").is_ok());
    for bad in ["", "a b", "a/b", "\u{e9}", &"l".repeat(LABEL_BYTES_MAX + 1)] {
        assert_eq!(TokenLabel::parse(bad), Err(LabelError), "{bad:?}");
    }
}

#[test]
fn a_prefix_begins_scopes_and_longer_prefixes_byte_by_byte() {
    let state = with([
        permission("root", "", "operate"),
        permission("bot", "reports/", "read"),
        permission("bot", "notes", "read,acquire"),
    ]);
    let bot = principal("bot");
    for (prefix, read, acquire) in [
        ("", false, false),
        ("reports", false, false),
        ("reports/", true, false),
        ("reports/2", true, false),
        ("Reports/", false, false),
        ("note", false, false),
        ("notes", true, true),
        ("notes-too", true, true),
    ] {
        let allows = |verb| state.allows_prefix(Some(&bot), verb, prefix);
        assert_eq!(allows(Verb::Read), read, "{prefix}");
        assert_eq!(allows(Verb::Acquire), acquire, "{prefix}");
        assert!(!allows(Verb::Operate));
        assert!(!state.allows_prefix(None, Verb::Read, prefix));
    }
    assert!(state.allows(Some(&bot), Verb::Read, &scope("notes")));
    assert!(state.allows_somewhere(Some(&bot), Verb::Acquire));
    assert!(!state.allows_somewhere(Some(&bot), Verb::Revoke));
    assert!(!state.may_operate(Some(&bot)) && !state.may_operate(None));
    assert!(state.may_operate(Some(&principal("root"))));
}

#[test]
fn a_permission_to_operate_counts_for_all_scopes_only() {
    let state = with([
        permission("root", "", "operate"),
        permission("half", "a", "operate"),
    ]);
    let (half, root) = (principal("half"), principal("root"));
    assert!(!state.may_operate(Some(&half)));
    assert!(!state.allows_prefix(Some(&half), Verb::Operate, "a"));
    // Those of others are looked for, not its own.
    assert!(state.has_operator_but(Some(&half)));
    assert!(!state.has_operator_but(Some(&root)));
}

#[test]
fn everyone_may_do_everything_while_there_is_no_permission() {
    let state = with([AdminRow::Token(token("bot", 1, "ci"))]);
    assert!(state.is_open() && state.may_operate(None));
    assert!(state.allows_prefix(None, Verb::Revoke, ""));
    assert!(state.allows_somewhere(Some(&principal("anyone")), Verb::Acquire));
    assert!(!with([permission("root", "", "operate")]).is_open());
}

#[test]
fn permissions_are_paged_by_principal_and_prefix() {
    let names = [("a", ""), ("a", "x"), ("a", "y"), ("a/b", ""), ("b", "x")];
    let rows = names.map(|(who, prefix)| permission(who, prefix, "operate"));
    // Neighbours of other kinds do not show.
    let token = AdminRow::Token(token("a", 0, "ci"));
    let state = with(rows.into_iter().chain([token]));
    for limit in 0..7 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let from = after.as_ref().map(|(who, prefix)| (who, prefix));
            let page = state.permissions(from, limit);
            assert!(page.permissions.len() <= limit.max(1));
            found.extend(page.permissions);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let found: Vec<_> = found
            .iter()
            .map(|its| (its.principal.as_str(), its.prefix.as_str()))
            .collect();
        assert_eq!(found, names, "pages of {limit}");
    }
}

#[test]
fn audit_records_are_paged_newest_first() {
    let state = with((5..12).map(|number| AdminRow::Audit(audit_record(number))));
    for limit in 0..9 {
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let page = state.audit(before, limit);
            assert!(page.records.len() <= limit.max(1));
            found.extend(page.records.iter().map(|record| record.number));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, [11, 10, 9, 8, 7, 6, 5], "pages of {limit}");
    }
    assert!(state.audit(Some(5), 5).records.is_empty());
    assert!(state.audit(Some(0), 5).records.is_empty());
    assert_eq!(state.audit(Some(u64::MAX), 1).records[0].number, 11);
    assert_eq!(state.audit_numbers(), Some((5, 11)));
}

#[test]
fn tokens_are_of_their_principal_until_they_expire() {
    let expiring = Token {
        expires_ms: NonZeroU64::new(1_000),
        ..token("a", 2, "old")
    };
    let state = with([
        AdminRow::Token(token("a", 1, "new")),
        AdminRow::Token(expiring),
        AdminRow::Token(token("a/b", 3, "new")),
    ]);
    let whose = |byte, now_ms| {
        let principal = state.principal_of_token(&TokenHash([byte; 32]), now_ms);
        principal.map(ToString::to_string)
    };
    assert_eq!(whose(1, u64::MAX).as_deref(), Some("a"));
    assert_eq!(whose(2, 999).as_deref(), Some("a"));
    assert_eq!(whose(2, 1_000), None);
    assert_eq!(whose(3, 0).as_deref(), Some("a/b"));
    assert_eq!(whose(4, 0), None);
    let labels = |name| {
        let tokens: Vec<_> = state.tokens(&principal(name)).cloned().collect();
        tokens
            .iter()
            .map(|token| token.label.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(labels("a"), ["new", "old"]);
    assert_eq!(labels("a/b"), ["new"]);
    assert!(labels("b").is_empty());
}

#[test]
fn the_target_of_an_audit_record_is_cut_where_it_is_too_long() {
    let most = "t".repeat(TARGET_BYTES_MAX);
    assert_eq!(AuditTarget::cut(&most).as_str(), most);
    assert_eq!(AuditTarget::new(&most), Ok(AuditTarget::cut(&most)));
    for long in [format!("{most}t"), "\u{e9}".repeat(TARGET_BYTES_MAX)] {
        let cut = AuditTarget::cut(&long);
        let kept = cut.as_str().strip_suffix('\u{2026}').unwrap();
        assert!(long.starts_with(kept) && kept.len() > TARGET_BYTES_MAX - 6);
        assert_eq!(AuditTarget::new(cut.as_str()), Ok(cut.clone()));
        assert!(AuditTarget::new(&long).is_err());
    }
}

#[test]
fn actions_of_operators_survive_as_numbers() {
    for (number, action) in (1..).zip(AuditAction::ALL) {
        assert_eq!(action.number(), number);
        assert_eq!(AuditAction::from_number(number), Some(action));
    }
    assert_eq!(AuditAction::from_number(0), None);
    assert_eq!(AuditAction::from_number(11), None);
}

#[test]
fn a_denial_names_neither_scope_nor_holder() {
    let refusal = Refusal::PermissionDenied;
    assert_eq!(refusal.reason(), Reason::PermissionDenied);
    assert_eq!(refusal.epoch(), None);
    assert_eq!(
        refusal.to_string(),
        "this is not permitted; ask an operator for the permission"
    );
}
