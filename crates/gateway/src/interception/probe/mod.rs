//! Tries with real packets whether the host's firewall lets intercepted connections work.
//!
//! For each listener, each family and each of two server addresses, the probe sends two SYNs as Midspan sends
//! them: a client's SYN that comes back through `lo`, and a server leg's SYN. Both come from a client's
//! address. Counters before and after the host's rules at every hook count the SYNs and the listener's
//! answer. The last chain at the hook `output` drops the server leg's SYN, the listener's answer, and a
//! client's SYN that would leave by another interface than `lo`, so that none of them leaves the machine.
//!
//! If a packet is counted before a hook's rules and not after them, these rules have stopped it. Then a
//! second attempt counts after every priority of that hook, to find the chain.

mod addresses;
mod packets;
mod remedy;
mod table;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::InterceptionError;
use super::plan::{InterceptionNumbers, Marks, Selection};
use addresses::{SERVERS, clients, fresh};
use midspan_linux::ipv6::{self, Missing};
use midspan_linux::netlink::Netlink;
use midspan_linux::nftables::{self, BaseChain};
use midspan_linux::raw_packet::{Family, RawSocket};
pub use table::Hook;
use table::{Case, Kind};
use verdict::{Seen, judge, stopped, stopping};

/// A packet that is not counted within this time counts as stopped. It is sent a second time after
/// half of the time.
const LIMIT: Duration = Duration::from_millis(300);
/// The pause between two reads of the counters, each of which runs `nft`.
const PAUSE: Duration = Duration::from_millis(30);

/// The server's port for a listener that intercepts all ports.
const PORT: u16 = 443;

/// A hook at which the host stops packets of intercepted connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The hook; `None` if another routing rule leads packets with Midspan's marks elsewhere.
    pub hook: Option<Hook>,
    /// The families whose packets are stopped.
    pub families: Vec<Family>,
    /// The chains that stop the packets; empty if nftables has no such chain (iptables-legacy).
    pub chains: Vec<BaseChain>,
    /// Shell commands, each of which adds a missing rule.
    pub commands: Vec<String>,
    /// The missing rule in the syntax of a file of nftables, for [`chains`](Self::chains).
    pub rule: Option<String>,
}

impl Obstacle {
    /// The fault, in one sentence without a full stop.
    #[must_use]
    pub fn finding(&self) -> String {
        let families: Vec<&str> = self
            .families
            .iter()
            .map(|family| match family {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            })
            .collect();
        let families = families.join(" and ");
        let Some(hook) = self.hook else {
            return format!(
                "another routing rule takes packets with Midspan's marks ({families}) before \
                 Midspan's own rule"
            );
        };
        let chains: Vec<String> = self
            .chains
            .iter()
            .map(|chain| format!("\"{} {} {}\"", chain.family, chain.table, chain.name))
            .collect();
        let chains = match &chains[..] {
            [] => String::new(),
            chains => format!(", in chain {}", chains.join(" or ")),
        };
        format!("the host's firewall stops intercepted {families} connections at {hook}{chains}")
    }

    /// What to do about the fault, as one line.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.commands.join("; ")
    }
}

impl Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; add: {}", self.finding(), self.remedy())
    }
}

/// Sends probes. Rules and routes must be in force, and the listeners must listen. New connections
/// need not be intercepted.
pub struct Probe {
    numbers: InterceptionNumbers,
    selections: Vec<Selection>,
    marks: Marks,
    ipv4: RawSocket,
    /// The socket for IPv6, if the kernel has IPv6.
    ipv6: Option<RawSocket>,
    changes: u32,
}

impl Probe {
    /// Opens the sockets, in the network namespace of the calling thread. Needs `CAP_NET_RAW`;
    /// [`run`](Self::run) needs `CAP_NET_ADMIN` only.
    ///
    /// # Errors
    /// The errors of `socket(2)`.
    pub fn new(
        numbers: &InterceptionNumbers,
        selections: &[Selection],
        marks: &Marks,
    ) -> Result<Self, InterceptionError> {
        let open = |family| {
            RawSocket::open(family)
                .map(RawSocket::from_socket)
                .map_err(InterceptionError::Probe)
        };
        Ok(Self {
            numbers: numbers.clone(),
            selections: selections.to_vec(),
            marks: marks.clone(),
            ipv4: open(Family::V4)?,
            ipv6: match ipv6::missing() {
                Some(Missing::Sockets) => None,
                _ => Some(open(Family::V6)?),
            },
            changes: 0,
        })
    }

    /// How often the probe itself has changed rules so far. With this number, its changes can be
    /// distinguished from those of other programs ([`nftables::generation`]).
    #[must_use]
    pub const fn changes(&self) -> u32 {
        self.changes
    }

    /// Tries all cases. Returns the obstacles; an empty list if there is none. Takes some
    /// hundredths of a second without obstacles, and up to a second with one. Meanwhile there is
    /// one more table, whose rules concern the probe's packets only.
    ///
    /// # Errors
    /// Rules cannot be set or read, perhaps because another program changes rules at the same
    /// moment.
    pub fn run(&mut self) -> Result<Vec<Obstacle>, InterceptionError> {
        let cases = self.cases()?;
        if cases.is_empty() {
            // Nothing is intercepted.
            return Ok(Vec::new());
        }
        let reached = self.attempt(&cases, &[])?;
        let stopped = stopped(&cases, &reached);
        if stopped.is_empty() {
            return Ok(Vec::new());
        }
        let cases: Vec<Case> = stopped.iter().map(|(case, _)| **case).collect();
        let mut chains = BTreeMap::new();
        let mut priorities = Vec::new();
        for hook in stopped.iter().filter_map(|(_, at)| at.hook()) {
            if chains.contains_key(&hook) {
                continue;
            }
            let others: Vec<BaseChain> = nftables::base_chains(hook.name())?
                .into_iter()
                .filter(|chain| !self.is_ours(&chain.table))
                .collect();
            priorities.push((hook, others.iter().map(|chain| chain.priority).collect()));
            chains.insert(hook, others);
        }
        let reached = self.attempt(&cases, &priorities)?;
        let mut found: BTreeMap<Option<Hook>, (BTreeSet<Family>, BTreeSet<BaseChain>)> =
            BTreeMap::new();
        for (index, (case, seen)) in cases.iter().zip(&reached).enumerate() {
            let Some(at) = judge(case, seen, index).stopped_at() else {
                continue;
            };
            let family = Family::of(case.addresses.client);
            let (families, guilty) = found.entry(at.hook()).or_default();
            families.insert(family);
            let all = at.hook().and_then(|hook| chains.get(&hook));
            guilty.extend(stopping(
                index,
                at,
                seen,
                all.map_or(&[][..], Vec::as_slice),
                family,
            ));
        }
        Ok(found
            .into_iter()
            .map(|(hook, (families, guilty))| self.obstacle(hook, families, guilty))
            .collect())
    }

    /// Removes the leftovers of a killed probe.
    pub(super) fn remove(numbers: &InterceptionNumbers) -> Result<(), nftables::NftablesError> {
        nftables::apply(&table::removal(&name(numbers)))
    }

    fn obstacle(
        &self,
        hook: Option<Hook>,
        families: BTreeSet<Family>,
        chains: BTreeSet<BaseChain>,
    ) -> Obstacle {
        let families: Vec<Family> = families.into_iter().collect();
        let chains: Vec<BaseChain> = chains.into_iter().collect();
        let commands = match hook {
            Some(hook) => remedy::commands(hook, &self.marks, &chains, &families),
            None => vec![format!(
                "# in {}: [interception] rule_priority, lower than that of the rule that takes \
                 the mark (ip rule show), now {}",
                "the configuration", self.numbers.rule_priority
            )],
        };
        Obstacle {
            hook,
            families,
            chains,
            commands,
            rule: hook.map(|hook| remedy::rule(hook, &self.marks)),
        }
    }

    fn is_ours(&self, table: &str) -> bool {
        table
            .strip_prefix(self.numbers.table.as_str())
            .is_some_and(|rest| matches!(rest, "" | "_queue" | "_probe" | "_timeouts"))
    }

    fn cases(&self) -> Result<Vec<Case>, InterceptionError> {
        let addresses = Netlink::open()?.addresses()?;
        // If a family is switched off, no counter counts its packet; a firewall is not the reason.
        let has_ipv6 = self.ipv6.is_some() && ipv6::missing().is_none();
        let mut cases = Vec::new();
        for (index, (selection, mark)) in self
            .selections
            .iter()
            .zip(&self.marks.listeners)
            .enumerate()
        {
            let (four, six) = clients(selection, &addresses);
            let wanted = [(selection.ipv4_port, four), (selection.ipv6_port, six)];
            for client in wanted
                .iter()
                .filter(|(_, client)| client.is_ipv4() || has_ipv6)
                .filter_map(|(port, client)| port.map(|_| *client))
            {
                for (server4, server6) in SERVERS {
                    let server = if client.is_ipv4() { server4 } else { server6 };
                    for (kind, mark) in [
                        (Kind::Taken, *mark),
                        (Kind::ServerLeg, self.marks.server_leg),
                    ] {
                        cases.push(Case {
                            kind,
                            selection: index,
                            mark,
                            addresses: fresh(client, server, port(selection)),
                        });
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Sends all cases; returns for each case the counters that counted it.
    fn attempt(
        &mut self,
        cases: &[Case],
        priorities: &[(Hook, BTreeSet<i64>)],
    ) -> Result<Vec<Seen>, InterceptionError> {
        // With new ports and numbers, because connection tracking may still have entries of an
        // earlier attempt.
        let cases: Vec<Case> = cases.iter().map(Case::again).collect();
        let table = name(&self.numbers);
        nftables::apply(&table::ruleset(&table, &cases, priorities))?;
        self.changes = self.changes.wrapping_add(1);
        let result = self.send_and_look(&table, &cases);
        for case in cases.iter().filter(|case| case.kind == Kind::Taken) {
            self.send(case, &packets::reset(&case.addresses));
        }
        nftables::apply(&table::removal(&table))?;
        self.changes = self.changes.wrapping_add(1);
        result
    }

    fn send_and_look(
        &mut self,
        table: &str,
        cases: &[Case],
    ) -> Result<Vec<Seen>, InterceptionError> {
        let start = Instant::now();
        let mut sent_again = false;
        self.send_all(cases);
        loop {
            let counters: Seen = nftables::counters("inet", table)?
                .into_iter()
                .filter_map(|(name, packets)| (packets > 0).then_some(name))
                .collect();
            let all = vec![counters; cases.len()];
            let elapsed = start.elapsed();
            if stopped(cases, &all).is_empty() || elapsed >= LIMIT {
                return Ok(all);
            }
            if elapsed >= LIMIT / 2 && !sent_again {
                sent_again = true;
                self.send_all(cases);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn send_all(&mut self, cases: &[Case]) {
        for case in cases {
            self.send(case, &packets::syn(&case.addresses));
        }
    }

    fn send(&mut self, case: &Case, packet: &[u8]) {
        let socket = match case.addresses.client {
            IpAddr::V4(_) => Some(&mut self.ipv4),
            IpAddr::V6(_) => self.ipv6.as_mut(),
        };
        if let Some(socket) = socket {
            // The call also fails if the firewall drops the packet, so an error here means nothing by
            // itself. The counters show where the packet was stopped.
            let _ = socket.send(packet, case.mark);
        }
    }
}

impl Case {
    fn again(&self) -> Self {
        let addresses = &self.addresses;
        Self {
            addresses: fresh(addresses.client, addresses.server, addresses.server_port),
            ..*self
        }
    }
}

fn name(numbers: &InterceptionNumbers) -> String {
    format!("{}_probe", numbers.table)
}

fn port(selection: &Selection) -> u16 {
    let first = selection.ports.first().map(|range| *range.start());
    let all = selection.ports.is_empty() || selection.ports.iter().any(|r| r.contains(&PORT));
    match all {
        true => PORT,
        false => first.unwrap_or(PORT),
    }
}
