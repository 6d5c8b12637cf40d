//! Trust from a pinned root: keys rotate under load with the root key away, old bundles lead nowhere,
//! and one stolen key makes nothing that a quorum verifier takes.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use epoch_client::{Client, TrustFollower, TrustSettings};
use epoch_core::{
    Advance, Bundle, Claims, Epoch, Fence, Holder, KeyId, MAX_FUTURE_MS_DEFAULT, Pin, Scope,
    SignedBundle, SigningKey, TextKind, Trust, TrustError, Validity, Verifier, VerifyError,
    compose, decide_advance,
};
use epoch_proto::v1;
use epoch_tests::clock;
use epoch_tests::cluster::Cluster;
use epoch_tests::wait;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a resource may go without fetching: short, so that rotations come about in a test.
const MAX_AGE: Duration = Duration::from_secs(2);
const WRITERS: u64 = 6;

async fn cluster() -> Result<Cluster> {
    let mut cluster = Cluster::init_as(&["--key-max-age", "2s", "--bundle-lifetime", "1h"])?;
    for id in cluster.ids() {
        cluster.start_node(id)?;
    }
    cluster.all_ready().await?;
    cluster.leader().await?;
    Ok(cluster)
}

/// The pin; the root key itself is taken out of the way.
fn pin_and_no_root(cluster: &Cluster) -> Result<Pin> {
    let pin = cluster.pin()?;
    fs::remove_file(cluster.path().join("root-key.json"))?;
    Ok(pin)
}

/// What the writers saw.
#[derive(Debug, Default)]
struct Seen {
    verified: AtomicU64,
    /// The longest that one acquire took, in milliseconds: a figure, and no check.
    slowest_ms: AtomicU64,
    kids: Mutex<BTreeSet<KeyId>>,
}

impl Seen {
    fn kids(&self) -> MutexGuard<'_, BTreeSet<KeyId>> {
        self.kids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Acquires and releases, and has every certificate verified at once by the resource.
async fn write(
    client: Client,
    resource: TrustFollower,
    n: u64,
    seen: Arc<Seen>,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let holder = Holder::parse(&format!("writer-{n}"))?;
    let session = client
        .open_session(&holder, Duration::from_secs(30))
        .await?;
    let scope = Scope::parse(&format!("trust/{n}"))?;
    while !*stop.borrow() {
        let asked = clock::boot();
        let grant = session.acquire(&scope).await?;
        let took = u64::try_from((clock::boot() - asked).as_millis())?;
        seen.slowest_ms.fetch_max(took, Ordering::Relaxed);
        let token = grant.certificate();
        let certificate = resource.verify(&token, clock::unix_ms()).await;
        let certificate = certificate.with_context(|| format!("refused: {token}"))?;
        ensure!(*certificate.scope() == scope, "of another scope");
        seen.kids().extend(certificate.signers());
        seen.verified.fetch_add(1, Ordering::Relaxed);
        grant.release().await?;
    }
    session.close().await?;
    Ok(())
}

async fn keys(client: &Client) -> Result<Vec<v1::NodeSigningKey>> {
    Ok(client.keys(v1::KeysRequest {}).await?.keys)
}

fn kids(keys: &[v1::NodeSigningKey], state: &str) -> BTreeSet<String> {
    let of_state = keys.iter().filter(|key| key.state == state);
    of_state.map(|key| key.kid.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_under_load_with_the_root_key_away() -> Result<()> {
    let mut cluster = cluster().await?;
    let pin = pin_and_no_root(&cluster)?;
    let client = cluster.library_client()?;
    let settings = TrustSettings::default();
    let resource = TrustFollower::start(client.clone(), pin.clone(), settings).await?;
    let (first_chain, _) = client.bundles(0).await?;
    let before = kids(&keys(&client).await?, "signing");
    ensure!(before.len() == 3, "not three keys: {before:?}");

    let seen = Arc::<Seen>::default();
    let (stop, stopped) = watch::channel(false);
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        let write = write(
            client.clone(),
            resource.clone(),
            n,
            Arc::clone(&seen),
            stopped.clone(),
        );
        writers.spawn(write);
    }
    client.rotate_keys(v1::RotateRequest::default()).await?;
    let rotated = wait::until("every node signs with a new key", async || {
        let keys = keys(&client).await?;
        let signing = kids(&keys, "signing");
        let all_new = signing.len() == 3 && signing.is_disjoint(&before);
        all_new
            .then_some(keys)
            .ok_or_else(|| anyhow!("{signing:?}"))
    })
    .await?;
    let new: BTreeSet<KeyId> = kids(&rotated, "signing")
        .iter()
        .map(|kid| kid.parse())
        .collect::<Result<_, _>>()?;
    wait::until("a new key has signed for a writer", async || {
        let kids = seen.kids();
        ensure!(!kids.is_disjoint(&new), "only {kids:?}");
        Ok(())
    })
    .await?;
    // A leader change on top: the new leader signs with its own new key.
    cluster.replace_leader().await?;
    let then = seen.verified.load(Ordering::Relaxed);
    wait::until("grants go on", async || {
        let now = seen.verified.load(Ordering::Relaxed);
        ensure!(now > then + 100, "{now} grants after {then}");
        Ok(())
    })
    .await?;
    stop.send_replace(true);
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    println!(
        "{} certificates verified, none refused; the slowest acquire took {} ms",
        seen.verified.load(Ordering::Relaxed),
        seen.slowest_ms.load(Ordering::Relaxed)
    );

    // The private halves of the old keys are gone.
    for id in cluster.ids() {
        wait::until("the old key is erased", async || {
            let files = fs::read_dir(cluster.folder(id).join("keys"))?;
            let files: Vec<_> = files
                .map(|file| file.map(|file| file.file_name()))
                .collect::<Result<_, _>>()?;
            ensure!(files.len() == 1, "{files:?}");
            Ok(())
        })
        .await?;
    }
    // The old bundle, played back to who has the newer one.
    let (chain, _) = client.bundles(0).await?;
    let mut trust = Trust::new(pin);
    trust.adopt(&chain)?;
    ensure!(
        trust.bundle().context("no bundle")?.terms().sequence > 1,
        "nothing was renewed"
    );
    let replayed = trust.adopt(&first_chain);
    ensure!(
        matches!(replayed, Err(TrustError::Rollback { .. })),
        "{replayed:?}"
    );
    cluster.unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_key_is_refused_without_a_restart() -> Result<()> {
    let mut cluster = cluster().await?;
    let pin = pin_and_no_root(&cluster)?;
    let client = cluster.library_client()?;
    let resource = TrustFollower::start(client.clone(), pin, TrustSettings::default()).await?;
    let holder = Holder::parse("writer")?;
    let session = client
        .open_session(&holder, Duration::from_secs(60))
        .await?;
    let grant = session.acquire(&Scope::parse("trust/retired")?).await?;
    let token = grant.certificate().to_string();
    let signer = resource.verify(&token, clock::unix_ms()).await?.key();
    client.rotate_keys(v1::RotateRequest::default()).await?;
    wait::until("another key signs for that node", async || {
        let keys = keys(&client).await?;
        let verifying = kids(&keys, "verifying");
        ensure!(verifying.contains(&signer.to_string()), "{verifying:?}");
        Ok(())
    })
    .await?;
    resource
        .verify(&token, clock::unix_ms())
        .await
        .context("before it is retired")?;
    let kid = signer.to_string();
    client.retire_key(v1::RetireRequest { kid }).await?;
    let retired = clock::boot();
    wait::until("the resource refuses it", async || {
        match resource.verify(&token, clock::unix_ms()).await {
            Err(VerifyError::UnknownKey { .. }) => Ok(()),
            other => Err(anyhow!("{other:?}")),
        }
    })
    .await?;
    println!(
        "refused {:?} after it was retired, at a max_age of {MAX_AGE:?}",
        clock::boot() - retired
    );
    // Its holder asks for a fresh one, and that verifies.
    let request = v1::CertifyRequest {
        scope: grant.scope().to_string(),
        epoch: grant.epoch().get(),
        session_id: session.id().to_string(),
        ..v1::CertifyRequest::default()
    };
    let fresh = client.certify(request).await?.certificate;
    resource.verify(&fresh, clock::unix_ms()).await?;
    drop(grant);
    cluster.unharmed()
}

/// What a thief of one node's signing key has: the key, and everything that is public.
struct Thief {
    key: SigningKey,
    pin: Pin,
    current: Bundle,
    /// A certificate of a real grant, by three nodes.
    seen: Claims,
}

impl Thief {
    /// A certificate of an epoch that was never granted.
    fn claims(&self, epoch: Epoch) -> Result<Claims> {
        let fence = Fence {
            epoch,
            ..self.seen.fence().clone()
        };
        let issued_at_s = clock::unix_ms() / 1_000;
        let validity = Validity {
            issued_at_s,
            expires_at_s: issued_at_s + 3_600,
            jti: "stolen".to_owned(),
        };
        Ok(Claims::new(
            self.pin.cluster,
            self.seen.scope().clone(),
            fence,
            validity,
        )?)
    }

    fn verifier(&self, chain: &[SignedBundle], signatures: usize) -> Result<Verifier> {
        let mut trust = Trust::new(self.pin.clone());
        trust.adopt(chain)?;
        Ok(Verifier::pinned(trust).with_signatures(signatures))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stolen_key_makes_nothing_that_two_of_three_take() -> Result<()> {
    let mut cluster = cluster().await?;
    let pin = pin_and_no_root(&cluster)?;
    let client = cluster.library_client()?;
    let (chain, _) = client.bundles(0).await?;
    let holder = Holder::parse("writer")?;
    let session = client
        .open_session(&holder, Duration::from_secs(60))
        .await?;
    let scope = Scope::parse("trust/stolen")?;
    let grant = session.request(&scope).signatures(3).send().await?;
    let token = grant.certificate().to_string();
    ensure!(token.split(',').count() == 3, "not three parts: {token}");

    let mut folder = fs::read_dir(cluster.folder(2).join("keys"))?;
    let file = folder.next().context("no key")??.path();
    let mut trust = Trust::new(pin.clone());
    trust.adopt(&chain)?;
    let quorum = Verifier::pinned(trust.clone()).with_signatures(2);
    let thief = Thief {
        key: SigningKey::from_pkcs8(&fs::read(file)?)?,
        pin,
        current: trust.bundle().context("no bundle")?.clone(),
        seen: quorum.verify(&token, clock::unix_ms())?.claims().clone(),
    };
    let forged = thief.claims(Epoch::new(grant.epoch().get() + 1)?)?;
    let payload = forged.to_json();
    let own = (
        thief.key.id(),
        thief.key.signature(TextKind::Certificate, &payload),
    );
    let mut attempts = vec![thief.key.sign(&forged)?];
    // The others' names over its own signature, and their real signatures of another payload.
    for part in token.split(',') {
        let other: KeyId = kid_of(part)?;
        if other != own.0 {
            attempts.push(compose(
                TextKind::Certificate,
                &payload,
                &[own, (other, own.1)],
            )?);
            attempts.push(format!("{},{part}", thief.key.sign(&forged)?));
        }
    }
    for attempt in &attempts {
        let taken = quorum.verify(attempt, clock::unix_ms());
        ensure!(taken.is_err(), "taken: {attempt}");
    }
    // Nor can it put another key in a bundle.
    let mut keys = thief.current.keys().to_vec();
    keys.retain(|key| key.key != *thief.key.verifying_key());
    let next = thief
        .current
        .next(clock::unix_ms() / 1_000, keys)?
        .to_json();
    let vote = (thief.key.id(), thief.key.signature(TextKind::Bundle, &next));
    let alone = SignedBundle::from_parts(next, vec![vote])?;
    let adopted = trust.adopt(&[alone]);
    ensure!(
        matches!(adopted, Err(TrustError::TooFewNodes { .. })),
        "{adopted:?}"
    );

    // A plain verifier takes what the thief signs, but nothing further ahead than a day.
    let plain = thief.verifier(&chain, 1)?;
    let now_ms = clock::unix_ms();
    let furthest = Epoch::new((now_ms + MAX_FUTURE_MS_DEFAULT) << 10)?;
    let taken = plain.verify(&thief.key.sign(&thief.claims(furthest)?)?, now_ms)?;
    let beyond = Epoch::new(furthest.get() + 1)?;
    let refused = plain.verify(&thief.key.sign(&thief.claims(beyond)?)?, now_ms);
    ensure!(
        matches!(refused, Err(VerifyError::EpochTooFar { .. })),
        "{refused:?}"
    );
    // So the fence is out of reach for a day at most: what the cluster grants then is above it.
    let scope_fence = Some(taken.fence());
    let a_day_later = Epoch::new(((now_ms + MAX_FUTURE_MS_DEFAULT) << 10) + 1)?;
    let later_ms = now_ms + MAX_FUTURE_MS_DEFAULT;
    let granted = plain.verify(&thief.key.sign(&thief.claims(a_day_later)?)?, now_ms + 1)?;
    ensure!(
        granted.epoch().get() > (later_ms << 10),
        "not of a day later"
    );
    let raised = decide_advance(&scope, scope_fence, &granted);
    ensure!(matches!(raised, Advance::Raise(_)), "{raised:?}");
    drop(grant);
    cluster.unharmed()
}

fn kid_of(part: &str) -> Result<KeyId> {
    use base64::Engine as _;
    let header = part.split('.').next().context("no header")?;
    let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(header)?;
    let header: serde_json::Value = serde_json::from_slice(&header)?;
    Ok(header["kid"].as_str().context("no kid")?.parse()?)
}
