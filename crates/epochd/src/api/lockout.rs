//! Operators who are about to lock everybody out.
//!
//! The state machine keeps the last permission to operate. That is not enough where nobody can show
//! any more that it is his: an operator needs a token that does not end, or a name that a client
//! certificate can have, which is beyond what a node can check.

use epoch_core::{Principal, Reason};
use epoch_machine::{Prefix, State, TokenLabel, Verb, Verbs};

use super::Result;
use super::failure::Failure;

/// What an operator is about to change.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    /// The principal's verbs at a prefix become these.
    Permission(&'a Principal, &'a Prefix, Option<Verbs>),
    /// The principal's token goes.
    Token(&'a Principal, &'a TokenLabel),
}

/// Refuses a change after which nobody could operate the cluster who can now.
pub(super) fn prevent(state: &State, change: Change<'_>) -> Result<()> {
    let permissions = state.permissions(None, usize::MAX).permissions;
    let operates =
        |verbs: Verbs, prefix: &Prefix| verbs.has(Verb::Operate) && prefix.is_everything();
    let before: Vec<&Principal> = permissions
        .iter()
        .filter(|its| operates(its.verbs, &its.prefix))
        .map(|its| &its.principal)
        .collect();
    let mut after = before.clone();
    if let Change::Permission(principal, prefix, verbs) = change
        && prefix.is_everything()
    {
        after.retain(|operator| *operator != principal);
        if verbs.is_some_and(|verbs| operates(verbs, prefix)) {
            after.push(principal);
        }
    }
    let shown_before = before.iter().any(|who| can_show(state, who, None));
    let stays_open = before.is_empty() && after.is_empty();
    if stays_open
        || !(shown_before || state.is_open())
        || after.iter().any(|who| can_show(state, who, Some(change)))
    {
        return Ok(());
    }
    Err(Failure::new(
        Reason::InvalidArgument,
        "no operator would be left that can show who it is: first give one a token that does not \
         end (epochctl permission token add), or the verb operate to the URI of a client \
         certificate",
    ))
}

/// Whether an operator has a token that does not end, or may have a certificate: every URI has a
/// colon.
fn can_show(state: &State, operator: &Principal, change: Option<Change<'_>>) -> bool {
    let goes = |label: &TokenLabel| matches!(change, Some(Change::Token(of, its)) if of == operator && its == label);
    let mut tokens = state.tokens(operator);
    operator.as_str().contains(':')
        || tokens.any(|token| token.expires_ms.is_none() && !goes(&token.label))
}
