//! Remembers whether clients accept oversized segments.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::hosts::Hosts;
use midspan_units::{Time, TimeSpan};
use serde::{Deserialize, Serialize};

/// How long a client counts as accepting oversized segments.
const ACCEPTS: TimeSpan = TimeSpan::from_seconds(24 * 3600);
/// How long a client that did not accept them is left alone. Shorter: its path may change, and a
/// probe is cheap.
const REFUSES: TimeSpan = TimeSpan::from_seconds(6 * 3600);

/// The result of probes to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The client has acknowledged an oversized segment.
    Accepts,
    /// One oversized segment did not arrive, which may have been chance; another loss decides.
    Doubted,
    /// Oversized segments do not reach the client.
    Refuses,
}

impl Verdict {
    /// How long the verdict holds.
    #[must_use]
    pub const fn lifetime(self) -> TimeSpan {
        match self {
            Self::Accepts => ACCEPTS,
            Self::Doubted | Self::Refuses => REFUSES,
        }
    }
}

/// A bounded memory of [`Verdict`]s by client; the oldest one is forgotten first.
///
/// Times are on the caller's clock, which must not start again if the memory is kept across
/// restarts.
#[derive(Debug, Clone)]
pub struct Verdicts {
    limit: usize,
    known: BTreeMap<IpAddr, (Verdict, Time)>,
    by_age: BTreeSet<(Time, IpAddr)>,
}

impl Verdicts {
    /// No verdict yet; at most `limit` clients are remembered.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            known: BTreeMap::new(),
            by_age: BTreeSet::new(),
        }
    }

    /// The verdict on a client, if there is one that is not too old.
    #[must_use]
    pub fn of(&self, client: IpAddr, now: Time) -> Option<Verdict> {
        let (verdict, since) = self.known.get(&client)?;
        (now.since(*since) < verdict.lifetime()).then_some(*verdict)
    }

    /// Remembers a verdict that was found at `at`.
    pub fn note(&mut self, client: IpAddr, verdict: Verdict, at: Time) {
        if self.limit == 0 {
            return;
        }
        if let Some((_, before)) = self.known.insert(client, (verdict, at)) {
            self.by_age.remove(&(before, client));
        }
        self.by_age.insert((at, client));
        while self.known.len() > self.limit {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                return;
            };
            self.known.remove(&oldest);
        }
    }

    /// All verdicts that are not too old, with the time at which each was found.
    pub fn iter(&self, now: Time) -> impl Iterator<Item = (IpAddr, Verdict, Time)> + '_ {
        self.known
            .iter()
            .map(|(client, (verdict, at))| (*client, *verdict, *at))
            .filter(move |(_, verdict, at)| now.since(*at) < verdict.lifetime())
    }

    /// At most `most` verdicts on these hosts, after the client `after`, also those that are too old.
    pub fn of_hosts(
        &self,
        hosts: &Hosts,
        after: Option<IpAddr>,
        most: usize,
    ) -> impl Iterator<Item = (IpAddr, Verdict, Time)> {
        let entries = hosts.addresses(&self.known, after).take(most);
        entries.map(|(client, (verdict, at))| (*client, *verdict, *at))
    }

    /// Forgets at most `most` verdicts on these hosts; returns how many.
    pub fn forget(&mut self, hosts: &Hosts, most: usize) -> usize {
        let meant: Vec<(IpAddr, Time)> = self
            .of_hosts(hosts, None, most)
            .map(|(client, _, at)| (client, at))
            .collect();
        for (client, at) in &meant {
            self.known.remove(client);
            self.by_age.remove(&(*at, *client));
        }
        meant.len()
    }

    /// Number of remembered clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
