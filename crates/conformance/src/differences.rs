//! Differences that no proxy can avoid, or that are documented, with their reasons. Any other
//! difference is a fault.

use rustix::io::Errno;

use crate::proxies::Proxy;
use crate::transcript::{self, Event, Log, Transcript};

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// A rule: which event may differ, and for which reason.
struct Rule {
    applies: fn(&dyn Proxy, case: &str) -> bool,
    sides: &'static [Side],
    instead_of: fn(&Event) -> bool,
    seen: fn(&Event) -> Vec<Event>,
    reason: &'static str,
}

const BOTH: &[Side] = &[Side::Client, Side::Server];

const RULES: &[Rule] = &[
    Rule {
        applies: |proxy, _| proxy.answers_early(),
        sides: &[Side::Client],
        instead_of: |event| matches!(event, Event::ConnectFailed(_)),
        seen: |_| vec![Event::Connected, Event::Failed(Errno::CONNRESET)],
        reason: "the proxy answers the client before the server answers, so it can report a later \
                 refusal or error only by a reset",
    },
    Rule {
        applies: |proxy, _| proxy.reports_http_status(),
        sides: &[Side::Client],
        instead_of: |event| {
            matches!(
                event,
                Event::ConnectFailed(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH)
            )
        },
        seen: |_| vec![Event::ConnectRefused(502)],
        reason: "an HTTP proxy reports by one status, 502, that a server cannot be reached, except \
                 for a time-out (504) and a forbidden connection (403)",
    },
    Rule {
        applies: |proxy, _| proxy.is_overlay(),
        sides: &[Side::Client],
        instead_of: |event| {
            matches!(
                event,
                Event::ConnectFailed(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS)
            )
        },
        seen: |_| vec![Event::ConnectFailed(Errno::CONNREFUSED)],
        reason: "the exit of an overlay has the ICMP error; the ingress can only answer a SYN that it holds, \
                 and refuses it with a reset",
    },
    Rule {
        applies: |_, _| true,
        sides: BOTH,
        instead_of: |event| *event == Event::Failed(Errno::TIMEDOUT),
        seen: |_| vec![Event::Failed(Errno::CONNRESET)],
        reason: "the other leg has timed out; the proxy can report this to an end whose own leg is \
                 alive only by a reset",
    },
    Rule {
        applies: |proxy, case| proxy.is_midspan() && case.starts_with("urgent byte"),
        sides: &[Side::Server],
        instead_of: |event| matches!(event, Event::UrgentAnnounced | Event::ReceivedUrgent),
        seen: |event| match event {
            Event::ReceivedUrgent => vec![Event::Received(1)],
            _ => Vec::new(),
        },
        reason: "Midspan passes urgent data on at its place in the stream, as RFC 6093 recommends \
                 for receivers, without the urgent pointer",
    },
];

/// The result of comparing a run with a proxy to the expected events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The same events at both ends.
    Same,
    /// Only differences that a rule permits, with the reasons of these rules.
    Explained(Vec<&'static str>),
    /// Any other difference.
    Different,
}

/// Compares the events of a run with the expected ones.
#[must_use]
pub fn compare(proxy: &dyn Proxy, case: &str, expected: &Transcript, seen: &Transcript) -> Verdict {
    if expected == seen {
        return Verdict::Same;
    }
    let mut reasons = Vec::new();
    let explained = Transcript {
        client: with_rules(proxy, case, Side::Client, &expected.client, &mut reasons),
        server: with_rules(proxy, case, Side::Server, &expected.server, &mut reasons),
        proxy: expected.proxy.clone(),
    };
    if explained == *seen {
        Verdict::Explained(reasons)
    } else {
        Verdict::Different
    }
}

/// The expected events after all rules that apply have replaced events.
fn with_rules(
    proxy: &dyn Proxy,
    case: &str,
    side: Side,
    expected: &[Event],
    reasons: &mut Vec<&'static str>,
) -> Vec<Event> {
    let mut events = expected.to_vec();
    for rule in RULES {
        if !rule.sides.contains(&side) || !(rule.applies)(proxy, case) {
            continue;
        }
        let mut applied = false;
        // The log also joins consecutive bytes into one event, as in the run.
        let log = Log::default();
        for event in events {
            if (rule.instead_of)(&event) {
                applied = true;
                (rule.seen)(&event)
                    .into_iter()
                    .for_each(|event| log.add(event));
            } else {
                log.add(event);
            }
        }
        events = log.events();
        if applied && !reasons.contains(&rule.reason) {
            reasons.push(rule.reason);
        }
    }
    events
}

/// A text with the first place where the client, the server or the proxy differs.
#[must_use]
pub fn describe(expected: &Transcript, seen: &Transcript) -> String {
    let ends = [
        ("client", &expected.client, &seen.client),
        ("server", &expected.server, &seen.server),
        ("proxy", &expected.proxy, &seen.proxy),
    ];
    let mut texts = Vec::new();
    for (name, expected, seen) in ends {
        let same = expected
            .iter()
            .zip(seen)
            .take_while(|(a, b)| a == b)
            .count();
        if same == expected.len() && same == seen.len() {
            continue;
        }
        let (before, here) = (&expected[..same], at_most(&expected[same..], 1));
        let seen = at_most(&seen[same..], 2);
        texts.push(match (name, before.last()) {
            ("proxy", _) => seen,
            (_, None) => format!("{name}: {seen}; not: {here}"),
            (_, Some(event)) => format!("{name}, after \"{event}\": {seen}; not: {here}"),
        });
    }
    texts.join("; ")
}

/// The first `count` events as one text.
fn at_most(events: &[Event], count: usize) -> String {
    if events.is_empty() {
        return "nothing".to_owned();
    }
    transcript::list(&events[..count.min(events.len())])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::proxies::known;

    fn proxy(name: &str) -> Box<dyn Proxy> {
        let mut all = known(Path::new("midspan")).into_iter();
        all.find(|proxy| proxy.name() == name).unwrap()
    }

    fn client(events: &[Event]) -> Transcript {
        Transcript {
            client: events.to_vec(),
            ..Transcript::default()
        }
    }

    const REFUSED: Event = Event::ConnectFailed(Errno::CONNREFUSED);
    const RESET: Event = Event::Failed(Errno::CONNRESET);

    #[test]
    fn a_refusal_is_a_reset_only_where_the_client_is_answered_early() {
        let expected = client(&[REFUSED]);
        let seen = client(&[Event::Connected, RESET]);
        for (name, explained) in [
            ("midspan-forward", true),
            ("midspan-early", true),
            ("midspan-proxy-protocol", true),
            ("haproxy", true),
            ("midspan-transparent", false),
            ("midspan-socks5", false),
            ("midspan-http", false),
        ] {
            let verdict = compare(&*proxy(name), "refused", &expected, &seen);
            assert_eq!(
                matches!(verdict, Verdict::Explained(_)),
                explained,
                "{name}"
            );
        }
    }

    #[test]
    fn an_end_in_good_order_is_never_explained() {
        for name in ["midspan-forward", "midspan-transparent", "haproxy", "nginx"] {
            for expected in [REFUSED, RESET, Event::Failed(Errno::TIMEDOUT)] {
                let seen = client(&[Event::Connected, Event::Fin]);
                let verdict = compare(&*proxy(name), "any", &client(&[expected]), &seen);
                assert_eq!(verdict, Verdict::Different, "{name}");
            }
        }
    }

    #[test]
    fn only_http_has_one_status_for_several_errors() {
        let refused = client(&[Event::ConnectRefused(502)]);
        let compared = |name: &str, error: Errno| {
            let expected = client(&[Event::ConnectFailed(error)]);
            compare(&*proxy(name), "refused", &expected, &refused)
        };
        for error in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::NETUNREACH] {
            let verdict = compared("midspan-http", error);
            assert!(matches!(verdict, Verdict::Explained(_)), "{error}");
            assert_eq!(compared("midspan-socks5", error), Verdict::Different);
        }
        for error in [Errno::TIMEDOUT, Errno::ACCESS] {
            assert_eq!(compared("midspan-http", error), Verdict::Different);
        }
    }

    #[test]
    fn an_overlay_refuses_what_cannot_be_reached() {
        for error in [Errno::HOSTUNREACH, Errno::ACCESS, Errno::TIMEDOUT] {
            for (name, explained) in [
                ("midspan-hops", error != Errno::TIMEDOUT),
                ("midspan-transparent", false),
            ] {
                let expected = client(&[Event::ConnectFailed(error)]);
                let verdict = compare(&*proxy(name), "any", &expected, &client(&[REFUSED]));
                let found = matches!(verdict, Verdict::Explained(_));
                assert_eq!(found, explained, "{name} {error}");
            }
        }
    }

    #[test]
    fn what_the_proxy_leaves_behind_differs() {
        let mut seen = client(&[Event::Connected]);
        seen.proxy = vec![Event::Other("connections are left at the proxy")];
        let verdict = compare(&*proxy("nginx"), "any", &client(&[Event::Connected]), &seen);
        assert_eq!(verdict, Verdict::Different);
    }

    #[test]
    fn urgent_data_is_in_line_through_midspan_and_nobody_else() {
        let of = |events: &[Event]| Transcript {
            server: events.to_vec(),
            ..Transcript::default()
        };
        let expected = of(&[
            Event::Received(10),
            Event::UrgentAnnounced,
            Event::ReceivedUrgent,
            Event::Received(10),
        ]);
        let in_line = of(&[Event::Received(21)]);
        let lost = of(&[Event::Received(20)]);
        let case = "urgent byte";
        let verdict = |name, seen| compare(&*proxy(name), case, &expected, seen);
        assert!(matches!(
            verdict("midspan-early", &in_line),
            Verdict::Explained(_)
        ));
        assert_eq!(verdict("midspan-early", &lost), Verdict::Different);
        assert_eq!(verdict("haproxy", &in_line), Verdict::Different);
    }

    #[test]
    fn a_difference_is_described_where_it_begins() {
        let expected = client(&[Event::Connected, Event::Received(5), RESET]);
        let seen = client(&[Event::Connected, Event::Received(5), Event::Fin]);
        let text = describe(&expected, &seen);
        assert_eq!(
            text,
            "client, after \"gets 5\": FIN; not: receive: ECONNRESET"
        );
    }
}
