//! What may differ through Midspan, with the reason. Anything else that differs is a fault.

use midspan_conformance::case::fits;

use crate::gateway::Gateway;
use crate::transcript::Transcript;

/// A line that looks different, for a documented reason.
struct Rule {
    gateways: &'static [Gateway],
    /// The case's name.
    case: &'static str,
    /// The line of plain routing.
    instead_of: &'static str,
    /// What is seen instead.
    seen: &'static [&'static str],
    reason: &'static str,
}

const TRANSPARENT: &[Gateway] = &[Gateway::EndToEnd, Gateway::Early];

const RULES: &[Rule] = &[Rule {
    gateways: &[Gateway::Early],
    case: "curl: closed port",
    instead_of: "curl: exit status 7",
    seen: &["curl: exit status 56"],
    reason: "the client is answered before the server is, so a refusal can only be shown as a \
             reset (docs/transparent.md, \"Handshake\")",
}];

/// How a run with Midspan compares with plain routing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The same lines.
    Same,
    /// Only what is documented; the reasons.
    Explained(Vec<&'static str>),
    /// Anything else.
    Different,
    /// It does not work with plain routing: nothing can be expected.
    Void,
}

/// Compares.
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
        let rule = rules.iter().find(|rule| {
            rule.gateways.contains(&gateway) && rule.case == case && rule.instead_of == line
        });
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

/// How many lines are not as expected, counted by position.
#[must_use]
pub fn differing(expected: &Transcript, seen: &Transcript) -> usize {
    let (expected, seen) = (expected.lines(), seen.lines());
    let same = expected.iter().zip(seen).filter(|(a, b)| a == b).count();
    expected.len().max(seen.len()) - same
}

/// The first place that differs, in words.
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

/// Whether every case that a rule names exists, so that no rule is left over.
#[must_use]
pub fn names_known_cases<'a>(names: impl Iterator<Item = &'a str> + Clone) -> bool {
    RULES
        .iter()
        .all(|rule| names.clone().any(|name| fits(rule.case, name)))
}
