//! What goes along with every ping, both ways.

use bytes::Bytes;
use epoch_core::NodeId;
use epoch_machine::StateHash;
use epoch_proto::raft::{IndexHash, Introduction};

use super::contact::Contact;
use super::hashes::{Hashes, TOLD};
use super::memory::Introduced;
use super::types::{Position, ProcessId};

/// What is told of this node, and who hears what others tell.
#[derive(Debug, Clone)]
pub(crate) struct Introductions {
    contact: Contact,
    hashes: Hashes,
}

/// Why an introduction is not one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntroductionError {
    #[error("there is no introduction")]
    Missing,
    #[error("a position does not decode")]
    Position(#[from] postcard::Error),
    #[error("a state hash is not of 16 bytes")]
    Hash,
}

impl Introductions {
    pub(crate) fn new(contact: Contact, hashes: Hashes) -> Self {
        Self { contact, hashes }
    }

    /// This process's own, to `peer`.
    ///
    /// # Errors
    /// The position does not encode.
    pub(crate) fn say(&self, peer: NodeId) -> Result<Introduction, IntroductionError> {
        let said = self.contact.memory().introduce(peer);
        let (heard_process, heard_mark) = said.heard.unwrap_or((ProcessId(0), 0));
        let hashes = self.hashes.latest().into_iter();
        Ok(Introduction {
            start: encode_position(&said.start)?,
            mark: said.mark,
            heard_process: heard_process.0,
            heard_mark,
            tending: self.contact.is_tending(),
            hashes: hashes
                .map(|(index, hash)| IndexHash {
                    index,
                    hash: Bytes::copy_from_slice(&hash.to_bytes()),
                })
                .collect(),
        })
    }

    /// A process of `peer` has introduced itself.
    ///
    /// # Errors
    /// It does not parse; nothing is taken of it then.
    pub(crate) fn hear(
        &self,
        peer: NodeId,
        process: ProcessId,
        introduction: Option<&Introduction>,
    ) -> Result<(), IntroductionError> {
        let said = introduction.ok_or(IntroductionError::Missing)?;
        let introduced = Introduced {
            start: decode_position(&said.start)?,
            mark: said.mark,
            heard: Some((ProcessId(said.heard_process), said.heard_mark)),
        };
        let hashes = said.hashes.iter().take(TOLD).map(|told| {
            let bytes = <[u8; 16]>::try_from(told.hash.as_ref());
            let bytes = bytes.map_err(|_length| IntroductionError::Hash)?;
            Ok((told.index, StateHash::from_bytes(bytes)))
        });
        let hashes = hashes.collect::<Result<Vec<_>, IntroductionError>>()?;
        let memory = self.contact.memory();
        memory.meet(peer, process, introduced);
        if memory.admit(peer, process).is_err() {
            return Ok(());
        }
        self.contact.heard_tending(peer, said.tending);
        if let Some(divergence) = self.hashes.heard(peer, &hashes, &self.contact.voters()) {
            crate::fatal::stop(&divergence.to_string());
        }
        Ok(())
    }
}

/// A position on its way.
pub(crate) fn encode_position(position: &Position) -> Result<Bytes, postcard::Error> {
    postcard::to_stdvec(position).map(Bytes::from)
}

/// The other way round; bytes that follow are an error.
pub(crate) fn decode_position(bytes: &[u8]) -> Result<Position, postcard::Error> {
    match postcard::take_from_bytes(bytes)? {
        (position, []) => Ok(position),
        (_, _more) => Err(postcard::Error::DeserializeBadEncoding),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::memory::Memory;
    use super::super::types::LeaderId;
    use super::*;

    fn of(node: NodeId) -> Introductions {
        let start = Position {
            vote: Some(LeaderId::new(3, node)),
            last: None,
        };
        let memory =
            Memory::open(Path::new("/nonexistent"), node, ProcessId::draw(), start).unwrap();
        let contact = Contact::new(node, memory, crate::clock::boot());
        Introductions::new(contact, Hashes::new(node))
    }

    fn tell(from: &Introductions, node: NodeId, to: &Introductions, other: NodeId) {
        let said = from.say(other).unwrap();
        let process = from.contact.memory().process();
        to.hear(node, process, Some(&said)).unwrap();
    }

    #[test]
    fn what_a_verified_peer_tells_of_itself_arrives() {
        let (one, other) = (of(1), of(2));
        other.contact.set_tending(true);
        other.hashes.applied(0, || StateHash::from_bytes([7; 16]));
        tell(&other, 2, &one, 1);
        assert!(!one.contact.a_peer_is_tending(), "it is not verified yet");
        tell(&one, 1, &other, 2);
        tell(&other, 2, &one, 1);
        assert!(one.contact.a_peer_is_tending());
        one.contact.set_voters([1, 2].into());
        one.hashes.applied(0, || StateHash::from_bytes([8; 16]));
        let outvoted = one.hashes.heard(2, &[], &[2].into()).unwrap();
        assert!(
            outvoted.to_string().contains(&"07".repeat(16)),
            "{outvoted}"
        );
    }

    #[test]
    fn what_is_no_introduction_is_refused_whole() {
        let (one, other) = (of(1), of(2));
        let whole = other.say(1).unwrap();
        let process = other.contact.memory().process();
        let long = Bytes::from([whole.start.as_ref(), &[0]].concat());
        let cut = whole.start.slice(1..);
        let hash = IndexHash {
            index: 1,
            hash: Bytes::from_static(&[0; 15]),
        };
        let start = |start| Introduction {
            start,
            ..whole.clone()
        };
        let short_hash = Introduction {
            hashes: vec![hash],
            ..whole.clone()
        };
        for bad in [None, Some(start(long)), Some(start(cut)), Some(short_hash)] {
            assert!(one.hear(2, process, bad.as_ref()).is_err(), "{bad:?}");
        }
        let said = one.contact.memory().introduce(2);
        assert_eq!(said.heard, None, "nothing of them was taken");
        one.hear(2, process, Some(&whole)).unwrap();
    }
}
