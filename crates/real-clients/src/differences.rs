//! Permitted differences between plain routing and Midspan, with their reasons. Any other
//! difference is a fault.

use midspan_conformance::case::fits;

use crate::gateway::Gateway;
use crate::transcript::Transcript;

/// A line that may differ, for a documented reason.
struct Rule {
    gateways: &'static [Gateway],
    /// The case's name.
    case: &'static str,
    /// The line with plain routing.
    instead_of: &'static str,
    /// The lines with Midspan instead.
    seen: &'static [&'static str],
    reason: &'static str,
}

const TRANSPARENT: &[Gateway] = &[Gateway::EndToEnd, Gateway::Early];

const ANSWERED_EARLY: &str = "Midspan answers the client before the server answers, so it can report \
                              a refusal only by a reset (docs/transparent.md, \"Handshake\")";

const RULES: &[Rule] = &[
    Rule {
        gateways: &[Gateway::Early],
        case: "curl: closed port",
        instead_of: "curl: exit status 7",
        seen: &["curl: exit status 56"],
        reason: ANSWERED_EARLY,
    },
    // The reset arrives before curl sends its request.
    Rule {
        gateways: &[Gateway::Early],
        case: "curl: closed port",
        instead_of: "curl: exit status 7",
        seen: &["curl: exit status 55"],
        reason: ANSWERED_EARLY,
    },
    Rule {
        gateways: TRANSPARENT,
        case: "urgent data",
        instead_of: "bytes in line: 2000",
        seen: &["bytes in line: 2001"],
        reason: "Midspan passes urgent data on at its place in the stream, as RFC 6093 recommends \
                 for receivers, without the urgent pointer (docs/conformance.md)",
    },
    Rule {
        gateways: TRANSPARENT,
        case: "MPTCP: mptcpize curl to a server with MPTCP",
        instead_of: "the server has got MP_CAPABLE",
        seen: &["the server has not got MP_CAPABLE"],
        reason: "an intercepted connection falls back to TCP (docs/transparent.md, \"Limits\")",
    },
    Rule {
        gateways: TRANSPARENT,
        case: "ct count: a limit of 5 connections in the forward chain",
        instead_of: "the limit holds",
        seen: &["the limit does not hold"],
        reason: BLIND,
    },
    Rule {
        gateways: TRANSPARENT,
        case: "a rule that drops, added to the forward chain while a session runs",
        instead_of: "second: no answer",
        seen: &["second: an answer of 1000"],
        reason: BLIND,
    },
    Rule {
        gateways: TRANSPARENT,
        case: "DSCP of the client, of the server",
        instead_of: "client: segments have the other end's class",
        seen: &["client: no segment has the other end's class"],
        reason: CLASS,
    },
    Rule {
        gateways: TRANSPARENT,
        case: "traceroute -T",
        instead_of: "hops: gateway router server",
        seen: &["hops: gateway server"],
        reason: "Midspan answers the SYN once the server has answered, so the server is shown at \
                 the hop behind the gateway (docs/transparent.md, \"Limits\")",
    },
];

const BLIND: &str = "of a connection that Midspan carries, only the first segment passes the chain \
                     forward (docs/gateway.md, \"What the firewall no longer sees\")";

const CLASS: &str = "both legs have the DSCP of the client's SYN, not the server's (docs/transparent.md, \
                     \"Limits\")";

/// The result of comparing a run with Midspan to plain routing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The same lines.
    Same,
    /// Only documented differences, with their reasons.
    Explained(Vec<&'static str>),
    /// Any other difference.
    Different,
    /// The case does not work with plain routing, so no comparison is possible.
    Void,
}

/// Compares the lines of a run with those of plain routing.
#[must_use]
pub fn compare(gateway: Gateway, case: &str, expected: &Transcript, seen: &Transcript) -> Verdict {
    by_rules(RULES, gateway, case, expected, seen)
}

fn by_rules(
    rules: &[Rule],
    gateway: Gateway,
    case: &str,
    expected: &Transcript,
    seen: &Transcript,
) -> Verdict {
    if expected == seen {
        return Verdict::Same;
    }
    let mut reasons = Vec::new();
    let mut explained = Transcript::default();
    for line in expected.lines() {
        let mut candidates = rules.iter().filter(|rule| {
            rule.gateways.contains(&gateway) && rule.case == case && rule.instead_of == line
        });
        // If a line may differ in several ways, the lines that were seen here decide.
        let rest = seen.lines().get(explained.lines().len()..);
        let fits = |rule: &&Rule| rest.is_some_and(|rest| begins_with(rest, rule.seen));
        let rule = candidates.clone().find(fits).or_else(|| candidates.next());
        match rule {
            None => explained.add(line.clone()),
            Some(rule) => {
                for line in rule.seen {
                    explained.add((*line).to_owned());
                }
                if !reasons.contains(&rule.reason) {
                    reasons.push(rule.reason);
                }
            }
        }
    }
    if explained == *seen {
        Verdict::Explained(reasons)
    } else {
        Verdict::Different
    }
}

fn begins_with(lines: &[String], beginning: &[&str]) -> bool {
    lines.len() >= beginning.len() && lines.iter().zip(beginning).all(|(a, b)| a == b)
}

/// The number of lines that differ from the expected ones, compared by position.
#[must_use]
pub fn differing(expected: &Transcript, seen: &Transcript) -> usize {
    let (expected, seen) = (expected.lines(), seen.lines());
    let same = expected.iter().zip(seen).filter(|(a, b)| a == b).count();
    expected.len().max(seen.len()) - same
}

/// A text with the first place that differs.
#[must_use]
pub fn describe(expected: &Transcript, seen: &Transcript) -> String {
    let (expected, seen) = (expected.lines(), seen.lines());
    let same = expected
        .iter()
        .zip(seen)
        .take_while(|(a, b)| a == b)
        .count();
    let line = |lines: &[String]| match lines.get(same) {
        Some(line) => format!("\"{line}\""),
        None => "nothing".to_owned(),
    };
    let place = match same.checked_sub(1).and_then(|before| expected.get(before)) {
        Some(before) => format!("after \"{before}\": "),
        None => String::new(),
    };
    format!("{place}{}; not: {}", line(seen), line(expected))
}

/// Whether each rule fits at least one of the cases with these names. A rule whose cases were
/// removed has to be removed too.
#[must_use]
pub fn names_known_cases<'a>(names: impl Iterator<Item = &'a str> + Clone) -> bool {
    RULES
        .iter()
        .all(|rule| names.clone().any(|name| fits(rule.case, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: &str = "so it is documented";

    const fn rule(seen: &'static [&'static str]) -> Rule {
        Rule {
            gateways: &[Gateway::Early],
            case: "a case",
            instead_of: "refused",
            seen,
            reason: REASON,
        }
    }

    const SAMPLE: &[Rule] = &[rule(&["connected", "reset"]), rule(&["broken pipe"])];

    fn verdict(gateway: Gateway, case: &str, expected: &str, seen: &str) -> Verdict {
        let [expected, seen] = [expected, seen].map(Transcript::of);
        by_rules(SAMPLE, gateway, case, &expected, &seen)
    }

    #[test]
    fn equal_lines_are_the_same() {
        for text in ["", "a\nb\nend", "refused"] {
            assert_eq!(verdict(Gateway::Early, "a case", text, text), Verdict::Same);
        }
    }

    #[test]
    fn a_rule_explains_its_line_in_its_case_with_its_gateway() {
        let (expected, seen) = ("a\nrefused\nend", "a\nconnected\nreset\nend");
        let explained = Verdict::Explained(vec![REASON]);
        assert_eq!(verdict(Gateway::Early, "a case", expected, seen), explained);
        // The same line may differ in another way.
        let other = verdict(Gateway::Early, "a case", expected, "a\nbroken pipe\nend");
        assert_eq!(other, explained);
        for (gateway, case) in [(Gateway::EndToEnd, "a case"), (Gateway::Early, "another")] {
            assert_eq!(verdict(gateway, case, expected, seen), Verdict::Different);
        }
    }

    #[test]
    fn whatever_else_differs_is_different() {
        let expected = "a\nrefused\nend";
        for seen in [
            "",
            "a\nend",
            "a\nconnected\nend",
            "b\nconnected\nreset\nend",
            "a\nconnected\nreset\nend\nmore",
            "a\nconnected\nreset",
            "a\nconnected\nreset\nmidspan: carried 0 sessions, not 1",
        ] {
            let verdict = verdict(Gateway::Early, "a case", expected, seen);
            assert_eq!(verdict, Verdict::Different, "{seen:?}");
        }
    }

    #[test]
    fn the_first_difference_is_described() {
        let [expected, seen, shorter] = ["a\nb\nc", "a\nx\nc", "a"].map(Transcript::of);
        assert_eq!(describe(&expected, &seen), "after \"a\": \"x\"; not: \"b\"");
        assert_eq!(
            describe(&expected, &shorter),
            "after \"a\": nothing; not: \"b\""
        );
        assert_eq!(
            describe(&seen, &Transcript::default()),
            "nothing; not: \"a\""
        );
        assert_eq!(differing(&expected, &seen), 1);
        assert_eq!(differing(&expected, &shorter), 2);
        assert_eq!(differing(&expected, &expected), 0);
    }
}
