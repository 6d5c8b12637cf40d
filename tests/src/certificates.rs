//! Certificates as an attacker, or a broken issuer, would make them.

use anyhow::{Context as _, Result};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use epoch_core::SigningKey;
use serde_json::{Map, Value, json};

use crate::cluster::text;

/// A token that must not verify.
#[derive(Debug, Clone)]
pub struct Hostile {
    /// What is wrong with it.
    pub name: String,
    /// The token.
    pub token: String,
}

/// A compact token, taken apart.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The header.
    pub header: Map<String, Value>,
    /// The claims.
    pub payload: Map<String, Value>,
    /// The signature, decoded.
    pub signature: Vec<u8>,
}

/// Takes a token apart without verifying it.
///
/// # Errors
/// It is no compact token of JSON objects.
pub fn parts(token: &str) -> Result<Parts> {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part));
    let mut next = || {
        parts
            .next()
            .context("the token has too few parts")?
            .context("not base64url")
    };
    Ok(Parts {
        header: serde_json::from_slice(&next()?)?,
        payload: serde_json::from_slice(&next()?)?,
        signature: next()?,
    })
}

fn join(header: &str, payload: &str, signature: &[u8]) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    format!(
        "{}.{}.{}",
        encode(header.as_bytes()),
        encode(payload.as_bytes()),
        encode(signature)
    )
}

/// What an outsider can make of a `genuine` certificate and the cluster's public keys (`jwks`),
/// without a key of the cluster.
///
/// # Errors
/// `genuine` is no token, or `jwks` has not its key.
pub fn forged(genuine: &str, jwks: &Value) -> Result<Vec<Hostile>> {
    let Parts {
        header,
        payload,
        signature,
    } = parts(genuine)?;
    let header_text = Value::Object(header.clone()).to_string();
    let payload_text = Value::Object(payload.clone()).to_string();
    let own = Issuer::new(1)?;
    let mut made = Made::default();

    for part in 0..3 {
        for last in [false, true] {
            made.push(
                format!("a changed byte, part {part}, last: {last}"),
                changed(genuine, part, last)?,
            );
        }
    }
    let mut raised = payload.clone();
    raised["fence"]["epoch"] = json!(raised["fence"]["epoch"].as_u64().unwrap_or(0) + 1);
    made.push(
        "the epoch raised",
        join(&header_text, &Value::Object(raised).to_string(), &signature),
    );
    made.push("no signature", join(&header_text, &payload_text, &[]));
    made.push(
        "another key under the cluster's kid",
        own.sign(&header_text, &payload_text),
    );
    made.push("another key under its own kid", own.token(&payload));

    let with = |name: &str, value: Value| {
        let mut header = header.clone();
        header.insert(name.to_owned(), value);
        Value::Object(header).to_string()
    };
    for none in ["none", "None", "NONE"] {
        let none_header = with("alg", json!(none));
        made.push(
            format!("alg {none}, no signature"),
            join(&none_header, &payload_text, &[]),
        );
        made.push(
            format!("alg {none}, old signature"),
            join(&none_header, &payload_text, &signature),
        );
    }
    let key = public_key(&header, jwks)?;
    let secrets = [
        (
            "the public key's bytes",
            URL_SAFE_NO_PAD.decode(text(&key, "x")?)?,
        ),
        (
            "the public key's text",
            text(&key, "x")?.as_bytes().to_vec(),
        ),
        ("the public key's JWK", key.to_string().into_bytes()),
        ("the key set", jwks.to_string().into_bytes()),
    ];
    for (what, secret) in secrets {
        let hs_header = with("alg", json!("HS256"));
        made.push(
            format!("HS256 over {what}"),
            hs256(&hs_header, &payload_text, &secret),
        );
    }
    made.push(
        "embedded jwk",
        own.sign(
            &with("jwk", own.key.verifying_key().to_jwk()),
            &payload_text,
        ),
    );
    for name in ["jku", "x5u"] {
        let header = with(name, json!("http://127.0.0.1:9/keys"));
        made.push(format!("header {name}"), own.sign(&header, &payload_text));
    }
    Ok(made.0)
}

fn public_key(header: &Map<String, Value>, jwks: &Value) -> Result<Value> {
    let keys = jwks["keys"].as_array().context("the key set has no keys")?;
    let found = keys
        .iter()
        .find(|key| Some(&key["kid"]) == header.get("kid"));
    found
        .cloned()
        .context("the certificate's key is not in the key set")
}

/// Changes one character of a part so that other bytes come out.
fn changed(token: &str, part: usize, last: bool) -> Result<String> {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    let text = parts.get_mut(part).context("the token has too few parts")?;
    let mut bytes = URL_SAFE_NO_PAD.decode(&*text)?;
    let byte = if last {
        bytes.last_mut()
    } else {
        bytes.first_mut()
    };
    *byte.context("an empty part")? ^= 1;
    *text = URL_SAFE_NO_PAD.encode(bytes);
    Ok(parts.join("."))
}

fn hs256(header: &str, payload: &str, secret: &[u8]) -> String {
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(payload)
    );
    let tag = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, secret),
        signed.as_bytes(),
    );
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

/// A key that a verifier trusts, in the hands of an issuer that makes bad certificates: the
/// signature is good each time, so that only the check under test can refuse.
#[derive(Debug)]
pub struct Issuer {
    key: SigningKey,
}

impl Issuer {
    /// The issuer whose key's seed is 32 times `seed`.
    ///
    /// # Errors
    /// The crypto library fails.
    pub fn new(seed: u8) -> Result<Self> {
        Ok(Self {
            key: SigningKey::from_seed(&[seed; 32])?,
        })
    }

    /// Its public key as a JWKS document.
    #[must_use]
    pub fn jwks(&self) -> Value {
        json!({ "keys": [self.key.verifying_key().to_jwk()] })
    }

    fn header(&self) -> Map<String, Value> {
        let kid = self.key.id().to_string();
        Map::from_iter([
            ("alg".to_owned(), json!("EdDSA")),
            ("typ".to_owned(), json!("epoch+jwt")),
            ("kid".to_owned(), json!(kid)),
        ])
    }

    fn sign(&self, header: &str, payload: &str) -> String {
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(payload)
        );
        let signature = self.key.sign_bytes(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A well-formed token over any claims.
    #[must_use]
    pub fn token(&self, payload: &Map<String, Value>) -> String {
        let header = Value::Object(self.header()).to_string();
        self.sign(&header, &Value::Object(payload.clone()).to_string())
    }

    /// Tokens over variations of the claims of a genuine certificate: each has one thing wrong.
    #[must_use]
    pub fn malformed(&self, payload: &Map<String, Value>) -> Vec<Hostile> {
        let mut made = Made::default();
        self.bad_headers(payload, &mut made);
        self.bad_claims(payload, &mut made);
        self.bad_fences(payload, &mut made);
        self.bad_text(payload, &mut made);
        made.0
    }

    fn bad_headers(&self, payload: &Map<String, Value>, made: &mut Made) {
        let payload = Value::Object(payload.clone()).to_string();
        let jwk = self.key.verifying_key().to_jwk();
        for (name, value) in [
            ("jwk", jwk),
            ("jku", json!("http://127.0.0.1:9/keys")),
            ("x5u", json!("http://127.0.0.1:9/chain")),
            ("x5c", json!(["AAAA"])),
            ("crit", json!(["fence"])),
            ("crit", json!(["exp"])),
            ("crit", json!([])),
            ("b64", json!(false)),
            ("typ", json!("JWT")),
            ("typ", json!("EPOCH+JWT")),
            ("typ", json!("application/epoch+jwt")),
            ("typ", Value::Null),
            ("alg", json!("Ed25519")),
            ("alg", json!("HS256")),
            ("alg", json!("none")),
            ("alg", json!(["EdDSA"])),
            ("kid", json!("other")),
            ("kid", json!(1)),
        ] {
            let mut header = self.header();
            made.push_with(format!("header {name}: {value}"), || {
                header.insert(name.to_owned(), value);
                self.sign(&Value::Object(header).to_string(), &payload)
            });
        }
        for name in ["alg", "typ", "kid"] {
            let mut header = self.header();
            header.remove(name);
            let header = Value::Object(header).to_string();
            made.push(
                format!("header without {name}"),
                self.sign(&header, &payload),
            );
        }
        let header = Value::Object(self.header()).to_string();
        let twice = header.replacen('{', r#"{"alg":"none","#, 1);
        made.push("header with alg twice", self.sign(&twice, &payload));
    }

    fn bad_claims(&self, payload: &Map<String, Value>, made: &mut Made) {
        let number = |name: &str| payload.get(name).and_then(Value::as_u64).unwrap_or(0);
        let (issued, expires) = (number("iat"), number("exp"));
        for (name, value) in [
            ("exp", json!(expires.to_string())),
            ("exp", json!(1)),
            ("exp", json!(-1)),
            ("exp", Value::Null),
            ("exp", json!([expires])),
            ("iat", json!(issued.to_string())),
            ("iat", json!(expires - 1)),
            ("nbf", json!(expires - 1)),
            ("nbf", json!(issued.to_string())),
            ("iss", json!("epochd:00000000-0000-7000-8000-000000000000")),
            ("iss", json!(["epochd"])),
            ("sub", json!("")),
            ("sub", json!(7)),
            ("aud", json!(["elsewhere"])),
            ("aud", json!(7)),
        ] {
            let mut payload = payload.clone();
            made.push_with(format!("claim {name}: {value}"), || {
                payload.insert(name.to_owned(), value);
                self.token(&payload)
            });
        }
        for name in ["iss", "iat", "exp", "sub", "fence"] {
            let mut payload = payload.clone();
            payload.remove(name);
            made.push(format!("no {name}"), self.token(&payload));
        }
    }

    fn bad_fences(&self, payload: &Map<String, Value>, made: &mut Made) {
        let fence = payload.get("fence").cloned().unwrap_or(Value::Null);
        let changed = |name: &str, value: Value| {
            let mut payload = payload.clone();
            let mut fence = fence.clone();
            fence[name] = value;
            payload.insert("fence".to_owned(), fence);
            self.token(&payload)
        };
        let long = "s".repeat(513);
        for (name, value) in [
            ("epoch", json!(-1)),
            ("epoch", json!(0)),
            ("epoch", json!(1.5)),
            ("epoch", json!("42")),
            ("epoch", json!(1_u64 << 53)),
            ("epoch", json!((1_u64 << 53) - 1)),
            ("epoch", Value::Null),
            ("scope", json!("")),
            ("scope", json!(long)),
            ("scope", json!("a\u{0}b")),
            ("scope", json!("a\nb")),
            ("incarnation", json!("not-a-uuid")),
            ("term", json!("3")),
            ("leader", json!(-1)),
            ("index", json!(1.5)),
            ("grant", json!("short")),
        ] {
            let mut label = value.to_string();
            label.truncate(24);
            made.push(format!("fence.{name}: {label}"), changed(name, value));
        }
        let mut payload = payload.clone();
        payload.insert("fence".to_owned(), json!([]));
        made.push("fence is a list", self.token(&payload));
    }

    fn bad_text(&self, payload: &Map<String, Value>, made: &mut Made) {
        let header = Value::Object(self.header()).to_string();
        let payload = Value::Object(payload.clone()).to_string();
        let twice = payload.replacen('{', r#"{"exp":99999999999,"#, 1);
        made.push("claim exp twice", self.sign(&header, &twice));
        let twice = payload.replacen(r#""epoch":"#, r#""epoch":1,"epoch":"#, 1);
        made.push("fence.epoch twice", self.sign(&header, &twice));
        made.push("claims are a list", self.sign(&header, "[]"));
        made.push("claims are no JSON", self.sign(&header, "{"));
        made.push(
            "claims with more behind",
            self.sign(&header, &format!("{payload}{{}}")),
        );
        let padded = payload.replacen('{', &format!(r#"{{"pad":"{}","#, "x".repeat(1 << 20)), 1);
        made.push("1 MiB", self.sign(&header, &padded));
        let token = self.sign(&header, &payload);
        made.push("a fourth part", format!("{token}.AAAA"));
        made.push(
            "two parts",
            token.rsplit_once('.').map_or("", |(start, _)| start),
        );
        made.push("padded base64", format!("{token}=="));
        made.push("nothing", "");
        made.push("dots", "..");
    }
}

#[derive(Debug, Default)]
struct Made(Vec<Hostile>);

impl Made {
    fn push(&mut self, name: impl Into<String>, token: impl Into<String>) {
        self.0.push(Hostile {
            name: name.into(),
            token: token.into(),
        });
    }

    fn push_with(&mut self, name: String, make: impl FnOnce() -> String) {
        self.push(name, make());
    }
}
