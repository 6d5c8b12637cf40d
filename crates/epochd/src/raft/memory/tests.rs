mod history;

use super::*;

const ME: NodeId = 1;
const PEER: NodeId = 2;

fn begun(id: NodeId, start: Position) -> Memory {
    Memory::open(Path::new("/nonexistent"), id, ProcessId::draw(), start).unwrap()
}

fn vote(term: u64, node: NodeId) -> LeaderId {
    LeaderId::new(term, node)
}

fn log_id(term: u64, node: NodeId, index: u64) -> LogId {
    LogId::new(vote(term, node), index)
}

fn position(voted: LeaderId, last: LogId) -> Position {
    Position {
        vote: Some(voted),
        last: Some(last),
    }
}

fn introduce(from: &Memory, to: &Memory) {
    to.meet(from.0.me, from.process(), from.introduce(to.0.me));
}

/// A ping and its answer, then the next ping: whoever of the two can connect.
fn acquaint(peer: &Memory, memory: &Memory) {
    introduce(peer, memory);
    introduce(memory, peer);
    introduce(peer, memory);
}

/// A memory that has verified a process of a new peer.
fn acquainted() -> (Memory, Memory) {
    let (memory, peer) = (
        begun(ME, Position::default()),
        begun(PEER, Position::default()),
    );
    acquaint(&peer, &memory);
    (memory, peer)
}

fn admitted(memory: &Memory, peer: &Memory) -> Result<(), Refusal> {
    memory.admit(PEER, peer.process())
}

fn said(memory: &Memory, peer: &Memory, voted: LeaderId, last: Option<LogId>) {
    memory.record(PEER, peer.process(), voted, last).unwrap();
}

/// What becomes of the peer's next process, which begins with `start`.
fn restarted(memory: &Memory, start: Position) -> Result<(), Refusal> {
    let next = begun(PEER, start);
    memory.hears_nothing_of(PEER);
    acquaint(&next, memory);
    admitted(memory, &next)
}

/// This node's next process, with what was on the disk.
fn reopened(memory: &Memory) -> Memory {
    let folder = tempfile::tempdir().unwrap();
    let json = serde_json::to_string(&memory.lock().file).unwrap();
    write_sealed(&RealFs, &folder.path().join(PEERS_FILE), &json).unwrap();
    Memory::open(
        folder.path(),
        memory.0.me,
        ProcessId::draw(),
        memory.0.start,
    )
    .unwrap()
}

#[test]
fn the_first_processes_of_a_new_cluster_verify_each_other() {
    let (memory, peer) = acquainted();
    assert_eq!(admitted(&memory, &peer), Ok(()));
    introduce(&memory, &peer);
    assert_eq!(peer.admit(ME, memory.process()), Ok(()));
}

#[test]
fn a_process_counts_only_once_it_has_repeated_a_mark() {
    let (memory, peer) = (
        begun(ME, Position::default()),
        begun(PEER, Position::default()),
    );
    for _ in 0..3 {
        introduce(&peer, &memory);
    }
    let unverified = Err(Refusal::Unverified(PEER));
    assert_eq!(admitted(&memory, &peer), unverified);
    assert_eq!(
        memory.record(PEER, peer.process(), vote(1, 2), None),
        unverified
    );
    assert_eq!(
        memory.lock().file.peers[&PEER].position,
        Position::default()
    );
}

#[test]
fn a_peer_with_all_that_it_has_said_is_verified_again() {
    let (memory, peer) = acquainted();
    said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, 10)));
    assert_eq!(
        restarted(&memory, position(vote(3, 1), log_id(3, 1, 10))),
        Ok(())
    );
    assert_eq!(
        restarted(&memory, position(vote(3, 1), log_id(3, 1, 12))),
        Ok(())
    );
}

#[test]
fn of_two_processes_under_one_id_only_the_one_that_is_heard_counts() {
    let (memory, peer) = acquainted();
    let last = log_id(3, 1, 10);
    said(&memory, &peer, vote(3, 1), Some(last));
    let copy = begun(PEER, position(vote(3, 1), last));
    for _ in 0..peer::SILENCE {
        acquaint(&copy, &memory);
        introduce(&peer, &memory);
    }
    assert_eq!(admitted(&memory, &peer), Ok(()));
    assert_eq!(admitted(&memory, &copy), Err(Refusal::Unverified(PEER)));
    assert!(memory.lock().twice.contains(&PEER), "it was not reported");
    // Once it is silent, the other one is a new process like any.
    memory.hears_nothing_of(PEER);
    acquaint(&copy, &memory);
    assert_eq!(admitted(&memory, &copy), Ok(()));
    assert_eq!(admitted(&memory, &peer), Err(Refusal::Unverified(PEER)));
}

#[test]
fn a_peer_without_its_vote_is_lost_for_good() {
    let (memory, peer) = acquainted();
    said(&memory, &peer, vote(3, 1), None);
    let start = position(vote(2, 1), log_id(2, 1, 99));
    let lost = Err(Refusal::Lost(PEER));
    assert_eq!(restarted(&memory, start), lost);
    assert_eq!(
        memory.remembered_of_lost(PEER).unwrap().vote,
        Some(vote(3, 1))
    );
    memory.lock().changed = false;
    // Not even with its disk back: what it has done in between is not known.
    assert_eq!(
        restarted(&memory, position(vote(9, 1), log_id(9, 1, 99))),
        lost
    );
    assert_eq!(admitted(&memory, &peer), lost);
    assert!(!memory.lock().changed, "the verdict is given once");
}

#[test]
fn a_peer_with_a_shorter_log_under_the_same_vote_is_lost() {
    for (start, last) in [(Some(log_id(3, 1, 9)), 10), (None, 0)] {
        let (memory, peer) = acquainted();
        said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, last)));
        let start = Position {
            vote: Some(vote(3, 1)),
            last: start,
        };
        assert_eq!(restarted(&memory, start), Err(Refusal::Lost(PEER)));
    }
}

#[test]
fn what_a_peer_sent_as_the_leader_binds_it_too() {
    let (memory, peer) = acquainted();
    said(&memory, &peer, vote(3, 2), Some(log_id(3, 2, 10)));
    let start = position(vote(3, 2), log_id(3, 2, 9));
    assert_eq!(restarted(&memory, start), Err(Refusal::Lost(PEER)));
}

#[test]
fn a_log_cut_short_under_a_newer_vote_is_ordinary() {
    let (memory, peer) = acquainted();
    said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, 10)));
    // Another leader has cut it, and this node has not heard of that leader.
    assert_eq!(
        restarted(&memory, position(vote(4, 3), log_id(2, 1, 5))),
        Ok(())
    );
}

#[test]
fn a_log_cut_short_between_a_vote_and_the_new_leaders_first_append_is_ordinary() {
    let (memory, peer) = acquainted();
    said(&memory, &peer, vote(3, 3), Some(log_id(3, 3, 10)));
    said(&memory, &peer, vote(4, 1), None);
    assert_eq!(
        restarted(&memory, position(vote(4, 1), log_id(3, 3, 6))),
        Ok(())
    );
}

#[test]
fn under_a_higher_vote_the_log_counts_from_nothing() {
    let (memory, peer) = acquainted();
    said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, 10)));
    said(&memory, &peer, vote(4, 1), Some(log_id(3, 1, 6)));
    // A late one under the old vote changes nothing.
    said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, 11)));
    assert_eq!(
        restarted(&memory, position(vote(4, 1), log_id(3, 1, 6))),
        Ok(())
    );
    assert_eq!(
        restarted(&memory, position(vote(4, 1), log_id(3, 1, 5))),
        Err(Refusal::Lost(PEER))
    );
}

#[test]
fn late_messages_of_an_earlier_process_neither_count_nor_stay() {
    let (memory, earlier) = acquainted();
    let start = position(vote(3, 1), log_id(3, 1, 10));
    assert_eq!(restarted(&memory, start), Ok(()));
    assert_eq!(
        memory.record(PEER, earlier.process(), vote(3, 1), Some(log_id(3, 1, 11))),
        Err(Refusal::Unverified(PEER))
    );
    assert_eq!(restarted(&memory, start), Ok(()));
}

#[test]
fn a_late_introduction_of_an_earlier_process_condemns_nobody() {
    let (memory, earlier) = acquainted();
    // One that was never heard before, and one that was.
    let unheard = begun(PEER, Position::default());
    introduce(&memory, &unheard);
    introduce(&memory, &earlier);
    let late = [&earlier, &unheard].map(|process| (process.process(), process.introduce(ME)));
    let start = position(vote(3, 1), log_id(3, 1, 10));
    let present = begun(PEER, start);
    memory.hears_nothing_of(PEER);
    acquaint(&present, &memory);
    said(&memory, &present, vote(3, 1), Some(log_id(3, 1, 11)));
    for (process, introduced) in late {
        memory.meet(PEER, process, introduced);
    }
    assert_eq!(admitted(&memory, &present), Ok(()));
}

#[test]
fn a_conflict_below_what_was_acknowledged_under_the_same_vote_is_a_loss() {
    let lacks = |voted: LeaderId, index: u64| {
        let (memory, peer) = acquainted();
        said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, 10)));
        let verdict = memory.lacks(PEER, peer.process(), voted, index);
        assert_eq!(memory.is_lost(PEER), verdict.is_err());
        verdict
    };
    assert_eq!(lacks(vote(3, 1), 10), Err(Refusal::Lost(PEER)));
    assert_eq!(lacks(vote(3, 1), 11), Ok(()));
    // What was acknowledged under an older vote may have been cut off since.
    assert_eq!(lacks(vote(4, 1), 10), Ok(()));
}

#[test]
fn this_nodes_own_restart_does_not_judge_a_process_by_what_it_has_said_itself() {
    let (memory, peer) = acquainted();
    said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, 10)));
    let memory = reopened(&memory);
    assert_eq!(admitted(&memory, &peer), Ok(()), "it is known");
    acquaint(&peer, &memory);
    assert_eq!(admitted(&memory, &peer), Ok(()));
    // What it said is still remembered against the next one.
    assert_eq!(
        restarted(&memory, position(vote(3, 1), log_id(3, 1, 9))),
        Err(Refusal::Lost(PEER))
    );
    assert!(reopened(&memory).is_lost(PEER));
}

#[test]
fn a_lost_node_knows_it_and_does_not_forget_it() {
    let memory = begun(ME, Position::default());
    assert_eq!(memory.own_loss(), None);
    memory.found_lost(PEER, &position(vote(3, 1), log_id(3, 1, 10)));
    memory.found_lost(3, &Position::default());
    let why = reopened(&memory).own_loss().unwrap();
    for part in [
        "node 2",
        "T3-N1",
        "log up to T3-N1-10",
        "no vote, no log",
        "new node id",
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn what_is_remembered_is_written_when_it_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::open(folder.path(), ME, ProcessId::draw(), Position::default()).unwrap();
    memory.write_if_changed().unwrap();
    let path = folder.path().join(PEERS_FILE);
    assert!(!path.exists(), "nothing to remember yet");
    let peer = begun(PEER, Position::default());
    acquaint(&peer, &memory);
    said(&memory, &peer, vote(3, 1), Some(log_id(3, 1, u64::MAX)));
    memory.write_if_changed().unwrap();
    let again = Memory::open(folder.path(), ME, ProcessId::draw(), Position::default()).unwrap();
    let (one, other) = (again.lock(), memory.lock());
    assert_eq!(
        one.file.peers[&PEER].position,
        other.file.peers[&PEER].position
    );
    assert_eq!(one.file.peers[&PEER].process, Some(peer.process()));
}

#[tokio::test]
async fn a_verdict_is_written_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::open(folder.path(), ME, ProcessId::draw(), Position::default()).unwrap();
    memory.found_lost(PEER, &Position::default());
    let path = folder.path().join(PEERS_FILE);
    tokio::select! {
        () = memory.keep() => {}
        () = async { while !path.exists() { tokio::task::yield_now().await } } => {}
    }
    let again = Memory::open(folder.path(), ME, ProcessId::draw(), Position::default()).unwrap();
    assert!(again.own_loss().is_some());
}

#[test]
fn a_file_that_is_not_one_stops_the_start_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PEERS_FILE);
    let open = || Memory::open(folder.path(), ME, ProcessId::draw(), Position::default());
    let whole = r#"{"format":1,"own_loss":null,"peers":{}}"#;
    for bad in [
        "",
        "{}",
        &whole[1..],
        &whole.replace(":1", ":2"),
        &whole.replace("own", "x"),
    ] {
        write_sealed(&RealFs, &path, bad).unwrap();
        let error = open().unwrap_err();
        assert!(error.to_string().contains(PEERS_FILE), "{error}");
    }
    write_sealed(&RealFs, &path, whole).unwrap();
    open().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, MemoryError::Damaged { .. }), "{error}");
}

#[test]
fn invented_node_ids_do_not_fill_the_memory() {
    let memory = begun(ME, Position::default());
    for id in 10..10 + 2 * PEERS_MAX as u64 {
        introduce(&begun(id, Position::default()), &memory);
    }
    let peers = memory.lock().file.peers.len();
    assert_eq!(peers, PEERS_MAX);
    let json = serde_json::to_vec_pretty(&memory.lock().file).unwrap();
    assert!(json.len() < PEERS_BYTES_MAX / 2);
}
