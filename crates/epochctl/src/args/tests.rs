//! What is read, and what is refused.

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::*;

const SESSION: &str = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.42.0";
const KEY: &str = "K8KACzMW4Akgn_11fasZzPCuhLx66QZU4egXEtJw9lM";

/// With the names of a session, a pin and a key in their places.
fn filled(line: &str) -> String {
    let pin = format!("epochd-root:018f4d1c-0000-7000-8000-00000000000a:{KEY}");
    let line = line.replace("SESSION", SESSION).replace("PIN", &pin);
    line.replace("KEY", KEY)
}

fn parse(line: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(std::iter::once("epochctl").chain(line.split(' ')))
}

#[test]
fn the_definition_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn every_command_reads() {
    for line in [
        "session open --holder h --ttl 10s",
        "session open --holder h --ttl 1500ms --open-id 2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11",
        "session keepalive SESSION --every 3s",
        "session close SESSION",
        "session open --holder h --ttl 10s --stall-limit 1m",
        "session keepalive SESSION --progress 7",
        "session get SESSION",
        "session list --holder h --limit 10",
        "acquire a/b --session SESSION --request-id 7 --audience x --audience y",
        "acquire a/b --session SESSION --wait 1h --lock-delay 5s --metadata text --reissue",
        "acquire a b c --session SESSION --metadata text",
        "cancel-wait a/b --session SESSION --request-id 7",
        "transfer a/b --session SESSION --epoch 42 --to AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "release a/b --session SESSION --epoch 42",
        "certify a/b --session SESSION --epoch 42 --audience x",
        "revoke a/b",
        "revoke a/b --epoch 42",
        "get a/b -o json --queue-limit 1000",
        "list --prefix a/ --limit 10 --holder h",
        "watch a/b --after 7.1",
        "watch --prefix a/ -o json",
        "watch --prefix=",
        "record put a/b value --session SESSION --epoch 42 --expected-revision 0 --intent i",
        "record put a/b --file f --session SESSION --epoch 42",
        "record put a/b - --session SESSION --epoch 42",
        "record get a/b -o json",
        "record delete a/b --session SESSION --epoch 42 --intent i",
        "verify a.b.c --jwks keys.json --scope a/b --now 2026-01-31T12:00:00Z",
        "run a/b --holder h --ttl 10s -- sh -c true",
        "run a/b --holder h --ttl 10s --wait 1m --lock-delay 5s --metadata text -- sh -c true",
        "permission grant app --prefix jobs/ --verbs acquire,read",
        "permission grant epochd-user:operator --all --verbs operate --verbs revoke",
        "permission revoke app --prefix jobs/",
        "permission revoke app --all",
        "permission list -o json",
        "permission limits app --sessions 10 --grants 0 --waits 5 --rate 100",
        "permission limits app --none",
        "permission token add app --label t-1.a_B --ttl 90days --out token",
        "permission token add app --label t --out -",
        "permission token remove app t",
        "key list -o json",
        "key rotate",
        "key rotate --node 2",
        "key retire KEY",
        "key retire -8KACzMW4Akgn_11fasZzPCuhLx66QZU4egXEtJw9lM -o json",
        "key pin",
        "key pin --root root.json",
        "key bundle",
        "key bundle --after 7 --check PIN",
        "key sign chain.json --root root.json",
        "key sign - --root root.json --add 2=KEY --add 3=-8KACzMW4Akgn_11fasZzPCuhLx66QZU4egXEtJw9lM --remove KEY",
        "key submit @bundle",
        "statement make clock --for 1h --root root.json",
        "statement make max-future --ahead 48h --for 30days --root root.json",
        "statement check - --pin PIN",
        "statement put @statement",
        "verify a.b.c --pin PIN",
        "verify a.b.c --pin PIN --bundle chain.json --signatures 2",
        "holder-key make --out key.pem",
        "proof --holder-key key.pem --method PUT --url https://host/a?b --certificate @cert",
        "audit",
        "audit --denials --limit 10 --page 7",
        "acquire a/b --session SESSION --signatures 2",
        "certify a/b --session SESSION --epoch 42 --signatures 9",
        "revoke a/b --signatures 3",
        "run a/b --holder h --ttl 10s --signatures 2 -- sh -c true",
        "session open --holder h --ttl 10s --holder-key -PrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
        "--endpoints 127.0.0.1:1,127.0.0.1:2 --deadline 3s status",
        "--endpoints https://127.0.0.1:1 --ca ca.pem --cert c.pem --key k.pem status",
        "status --token-file token",
        "completion bash",
    ] {
        let line = filled(line);
        if let Err(error) = parse(&line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn bad_input_is_refused_before_anything_is_sent() {
    let long = format!("get {}", "a".repeat(513));
    for line in [
        "session open --holder h --ttl 999ms",
        "session open --holder h --ttl 25h",
        "session open --holder h --ttl 1s1us",
        "session open --holder h --ttl 10s --open-id x",
        "acquire a/b --session SESSION --request-id 0",
        "acquire a/b --session SESSION --request-id 9007199254740992",
        "acquire --session SESSION",
        "session close SESSION SESSION",
        "acquire a/b --session SESSION --wait 0s",
        "acquire a/b --session SESSION --wait 25h",
        "session open --holder h --ttl 10s --stall-limit 1ms",
        "cancel-wait a/b --session SESSION",
        "transfer a/b --session SESSION --epoch 42",
        "watch a --prefix b",
        "watch a --after 7",
        "get a/b --queue-limit 1001",
        "session keepalive SESSION --every 3s --progress 7",
        "record put a/b --session SESSION --epoch 42",
        "record put a/b value --file f --session SESSION --epoch 42",
        "record put a/b value --session SESSION",
        "release a/b --session SESSION --epoch -1",
        "release a/b --session SESSION --epoch 1.5",
        "release a/b --session SESSION --epoch 9007199254740992",
        "get a\nb",
        "get a\0b",
        &long,
        "list --limit 0",
        "run a/b --holder h --ttl 10s",
        "permission grant app --verbs read",
        "permission grant app --prefix a/ --all --verbs read",
        "permission grant app --prefix= --verbs read",
        "permission grant app --all",
        "permission grant app --all --verbs write",
        "permission revoke app",
        "permission limits app",
        "permission limits app --none --rate 1",
        "permission limits app --rate -1",
        "permission token add app --label a/b --out token",
        "permission token add app --label t",
        "permission token add app --label t --ttl 367days --out token",
        "permission token remove app",
        "key rotate --node 0",
        "key retire x",
        "key bundle --check epochd-root:x",
        "key sign chain.json",
        "key sign chain.json --root root.json --add KEY",
        "key sign chain.json --root root.json --add x=KEY",
        "key sign chain.json --root root.json --add 2=x",
        "statement make clock --for 1h",
        "statement make clock --for 1500ms --root root.json",
        "statement make max-future --for 1h --root root.json",
        "statement make max-future --ahead 367days --for 1h --root root.json",
        "statement make max-future --ahead 172800 --for 1h --root root.json",
        "statement check x",
        "verify a.b.c",
        "verify a.b.c --jwks keys.json --pin PIN",
        "verify a.b.c --jwks keys.json --signatures 2",
        "verify a.b.c --jwks keys.json --bundle chain.json",
        "verify a.b.c --pin PIN --signatures 0",
        "verify a.b.c --pin PIN --cluster 018f4d1c-0000-7000-8000-00000000000a",
        "proof --holder-key key.pem --method put --url https://host/ --certificate x",
        "proof --holder-key key.pem --method PUT --url host/ --certificate x",
        "audit --limit 0",
        "acquire a/b --session SESSION --signatures 0",
        "acquire a/b --session SESSION --signatures 10",
        "session open --holder h --ttl 10s --holder-key x",
        "--endpoints nowhere status",
        "--deadline 0s status",
        "-o xml status",
        "completion tcl",
    ] {
        let error = parse(&filled(line)).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line:?}");
    }
    let error = Args::try_parse_from(["epochctl", "get", ""]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ValueValidation);
}

#[test]
fn what_follows_the_dashes_is_the_command_untouched() {
    let args = parse("run a/b --holder h --ttl 10s -- cmd --ttl -o json").unwrap();
    let Command::Run(run) = args.command else {
        panic!("not run")
    };
    assert_eq!(run.command, ["cmd", "--ttl", "-o", "json"]);
    assert_eq!(args.output, Format::Table);
}
