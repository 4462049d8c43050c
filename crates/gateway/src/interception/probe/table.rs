//! The rules that count how far a probe gets, as text. Without I/O.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};
use std::net::IpAddr;

use super::packets::Addresses;

/// Priorities before and after the chains of all other programs.
const FIRST: i64 = -2_000_000_000;
const LAST: i64 = 2_000_000_000;

/// The probe's two kinds of first segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A client's SYN that comes back through `lo` to the listener, and the listener's answer.
    Taken,
    /// A server leg's SYN.
    ServerLeg,
}

/// One SYN.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub kind: Kind,
    /// The index of the case's selection.
    pub selection: usize,
    pub mark: u32,
    pub addresses: Addresses,
}

/// A hook of the kernel at which a firewall can stop a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Received packets, before routing.
    Prerouting,
    /// Packets for this machine.
    Input,
    /// Packets that this machine sends.
    Output,
    /// Packets that leave, after routing.
    Postrouting,
}

impl Hook {
    /// The hook's name in nftables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }
}

impl Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_uppercase())
    }
}

/// The place at which a packet is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Before all other chains at a hook.
    Begin(Hook),
    /// After the chains of this priority.
    Behind(Hook, i64),
    /// After all other chains at a hook.
    End(Hook),
    /// The same places for the listener's answer, at the hook `output`.
    AnswerBegin,
    AnswerBehind(i64),
    AnswerEnd,
    /// On an interface other than `lo`: another routing rule matches the mark.
    Astray,
}

/// The name of a case's counter.
pub fn counter(case: usize, stage: Stage) -> String {
    let stage = match stage {
        Stage::Begin(hook) => format!("{}_begin", hook.name()),
        Stage::Behind(hook, priority) => format!("{}_{}", hook.name(), label(priority)),
        Stage::End(hook) => format!("{}_end", hook.name()),
        Stage::AnswerBegin => "answer_begin".to_owned(),
        Stage::AnswerBehind(priority) => format!("answer_{}", label(priority)),
        Stage::AnswerEnd => "answer_end".to_owned(),
        Stage::Astray => "astray".to_owned(),
    };
    format!("case{case}_{stage}")
}

fn label(priority: i64) -> String {
    match priority < 0 {
        true => format!("m{}", -priority),
        false => format!("p{priority}"),
    }
}

/// The text for `nft -f`: a table that counts the cases at every hook, and drops each case and each
/// answer before it leaves the machine. If `priorities` contains some, the table also counts after
/// each of these.
pub fn ruleset(table: &str, cases: &[Case], priorities: &[(Hook, BTreeSet<i64>)]) -> String {
    let mut text = removal(table);
    // Writing to a string does not fail.
    let _ = writeln!(text, "table inet {table} {{");
    // By this comment, a later run finds the table if this process is killed.
    let comment = crate::interception::own_tables::comment(&[]);
    let _ = writeln!(text, "\tcomment \"{comment}\"");
    let mut counters = BTreeSet::new();
    let mut chains = String::new();
    for hook in [
        Hook::Output,
        Hook::Postrouting,
        Hook::Prerouting,
        Hook::Input,
    ] {
        let wanted = priorities.iter().find(|(other, _)| *other == hook);
        let between = wanted.iter().flat_map(|(_, priorities)| priorities);
        let positions = std::iter::once(Position::Begin)
            .chain(between.map(|priority| Position::Behind(*priority)))
            .chain([Position::End]);
        for position in positions {
            chain(&mut chains, &mut counters, hook, position, cases);
        }
    }
    for name in counters {
        let _ = writeln!(text, "\tcounter {name} {{ }}");
    }
    text.push_str(&chains);
    text.push_str("}\n");
    text
}

/// The text that removes the table, if there is one.
pub fn removal(table: &str) -> String {
    format!("table inet {table}\ndelete table inet {table}\n")
}

#[derive(Clone, Copy)]
enum Position {
    Begin,
    Behind(i64),
    End,
}

fn chain(
    text: &mut String,
    counters: &mut BTreeSet<String>,
    hook: Hook,
    position: Position,
    cases: &[Case],
) {
    let (name, priority) = match position {
        Position::Begin => ("begin".to_owned(), FIRST),
        // A chain that is added later comes before older chains of the same priority.
        Position::Behind(priority) => (label(priority), priority.saturating_add(1)),
        Position::End => ("end".to_owned(), LAST),
    };
    let _ = writeln!(text, "\tchain {}_{name} {{", hook.name());
    let _ = writeln!(
        text,
        "\t\ttype filter hook {} priority {priority}; policy accept;",
        hook.name()
    );
    for (index, case) in cases.iter().enumerate() {
        for (matches, stage, verdict) in rules(hook, position, case) {
            let counter = counter(index, stage);
            let _ = writeln!(text, "\t\t{matches} counter name \"{counter}\"{verdict}");
            counters.insert(counter);
        }
    }
    let _ = writeln!(text, "\t}}");
}

fn rules(hook: Hook, position: Position, case: &Case) -> Vec<(String, Stage, &'static str)> {
    if case.kind == Kind::ServerLeg && hook != Hook::Output {
        return Vec::new();
    }
    let syn = syn(&case.addresses);
    let stage = match position {
        Position::Begin => Stage::Begin(hook),
        Position::Behind(priority) => Stage::Behind(hook, priority),
        Position::End => Stage::End(hook),
    };
    let mut rules = Vec::new();
    let is_end = matches!((hook, position), (Hook::Output, Position::End));
    match (case.kind, is_end) {
        (Kind::ServerLeg, true) => rules.push((syn, stage, " drop")),
        (Kind::Taken, true) => {
            rules.push((format!("oifname != \"lo\" {syn}"), Stage::Astray, " drop"));
            rules.push((syn, stage, ""));
        }
        (_, false) => rules.push((syn, stage, "")),
    }
    if case.kind == Kind::Taken && hook == Hook::Output {
        let (stage, verdict) = match position {
            Position::Begin => (Stage::AnswerBegin, ""),
            Position::Behind(priority) => (Stage::AnswerBehind(priority), ""),
            Position::End => (Stage::AnswerEnd, " drop"),
        };
        rules.push((answer(&case.addresses), stage, verdict));
    }
    rules
}

/// The destination is not compared, because a host may translate it.
fn syn(addresses: &Addresses) -> String {
    format!(
        "{} saddr {} tcp sport {} tcp sequence {}",
        family(addresses.client),
        addresses.client,
        addresses.client_port,
        addresses.sequence,
    )
}

fn answer(addresses: &Addresses) -> String {
    format!(
        "{} daddr {} tcp dport {} tcp ackseq {}",
        family(addresses.client),
        addresses.client,
        addresses.client_port,
        addresses.sequence.wrapping_add(1),
    )
}

const fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "ip",
        IpAddr::V6(_) => "ip6",
    }
}
