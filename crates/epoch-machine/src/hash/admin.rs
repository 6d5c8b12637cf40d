//! The canonical bytes of rare rows.

use std::num::NonZeroU64;

use epoch_core::{Reason, SignedBundle};

use super::Bytes;
use crate::admin::{AdminRow, KeptStatement, Offer, Permission, Retired, StatementTopic};
use crate::audit::AuditRecord;
use crate::limits::Limits;
use crate::token::Token;

const ADMIN: u8 = 4;
const PERMISSION: u8 = 1;
const TOKEN: u8 = 2;
const LIMITS: u8 = 3;
const AUDIT: u8 = 4;
const BUNDLE: u8 = 5;
const OFFER: u8 = 6;
const ROTATION: u8 = 7;
const RETIRED: u8 = 8;
const STATEMENT: u8 = 9;

impl Bytes {
    pub(super) fn admin(&mut self, row: &AdminRow) {
        self.tag(ADMIN);
        match row {
            AdminRow::Permission(permission) => {
                let Permission {
                    principal,
                    prefix,
                    verbs,
                } = permission;
                self.tag(PERMISSION);
                self.text(principal.as_str());
                self.text(prefix.as_str());
                self.u32(verbs.bits());
            }
            AdminRow::Token(token) => self.token(token),
            AdminRow::Limits { principal, limits } => {
                let Limits {
                    sessions,
                    grants,
                    waits,
                    requests_per_second,
                } = limits;
                self.tag(LIMITS);
                self.text(principal.as_str());
                for limit in [sessions, grants, waits, requests_per_second] {
                    self.tag(u8::from(limit.is_some()));
                    limit.iter().for_each(|limit| self.u32(*limit));
                }
            }
            AdminRow::Audit(record) => self.audit(record),
            AdminRow::Bundle(bundle) => self.bundle(bundle),
            AdminRow::Offer(offer) => {
                let Offer {
                    node,
                    key,
                    endorsed,
                } = offer;
                self.tag(OFFER);
                self.u64(*node);
                self.raw(key.as_bytes());
                self.tag(u8::from(*endorsed));
            }
            AdminRow::Rotation(node) => {
                self.tag(ROTATION);
                self.u64(*node);
            }
            AdminRow::Retired(retired) => {
                let Retired { kid, time_ms } = retired;
                self.tag(RETIRED);
                self.raw(kid.as_bytes());
                self.u64(*time_ms);
            }
            AdminRow::Statement(kept) => {
                let KeptStatement {
                    topic,
                    issued_at_s,
                    text,
                } = kept;
                self.tag(STATEMENT);
                self.tag(match topic {
                    StatementTopic::Clock => 1,
                    StatementTopic::MaxFuture => 2,
                });
                self.u64(*issued_at_s);
                self.text(text);
            }
        }
    }

    fn bundle(&mut self, bundle: &SignedBundle) {
        self.tag(BUNDLE);
        self.text(bundle.payload());
        self.length(bundle.signatures().len());
        for (kid, signature) in bundle.signatures() {
            self.raw(kid.as_bytes());
            self.raw(signature);
        }
    }

    fn token(&mut self, token: &Token) {
        let Token {
            hash,
            principal,
            label,
            created_ms,
            expires_ms,
        } = token;
        self.tag(TOKEN);
        self.raw(&hash.0);
        self.text(principal.as_str());
        self.text(label.as_str());
        self.u64(*created_ms);
        self.u64(expires_ms.map_or(0, NonZeroU64::get));
    }

    fn audit(&mut self, record: &AuditRecord) {
        let AuditRecord {
            number,
            time_ms,
            index,
            principal,
            action,
            target,
            refused,
        } = record;
        self.tag(AUDIT);
        self.u64(*number);
        self.u64(*time_ms);
        self.u64(*index);
        self.principal(principal.as_ref());
        self.u32(action.number());
        self.text(target.as_str());
        self.text(refused.map_or("", Reason::as_str));
    }
}
