//! The one list of reasons: every refusal anywhere carries one of these.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $next:literal;)*) => {
        /// Why something was refused. The text is stable and public; [`Reason::next_step`] says
        /// what the caller should do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Every reason, in the order of the documentation's table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable name, as on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What the caller should do next.
            #[must_use]
            pub fn next_step(self) -> &'static str {
                match self { $(Self::$name => $next,)* }
            }

            /// Finds a reason by its stable name.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }
        }
    };
}

reasons! {
    /// A later grant exists (or the fence is higher): this holder has been replaced.
    EpochSuperseded = "EPOCH_SUPERSEDED", "stop and save your work; do not retry";
    /// Another session holds the scope.
    ScopeHeld = "SCOPE_HELD", "try again later";
    /// This session holds the scope already, under another request id.
    AlreadyHeld = "ALREADY_HELD", "use the grant you have, release it first, or ask for a reissue";
    /// This session waits for the scope already, under another request id.
    AlreadyWaiting = "ALREADY_WAITING", "wait under the request id you have, or cancel that wait first";
    /// The scope was lost by expiry and is kept from all for its lock delay.
    LockDelayed = "LOCK_DELAYED", "try again later, or wait";
    /// The wait ended before the scope was free.
    WaitExpired = "WAIT_EXPIRED", "use a new request id to wait again";
    /// The wait was cancelled by its own session.
    WaitCancelled = "WAIT_CANCELLED", "use a new request id to wait again";
    /// A request id (or open id) was used again with another payload.
    RequestIdReused = "REQUEST_ID_REUSED", "use a new id for a new request";
    /// The request id is at or below the highest one forgotten: it cannot be told apart from a
    /// late copy.
    RequestIdTooOld = "REQUEST_ID_TOO_OLD", "use ids that rise";
    /// The session does not exist: it expired, was closed, or never was.
    SessionExpired = "SESSION_EXPIRED", "stop work under this session's grants; open a new session";
    /// The progress mark has not moved within the session's stall limit.
    SessionStalled = "SESSION_STALLED", "get the work on, or let the session expire";
    /// The session that a grant was to be transferred to is not there.
    TargetExpired = "TARGET_EXPIRED", "ask the other side for its session, or keep the grant";
    /// The certificate or proof does not verify.
    CertificateInvalid = "CERTIFICATE_INVALID", "ask the cluster for a fresh certificate";
    /// The call names nobody, or its token or client certificate is not known (any more).
    Unauthenticated = "UNAUTHENTICATED", "give a token or a client certificate that an operator has made known";
    /// The caller may not do this.
    PermissionDenied = "PERMISSION_DENIED", "act on your own grants only, or ask an operator";
    /// Too many sessions.
    SessionLimit = "SESSION_LIMIT", "close sessions that are not needed, or try again later";
    /// Too many grants.
    GrantLimit = "GRANT_LIMIT", "release scopes that are not needed, or try again later";
    /// Too many signing keys, or nodes that have one.
    KeyLimit = "KEY_LIMIT", "wait until new keys sign and old ones have gone, or retire some";
    /// The scope's queue is full.
    QueueFull = "QUEUE_FULL", "try again later";
    /// Too many waits in all queues together.
    WaitLimit = "WAIT_LIMIT", "try again later";
    /// Too many records, or too many bytes of them.
    RecordLimit = "RECORD_LIMIT", "delete records that are not needed";
    /// Too many permissions or tokens.
    PermissionLimit = "PERMISSION_LIMIT", "remove permissions or tokens that are not needed";
    /// The node serves no more watches.
    WatchLimit = "WATCH_LIMIT", "watch on another node, or watch a prefix in place of many scopes";
    /// The events after the cursor are gone.
    WatchCompacted = "WATCH_COMPACTED", "list the scopes, and watch after that answer's cursor";
    /// The node has more requests waiting than it keeps.
    Overloaded = "OVERLOADED", "try again later, with the same ids";
    /// The caller sends more requests a second than it may.
    RateLimited = "RATE_LIMITED", "send less, and try again later, with the same ids";
    /// The message is larger than allowed.
    TooLarge = "TOO_LARGE", "send less";
    /// No leader is known, or it does not serve yet.
    NoLeader = "NO_LEADER", "try again with the same ids";
    /// The leader cannot reach a quorum, or the outcome is unknown.
    NoQuorum = "NO_QUORUM", "the outcome is unknown; try again with the same ids";
    /// Clocks are out of bounds.
    ClockUntrusted = "CLOCK_UNTRUSTED", "have an operator check the clocks";
    /// Replicated time is more than an hour ahead.
    ClockPoisoned = "CLOCK_POISONED", "have an operator check the clocks";
    /// Malformed, out of range, or an unknown field.
    InvalidArgument = "INVALID_ARGUMENT", "correct the request";
    /// The content is not at the expected revision.
    RevisionMismatch = "REVISION_MISMATCH", "read again and redo the change on what is there";
    /// The intent id was used before with another payload.
    IntentReused = "INTENT_REUSED", "use a new intent id for a new action";
    /// Two grants carry one (incarnation, epoch).
    EpochForked = "EPOCH_FORKED", "stop and call an operator: disks or machines were rolled back";
    /// The certificate is of an earlier incarnation than the resource has seen.
    IncarnationVoid = "INCARNATION_VOID", "stop and save your work; the cluster was restored since";
    /// The scope has no epochs left below 2^53.
    EpochExhausted = "EPOCH_EXHAUSTED", "use another scope, and have an operator check the clocks";
    /// This version does not offer the call.
    Unimplemented = "UNIMPLEMENTED", "use a version that offers it";
    /// There is no such path or method.
    NotFound = "NOT_FOUND", "check the path";
    /// A bug in this software.
    Internal = "INTERNAL", "report it; the outcome is unknown";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
