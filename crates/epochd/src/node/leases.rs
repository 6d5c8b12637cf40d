//! The leader's leases: when each session runs out, by `CLOCK_BOOTTIME`. Held in memory by the
//! leader alone; a new leader gives every session its full TTL anew.

use std::collections::BTreeMap;
use std::time::Duration;

use epoch_machine::{Event, Leadership, SessionKey, Ttl};

use super::deadlines::Deadlines;

/// On top of the full TTL that a new leader gives.
pub(crate) const NEW_LEADER_GRACE: Duration = Duration::from_secs(1);

/// Why a keepalive is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewError {
    /// These are not the leases of that leadership.
    NotLeader,
    /// The session's expiry is under way.
    Expiring,
    /// Its progress mark has not moved within its stall limit.
    Stalled,
}

/// A keepalive, as far as leases go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    pub(crate) ttl: Ttl,
    /// The session's stall limit.
    pub(crate) stall_limit: Option<Ttl>,
    /// The mark that the keepalive carries.
    pub(crate) progress: Option<u64>,
    /// When the keepalive arrived.
    pub(crate) arrived: Duration,
}

/// The last movement of a session's progress mark.
#[derive(Debug, Clone, Copy)]
struct Progress {
    mark: Option<u64>,
    moved: Duration,
}

/// Leases under one leadership.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    leadership: Option<Leadership>,
    deadlines: Deadlines<SessionKey>,
    /// Of sessions with a stall limit that were renewed under this leadership.
    progress: BTreeMap<SessionKey, Progress>,
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
        self.deadlines.begin(now);
        for (session, ttl) in sessions {
            let deadline = now + ttl_of(ttl) + NEW_LEADER_GRACE;
            self.deadlines.set(session, deadline);
        }
    }

    /// Ends the leadership.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// How long a session lives on from `now`.
    pub(crate) fn left(&self, session: SessionKey, now: Duration) -> Option<Duration> {
        let (deadline, _) = self.deadlines.get(&session)?;
        Some(deadline.saturating_sub(now))
    }

    /// Takes note of what the log says.
    pub(crate) fn note(&mut self, event: &Event, now: Duration) {
        if self.leadership.is_none() {
            return;
        }
        match event {
            Event::SessionOpened {
                session, ttl, new, ..
            } => {
                // It may have been there when the leadership began, or have been renewed already.
                // Who sends the same Open again renews the session as a keepalive does.
                if *new && self.deadlines.get(session).is_none() {
                    self.deadlines.set(*session, now + ttl_of(*ttl));
                }
            }
            Event::SessionEnded { session, .. } => {
                self.deadlines.remove(session);
                self.progress.remove(session);
            }
            Event::Grant(_)
            | Event::WaitBegun { .. }
            | Event::WaitEnded { .. }
            | Event::DelayBegun { .. }
            | Event::DelayEnded { .. } => {}
        }
    }

    /// An expiry has taken effect, or there was nothing to expire.
    pub(crate) fn ended(&mut self, session: SessionKey) {
        self.deadlines.ended(&session);
        self.progress.remove(&session);
    }

    /// Renews a lease: the keepalive has arrived, and a quorum has confirmed the leadership since.
    pub(crate) fn renew(
        &mut self,
        leadership: Leadership,
        session: SessionKey,
        renewal: Renewal,
    ) -> Result<(), RenewError> {
        if self.leadership != Some(leadership) {
            return Err(RenewError::NotLeader);
        }
        let old = match self.deadlines.get(&session) {
            Some((_, true)) => return Err(RenewError::Expiring),
            Some((old, false)) => old,
            None => Duration::ZERO,
        };
        if self.is_stalled(session, renewal) {
            return Err(RenewError::Stalled);
        }
        let deadline = old.max(renewal.arrived + ttl_of(renewal.ttl));
        self.deadlines.set(session, deadline);
        Ok(())
    }

    fn is_stalled(&mut self, session: SessionKey, renewal: Renewal) -> bool {
        let Some(limit) = renewal.stall_limit else {
            return false;
        };
        let begun = Progress {
            mark: renewal.progress,
            moved: renewal.arrived,
        };
        let progress = self.progress.entry(session).or_insert(begun);
        // A keepalive without a mark tells of no progress.
        if renewal.progress.is_some() && progress.mark != renewal.progress {
            *progress = begun;
        }
        renewal.arrived.saturating_sub(progress.moved) > ttl_of(limit)
    }

    /// The sessions whose time has run out at `now`; they are expiring from here on. A pause of
    /// this process is added to every deadline first.
    pub(crate) fn tick(&mut self, now: Duration, gap_max: Duration) -> Vec<SessionKey> {
        if self.leadership.is_none() {
            return Vec::new();
        }
        let (due, paused) = self.deadlines.tick(now, gap_max);
        if let Some(gap) = paused {
            tracing::warn!(
                gap_ms = gap.as_millis(),
                "this process was paused: leases are extended"
            );
            for progress in self.progress.values_mut() {
                progress.moved += gap;
            }
        }
        due
    }

    /// An expiry did not take effect: the session is due again at once.
    pub(crate) fn expire_failed(&mut self, leadership: Leadership, sessions: &[SessionKey]) {
        if self.leadership == Some(leadership) {
            self.deadlines.failed(sessions);
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

    fn at(arrived: u64) -> Renewal {
        Renewal {
            ttl: Ttl::from_ms(1_000).unwrap(),
            stall_limit: None,
            progress: None,
            arrived: ms(arrived),
        }
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
        let mut leases = leases(10_000);
        leases.renew(LEADERSHIP, SESSION, at(11_500)).unwrap();
        assert_eq!(tick_until(&mut leases, 10_100, 12_400), []);
        assert_eq!(tick_until(&mut leases, 12_500, 12_500), [SESSION]);
        assert_eq!(
            leases.renew(LEADERSHIP, SESSION, at(12_500)),
            Err(RenewError::Expiring)
        );
    }

    #[test]
    fn a_late_keepalive_never_shortens_a_lease() {
        let mut leases = leases(10_000);
        leases.renew(LEADERSHIP, SESSION, at(9_000)).unwrap();
        assert_eq!(tick_until(&mut leases, 10_100, 11_900), []);
    }

    #[test]
    fn what_the_log_says_of_an_open_begins_a_lease_and_renews_none() {
        let opened = |new| Event::SessionOpened {
            session: SESSION,
            ttl: Ttl::from_ms(1_000).unwrap(),
            new,
        };
        let mut leases = Leases::default();
        leases.begin(LEADERSHIP, ms(10_000), std::iter::empty());
        leases.note(&opened(true), ms(10_000));
        leases.note(&opened(false), ms(10_500));
        assert_eq!(tick_until(&mut leases, 10_100, 10_900), []);
        assert_eq!(tick_until(&mut leases, 11_000, 11_000), [SESSION]);
    }

    #[test]
    fn another_leadership_renews_nothing() {
        let later = Leadership { term: 4, node: 1 };
        let mut leases = leases(10_000);
        assert_eq!(
            leases.renew(later, SESSION, at(10_000)),
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
        leases.ended(SESSION);
        leases.expire_failed(LEADERSHIP, &[SESSION]);
        assert_eq!(leases.tick(ms(12_300), GAP_MAX), []);
    }

    #[test]
    fn a_mark_that_does_not_move_is_renewed_for_the_stall_limit_only() {
        let marked = |arrived, progress| Renewal {
            stall_limit: Some(Ttl::from_ms(2_000).unwrap()),
            progress,
            ..at(arrived)
        };
        let mut leases = leases(10_000);
        let mut renew = |renewal| leases.renew(LEADERSHIP, SESSION, renewal);
        assert_eq!(renew(marked(10_000, None)), Ok(()));
        assert_eq!(renew(marked(11_000, Some(1))), Ok(()));
        assert_eq!(renew(marked(13_000, Some(1))), Ok(()));
        assert_eq!(renew(marked(13_100, Some(1))), Err(RenewError::Stalled));
        assert_eq!(renew(marked(13_200, Some(2))), Ok(()));
        assert_eq!(renew(marked(15_300, Some(2))), Err(RenewError::Stalled));
        // Nor does one without a mark, or the mark of before after one.
        assert_eq!(renew(marked(15_400, None)), Err(RenewError::Stalled));
        assert_eq!(renew(marked(15_500, Some(2))), Err(RenewError::Stalled));
        // The last renewal counts: 13.2 s and its TTL.
        assert_eq!(tick_until(&mut leases, 10_100, 14_100), []);
        assert_eq!(tick_until(&mut leases, 14_200, 14_200), [SESSION]);
    }

    #[test]
    fn a_pause_of_the_leader_stalls_nobody() {
        let marked = |arrived| Renewal {
            stall_limit: Some(Ttl::from_ms(2_000).unwrap()),
            progress: Some(1),
            ..at(arrived)
        };
        let mut leases = leases(10_000);
        leases.renew(LEADERSHIP, SESSION, marked(10_000)).unwrap();
        assert_eq!(leases.tick(ms(70_000), GAP_MAX), []);
        leases.renew(LEADERSHIP, SESSION, marked(71_000)).unwrap();
    }
}
