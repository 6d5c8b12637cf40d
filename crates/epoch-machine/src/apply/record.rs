//! Writing a scope's record.

use std::sync::Arc;

use epoch_core::{Epoch, Scope, SessionId};

use super::Applying;
use crate::epoch_rule;
use crate::outcome::{Outcome, Refusal};
use crate::record::{DoneIntent, INTENTS_KEPT, IntentDigest, Record, Value};
use crate::state::RECORD_BYTES_MAX;

impl Applying<'_> {
    /// Ownership, intent, revision and write are one step: the old holder's write is refused from
    /// the very entry that hands the scope over.
    pub(super) fn write_record(
        &mut self,
        scope: &Scope,
        session: &SessionId,
        epoch: Epoch,
        value: Option<&Value>,
        expected_revision: Option<u64>,
        intent: Option<IntentDigest>,
    ) -> Result<Outcome, Refusal> {
        self.may_acquire(session, std::iter::once(scope))?;
        self.state.current_grant(scope, session, epoch)?;
        let old = self.state.rows.records().get(scope.as_str()).cloned();
        let intents = old
            .as_ref()
            .map_or_else(Arc::default, |old| Arc::clone(&old.intents));
        let done = intent.and_then(|intent| {
            let same_id = |done: &&DoneIntent| done.intent.id == intent.id;
            intents.iter().find(same_id).map(|done| (intent, *done))
        });
        if let Some((intent, done)) = done {
            return if done.intent.payload == intent.payload {
                Ok(Outcome::RecordWritten {
                    revision: done.revision,
                    had_effect: done.had_effect,
                    replayed: true,
                })
            } else {
                Err(Refusal::IntentReused)
            };
        }
        let current = old.as_ref().map_or(0, Record::expected);
        if expected_revision.is_some_and(|expected| expected != current) {
            return Err(Refusal::RevisionMismatch { revision: current });
        }
        let had_effect = value.is_some() || current != 0;
        if !had_effect && intent.is_none() {
            return Ok(Outcome::RecordWritten {
                revision: current,
                had_effect,
                replayed: false,
            });
        }
        let revision = self.next_revision(old.as_ref())?;
        let done = intent.map(|intent| DoneIntent {
            intent,
            revision,
            had_effect,
        });
        let record = Record {
            revision,
            value: value.cloned(),
            epoch,
            intents: with_intent(&intents, done),
        };
        let name = self.state.name_of(scope);
        let freed = old.as_ref().map_or(0, |old| old.bytes(&name));
        let bytes = self.state.rows.record_bytes().saturating_sub(freed);
        // What makes the records fewer or smaller is never refused.
        if record.bytes(&name) > freed
            && bytes.saturating_add(record.bytes(&name)) > RECORD_BYTES_MAX
        {
            return Err(Refusal::RecordLimit);
        }
        self.state.put_record(name, record);
        Ok(Outcome::RecordWritten {
            revision,
            had_effect,
            replayed: false,
        })
    }

    /// Like an epoch, so that the revision of a record that was forgotten does not come back.
    fn next_revision(&self, old: Option<&Record>) -> Result<u64, Refusal> {
        let last = old.and_then(|old| Epoch::new(old.revision).ok());
        epoch_rule::next(last, self.state.now_ms)
            .map(Epoch::get)
            .ok_or(Refusal::EpochExhausted)
    }
}

fn with_intent(intents: &Arc<[DoneIntent]>, done: Option<DoneIntent>) -> Arc<[DoneIntent]> {
    let Some(done) = done else {
        return Arc::clone(intents);
    };
    let over = (intents.len() + 1).saturating_sub(INTENTS_KEPT);
    intents.iter().skip(over).copied().chain([done]).collect()
}
