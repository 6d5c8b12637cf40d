//! The holder's own key: `holder-key make`, `proof`.

use std::path::Path;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use epoch_core::{HolderKey, TextKind};
use serde_json::json;

use crate::args::{HolderKeyCommand, Proof};
use crate::exit::Failure;
use crate::files;
use crate::output::Output;
use crate::times;
use crate::token::unverified_claims;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
/// What stands before the 32 bytes of an Ed25519 private key in PKCS#8 (RFC 8410, section 7). The
/// version that has the public key too is read by few libraries, and holders use many.
const PKCS8_START: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// Characters of a line of PEM.
const LINE: usize = 64;
/// Longest key file that is read.
const KEY_BYTES_MAX: usize = 4_096;

pub(crate) fn holder_key(output: Output, command: HolderKeyCommand) -> Result<(), Failure> {
    let HolderKeyCommand::Make { out } = command;
    let unmade = |why: &dyn std::fmt::Display| {
        Failure::local(format!("no key was made: {why}"), "try again later")
    };
    let mut seed = [0; 32];
    rand::fill(&mut seed).map_err(|_unspecified| unmade(&"the system has no random bytes"))?;
    let key = HolderKey::from_seed(&seed).map_err(|error| unmade(&error))?;
    files::create_secret(&out, "key", to_pem(&seed).as_bytes())?;
    let thumbprint = key.thumbprint().to_string();
    let json = json!({
        "thumbprint": thumbprint,
        "jwk": key.public_jwk(),
        "file": out.display().to_string(),
    });
    output.result(&json, || thumbprint.clone())
}

pub(crate) fn proof(output: Output, command: &Proof) -> Result<(), Failure> {
    let key = read(Path::new(&command.holder_key))?;
    let bytes_max = TextKind::Certificate.bytes_max();
    let certificate = files::read_text(&command.certificate, "certificate", bytes_max)?;
    of_this_key(&certificate, &key.thumbprint().to_string())?;
    let jti = uuid::Uuid::new_v4().to_string();
    let now_s = times::now_ms() / 1_000;
    let proof = key.proof(&command.method, &command.url, &certificate, now_s, &jti);
    let json = json!({ "proof": proof, "thumbprint": key.thumbprint().to_string() });
    output.result(&json, || proof.clone())
}

/// Whether a certificate names the key: every verifier would refuse another's proof.
fn of_this_key(certificate: &str, thumbprint: &str) -> Result<(), Failure> {
    let claims = unverified_claims(certificate)
        .ok_or_else(|| Failure::usage("that is no certificate", "check it"))?;
    let message = match claims["cnf"]["jkt"].as_str() {
        Some(named) if named == thumbprint => return Ok(()),
        Some(named) => format!("the certificate names the key {named}, and this is {thumbprint}"),
        None => "the certificate names no holder's key, so nobody asks for a proof".to_owned(),
    };
    let next_step = "open a session with --holder-key, and take its certificate";
    Err(Failure::usage(message, next_step))
}

fn read(path: &Path) -> Result<HolderKey, Failure> {
    let given = path.to_string_lossy();
    let content = files::read_named(&given, "key", KEY_BYTES_MAX)?;
    let refused = |why: &dyn std::fmt::Display| {
        let next_step = "make one with `epochctl holder-key make`";
        Failure::usage(format!("{given} has no holder's key: {why}"), next_step)
    };
    let document = String::from_utf8(content)
        .ok()
        .and_then(|text| of_pem(&text));
    let document = document.ok_or_else(|| refused(&"it is not PEM of a private key (PKCS#8)"))?;
    HolderKey::from_pkcs8(&document).map_err(|error| refused(&error))
}

fn to_pem(seed: &[u8; 32]) -> String {
    let encoded = STANDARD.encode([&PKCS8_START[..], seed].concat());
    let mut pem = format!("{BEGIN}\n");
    for (at, character) in encoded.chars().enumerate() {
        if at > 0 && at % LINE == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem + "\n" + END + "\n"
}

fn of_pem(text: &str) -> Option<Vec<u8>> {
    let body = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let body: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_as_openssl_writes_it() {
        let key = HolderKey::from_seed(&[7; 32]).unwrap();
        let pem = to_pem(&[7; 32]);
        assert!(pem.lines().all(|line| line.len() <= LINE));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, &pem).unwrap();
        assert_eq!(read(&path).unwrap().thumbprint(), key.thumbprint());
        // `openssl genpkey -algorithm ed25519`; RFC 8410, section 10.3.
        let openssl = "-----BEGIN PRIVATE KEY-----\r\n\
                       MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\r\n\
                       -----END PRIVATE KEY-----\r\n";
        std::fs::write(&path, openssl).unwrap();
        assert!(read(&path).is_ok());
        for bad in [
            "",
            BEGIN,
            &pem[1..],
            "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----",
        ] {
            std::fs::write(&path, bad).unwrap();
            assert!(read(&path).is_err(), "{bad}");
        }
    }
}
