//! The leader's side of waits: until when each lasts, and who stands behind it. Held in memory by
//! the leader alone; the queues themselves are replicated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use epoch_core::RequestId;
use epoch_machine::{Event, SessionKey, Wait, WaitEnd};
use tokio::sync::Notify;

use super::Node;
use super::deadlines::Deadlines;
use crate::clock;

/// How long a wait, or a grant that came of it, is kept for a caller that was cut off.
pub(crate) const REATTACH_WITHIN: Duration = Duration::from_secs(10);

/// A wait: its session and its request id.
pub(crate) type WaitId = (SessionKey, RequestId);

/// Calls that stand behind one wait.
#[derive(Debug, Default)]
struct Callers {
    count: usize,
    wake: Arc<Notify>,
}

/// Waits under one leadership.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    leads: bool,
    /// What happened up to this log index is in what the leadership began with.
    begun_at: u64,
    /// Until when each wait lasts.
    deadlines: Deadlines<WaitId>,
    /// Until when somebody has to stand behind a wait, or behind the grant that came of it.
    deserted: Deadlines<WaitId>,
    callers: BTreeMap<WaitId, Callers>,
}

impl Queues {
    /// Begins a leadership at `now` with the waits of log index `index`. Every wait lasts anew; its
    /// caller has to come to this node.
    pub(crate) fn begin(
        &mut self,
        index: u64,
        now: Duration,
        waits: impl Iterator<Item = (SessionKey, RequestId, Wait)>,
    ) {
        self.end();
        self.leads = true;
        self.begun_at = index;
        self.deadlines.begin(now);
        self.deserted.begin(now);
        for (session, request_id, wait) in waits {
            self.begun((session, request_id), wait, now);
        }
    }

    /// Ends the leadership. Whoever stands behind a wait is to look for another leader.
    pub(crate) fn end(&mut self) {
        for callers in self.callers.values() {
            callers.wake.notify_waiters();
        }
        *self = Self::default();
    }

    fn begun(&mut self, id: WaitId, wait: Wait, now: Duration) {
        self.deadlines
            .set(id, now + Duration::from_millis(wait.ms()));
        if !self.callers.contains_key(&id) {
            self.deserted.set(id, now + REATTACH_WITHIN);
        }
    }

    /// Takes note of what the log says at `index`.
    pub(crate) fn note(&mut self, index: u64, event: &Event, now: Duration) {
        if !self.leads || index <= self.begun_at {
            return;
        }
        match event {
            Event::WaitBegun {
                session,
                request_id,
                wait,
                ..
            } => {
                let id = (*session, *request_id);
                // Its caller may have come before, and set it.
                if self.deadlines.get(&id).is_none() {
                    self.begun(id, *wait, now);
                }
            }
            Event::WaitEnded {
                session,
                request_id,
                end,
                ..
            } => {
                let id = (*session, *request_id);
                self.deadlines.remove(&id);
                if *end != WaitEnd::Granted {
                    self.deserted.remove(&id);
                } else if self.deserted.get(&id).is_some() {
                    // Whoever it was granted to has the whole time to hear of it.
                    self.deserted.set(id, now + REATTACH_WITHIN);
                }
                if let Some(callers) = self.callers.get(&id) {
                    callers.wake.notify_waiters();
                }
            }
            Event::SessionOpened { .. }
            | Event::SessionEnded { .. }
            | Event::Grant(_)
            | Event::DelayBegun { .. }
            | Event::DelayEnded { .. } => {}
        }
    }

    /// A call comes to stand behind a wait, which lasts for `wait` from `now`.
    fn attach(&mut self, id: WaitId, wait: Wait, now: Duration) -> Arc<Notify> {
        self.deserted.remove(&id);
        self.deadlines
            .set(id, now + Duration::from_millis(wait.ms()));
        let callers = self.callers.entry(id).or_default();
        callers.count += 1;
        Arc::clone(&callers.wake)
    }

    /// A call stands behind it no longer; `heard` when it has an answer to give.
    fn detach(&mut self, id: WaitId, heard: bool, now: Duration) {
        let Some(callers) = self.callers.get_mut(&id) else {
            return;
        };
        callers.count = callers.count.saturating_sub(1);
        if callers.count == 0 {
            self.callers.remove(&id);
            if !heard {
                self.deserted.set(id, now + REATTACH_WITHIN);
            }
        }
    }

    /// The grant of this request id is known to its session. False when it is too late: it is being
    /// given back.
    pub(crate) fn claimed(&mut self, id: &WaitId) -> bool {
        let ending = self.deserted.get(id).is_some_and(|(_, ending)| ending);
        if !ending {
            self.deserted.remove(id);
        }
        !ending
    }

    /// All grants of a session are known to it.
    pub(crate) fn all_claimed(&mut self, session: SessionKey) {
        let first = (session, RequestId::FIRST);
        let own = self.deserted.from(&first);
        let own = own.take_while(|(other, _)| *other == session);
        // One that still waits has not been granted.
        let granted = own.filter(|id| self.deadlines.get(id).is_none()).copied();
        for id in granted.collect::<Vec<_>>() {
            self.claimed(&id);
        }
    }

    /// Waits whose time is over, and those whose callers are gone.
    pub(crate) fn tick(&mut self, now: Duration, gap_max: Duration) -> (Vec<WaitId>, Vec<WaitId>) {
        let (over, _) = self.deadlines.tick(now, gap_max);
        let (gone, _) = self.deserted.tick(now, gap_max);
        (over, gone)
    }

    /// The ends of these waits have taken effect.
    pub(crate) fn ended(&mut self, waits: &[WaitId]) {
        waits.iter().for_each(|id| self.deadlines.ended(id));
    }

    /// They have not.
    pub(crate) fn end_failed(&mut self, waits: &[WaitId]) {
        self.deadlines.failed(waits);
    }

    /// What nobody stood behind has ended.
    pub(crate) fn left(&mut self, waits: &[WaitId]) {
        waits.iter().for_each(|id| self.deserted.ended(id));
    }

    /// It has not.
    pub(crate) fn leave_failed(&mut self, waits: &[WaitId]) {
        self.deserted.failed(waits);
    }
}

/// A call that stands behind a wait.
#[derive(Debug)]
pub(crate) struct Attached<'a> {
    node: &'a Node,
    id: WaitId,
    wake: Arc<Notify>,
    heard: bool,
}

impl<'a> Attached<'a> {
    pub(crate) fn new(node: &'a Node, id: WaitId, wait: Wait) -> Self {
        let wake = node.queues().attach(id, wait, clock::boot());
        Self {
            node,
            id,
            wake,
            heard: false,
        }
    }

    /// To be asked for before one looks whether the wait is over, and awaited after.
    pub(crate) fn woken(&self) -> tokio::sync::futures::OwnedNotified {
        Arc::clone(&self.wake).notified_owned()
    }

    /// The caller is told how the wait has ended.
    pub(crate) fn heard(mut self) {
        self.heard = true;
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.node
            .queues()
            .detach(self.id, self.heard, clock::boot());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP_MAX: Duration = Duration::from_secs(3_600);
    const ID: WaitId = (
        SessionKey {
            index: 7,
            offset: 0,
        },
        RequestId::FIRST,
    );

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn minute() -> Wait {
        Wait::from_ms(60_000).unwrap()
    }

    fn begun() -> Event {
        Event::WaitBegun {
            scope: "a".into(),
            session: ID.0,
            request_id: ID.1,
            wait: minute(),
        }
    }

    fn ended(end: WaitEnd) -> Event {
        Event::WaitEnded {
            scope: "a".into(),
            session: ID.0,
            request_id: ID.1,
            end,
        }
    }

    fn queues() -> Queues {
        let mut queues = Queues::default();
        queues.begin(3, s(100), std::iter::empty());
        queues
    }

    #[test]
    fn a_wait_lasts_from_its_last_call_on() {
        let mut queues = queues();
        let _wake = queues.attach(ID, minute(), s(100));
        queues.note(4, &begun(), s(101));
        let _wake = queues.attach(ID, minute(), s(130));
        assert_eq!(queues.tick(s(189), GAP_MAX), (vec![], vec![]));
        assert_eq!(queues.tick(s(190), GAP_MAX), (vec![ID], vec![]));
    }

    #[test]
    fn a_wait_whose_calls_are_all_cut_off_is_left_after_ten_seconds() {
        let mut queues = queues();
        let _wake = queues.attach(ID, minute(), s(100));
        let _wake = queues.attach(ID, minute(), s(101));
        queues.detach(ID, false, s(102));
        assert_eq!(queues.tick(s(115), GAP_MAX), (vec![], vec![]));
        queues.detach(ID, false, s(116));
        assert_eq!(queues.tick(s(125), GAP_MAX), (vec![], vec![]));
        assert_eq!(queues.tick(s(126), GAP_MAX), (vec![], vec![ID]));
    }

    #[test]
    fn a_call_that_comes_back_in_time_keeps_the_wait() {
        let mut queues = queues();
        let _wake = queues.attach(ID, minute(), s(100));
        queues.detach(ID, false, s(102));
        let _wake = queues.attach(ID, minute(), s(111));
        assert_eq!(queues.tick(s(140), GAP_MAX), (vec![], vec![]));
    }

    #[test]
    fn a_grant_that_no_call_has_heard_of_is_left_and_one_that_was_claimed_is_not() {
        for claimed in [false, true] {
            let mut queues = queues();
            let _wake = queues.attach(ID, minute(), s(100));
            queues.detach(ID, false, s(102));
            queues.note(4, &ended(WaitEnd::Granted), s(108));
            if claimed {
                assert!(queues.claimed(&ID));
            }
            let left = if claimed { vec![] } else { vec![ID] };
            assert_eq!(queues.tick(s(117), GAP_MAX), (vec![], vec![]));
            assert_eq!(queues.tick(s(118), GAP_MAX), (vec![], left));
            assert_eq!(queues.claimed(&ID), claimed, "it is being given back");
        }
        let mut queues = queues();
        let _wake = queues.attach(ID, minute(), s(100));
        queues.note(4, &ended(WaitEnd::Granted), s(103));
        queues.detach(ID, true, s(103));
        assert_eq!(queues.tick(s(150), GAP_MAX), (vec![], vec![]));
    }

    #[test]
    fn a_session_that_knows_its_grants_keeps_those_and_waits_for_the_others_go_on() {
        let waiting = (ID.0, RequestId::new(2).unwrap());
        let other = (SessionKey { index: 8, ..ID.0 }, RequestId::FIRST);
        let mut queues = queues();
        for id in [ID, waiting, other] {
            let _wake = queues.attach(id, minute(), s(100));
            queues.detach(id, false, s(100));
        }
        queues.note(4, &ended(WaitEnd::Granted), s(101));
        queues.all_claimed(ID.0);
        assert_eq!(queues.tick(s(150), GAP_MAX), (vec![], vec![waiting, other]));
    }

    #[test]
    fn a_wait_that_is_granted_while_it_is_being_left_is_asked_about_anew() {
        let mut queues = queues();
        let _wake = queues.attach(ID, minute(), s(100));
        queues.detach(ID, false, s(100));
        assert_eq!(queues.tick(s(110), GAP_MAX), (vec![], vec![ID]));
        queues.note(4, &ended(WaitEnd::Granted), s(110));
        queues.left(&[ID]);
        assert_eq!(queues.tick(s(120), GAP_MAX), (vec![], vec![ID]));
    }

    #[test]
    fn what_happened_before_the_leadership_is_not_noted() {
        let mut queues = queues();
        queues.note(3, &begun(), s(101));
        queues.note(3, &ended(WaitEnd::Granted), s(101));
        assert_eq!(queues.tick(s(200), GAP_MAX), (vec![], vec![]));
    }

    #[test]
    fn a_wait_that_has_ended_without_a_grant_is_forgotten() {
        let mut queues = queues();
        let _wake = queues.attach(ID, minute(), s(100));
        queues.detach(ID, false, s(102));
        queues.note(4, &ended(WaitEnd::Cancelled), s(103));
        assert_eq!(queues.tick(s(159), GAP_MAX), (vec![], vec![]));
        assert_eq!(queues.tick(s(200), GAP_MAX), (vec![], vec![]));
    }

    #[test]
    fn a_new_leader_gives_waits_their_whole_time_and_callers_ten_seconds_to_come() {
        let mut queues = queues();
        queues.begin(3, s(200), [(ID.0, ID.1, minute())].into_iter());
        assert_eq!(queues.tick(s(209), GAP_MAX), (vec![], vec![]));
        assert_eq!(queues.tick(s(210), GAP_MAX), (vec![], vec![ID]));
        queues.leave_failed(&[ID]);
        assert_eq!(queues.tick(s(211), GAP_MAX), (vec![], vec![ID]));
        assert_eq!(queues.tick(s(260), GAP_MAX), (vec![ID], vec![]));
    }

    #[tokio::test]
    async fn those_who_wait_are_woken_when_the_leadership_ends() {
        let mut queues = queues();
        let woken = queues.attach(ID, minute(), s(100)).notified_owned();
        queues.end();
        woken.await;
    }
}
