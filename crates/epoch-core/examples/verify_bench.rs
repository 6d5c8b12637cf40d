//! What a certificate costs beyond its signature: the median of interleaved rounds, and ratios.
//!
//! `cargo run --release -p epoch-core --features sign --example verify_bench`
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock, prints, and stops at the first failure"
)]

use std::hint::black_box;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_core::{
    CachedVerifier, Claims, ClusterId, Epoch, Fence, Grant, GrantHash, Holder, Incarnation, KeySet,
    Position, Scope, SigningKey, Validity, Verifier,
};

const ROUNDS: usize = 400;
const CALLS_PER_ROUND: u32 = 50;
const SEED: [u8; 32] = [1; 32];

fn claims(now_s: u64) -> Claims {
    let fence = Fence {
        incarnation: "018f4d1c-0000-7000-8000-000000000001"
            .parse::<Incarnation>()
            .unwrap(),
        epoch: Epoch::new((now_s * 1_000) << 10).unwrap(),
        position: Position {
            group: 0,
            term: 3,
            leader: 2,
            index: 1_000_000,
            offset: 17,
        },
        grant: Some(Grant {
            holder: Holder::parse("agents/host-17/worker-3").unwrap(),
            hash: GrantHash([5; 32]),
        }),
    };
    let validity = Validity {
        issued_at_s: now_s,
        expires_at_s: now_s + 12 * 3_600,
        jti: "0197b2a4-5a51-7c3e-8a3d-0123456789ab".to_owned(),
    };
    let cluster: ClusterId = "018f4d1c-0000-7000-8000-00000000000a".parse().unwrap();
    let scope = Scope::parse(&"reports/".repeat(8)).unwrap();
    Claims::new(cluster, scope, fence, validity).unwrap()
}

/// Nanoseconds a call, of one round.
fn round(mut call: impl FnMut()) -> u128 {
    let start = Instant::now();
    for _ in 0..CALLS_PER_ROUND {
        call();
    }
    start.elapsed().as_nanos() / u128::from(CALLS_PER_ROUND)
}

fn median(mut times: Vec<u128>) -> f64 {
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    f64::from(u32::try_from(middle).unwrap())
}

fn main() {
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let now_ms = now_s * 1_000;
    let key = SigningKey::from_seed(&SEED).unwrap();
    let claims = claims(now_s);
    let token = key.sign(&claims).unwrap();
    let keys: KeySet = [key.verifying_key().clone()].into_iter().collect();
    let verifier = Verifier::new(claims.cluster(), keys);
    let cached = CachedVerifier::new(verifier.clone(), &[9; 16]);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let bare_key = UnparsedPublicKey::new(&ED25519, key.verifying_key().as_bytes());
    let bare_pair = Ed25519KeyPair::from_seed_unchecked(&SEED).unwrap();

    let mut times: [Vec<u128>; 5] = Default::default();
    for _ in 0..ROUNDS {
        let [
            bare_verify,
            full_verify,
            cached_verify,
            bare_sign,
            full_sign,
        ] = &mut times;
        bare_verify.push(round(|| {
            bare_key
                .verify(black_box(signed.as_bytes()), &signature)
                .unwrap();
        }));
        full_verify.push(round(|| {
            black_box(verifier.verify(black_box(&token), now_ms).unwrap());
        }));
        cached_verify.push(round(|| {
            black_box(cached.verify(black_box(&token), now_ms).unwrap());
        }));
        bare_sign.push(round(|| {
            black_box(bare_pair.sign(black_box(signed.as_bytes())));
        }));
        full_sign.push(round(|| {
            black_box(key.sign(black_box(&claims)).unwrap());
        }));
    }
    let [
        bare_verify,
        full_verify,
        cached_verify,
        bare_sign,
        full_sign,
    ] = times.map(median);
    println!("certificate of {} bytes; ns a call, median", token.len());
    println!(
        "verify: bare {bare_verify:.0}, full {full_verify:.0}, ratio {:.2} (at most 1.30)",
        full_verify / bare_verify
    );
    println!("cached verify: {cached_verify:.0} (below 1000)");
    println!(
        "sign: bare {bare_sign:.0}, full {full_sign:.0}, ratio {:.2} (at most 1.30)",
        full_sign / bare_sign
    );
}
