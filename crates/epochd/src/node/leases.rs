//! The leader's leases: when each session runs out, by `CLOCK_BOOTTIME`. Held in memory by the
//! leader alone; a new leader gives every session its full TTL anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use epoch_machine::{Leadership, SessionKey, Ttl};

use crate::raft::SessionEvent;

/// On top of the full TTL that a new leader gives.
pub(crate) const NEW_LEADER_GRACE: Duration = Duration::from_secs(1);
/// Expiries in one batch at most.
pub(crate) const EXPIRE_MAX: usize = 1_024;

/// Why a keepalive is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewError {
    /// These are not the leases of that leadership.
    NotLeader,
    /// The session's expiry is under way.
    Expiring,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    deadline: Duration,
    expiring: bool,
}

/// Leases under one leadership.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    leadership: Option<Leadership>,
    leases: BTreeMap<SessionKey, Lease>,
    /// By deadline, without those that are expiring.
    due: BTreeSet<(Duration, SessionKey)>,
    last_tick: Duration,
}

impl Leases {
    /// Begins a leadership at `now`: every session gets its full TTL and a second more.
    pub(crate) fn begin(
        &mut self,
        leadership: Leadership,
        now: Duration,
        sessions: impl Iterator<Item = (SessionKey, Ttl)>,
    ) {
        self.end();
        self.leadership = Some(leadership);
        self.last_tick = now;
        for (session, ttl) in sessions {
            self.set(session, now + ttl_of(ttl) + NEW_LEADER_GRACE);
        }
    }

    /// Ends the leadership.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whose leases these are.
    pub(crate) fn leadership(&self) -> Option<Leadership> {
        self.leadership
    }

    /// Takes note of what the log says.
    pub(crate) fn note(&mut self, event: SessionEvent, now: Duration) {
        if self.leadership.is_none() {
            return;
        }
        match event {
            // It may have been there when the leadership began, or have been renewed already.
            SessionEvent::Opened(session, _) if self.leases.contains_key(&session) => {}
            SessionEvent::Opened(session, ttl) => self.set(session, now + ttl_of(ttl)),
            SessionEvent::Reopened(session, ttl) => {
                let live = self.leases.get(&session).filter(|lease| !lease.expiring);
                if let Some(deadline) = live.map(|lease| lease.deadline) {
                    self.set(session, deadline.max(now + ttl_of(ttl)));
                }
            }
            SessionEvent::Ended(session) => self.remove(session),
        }
    }

    /// Renews a lease: the keepalive arrived at `arrived`, and a quorum has confirmed the
    /// leadership since.
    pub(crate) fn renew(
        &mut self,
        leadership: Leadership,
        session: SessionKey,
        ttl: Ttl,
        arrived: Duration,
    ) -> Result<(), RenewError> {
        if self.leadership != Some(leadership) {
            return Err(RenewError::NotLeader);
        }
        match self.leases.get(&session) {
            Some(lease) if lease.expiring => Err(RenewError::Expiring),
            Some(lease) => {
                let deadline = lease.deadline.max(arrived + ttl_of(ttl));
                self.set(session, deadline);
                Ok(())
            }
            None => {
                self.set(session, arrived + ttl_of(ttl));
                Ok(())
            }
        }
    }

    /// The sessions whose time has run out at `now`; they are expiring from here on. A gap of more
    /// than `gap_max` since the last call means that this process was paused: nobody could renew
    /// in it, so it is added to every deadline first.
    pub(crate) fn tick(&mut self, now: Duration, gap_max: Duration) -> Vec<SessionKey> {
        let gap = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        if gap > gap_max && self.leadership.is_some() {
            tracing::warn!(
                gap_ms = gap.as_millis(),
                "this process was paused: leases are extended"
            );
            self.extend(gap);
        }
        let mut expired = Vec::new();
        while let Some((deadline, session)) = self.due.first().copied()
            && deadline <= now
            && expired.len() < EXPIRE_MAX
        {
            self.due.pop_first();
            if let Some(lease) = self.leases.get_mut(&session) {
                lease.expiring = true;
            }
            expired.push(session);
        }
        expired
    }

    /// An expiry did not take effect: the session is due again at once.
    pub(crate) fn expire_failed(&mut self, leadership: Leadership, sessions: &[SessionKey]) {
        if self.leadership != Some(leadership) {
            return;
        }
        for session in sessions {
            if let Some(lease) = self.leases.get(session) {
                // It stays expiring: the proposal may still take effect.
                self.due.insert((lease.deadline, *session));
            }
        }
    }

    fn extend(&mut self, gap: Duration) {
        self.due.clear();
        for (session, lease) in &mut self.leases {
            lease.deadline += gap;
            if !lease.expiring {
                self.due.insert((lease.deadline, *session));
            }
        }
    }

    fn set(&mut self, session: SessionKey, deadline: Duration) {
        self.remove(session);
        self.leases.insert(
            session,
            Lease {
                deadline,
                expiring: false,
            },
        );
        self.due.insert((deadline, session));
    }

    fn remove(&mut self, session: SessionKey) {
        if let Some(lease) = self.leases.remove(&session) {
            self.due.remove(&(lease.deadline, session));
        }
    }
}

fn ttl_of(ttl: Ttl) -> Duration {
    Duration::from_millis(ttl.ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADERSHIP: Leadership = Leadership { term: 3, node: 1 };
    const SESSION: SessionKey = SessionKey {
        index: 7,
        offset: 0,
    };
    const GAP_MAX: Duration = Duration::from_millis(500);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn leases(at: u64) -> Leases {
        let mut leases = Leases::default();
        leases.begin(
            LEADERSHIP,
            ms(at),
            [(SESSION, Ttl::from_ms(1_000).unwrap())].into_iter(),
        );
        leases
    }

    /// Ticks often enough that no gap is seen.
    fn tick_until(leases: &mut Leases, from: u64, until: u64) -> Vec<SessionKey> {
        (from..=until)
            .step_by(100)
            .flat_map(|now| leases.tick(ms(now), GAP_MAX))
            .collect()
    }

    #[test]
    fn a_new_leader_gives_the_full_ttl_and_a_second_more() {
        let mut leases = leases(10_000);
        assert_eq!(tick_until(&mut leases, 10_000, 11_900), []);
        assert_eq!(tick_until(&mut leases, 12_000, 12_000), [SESSION]);
    }

    #[test]
    fn a_renewed_session_lives_its_ttl_from_the_arrival_and_an_expiring_one_is_not_renewed() {
        let ttl = Ttl::from_ms(1_000).unwrap();
        let mut leases = leases(10_000);
        leases.renew(LEADERSHIP, SESSION, ttl, ms(11_500)).unwrap();
        assert_eq!(tick_until(&mut leases, 10_100, 12_400), []);
        assert_eq!(tick_until(&mut leases, 12_500, 12_500), [SESSION]);
        assert_eq!(
            leases.renew(LEADERSHIP, SESSION, ttl, ms(12_500)),
            Err(RenewError::Expiring)
        );
    }

    #[test]
    fn a_late_keepalive_never_shortens_a_lease() {
        let ttl = Ttl::from_ms(1_000).unwrap();
        let mut leases = leases(10_000);
        leases.renew(LEADERSHIP, SESSION, ttl, ms(9_000)).unwrap();
        assert_eq!(tick_until(&mut leases, 10_100, 11_900), []);
    }

    #[test]
    fn an_open_that_is_sent_again_counts_the_ttl_anew() {
        let ttl = Ttl::from_ms(1_000).unwrap();
        let mut leases = leases(10_000);
        leases.note(SessionEvent::Reopened(SESSION, ttl), ms(11_500));
        assert_eq!(tick_until(&mut leases, 10_100, 12_400), []);
        assert_eq!(tick_until(&mut leases, 12_500, 12_500), [SESSION]);
        leases.note(SessionEvent::Reopened(SESSION, ttl), ms(12_500));
        assert_eq!(
            tick_until(&mut leases, 12_600, 14_000),
            [],
            "its expiry is under way"
        );
    }

    #[test]
    fn another_leadership_renews_nothing() {
        let ttl = Ttl::from_ms(1_000).unwrap();
        let later = Leadership { term: 4, node: 1 };
        let mut leases = leases(10_000);
        assert_eq!(
            leases.renew(later, SESSION, ttl, ms(10_000)),
            Err(RenewError::NotLeader)
        );
    }

    #[test]
    fn a_pause_of_the_leader_expires_nobody() {
        let mut leases = leases(10_000);
        assert_eq!(leases.tick(ms(70_000), GAP_MAX), []);
        assert_eq!(tick_until(&mut leases, 70_100, 71_900), []);
        assert_eq!(tick_until(&mut leases, 72_000, 72_000), [SESSION]);
    }

    #[test]
    fn an_expiry_that_failed_is_tried_again_and_an_ended_session_is_forgotten() {
        let mut leases = leases(10_000);
        assert_eq!(tick_until(&mut leases, 10_100, 12_000), [SESSION]);
        leases.expire_failed(LEADERSHIP, &[SESSION]);
        assert_eq!(leases.tick(ms(12_100), GAP_MAX), [SESSION]);
        leases.note(SessionEvent::Ended(SESSION), ms(12_200));
        leases.expire_failed(LEADERSHIP, &[SESSION]);
        assert_eq!(leases.tick(ms(12_300), GAP_MAX), []);
    }
}
