//! Rows of signing keys and trust, and the commands that make them.

use std::sync::Arc;

use bytes::Bytes;
use epoch_core::{KeyId, KeyOffer, SignedBundle, VerifyingKey};
use epoch_machine::{AdminRow, Command, KeptStatement, Offer, Retired, StatementTopic};
use epoch_proto::raft;

use super::DecodeError;
use super::admin::principal;
use super::parse::{fixed, present};

const TOPICS: [(StatementTopic, u32); 2] =
    [(StatementTopic::Clock, 1), (StatementTopic::MaxFuture, 2)];

pub(super) fn bundle_message(bundle: &SignedBundle) -> raft::BundleRow {
    let signatures = bundle.signatures().iter();
    raft::BundleRow {
        payload: bundle.payload().to_owned(),
        signatures: signatures
            .map(|(kid, signature)| raft::BundleSignature {
                kid: kid_bytes(*kid),
                signature: Bytes::copy_from_slice(signature),
            })
            .collect(),
    }
}

pub(super) fn bundle(row: raft::BundleRow) -> Result<Arc<SignedBundle>, DecodeError> {
    let signatures = row.signatures.iter().map(|one| {
        let signature = fixed("signature", &one.signature)?;
        Ok((kid(&one.kid)?, signature))
    });
    let signatures = signatures.collect::<Result<_, DecodeError>>()?;
    Ok(Arc::new(SignedBundle::from_parts(row.payload, signatures)?))
}

pub(super) fn offer_message(offer: &Offer) -> raft::OfferRow {
    let Offer {
        node,
        key,
        endorsed,
    } = offer;
    raft::OfferRow {
        node: *node,
        public_key: Bytes::copy_from_slice(key.as_bytes()),
        endorsed: *endorsed,
    }
}

pub(super) fn offer(row: &raft::OfferRow) -> Result<AdminRow, DecodeError> {
    Ok(AdminRow::Offer(Offer {
        node: row.node,
        key: VerifyingKey::new(fixed("public_key", &row.public_key)?),
        endorsed: row.endorsed,
    }))
}

pub(super) fn retired_message(retired: &Retired) -> raft::RetiredRow {
    let Retired { kid, time_ms } = *retired;
    raft::RetiredRow {
        kid: kid_bytes(kid),
        time_ms,
    }
}

pub(super) fn retired(row: &raft::RetiredRow) -> Result<AdminRow, DecodeError> {
    Ok(AdminRow::Retired(Retired {
        kid: kid(&row.kid)?,
        time_ms: row.time_ms,
    }))
}

pub(super) fn statement_message(kept: &KeptStatement) -> raft::StatementRow {
    let KeptStatement {
        topic,
        issued_at_s,
        text,
    } = kept;
    let number = TOPICS.iter().find(|(known, _)| known == topic);
    raft::StatementRow {
        topic: number.map_or(0, |(_, number)| *number),
        issued_at_s: *issued_at_s,
        text: text.to_string(),
    }
}

pub(super) fn statement(row: &raft::StatementRow) -> Result<AdminRow, DecodeError> {
    let topic = TOPICS.iter().find(|(_, number)| *number == row.topic);
    let (topic, _) = topic.ok_or(DecodeError::Unknown {
        what: "the topic of a statement",
        found: row.topic,
    })?;
    Ok(AdminRow::Statement(KeptStatement {
        topic: *topic,
        issued_at_s: row.issued_at_s,
        text: statement_text(&row.text)?,
    }))
}

/// Bounded; whether it is a statement is for the state machine to say, and only once.
fn statement_text(text: &str) -> Result<Arc<str>, DecodeError> {
    let max = epoch_core::TextKind::Statement.part_bytes_max();
    match text.len() {
        len if len > max => Err(DecodeError::TooLarge { len, max }),
        _ => Ok(text.into()),
    }
}

fn kid(bytes: &[u8]) -> Result<KeyId, DecodeError> {
    Ok(KeyId::from_bytes(fixed("kid", bytes)?))
}

pub(super) fn kid_bytes(kid: KeyId) -> Bytes {
    Bytes::copy_from_slice(kid.as_bytes())
}

pub(super) fn put_bundle(put: raft::PutBundle) -> Result<Command, DecodeError> {
    Ok(Command::PutBundle {
        by: principal(put.by.as_deref())?,
        bundle: bundle(present("bundle", put.bundle)?)?,
    })
}

pub(super) fn offer_key(offer: &raft::OfferKey) -> Result<Command, DecodeError> {
    Ok(Command::OfferKey(Arc::new(KeyOffer::parse(&offer.text)?)))
}

pub(super) fn rotate_keys(rotate: &raft::RotateKeys) -> Result<Command, DecodeError> {
    Ok(Command::RotateKeys {
        by: principal(rotate.by.as_deref())?,
        node: rotate.node,
    })
}

pub(super) fn retire_key(retire: &raft::RetireKey) -> Result<Command, DecodeError> {
    Ok(Command::RetireKey {
        by: principal(retire.by.as_deref())?,
        kid: kid(&retire.kid)?,
    })
}

pub(super) fn put_statement(put: &raft::PutStatement) -> Result<Command, DecodeError> {
    Ok(Command::PutStatement {
        by: principal(put.by.as_deref())?,
        text: statement_text(&put.text)?,
    })
}
