//! Random histories of one peer, as one node's memory hears them: what a peer has never lost
//! never condemns it, and what it has lost always does.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// A third node, that this node's memory hears nothing of.
const OTHER: NodeId = 3;
const STEPS: usize = 120;

/// A bug put in, to see that the check finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    None,
    /// A granted vote is remembered with the log id that came along.
    LogWithVote,
    /// Introductions count whenever they were made.
    LateIntroductions,
    /// Messages count whichever process they are of.
    AnyProcess,
    /// Acknowledgements are counted without being remembered.
    Forgetful,
}

#[derive(Debug, Clone, Default)]
struct Disk {
    vote: Option<LeaderId>,
    log: Vec<LogId>,
}

impl Disk {
    fn position(&self) -> Position {
        Position {
            vote: self.vote,
            last: self.log.last().copied(),
        }
    }

    fn keeps(&self, said: &Position) -> bool {
        said.vote < self.vote
            || said.vote == self.vote && said.last.is_none_or(|last| self.log.contains(&last))
    }

    /// Whether it lacks something that consensus relies on: a vote, or an entry acknowledged in
    /// the leadership that made it.
    fn breaks(&self, said: &Position) -> bool {
        let own_entry = said.last.filter(|last| Some(last.leader_id) == said.vote);
        said.vote > self.vote
            || said.vote == self.vote && own_entry.is_some_and(|last| !self.log.contains(&last))
    }
}

#[derive(Debug, Clone)]
struct Append {
    number: u64,
    vote: LeaderId,
    prev: Option<LogId>,
    entries: Vec<LogId>,
}

impl Append {
    fn last(&self) -> Option<LogId> {
        self.entries.last().copied().or(self.prev)
    }
}

#[derive(Debug, Clone)]
enum ToPeer {
    Introduction(ProcessId, Introduced),
    VoteRequest(LeaderId),
    Append(Append),
}

#[derive(Debug, Clone)]
enum ToMemory {
    Introduction(Introduced),
    /// A vote asked for or granted; and the log, which must not count.
    Voted(LeaderId, Option<LogId>),
    SentAsLeader(LeaderId, Option<LogId>),
    Acknowledged(Append),
    Conflict(Append),
}

#[derive(Debug, Default)]
struct Coverage {
    condemned: u64,
    spared: u64,
    conflicts: u64,
    restarts: u64,
}

struct World {
    random: StdRng,
    plant: Plant,
    memory: Memory,
    /// The memory's file, as last written, and how much of `facts` is in it.
    written: (String, usize),
    peer: Memory,
    disk: Disk,
    copies: Vec<Disk>,
    /// The logs of all that have led.
    leaders: BTreeMap<LeaderId, Vec<LogId>>,
    peer_leads: Option<LeaderId>,
    memory_leads: Option<LeaderId>,
    /// The append whose answer this node still waits for.
    awaited: Option<u64>,
    appends: u64,
    to_peer: Vec<ToPeer>,
    to_memory: Vec<(ProcessId, ToMemory)>,
    /// What the memory has counted.
    facts: Vec<Position>,
    coverage: Coverage,
}

impl World {
    fn new(seed: u64, plant: Plant) -> Self {
        let memory = begun(ME, Position::default());
        let file = serde_json::to_string(&memory.lock().file).unwrap();
        Self {
            random: StdRng::seed_from_u64(seed),
            plant,
            memory,
            written: (file, 0),
            peer: begun(PEER, Position::default()),
            disk: Disk::default(),
            copies: vec![Disk::default()],
            leaders: BTreeMap::from([(vote(0, 0), vec![log_id(0, 0, 0)])]),
            peer_leads: None,
            memory_leads: None,
            awaited: None,
            appends: 0,
            to_peer: Vec::new(),
            to_memory: Vec::new(),
            facts: Vec::new(),
            coverage: Coverage::default(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound.max(1))
    }

    fn tell(&mut self, message: ToMemory) {
        self.to_memory.push((self.peer.process(), message));
    }

    fn step(&mut self) {
        match self.below(100) {
            0..8 => self.tell(ToMemory::Introduction(self.peer.introduce(ME))),
            8..16 => {
                let said = self.memory.introduce(PEER);
                let message = ToPeer::Introduction(self.memory.process(), said);
                self.to_peer.push(message);
            }
            16..21 => self.campaign(),
            21..30 => self.extend(),
            30..44 => self.append(),
            44..48 => self.copies.push(self.disk.clone()),
            48..52 => self.restart_peer(),
            52..54 => self.restart_memory(),
            54..58 => {
                let file = serde_json::to_string(&self.memory.lock().file).unwrap();
                self.written = (file, self.facts.len());
            }
            58..60 => {
                let at = self.below(self.to_memory.len());
                (at < self.to_memory.len()).then(|| self.to_memory.remove(at));
            }
            60..80 => self.deliver_to_peer(),
            _ => self.deliver_to_memory(),
        }
    }

    /// Someone asks for the peer's vote; the peer itself may be it.
    fn campaign(&mut self) {
        let highest = self.leaders.keys().next_back().copied().unwrap_or_default();
        let term = highest.term.max(self.disk.vote.unwrap_or_default().term) + 1;
        let candidate = [ME, PEER, OTHER][self.below(3)];
        let asked = vote(term, candidate);
        // Its log is the beginning of some leader's.
        let logs: Vec<_> = self.leaders.values().cloned().collect();
        let mut log = logs[self.below(logs.len())].clone();
        log.truncate(1 + self.below(log.len()));
        match candidate {
            ME => {
                self.memory_leads = Some(asked);
                self.to_peer.push(ToPeer::VoteRequest(asked));
            }
            PEER => {
                self.disk.vote = Some(asked);
                self.peer_leads = None;
                self.tell(ToMemory::Voted(asked, self.disk.position().last));
                if self.below(2) == 0 {
                    return;
                }
                self.peer_leads = Some(asked);
                log = self.disk.log.clone();
            }
            _ => {
                if self.below(2) == 0 {
                    self.disk.vote = Some(asked);
                    self.peer_leads = None;
                }
            }
        }
        log.push(LogId::new(asked, log.len() as u64));
        if candidate == PEER {
            self.disk.log = log.clone();
        }
        self.leaders.insert(asked, log);
    }

    fn extend(&mut self) {
        let leaders: Vec<_> = self.leaders.keys().copied().collect();
        let leader = leaders[self.below(leaders.len())];
        let led_by_peer = self.peer_leads == Some(leader);
        if leader.node_id == PEER && !led_by_peer {
            return;
        }
        let log = self.leaders.get_mut(&leader).unwrap();
        log.push(LogId::new(leader, log.len() as u64));
        if led_by_peer {
            self.disk.log = log.clone();
        }
    }

    /// One of the three sends an append: this node and the third to the peer, the peer to this
    /// node.
    fn append(&mut self) {
        let sender = [ME, ME, PEER, OTHER][self.below(4)];
        let others = self.leaders.keys().rev();
        let vote = match sender {
            ME => self.memory_leads,
            PEER => self.peer_leads,
            _ => others.copied().find(|leader| leader.node_id == OTHER),
        };
        let Some(vote) = vote else { return };
        let log = self.leaders[&vote].clone();
        let begin = log.len().saturating_sub(self.below(5));
        let end = begin + self.below(log.len() - begin + 1);
        self.appends += 1;
        let append = Append {
            number: self.appends,
            vote,
            prev: begin.checked_sub(1).map(|prev| log[prev]),
            entries: log[begin..end].to_vec(),
        };
        match sender {
            ME => {
                self.awaited = Some(append.number);
                self.to_peer.push(ToPeer::Append(append));
            }
            PEER => self.tell(ToMemory::SentAsLeader(vote, append.last())),
            _ => {
                self.follow(&append);
            }
        }
    }

    /// The peer takes an append: whether its log fits, if its vote lets it.
    fn follow(&mut self, append: &Append) -> Option<bool> {
        if Some(append.vote) < self.disk.vote {
            return None;
        }
        if self.disk.vote != Some(append.vote) {
            self.peer_leads = None;
            self.disk.vote = Some(append.vote);
        }
        let log = &mut self.disk.log;
        if let Some(prev) = append.prev {
            let at = usize::try_from(prev.index).unwrap();
            if log.get(at) != Some(&prev) {
                log.truncate(at);
                return Some(false);
            }
        }
        for entry in &append.entries {
            let at = usize::try_from(entry.index).unwrap();
            if log.get(at) != Some(entry) {
                log.truncate(at);
                log.push(*entry);
            }
        }
        Some(true)
    }

    fn restart_peer(&mut self) {
        self.peer = begun(PEER, self.disk.position());
        self.peer_leads = None;
        self.coverage.restarts += 1;
    }

    fn restart_memory(&mut self) {
        let file = parse(Path::new(PEERS_FILE), &self.written.0).unwrap();
        self.memory = begun(ME, Position::default());
        self.memory.lock().file = file;
        self.facts.truncate(self.written.1);
        self.memory_leads = None;
        self.awaited = None;
    }

    fn deliver_to_peer(&mut self) {
        if self.to_peer.is_empty() {
            return;
        }
        let at = self.below(self.to_peer.len());
        match self.to_peer.swap_remove(at) {
            ToPeer::Introduction(process, said) => self.peer.meet(ME, process, said),
            ToPeer::VoteRequest(asked) => {
                if Some(asked) > self.disk.vote {
                    self.peer_leads = None;
                    self.disk.vote = Some(asked);
                    self.tell(ToMemory::Voted(asked, self.disk.position().last));
                }
            }
            ToPeer::Append(append) => match self.follow(&append) {
                Some(true) => self.tell(ToMemory::Acknowledged(append)),
                Some(false) => self.tell(ToMemory::Conflict(append)),
                None => {}
            },
        }
    }

    fn deliver_to_memory(&mut self) {
        if self.below(4) == 0 {
            self.memory.hears_nothing_of(PEER);
        }
        if self.to_memory.is_empty() {
            return;
        }
        let at = self.below(self.to_memory.len());
        let (mut process, message) = self.to_memory.swap_remove(at);
        let known = self.memory.lock().file.peers.get(&PEER).cloned();
        if self.plant == Plant::AnyProcess {
            process = known.and_then(|known| known.process).unwrap_or(process);
        }
        match message {
            ToMemory::Introduction(mut said) => {
                if self.plant == Plant::LateIntroductions {
                    said.heard = Some((self.memory.process(), self.memory.lock().marks));
                }
                self.memory.meet(PEER, process, said);
            }
            ToMemory::Voted(asked, log) => {
                let log = log.filter(|_| self.plant == Plant::LogWithVote);
                self.count(process, asked, log);
            }
            ToMemory::SentAsLeader(leader, last) => self.count(process, leader, last),
            ToMemory::Acknowledged(append) => {
                if self.awaited.take_if(|it| *it == append.number).is_some() {
                    self.count(process, append.vote, append.last());
                }
            }
            ToMemory::Conflict(append) => {
                if self.awaited.take_if(|it| *it == append.number).is_some() {
                    let index = append.prev.map_or(0, |prev| prev.index);
                    let _verdict = self.memory.lacks(PEER, process, append.vote, index);
                    self.coverage.conflicts += 1;
                }
            }
        }
    }

    fn count(&mut self, process: ProcessId, leader: LeaderId, last: Option<LogId>) {
        let fact = Position {
            vote: Some(leader),
            last,
        };
        if self.plant == Plant::Forgetful && last.is_some() {
            if self.memory.admit(PEER, process).is_ok() {
                self.facts.push(fact);
            }
        } else if self.memory.record(PEER, process, leader, last).is_ok() {
            self.facts.push(fact);
        }
    }

    /// Puts an earlier copy of the peer's disk back, and says what is wrong with the verdict.
    fn roll_back(&mut self) -> Result<(), String> {
        let at = self.below(self.copies.len());
        self.disk = self.copies[at].clone();
        self.restart_peer();
        // What earlier processes have said may still come, before the verdict and after it.
        for _ in 0..self.below(self.to_memory.len()) {
            self.deliver_to_memory();
        }
        self.memory.hears_nothing_of(PEER);
        acquaint(&self.peer, &self.memory);
        for _ in 0..self.to_memory.len() {
            self.deliver_to_memory();
        }
        let lost = self.memory.is_lost(PEER);
        let breaks = self.facts.iter().any(|said| self.disk.breaks(said));
        let keeps = self.facts.iter().all(|said| self.disk.keeps(said));
        if lost {
            self.coverage.condemned += 1;
        } else {
            self.coverage.spared += 1;
        }
        match (lost, breaks, keeps) {
            (false, true, _) => Err("a loss is not found".to_owned()),
            (true, _, true) => Err("a rollback that loses nothing condemns".to_owned()),
            _ => Ok(()),
        }
    }
}

/// One history, and a rollback at its end; what is wrong.
fn run(seed: u64, plant: Plant, coverage: &mut Coverage) -> Result<(), String> {
    let mut world = World::new(seed, plant);
    for step in 0..STEPS {
        world.step();
        if world.memory.is_lost(PEER) {
            return Err(format!("an honest peer is condemned at step {step}"));
        }
    }
    world.memory.hears_nothing_of(PEER);
    acquaint(&world.peer, &world.memory);
    admitted(&world.memory, &world.peer).map_err(|refusal| format!("at the end: {refusal}"))?;
    world.roll_back()?;
    coverage.condemned += world.coverage.condemned;
    coverage.spared += world.coverage.spared;
    coverage.conflicts += world.coverage.conflicts;
    coverage.restarts += world.coverage.restarts;
    Ok(())
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn honest_histories_never_condemn_and_losses_always_do() {
    let first = setting("EPOCH_SEED").unwrap_or_else(rand::random);
    let count = setting("EPOCH_HISTORIES").unwrap_or(3_000);
    let mut coverage = Coverage::default();
    for seed in (0..count).map(|n| first.wrapping_add(n)) {
        if let Err(why) = run(seed, Plant::None, &mut coverage) {
            eprintln!("again with EPOCH_SEED={seed} EPOCH_HISTORIES=1");
            panic!("seed {seed}: {why}");
        }
    }
    if count >= 1_000 {
        assert!(coverage.condemned > count / 10, "{coverage:?}");
        assert!(coverage.spared > count / 10, "{coverage:?}");
        assert!(coverage.conflicts > count / 10, "{coverage:?}");
        assert!(coverage.restarts > count, "{coverage:?}");
    }
}

#[test]
fn planted_bugs_are_found() {
    for plant in [
        Plant::LogWithVote,
        Plant::LateIntroductions,
        Plant::AnyProcess,
        Plant::Forgetful,
    ] {
        let mut coverage = Coverage::default();
        let found = (0..3_000).find(|seed| run(*seed, plant, &mut coverage).is_err());
        assert!(found.is_some(), "{plant:?}");
    }
}
