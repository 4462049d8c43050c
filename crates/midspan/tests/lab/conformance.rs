//! `midspan conformance` with this build and all cases, in the short form.

#![allow(clippy::unwrap_used)]

use std::process::Output;

use crate::common::{alone, midspan, midspan_as_ordinary_user, records};

fn check(output: &Output, least_cases: usize) {
    let records = records(output);
    let cases: std::collections::BTreeSet<&str> = records
        .iter()
        .map(|record| record["item"].as_str().unwrap())
        .collect();
    assert!(cases.len() >= least_cases, "{} cases", cases.len());
    for record in &records {
        assert!(
            record["ok"].as_bool().unwrap(),
            "{}, {}: {}\n{}",
            record["item"],
            record["case"],
            record["note"],
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn quick(family: &str, proxy: &str, cases: &str) -> Output {
    let _alone = alone();
    midspan(&[
        "conformance",
        "--quick",
        "--json",
        family,
        "--against",
        proxy,
        "--only",
        cases,
    ])
}

// Each mode over one protocol; `make conformance` tests both protocols.

#[test]
fn forward_listeners() {
    check(&quick("--ipv4", "midspan-forward", "*"), 75);
}

#[test]
fn transparent_listeners() {
    check(&quick("--ipv6", "midspan-transparent", "*"), 75);
}

#[test]
fn transparent_listeners_with_an_early_handshake() {
    let openings = "refused*;*unreachable;administratively*;no answer*;first SYN*;early*;reset*";
    check(&quick("--ipv4", "midspan-early", openings), 20);
}

#[test]
fn transparent_listeners_with_a_cache_of_verdicts() {
    check(&quick("--ipv4", "midspan-express", "*"), 75);
}

/// Cases about opening a connection, and cases in which data of the negotiation could appear in the
/// session.
const EXPLICIT: &str = "refused*;*unreachable;administratively*;no answer*;first SYN*;early*;\
                        server speaks*;half-close by*;FIN right*;reset by*;reset before*;\
                        one-byte*;smaller MTU b*;new session*;slow readers*;five thousand*;out of*";

#[test]
fn socks5_listeners() {
    check(&quick("--ipv4", "midspan-socks5", EXPLICIT), 35);
}

#[test]
fn http_listeners() {
    check(&quick("--ipv6", "midspan-http", EXPLICIT), 35);
}

#[test]
fn listeners_with_the_proxy_protocol() {
    check(&quick("--ipv4", "midspan-proxy-protocol", EXPLICIT), 35);
}

#[test]
fn three_hops() {
    check(&quick("--ipv6", "midspan-hops", EXPLICIT), 35);
}

#[test]
fn three_hops_with_tls() {
    check(&quick("--ipv4", "midspan-hops-tls", EXPLICIT), 35);
}

#[test]
fn three_hops_with_early_answers() {
    check(&quick("--ipv6", "midspan-hops-early", EXPLICIT), 35);
}

#[test]
fn three_hops_from_the_address_of_the_client() {
    let openings = "refused*;*unreachable;administratively*;no answer*;half-close*;reset*";
    check(&quick("--ipv4", "midspan-hops-client-source", openings), 20);
}

#[test]
fn an_ordinary_user_can_run_it() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "conformance",
        "--quick",
        "--ipv4",
        "--json",
        "--against",
        "midspan-forward,midspan-transparent",
        "--only",
        "refused;reset by*;half-close*;slow readers*",
    ];
    let Some(output) = midspan_as_ordinary_user(folder.path(), &arguments) else {
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("user namespaces") {
        return println!("skipped: {errors}");
    }
    check(&output, 8);
}

#[test]
fn what_does_not_exist_is_said() {
    for (arguments, expected) in [
        (["--only", "resett by client before data"], "did you mean"),
        (["--against", "midspan-forwrd"], "did you mean"),
        (["--program", "/does/not/exist"], "No such file"),
    ] {
        let output = midspan(&[&["conformance"], &arguments[..]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// A connection without an answer takes longer than this, so that the case cannot pass.
#[test]
fn a_step_beyond_the_time_limit_is_a_fault() {
    let _alone = alone();
    let output = midspan(&[
        "conformance",
        "--quick",
        "--ipv4",
        "--against",
        "midspan-forward",
        "--only",
        "no answer to a SYN",
        "--timeout",
        "1 s",
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("NO answer to a SYN"), "{errors}");
}
