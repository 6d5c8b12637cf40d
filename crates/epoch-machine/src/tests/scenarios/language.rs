//! The words of a script. `tests/scenarios/README.md` explains them.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use epoch_core::{Epoch, Holder, IntentId, OpenId, Principal, RequestId, Scope, SessionId};
use uuid::Uuid;

use crate::command::{Command, Scopes, SessionKey, Ttl};
use crate::limits::Limits;
use crate::permission::{Prefix, Verb, Verbs};
use crate::record::{IntentDigest, Value};
use crate::state::State;
use crate::terms::{LockDelay, Metadata, Terms, Wait};
use crate::token::{TokenHash, TokenLabel};

use super::trust;

pub(super) type Result<T> = std::result::Result<T, String>;

/// One line: a verb, words, and what is named.
pub(super) struct Line<'a> {
    pub(super) verb: &'a str,
    words: VecDeque<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self> {
        let mut words: VecDeque<_> = text.split_whitespace().collect();
        let verb = words.pop_front().ok_or("an empty line")?;
        let named = words.iter().filter_map(|word| word.split_once('='));
        let named = named.collect();
        words.retain(|word| !word.contains('='));
        Ok(Self { verb, words, named })
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        let next = self.words.pop_front();
        next.ok_or_else(|| format!("{} needs {what}", self.verb))
    }

    pub(super) fn optional(&mut self, name: &str) -> Option<&'a str> {
        self.named.remove(name)
    }

    pub(super) fn required(&mut self, name: &str) -> Result<&'a str> {
        let value = self.optional(name);
        value.ok_or_else(|| format!("{} needs {name}=", self.verb))
    }

    /// Nothing may be left: a misspelt name would go unnoticed.
    pub(super) fn end(&self) -> Result<()> {
        if self.words.is_empty() && self.named.is_empty() {
            Ok(())
        } else {
            Err(format!("{}: {:?} {:?}?", self.verb, self.words, self.named))
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        let found = self.words.iter().position(|word| *word == name);
        found.is_some_and(|at| self.words.remove(at).is_some())
    }

    fn scope(&mut self) -> Result<Scope> {
        scope(self.word("a scope")?)
    }

    fn epoch(&mut self) -> Result<Epoch> {
        epoch(self.word("an epoch")?)
    }

    fn request_id(&mut self) -> Result<RequestId> {
        let id = number(self.required("id")?)?;
        RequestId::new(id).map_err(text)
    }

    pub(super) fn principal(&mut self) -> Result<Principal> {
        principal(self.word("a principal")?)
    }

    pub(super) fn by(&mut self) -> Result<Option<Principal>> {
        self.optional("by").map(principal).transpose()
    }

    fn prefix(&mut self) -> Result<Prefix> {
        Prefix::parse(self.optional("prefix").unwrap_or("")).map_err(text)
    }

    /// `token=7` stands for a token whose hash is all 7.
    pub(super) fn token(&mut self) -> Result<TokenHash> {
        Ok(TokenHash([byte(self.required("token")?)?; 32]))
    }

    fn limit(&mut self, name: &str) -> Result<Option<u32>> {
        let limit = self.optional(name).map(number).transpose()?;
        limit.map(u32::try_from).transpose().map_err(text)
    }

    fn terms(&mut self) -> Result<Terms> {
        let delay = self.optional("delay").map_or(Ok(0), milliseconds)?;
        let metadata = self.optional("metadata").unwrap_or("");
        Ok(Terms {
            lock_delay: LockDelay::from_ms(delay).map_err(text)?,
            metadata: Metadata::new(metadata).map_err(text)?,
        })
    }
}

/// Who is who in a script.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) sessions: BTreeMap<String, SessionId>,
    open_ids: BTreeMap<String, OpenId>,
}

impl Names {
    fn open_id(&mut self, name: &str) -> OpenId {
        let next = u128::try_from(self.open_ids.len()).unwrap() + 1;
        let id = OpenId(Uuid::from_u128(next));
        *self.open_ids.entry(name.to_owned()).or_insert(id)
    }

    pub(super) fn session(&self, name: &str) -> Result<SessionId> {
        let session = self.sessions.get(name).copied();
        session.ok_or_else(|| format!("{name} has not opened a session"))
    }

    fn of(&self, line: &mut Line<'_>) -> Result<SessionId> {
        self.session(line.word("a session")?)
    }

    /// The command that a line stands for, in a state and at the leader's time.
    pub(super) fn command(
        &mut self,
        mut line: Line<'_>,
        state: &State,
        wall_ms: u64,
    ) -> Result<Command> {
        let command = match line.verb {
            "open" => self.open(&mut line)?,
            "close" => Command::Close {
                session: self.of(&mut line)?,
            },
            "expire" => Command::Expire {
                session: SessionKey::from(&self.of(&mut line)?),
            },
            "acquire" => Command::Acquire {
                session: self.of(&mut line)?,
                scope: line.scope()?,
                request_id: line.request_id()?,
                terms: line.terms()?,
                wait: wait(&mut line)?,
                reissue: line.flag("reissue"),
            },
            "acquire-many" => {
                let session = self.of(&mut line)?;
                let scopes = line.words.drain(..).map(scope).collect::<Result<_>>()?;
                Command::AcquireMany {
                    scopes: Scopes::new(scopes).map_err(text)?,
                    session,
                    request_id: line.request_id()?,
                    terms: line.terms()?,
                }
            }
            "cancel-wait" => Command::CancelWait {
                session: self.of(&mut line)?,
                scope: line.scope()?,
                request_id: line.request_id()?,
            },
            "end-wait" => Command::EndWait {
                session: SessionKey::from(&self.of(&mut line)?),
                request_id: line.request_id()?,
            },
            "end-delay" => Command::EndDelay {
                scope: line.scope()?,
                epoch: line.epoch()?,
            },
            "transfer" => Command::Transfer {
                session: self.of(&mut line)?,
                scope: line.scope()?,
                epoch: line.epoch()?,
                to: self.session(line.required("to")?)?.hash(),
            },
            "release" => Command::Release {
                session: self.of(&mut line)?,
                scope: line.scope()?,
                epoch: line.epoch()?,
            },
            "revoke" => Command::Revoke {
                scope: line.scope()?,
                epoch: line.words.pop_front().map(epoch).transpose()?,
                by: line.by()?,
            },
            "permit" | "forbid" | "add-token" | "remove-token" | "set-limits" => {
                operator_command(&mut line)?
            }
            "put" | "delete" => self.write(&mut line)?,
            verb => match trust::command(&mut line, state, wall_ms)? {
                Some(command) => command,
                None => return Err(format!("{verb}?")),
            },
        };
        line.end()?;
        Ok(command)
    }

    fn open(&mut self, line: &mut Line<'_>) -> Result<Command> {
        let name = line.word("a name")?;
        let stall = line.optional("stall").map(milliseconds).transpose()?;
        let holder_key = line.optional("key").map(byte).transpose()?;
        Ok(Command::Open {
            open_id: self.open_id(line.optional("open-id").unwrap_or(name)),
            holder: Holder::parse(line.optional("holder").unwrap_or(name)).map_err(text)?,
            ttl: Ttl::from_ms(milliseconds(line.optional("ttl").unwrap_or("10s"))?)
                .map_err(text)?,
            stall_limit: stall.map(Ttl::from_ms).transpose().map_err(text)?,
            principal: line.optional("principal").map(principal).transpose()?,
            holder_key: holder_key.map(|byte| [byte; 32]),
        })
    }

    fn write(&mut self, line: &mut Line<'_>) -> Result<Command> {
        let value = match line.verb {
            "put" => Some(value(line.required("value")?)?),
            _ => None,
        };
        let intent = line.optional("intent").map(IntentId::parse);
        let intent = intent.transpose().map_err(text)?;
        let expected = line.optional("expect").map(stamp);
        Ok(Command::WriteRecord {
            session: self.of(line)?,
            scope: line.scope()?,
            epoch: line.epoch()?,
            intent: intent.map(|id| IntentDigest::of(&id, value.as_ref())),
            value,
            expected_revision: expected.transpose()?,
        })
    }
}

fn operator_command(line: &mut Line<'_>) -> Result<Command> {
    let by = line.by()?;
    let principal = line.principal()?;
    Ok(match line.verb {
        "permit" => Command::GrantPermission {
            by,
            principal,
            verbs: verbs(line.word("verbs")?)?,
            prefix: line.prefix()?,
        },
        "forbid" => Command::RevokePermission {
            by,
            principal,
            prefix: line.prefix()?,
        },
        "add-token" => Command::AddToken {
            by,
            principal,
            label: label(line.word("a label")?)?,
            hash: line.token()?,
            expires_ms: match line.optional("expires") {
                Some(ms) => NonZeroU64::new(number(ms)?),
                None => None,
            },
        },
        "remove-token" => Command::RemoveToken {
            by,
            principal,
            label: label(line.word("a label")?)?,
        },
        _ => Command::SetLimits {
            by,
            principal,
            limits: Limits {
                sessions: line.limit("sessions")?,
                grants: line.limit("grants")?,
                waits: line.limit("waits")?,
                requests_per_second: line.limit("rate")?,
            },
        },
    })
}

fn principal(word: &str) -> Result<Principal> {
    Principal::parse(word).map_err(text)
}

fn label(word: &str) -> Result<TokenLabel> {
    TokenLabel::parse(word).map_err(text)
}

/// `acquire,read`
fn verbs(word: &str) -> Result<Verbs> {
    let verbs = word.split(',').map(verb).collect::<Result<Vec<_>>>()?;
    Verbs::new(verbs).map_err(text)
}

pub(super) fn verb(word: &str) -> Result<Verb> {
    Verb::parse(word).ok_or_else(|| format!("{word:?} is no verb"))
}

pub(super) fn byte(word: &str) -> Result<u8> {
    u8::try_from(number(word)?).map_err(text)
}

/// A text, or `4096xZ` for so many of a letter.
fn value(word: &str) -> Result<Value> {
    let many = word.split_once('x').and_then(|(count, letter)| {
        let count: usize = count.parse().ok()?;
        Some(letter.repeat(count))
    });
    let bytes = many.unwrap_or_else(|| word.to_owned());
    Value::new(bytes.as_bytes()).map_err(text)
}

pub(super) fn scope(word: &str) -> Result<Scope> {
    Scope::parse(word).map_err(text)
}

fn epoch(word: &str) -> Result<Epoch> {
    Epoch::new(stamp(word)?).map_err(text)
}

/// `1000+1`: the milliseconds and the number within them.
fn stamp(word: &str) -> Result<u64> {
    match word.split_once('+') {
        Some((ms, count)) => Ok((number(ms)? << 10) + number(count)?),
        None => number(word),
    }
}

fn wait(line: &mut Line<'_>) -> Result<Wait> {
    let ms = line.optional("wait").map_or(Ok(0), milliseconds)?;
    Wait::from_ms(ms).map_err(text)
}

/// `10s` or `1500ms`.
fn milliseconds(word: &str) -> Result<u64> {
    match (word.strip_suffix("ms"), word.strip_suffix('s')) {
        (Some(ms), _) => number(ms),
        (None, Some(seconds)) => Ok(number(seconds)? * 1_000),
        (None, None) => Err(format!("{word:?} is no time")),
    }
}

pub(super) fn number(word: &str) -> Result<u64> {
    word.parse().map_err(|_no| format!("{word:?} is no number"))
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
