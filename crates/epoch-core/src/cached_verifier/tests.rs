//! A cached verdict is never one that a fresh look would not give.

use proptest::prelude::*;

use super::*;
use crate::TextKind;
use crate::testing::{
    self, NOW_MS, NOW_S, bundle, bundle_keys, max_future, pin, signed_bundle, signed_by, trust,
};

fn cached() -> CachedVerifier {
    CachedVerifier::new(Verifier::pinned(trust()), &[7; 16])
}

fn certificate(seeds: &[u8], epoch: u64) -> String {
    let payload = testing::claims(epoch, "writer-b").to_json();
    signed_by(seeds, TextKind::Certificate, &payload)
}

impl CachedVerifier {
    fn remembered(&self) -> (usize, usize) {
        let state = self.state();
        let bytes = state.young.bytes + state.old.bytes;
        (state.young.entries.len() + state.old.entries.len(), bytes)
    }
}

#[test]
fn a_certificate_is_verified_once_and_shared() {
    let cached = cached();
    let text = certificate(&[1], 42);
    let first = cached.verify(&text, NOW_MS).unwrap();
    let again = cached.verify(&text, NOW_MS + 1).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(cached.remembered(), (1, text.len()));
    assert_eq!(*first, cached.verifier().verify(&text, NOW_MS).unwrap());
}

#[test]
fn a_refused_certificate_is_not_remembered() {
    let cached = cached();
    let refused = cached.verify(&certificate(&[9], 42), NOW_MS);
    assert!(matches!(refused, Err(VerifyError::UnknownKey { .. })));
    let long = "a".repeat(TextKind::Certificate.bytes_max() + 1);
    assert!(cached.verify(&long, NOW_MS).is_err());
    assert_eq!(cached.remembered(), (0, 0));
}

#[test]
fn a_hit_is_compared_whole() {
    let text = certificate(&[1], 42);
    let other = certificate(&[1], 43);
    for in_old_half in [false, true] {
        let cached = cached();
        let certificate_42 = Arc::new(cached.verifier().verify(&text, NOW_MS).unwrap());
        // As if the two had one hash.
        let hash = cached.hasher.hash(other.as_bytes());
        let mut state = cached.state();
        state.insert(hash, text.as_str().into(), certificate_42);
        if in_old_half {
            state.old = std::mem::take(&mut state.young);
        }
        drop(state);
        let found = cached.verify(&other, NOW_MS).unwrap();
        assert_eq!(found.epoch().get(), 43, "in the old half: {in_old_half}");
    }
}

#[test]
fn a_hit_is_refused_once_time_has_passed() {
    let cached = cached();
    let text = certificate(&[1], 42);
    cached.verify(&text, NOW_MS).unwrap();
    let bundle_end_ms = (NOW_S + 3600) * 1_000 + 30_000;
    assert!(cached.verify(&text, bundle_end_ms - 1).is_ok());
    let refused = cached.verify(&text, bundle_end_ms);
    assert!(matches!(refused, Err(VerifyError::BundleExpired { .. })));
    let plain = Verifier::new(testing::cluster(), testing::key_set(&[1]));
    let cached = CachedVerifier::new(plain, &[7; 16]);
    cached.verify(&text, NOW_MS).unwrap();
    let end_ms = (NOW_S + 12 * 3600) * 1_000 + 30_000;
    assert!(cached.verify(&text, end_ms - 1).is_ok());
    let refused = cached.verify(&text, end_ms);
    assert!(matches!(refused, Err(VerifyError::Expired { .. })));
}

#[test]
fn a_hit_is_refused_once_the_statement_that_let_it_pass_has_expired() {
    let cached = cached();
    let epoch = (NOW_MS + 3 * 86_400_000) << 10;
    let text = certificate(&[1], epoch);
    cached
        .adopt_statement(&max_future(3 * 86_400), NOW_MS)
        .unwrap();
    assert!(cached.verify(&text, NOW_MS).is_ok());
    let refused = cached.verify(&text, (NOW_S + 3600) * 1_000);
    assert!(matches!(refused, Err(VerifyError::EpochTooFar { .. })));
}

#[test]
fn adopting_empties_the_cache() {
    let cached = cached();
    let text = certificate(&[2], 42);
    cached.verify(&text, NOW_MS).unwrap();
    let next = bundle(1)
        .next(NOW_S, bundle_keys(&[(1, 1), (3, 3)]))
        .unwrap();
    let chain = [signed_bundle(&[1, 3], &next)];
    assert_eq!(cached.adopt(&chain), Ok(true));
    assert_eq!(cached.remembered(), (0, 0));
    let refused = cached.verify(&text, NOW_MS);
    assert!(matches!(refused, Err(VerifyError::UnknownKey { .. })));
    assert_eq!(cached.trust().unwrap().bundle(), Some(&next));
    cached.verify(&certificate(&[1], 42), NOW_MS).unwrap();
    // Nothing new changes nothing.
    assert_eq!(cached.adopt(&chain), Ok(false));
    assert_eq!(cached.remembered().0, 1);
    assert_eq!(cached.adopt_statement(&max_future(5), NOW_MS), Ok(true));
    assert_eq!(cached.remembered(), (0, 0));
    assert!(cached.adopt(&[signed_bundle(&[1], &bundle(1))]).is_err());
    assert_eq!(
        cached.replace_keys(KeySet::default()),
        Err(TrustError::Pinned)
    );
    assert_eq!(cached.verifier().trust().unwrap().pin(), &pin());
}

#[test]
fn keys_replaced_during_a_verification_are_not_passed_over() {
    let cached = cached();
    let verifier = cached.verifier();
    let text = certificate(&[2], 42);
    let certificate = Arc::new(verifier.verify(&text, NOW_MS).unwrap());
    let next = bundle(1).next(NOW_S, bundle_keys(&[(1, 1)])).unwrap();
    cached.adopt(&[signed_bundle(&[1, 3], &next)]).unwrap();
    cached.remember(&verifier, 5, &text, &certificate);
    assert_eq!(cached.remembered(), (0, 0));
    cached.remember(&cached.verifier(), 5, &text, &certificate);
    assert_eq!(cached.remembered().0, 1);
}

#[test]
fn the_cache_is_bounded_and_keeps_what_is_asked_for() {
    let cached = cached();
    let text = certificate(&[1], 42);
    let kept = cached.verify(&text, NOW_MS).unwrap();
    let token = "t".repeat(6 * 1024);
    let fill = |from: u64, entries: u64, token: &str| {
        for n in from..from + entries {
            let mut state = cached.state();
            // Not the hash of any real one: those have all of 64 bits.
            state.insert(n, token.into(), Arc::clone(&kept));
        }
    };
    for round in 0..20 {
        fill(round * 2_000, 1_000, &token);
        let (entries, bytes) = cached.remembered();
        assert!(entries <= CACHED_CERTIFICATES_MAX, "{entries}");
        assert!(bytes <= CACHED_BYTES_MAX, "{bytes}");
        let again = cached.verify(&text, NOW_MS).unwrap();
        assert!(Arc::ptr_eq(&kept, &again), "round {round}");
    }
    fill(1_000_000, 100_000, "t");
    let (entries, _) = cached.remembered();
    assert!(entries <= CACHED_CERTIFICATES_MAX, "{entries}");
    let again = cached.verify(&text, NOW_MS).unwrap();
    assert!(!Arc::ptr_eq(&kept, &again), "it was not asked for");
    let counted: usize = {
        let state = cached.state();
        let halves = [&state.young, &state.old];
        let lens = halves.map(|half| half.entries.values().map(|e| e.token.len()).sum::<usize>());
        lens.iter().sum()
    };
    assert_eq!(cached.remembered().1, counted);
}

#[test]
fn the_hash_key_is_not_shown() {
    let cached = cached();
    assert_eq!(format!("{cached:?}"), "CachedVerifier { cached: 0, .. }");
}

proptest! {
    /// At any time, with or without a statement, the cache says what the verifier says.
    #[test]
    fn a_cached_verdict_is_the_fresh_one(
        ahead_s in 0_u64..5 * 86_400, times in prop::collection::vec(-100_i64..50_000, 1..8),
        stated in any::<bool>(),
    ) {
        let cached = cached();
        if stated {
            cached.adopt_statement(&max_future(3 * 86_400), NOW_MS).unwrap();
        }
        let text = certificate(&[1, 2], (NOW_MS + ahead_s * 1_000) << 10);
        let _remembered = cached.verify(&text, NOW_MS);
        for seconds in times {
            let now_ms = NOW_MS.saturating_add_signed(seconds * 1_000);
            let fresh = cached.verifier().verify(&text, now_ms);
            prop_assert_eq!(cached.verify(&text, now_ms).map(|found| (*found).clone()), fresh);
        }
    }
}
