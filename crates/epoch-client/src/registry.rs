//! What a session holds, as far as this client knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use epoch_core::{Epoch, GrantsDigest, Scope};

use tokio::sync::Notify;

use crate::grant::{self, GrantLoss, Held};
use crate::holdings::Holding;

/// Names a grant in its session.
pub(crate) type Key = (Scope, Epoch);

/// The grants of a session.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// A session holds a scope once at a time.
    live: BTreeMap<Scope, Entry>,
    /// What else the cluster counts as the session's. It is in the digest, so that it settles, and
    /// tells of the next change, also where the cluster knows of a grant that nobody here wants.
    others: BTreeMap<Key, Other>,
    /// Of both.
    digest: GrantsDigest,
    /// How often it has changed: it comes back to what it was when a grant is taken and released.
    changes: u64,
    refreshes: BTreeSet<(u64, Scope)>,
    judging: Judging,
    /// Tells those that wait for an unclaimed grant.
    found: Arc<Notify>,
}

#[derive(Debug)]
enum Other {
    /// Its handle was given up here; it stays until the cluster is known to have ended it.
    GivenUp,
    Unclaimed(Holding),
}

#[derive(Debug)]
struct Entry {
    held: Arc<Held>,
    handle: Weak<grant::Handle>,
    refresh_ms: Option<u64>,
}

/// When to ask for the listing: once for each set of grants that differs, and ever more rarely for
/// one that still does after the listing has been compared.
#[derive(Debug, Default)]
struct Judging {
    under_way: bool,
    /// Listings in a row that explained nothing.
    futile: u32,
    /// Differing answers to pass over, while the digest has not changed since it was compared last.
    pass_over: u32,
    /// The count of changes at the last keepalive, at the one that the cluster said differs, and
    /// when the last listing was compared.
    sent: u64,
    differed: u64,
    compared: u64,
    /// What has ended while a listing is under way, which may still show it.
    ended: BTreeSet<Key>,
}

impl Judging {
    /// Passed over are 1, 2, 4, up to this many answers.
    const PASS_OVER_MAX: u32 = 64;
}

impl Registry {
    /// The digest for a keepalive that is sent now.
    pub(crate) fn digest_to_send(&mut self) -> GrantsDigest {
        self.judging.sent = self.changes;
        self.digest
    }

    fn count(&mut self, key: &Key) {
        self.digest = self.digest.with(key.0.as_str(), key.1);
        self.changes += 1;
    }

    /// Those without a handle, by scope.
    pub(crate) fn unclaimed(&self) -> Vec<Holding> {
        let others = self.others.values();
        others
            .filter_map(|other| match other {
                Other::GivenUp => None,
                Other::Unclaimed(unclaimed) => Some(unclaimed.clone()),
            })
            .collect()
    }

    /// Notified whenever a grant becomes one of these.
    pub(crate) fn found(&self) -> Arc<Notify> {
        Arc::clone(&self.found)
    }

    /// A live grant, with the handle that stands for it if there is one.
    pub(crate) fn live(&self, key: &Key) -> Option<(Arc<Held>, Option<Arc<grant::Handle>>)> {
        let entry = self.live.get(&key.0)?;
        (entry.held.key() == *key).then(|| (Arc::clone(&entry.held), entry.handle.upgrade()))
    }

    /// A grant was acquired, or a live one has got a handle again. An older one of the same scope
    /// has ended with it, or it with a newer one.
    pub(crate) fn adopt(&mut self, held: &Arc<Held>, handle: Weak<grant::Handle>) {
        let key = held.key();
        if let Some(live) = self.live.get(&key.0).map(|entry| entry.held.key()) {
            if live.1 > key.1 {
                held.lose(GrantLoss::Superseded);
                return;
            }
            if live.1 == key.1 {
                if let Some(entry) = self.live.get_mut(&key.0) {
                    entry.handle = handle;
                }
                return;
            }
            self.end(&live, GrantLoss::Superseded);
        }
        if self.others.remove(&key).is_none() {
            self.count(&key);
        }
        let entry = Entry {
            held: Arc::clone(held),
            handle,
            refresh_ms: None,
        };
        self.live.insert(key.0, entry);
    }

    /// A grant has ended in the cluster.
    pub(crate) fn end(&mut self, key: &Key, loss: GrantLoss) {
        self.give_up(key, loss);
        self.forget(key);
    }

    /// A grant is given up here; the cluster may still count it as the session's.
    pub(crate) fn give_up(&mut self, key: &Key, loss: GrantLoss) {
        if !self.is_live(key) {
            return;
        }
        if let Some(entry) = self.live.remove(&key.0) {
            entry.held.lose(loss);
            if let Some(refresh_ms) = entry.refresh_ms {
                self.refreshes.remove(&(refresh_ms, key.0.clone()));
            }
        }
        self.others.insert(key.clone(), Other::GivenUp);
    }

    /// The last clone of a handle is gone. Whether its grant is to be released: now given up, or
    /// given up before without it being known that the cluster has ended it. Another handle may
    /// stand for the same grant by now: to that one this is nothing.
    pub(crate) fn dropped(&mut self, key: &Key, handle: &grant::Handle) -> bool {
        let entry = self.live.get(&key.0);
        if entry.is_some_and(|entry| std::ptr::eq(entry.handle.as_ptr(), handle)) {
            self.give_up(key, GrantLoss::Released);
        }
        matches!(self.others.get(key), Some(Other::GivenUp))
    }

    /// The cluster does not count a grant that was given up as the session's any more.
    pub(crate) fn forget(&mut self, key: &Key) {
        if self.others.remove(key).is_some() {
            self.digest = self.digest.without(key.0.as_str(), key.1);
            self.changes += 1;
            if self.judging.under_way {
                self.judging.ended.insert(key.clone());
            }
        }
    }

    fn is_live(&self, (scope, epoch): &Key) -> bool {
        let entry = self.live.get(scope);
        entry.is_some_and(|entry| entry.held.epoch() == *epoch)
    }

    /// Whether to ask which grants the session has, after the cluster said that they are others
    /// than the digest says; then [`listed`](Self::listed) or [`not_listed`](Self::not_listed)
    /// must follow.
    pub(crate) fn differ(&mut self) -> bool {
        let judging = &mut self.judging;
        if judging.under_way {
            return false;
        }
        if judging.pass_over > 0 && judging.compared == self.changes {
            judging.pass_over -= 1;
            return false;
        }
        judging.under_way = true;
        judging.differed = judging.sent;
        true
    }

    /// The cluster said that they are as the digest says.
    pub(crate) fn agree(&mut self) {
        self.judging.futile = 0;
        self.judging.pass_over = 0;
    }

    /// What the cluster is believed to count as the session's now: to be judged by a listing that
    /// is asked for from here on.
    pub(crate) fn believed(&self) -> Vec<Key> {
        let live = self.live.values().map(|entry| entry.held.key());
        live.chain(self.others.keys().cloned()).collect()
    }

    /// The session's grants as the cluster lists them; asked for when `believed` were held. Grants
    /// acquired since then are not judged by it, nor brought back those that have ended since.
    pub(crate) fn listed(&mut self, believed: &[Key], listing: Vec<Holding>) {
        let keyed = |holding: Holding| ((holding.scope.clone(), holding.epoch), holding);
        let listing: BTreeMap<Key, Holding> = listing.into_iter().map(keyed).collect();
        self.judging.under_way = false;
        let ended = std::mem::take(&mut self.judging.ended);
        for key in believed {
            if !listing.contains_key(key) {
                self.end(key, GrantLoss::Superseded);
            }
        }
        for (key, unclaimed) in listing {
            if self.is_live(&key) || ended.contains(&key) {
                continue;
            }
            match self.others.get_mut(&key) {
                Some(Other::GivenUp) => {}
                Some(Other::Unclaimed(known)) => *known = unclaimed,
                None => {
                    self.count(&key);
                    self.others.insert(key, Other::Unclaimed(unclaimed));
                    self.found.notify_waiters();
                }
            }
        }
        let judging = &mut self.judging;
        judging.compared = self.changes;
        // What has changed since the keepalive was sent explains why it differed.
        if judging.differed == self.changes {
            judging.pass_over = 1_u32
                .checked_shl(judging.futile)
                .unwrap_or(Judging::PASS_OVER_MAX)
                .min(Judging::PASS_OVER_MAX);
            judging.futile = judging.futile.saturating_add(1);
        } else {
            judging.futile = 0;
        }
    }

    /// The listing could not be had.
    pub(crate) fn not_listed(&mut self) {
        self.judging.under_way = false;
        self.judging.ended.clear();
    }

    /// Plans the next refresh of a live grant's certificate. Whether it is the first of all.
    pub(crate) fn plan_refresh(&mut self, key: &Key, at_ms: u64) -> bool {
        if !self.is_live(key) {
            return false;
        }
        let planned = (at_ms, key.0.clone());
        if let Some(entry) = self.live.get_mut(&key.0)
            && let Some(before_ms) = entry.refresh_ms.replace(at_ms)
        {
            self.refreshes.remove(&(before_ms, key.0.clone()));
        }
        self.refreshes.insert(planned.clone());
        self.refreshes.first() == Some(&planned)
    }

    /// When the next certificate is to be refreshed.
    pub(crate) fn refresh_ms(&self) -> Option<u64> {
        self.refreshes.first().map(|(at_ms, _)| *at_ms)
    }

    /// The grants whose certificates are to be refreshed at `now_ms`; each is then planned anew by
    /// [`plan_refresh`](Self::plan_refresh).
    pub(crate) fn take_refreshes(&mut self, now_ms: u64) -> Vec<Arc<Held>> {
        let mut due = Vec::new();
        while self.refresh_ms().is_some_and(|at_ms| at_ms <= now_ms)
            && let Some((_, scope)) = self.refreshes.pop_first()
        {
            if let Some(entry) = self.live.get_mut(&scope) {
                entry.refresh_ms = None;
                due.push(Arc::clone(&entry.held));
            }
        }
        due
    }
}
