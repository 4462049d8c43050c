//! Draws conclusions from the counters. Without I/O.

use std::collections::BTreeSet;

use super::table::{self, Case, Hook, Kind, Stage};
use midspan_linux::nftables::BaseChain;
use midspan_linux::raw_packet::Family;

/// The names of the counters that are not zero.
pub type Seen = BTreeSet<String>;

/// How far a case got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// As far as it should, or unknown: the listener received the SYN and had no route for its
    /// answer.
    Passed,
    /// Not even to the first hook: there is no route, or this machine does not have the family.
    Unsent,
    Stopped(At),
}

/// The place at which a case was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Hook(Hook),
    /// The listener's answer, at the hook `output`.
    Answer,
    Astray,
}

impl At {
    pub const fn hook(self) -> Option<Hook> {
        match self {
            Self::Hook(hook) => Some(hook),
            Self::Answer => Some(Hook::Output),
            Self::Astray => None,
        }
    }
}

impl Reach {
    pub const fn stopped_at(self) -> Option<At> {
        match self {
            Self::Stopped(at) => Some(at),
            Self::Passed | Self::Unsent => None,
        }
    }
}

pub fn judge(case: &Case, seen: &Seen, index: usize) -> Reach {
    let has = |stage| seen.contains(&table::counter(index, stage));
    let stopped = |hook| Reach::Stopped(At::Hook(hook));
    if !has(Stage::Begin(Hook::Output)) {
        return Reach::Unsent;
    }
    if case.kind == Kind::ServerLeg {
        return match has(Stage::End(Hook::Output)) {
            true => Reach::Passed,
            false => stopped(Hook::Output),
        };
    }
    if has(Stage::AnswerEnd) {
        Reach::Passed
    } else if has(Stage::AnswerBegin) {
        Reach::Stopped(At::Answer)
    } else if has(Stage::End(Hook::Input)) {
        Reach::Passed
    } else if has(Stage::Begin(Hook::Input)) {
        stopped(Hook::Input)
    } else if has(Stage::Begin(Hook::Prerouting)) {
        stopped(Hook::Prerouting)
    } else if has(Stage::Astray) {
        Reach::Stopped(At::Astray)
    } else if has(Stage::End(Hook::Output)) {
        stopped(Hook::Postrouting)
    } else {
        stopped(Hook::Output)
    }
}

/// The stopped cases, if no other server of the same listener and family was reached.
pub fn stopped<'a>(cases: &'a [Case], seen: &[Seen]) -> Vec<(&'a Case, At)> {
    let judged: Vec<(&Case, Reach)> = cases
        .iter()
        .zip(seen)
        .enumerate()
        .map(|(index, (case, seen))| (case, judge(case, seen, index)))
        .collect();
    let group = |case: &Case| (case.kind, case.selection, case.addresses.client.is_ipv4());
    let passed: BTreeSet<_> = judged
        .iter()
        .filter(|(_, reach)| *reach == Reach::Passed)
        .map(|(case, _)| group(case))
        .collect();
    judged
        .into_iter()
        .filter(|(case, _)| !passed.contains(&group(case)))
        .filter_map(|(case, reach)| Some((case, reach.stopped_at()?)))
        .collect()
}

/// The chains of the first priority after which a case was not counted.
pub fn stopping(
    index: usize,
    at: At,
    seen: &Seen,
    chains: &[BaseChain],
    family: Family,
) -> Vec<BaseChain> {
    let stage = |priority| match at {
        At::Hook(hook) => Some(Stage::Behind(hook, priority)),
        At::Answer => Some(Stage::AnswerBehind(priority)),
        At::Astray => None,
    };
    let is_of_family = |chain: &BaseChain| match family {
        Family::V4 => chain.family != "ip6",
        Family::V6 => chain.family != "ip",
    };
    let guilty = chains.iter().map(|chain| chain.priority).find(|priority| {
        stage(*priority).is_some_and(|stage| !seen.contains(&table::counter(index, stage)))
    });
    chains
        .iter()
        .filter(|chain| Some(chain.priority) == guilty && is_of_family(chain))
        .cloned()
        .collect()
}
