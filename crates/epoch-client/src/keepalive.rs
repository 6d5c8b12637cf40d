//! The keepalives of all sessions of a client: one background task, one stream to the leader.

mod keeper;
mod schedule;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use epoch_core::{Reason, SessionId};
use epoch_proto::v1::{KeepAliveRequest, KeepAliveResponse};
use tokio::sync::mpsc;
use tonic::Status;

use crate::boottime::Clock;
use crate::client::{Client, refusal_of};
use crate::lease::Pace;
use crate::options::Options;
use crate::pool::Pool;
use crate::retry::pauses;
use crate::session::{Loss, Shared};
use crate::{listing, refresh};
use keeper::Command;
use schedule::{Asked, Schedule, Stage};
use stream::{Event, Streams};

pub(crate) use keeper::{Keeper, KeeperSlot};

/// After a failure, keepalives under way at most on a stream whose node has not served one yet:
/// enough to learn whether it does, and little work for nodes without a leader.
const PROBES: usize = 16;
/// How soon a session is asked for again that was refused while others were served: its expiry is
/// under way, or its node has just lost the lead.
const ASK_AGAIN_MS: u64 = 100;
/// Answers and commands handled before the next keepalives go out.
const EVENTS_MAX: usize = 1_024;

/// The background task.
struct Hub {
    /// For its own calls, over the connections of its runtime: those of the caller's may stand still.
    client: Client,
    commands: mpsc::UnboundedReceiver<Command>,
    clock: Clock,
    attempt_ms: u64,
    sessions: BTreeMap<SessionId, Kept>,
    schedule: Schedule,
    streams: Streams,
    /// After a failure nothing is sent before.
    resume_ms: u64,
    /// Between failures, until there is an answer that serves.
    pauses: Option<ExponentialBackoff>,
}

/// A session that is kept alive.
struct Kept {
    shared: Arc<Shared>,
    pace: Pace,
    stage: Stage,
}

impl Hub {
    fn new(options: Options, pool: Arc<Pool>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self {
            commands,
            clock: options.clock.clone(),
            attempt_ms: u64::try_from(options.attempt_timeout.as_millis()).unwrap_or(u64::MAX),
            client: Client::over(Arc::clone(&pool), options),
            sessions: BTreeMap::new(),
            schedule: Schedule::default(),
            streams: Streams::new(pool),
            resume_ms: 0,
            pauses: None,
        }
    }

    /// Runs until nobody can open a session and none is left.
    async fn run(mut self) {
        let mut said = Vec::new();
        let mut answers = Vec::new();
        loop {
            let wake_ms = self.wake_ms();
            tokio::select! {
                biased;
                received = self.commands.recv_many(&mut said, EVENTS_MAX) => {
                    if received == 0 {
                        return;
                    }
                }
                _ = self.streams.events.recv_many(&mut answers, EVENTS_MAX) => {}
                () = self.clock.doze(wake_ms) => {}
            }
            let now_ms = self.clock.now_ms();
            for command in said.drain(..) {
                self.command(command);
            }
            for (stream, event) in answers.drain(..) {
                self.event(stream, event, now_ms);
            }
            self.work_due(now_ms);
            self.send_held(now_ms);
        }
    }

    /// When there is something to do next.
    fn wake_ms(&self) -> Option<u64> {
        let sending = self.schedule.has_held() && self.room() > 0;
        let resume_ms = sending.then_some(self.resume_ms);
        [self.schedule.next_ms(), resume_ms]
            .into_iter()
            .flatten()
            .min()
    }

    /// How many keepalives may go out now.
    fn room(&self) -> usize {
        match self.pauses {
            None => usize::MAX,
            Some(_) => self.streams.room(PROBES),
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Keep(shared) => self.keep(shared),
            Command::Forget(id) => self.remove(id),
            Command::Wake(id) => {
                let Some(kept) = self.sessions.get(&id) else {
                    return;
                };
                let stage = match kept.stage {
                    // Progress was made meanwhile.
                    Stage::Idle { stalled: true, .. } if !kept.shared.is_stalled() => Stage::Held,
                    Stage::Idle { .. } | Stage::Held | Stage::Asked(_) => kept.stage,
                };
                self.set_stage(id, stage);
            }
        }
    }

    fn keep(&mut self, shared: Arc<Shared>) {
        if shared.current_loss().is_some() {
            return;
        }
        let lease = shared.lease();
        let id = shared.id;
        let (draw, _) = id.open_id.0.as_u64_pair();
        let pace = Pace::new(lease.ttl_ms(), draw);
        let stage = Stage::due(pace.after(lease.sent_ms()));
        let kept = Kept {
            shared,
            pace,
            stage,
        };
        self.sessions.insert(id, kept);
        self.set_stage(id, stage);
    }

    fn remove(&mut self, id: SessionId) {
        if self.sessions.remove(&id).is_some() {
            self.streams.forget(id);
            self.schedule.remove(id);
        }
        if self.sessions.is_empty() {
            self.streams.close();
        }
    }

    fn set_stage(&mut self, id: SessionId, stage: Stage) {
        let Some(kept) = self.sessions.get_mut(&id) else {
            return;
        };
        kept.stage = stage;
        let lease = kept.shared.lease();
        let stage_ms = stage.ends_ms(lease, self.attempt_ms);
        let refresh_ms = kept.shared.registry().refresh_ms();
        let wake_ms = [stage_ms, refresh_ms]
            .into_iter()
            .flatten()
            .fold(lease.ends_ms(), u64::min);
        let held_ms = matches!(stage, Stage::Held).then_some(lease.ends_ms());
        self.schedule.set(id, wake_ms, held_ms);
    }

    fn event(&mut self, stream: u64, event: Event, now_ms: u64) {
        match event {
            Event::Answer(answer) => self.answer(stream, &answer, now_ms),
            Event::Ended(status) => {
                tracing::debug!(error = status.message(), "a stream of keepalives has ended");
                self.stream_failed(stream, &status, now_ms);
            }
        }
    }

    fn answer(&mut self, stream: u64, answer: &KeepAliveResponse, now_ms: u64) {
        let Ok(id) = answer.session_id.parse::<SessionId>() else {
            return;
        };
        let Some(kept) = self.sessions.get(&id) else {
            return;
        };
        let refusal = refusal_of(answer);
        let reason = refusal.as_ref().and_then(epoch_proto::reason_of);
        // Whichever request it answers: there is no way back from it.
        if reason == Some(Reason::SessionExpired) {
            kept.shared.lose(Loss::Expired);
            self.streams.served(stream, now_ms);
            self.remove(id);
            return;
        }
        let Some(asked) = self.streams.answered(stream, id) else {
            return;
        };
        if kept.stage != Stage::Asked(asked) {
            if refusal.is_none() {
                self.late_answer(id, asked, answer.grants_differ, now_ms);
            }
            return;
        }
        let next_ms = kept.pace.after(asked.sent_ms);
        let stage = match (&refusal, reason) {
            (None, _) => {
                kept.shared.acknowledged(asked.sent_ms);
                self.grants_compared(id, answer.grants_differ);
                Stage::due(next_ms)
            }
            (Some(_), Some(Reason::SessionStalled)) => {
                if kept.shared.stalled_at(asked.progress) {
                    Stage::due(now_ms + ASK_AGAIN_MS)
                } else {
                    Stage::Idle {
                        due_ms: next_ms,
                        stalled: true,
                    }
                }
            }
            (Some(status), _) => {
                tracing::debug!(error = status.message(), "a keepalive was refused");
                if self.streams.served_since(stream, asked.sent_ms) {
                    self.set_stage(id, Stage::due(now_ms + ASK_AGAIN_MS));
                } else {
                    self.stream_failed(stream, status, now_ms);
                }
                return;
            }
        };
        self.streams.served(stream, now_ms);
        self.pauses = None;
        self.set_stage(id, stage);
    }

    /// The answer to a request that was given up: it counts from that one's sending. One that has
    /// gone out since is awaited as before.
    fn late_answer(&mut self, id: SessionId, asked: Asked, grants_differ: bool, now_ms: u64) {
        let Some(kept) = self.sessions.get(&id) else {
            return;
        };
        kept.shared.renewed(asked.sent_ms);
        let stage = match kept.stage {
            Stage::Held => Stage::due(kept.pace.after(asked.sent_ms)),
            stage => stage,
        };
        self.grants_compared(id, grants_differ);
        self.streams.served(asked.stream, now_ms);
        self.pauses = None;
        // The lease ends later.
        self.set_stage(id, stage);
    }

    fn grants_compared(&self, id: SessionId, differ: bool) {
        let Some(kept) = self.sessions.get(&id) else {
            return;
        };
        let mut registry = kept.shared.registry();
        if !differ {
            registry.agree();
        } else if registry.differ() {
            drop(registry);
            tokio::spawn(listing::judge(
                self.client.clone(),
                Arc::clone(&kept.shared),
            ));
        }
    }

    /// A stream has ended, or its node does not serve: another node is asked for its sessions, after
    /// a pause.
    fn stream_failed(&mut self, stream: u64, status: &Status, now_ms: u64) {
        if self.streams.failed(stream, status) {
            self.pause(now_ms);
        }
        self.hold_all_of(stream);
    }

    fn pause(&mut self, now_ms: u64) {
        let pause = self.pauses.get_or_insert_with(pauses).next();
        let pause = pause.unwrap_or(Duration::ZERO).as_millis();
        self.resume_ms = now_ms + u64::try_from(pause).unwrap_or(u64::MAX);
    }

    /// The requests on a stream are given up: they are asked anew on another one.
    fn hold_all_of(&mut self, stream: u64) {
        let on_it =
            |kept: &Kept| matches!(kept.stage, Stage::Asked(asked) if asked.stream == stream);
        let given_up: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, kept)| on_it(kept))
            .map(|(id, _)| *id)
            .collect();
        for id in given_up {
            self.set_stage(id, Stage::Held);
        }
    }

    /// What the clock says: keepalives that are due, answers that are overdue, leases that have
    /// lapsed, certificates to refresh.
    fn work_due(&mut self, now_ms: u64) {
        for id in self.schedule.take_due(now_ms) {
            let Some(kept) = self.sessions.get(&id) else {
                continue;
            };
            if kept.shared.current_loss().is_some() {
                self.remove(id);
                continue;
            }
            let due = kept.shared.registry().take_refreshes(now_ms);
            if !due.is_empty() {
                let refreshing =
                    refresh::refresh(self.client.clone(), Arc::clone(&kept.shared), due);
                tokio::spawn(refreshing);
            }
            let ends_ms = kept.stage.ends_ms(kept.shared.lease(), self.attempt_ms);
            let over = ends_ms.is_some_and(|ms| ms <= now_ms);
            let stage = if over { Stage::Held } else { kept.stage };
            if let (true, Stage::Asked(asked)) = (over, kept.stage) {
                self.overdue(asked.stream, asked.sent_ms, now_ms);
            }
            self.set_stage(id, stage);
        }
    }

    /// An answer did not arrive in time. It is asked for on a new stream, so that it cannot be
    /// mistaken for the next one's; of the next node, unless this one serves others. Should it come
    /// after all, it still counts.
    fn overdue(&mut self, stream: u64, sent_ms: u64, now_ms: u64) {
        if !self.streams.served_since(stream, sent_ms) {
            if self.streams.unanswered(stream) {
                self.pause(now_ms);
            }
            self.hold_all_of(stream);
        }
        self.leave(stream);
    }

    fn leave(&mut self, stream: u64) {
        if let Some(dropped) = self.streams.leave(stream) {
            self.hold_all_of(dropped);
        }
    }

    /// Sends what may be sent of that which is due, the most urgent first.
    fn send_held(&mut self, now_ms: u64) {
        if !self.schedule.has_held() || now_ms < self.resume_ms {
            return;
        }
        if let Some(old) = self.streams.outdated(now_ms) {
            self.leave(old);
        }
        let stream = self.streams.current(now_ms);
        for id in self.schedule.take_held(self.room()) {
            let Some(kept) = self.sessions.get(&id) else {
                continue;
            };
            if kept.shared.current_loss().is_some() {
                self.remove(id);
                continue;
            }
            let asked = stream.asked(now_ms, kept.shared.progress_mark());
            let request = KeepAliveRequest {
                session_id: id.to_string(),
                grants: Some(kept.shared.registry().digest_to_send().to_string()),
                progress: asked.progress,
            };
            self.streams.send(id, asked, request);
            self.set_stage(id, Stage::Asked(asked));
        }
    }
}

/// Without the task, nobody keeps its sessions alive, and nobody would tell of their end: should it
/// end before them, they are lost at once.
impl Drop for Hub {
    fn drop(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Keep(shared) = command {
                shared.lose(Loss::Lapsed);
            }
        }
        for kept in self.sessions.values() {
            kept.shared.lose(Loss::Lapsed);
        }
    }
}
