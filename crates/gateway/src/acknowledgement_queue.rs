//! Rules that put small TCP packets that leave by one interface into a queue, for ACK thinning.
//!
//! The rules are in nftables tables of Midspan, one for each address family. They are at the hook
//! postrouting after source NAT, so that the packets have the addresses that they have on the link.
//! If no process reads the queue, the rules let packets pass (`bypass`). The comment of a table
//! marks it as Midspan's. The next start removes a table whose process no longer runs.

use std::fmt::{self, Display};
use std::io;

use thiserror::Error;

use crate::acknowledgements_first::PRIORITY as ACK_FIRST;
use crate::claim::{self, Claim, Kind};
use midspan_linux::nf_tables::{
    Attributes, Comparison, FAMILIES, compare, delete_table, hook, load_meta, meta, new_chain,
    new_rule, new_table, queue_by_statement, queue_by_target, set_meta, to_network_order,
    transaction,
};
use midspan_linux::nftables;

/// The longest packet that is queued, in bytes with its IP header: an ACK with 40 bytes of options
/// over IPv6 with 28 bytes of extension headers. Longer packets carry data, and never wait.
pub const LONGEST: u32 = 128;

const COMMENT: &str = "Midspan ACK thinning, removed when it ends";
const TABLE: &str = "midspan_thin_";
/// After source NAT, whose priority is 100.
const PRIORITY: i32 = 110;
/// `IFNAMSIZ`.
const NAME_LIMIT: usize = 16;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// The rules cannot be set.
#[derive(Debug, Error)]
pub enum RulesError {
    /// The name is empty, too long, or has a character that no interface's name has.
    #[error("\"{0}\" cannot be the name of an interface")]
    Name(String),
    /// Another process thins ACKs on this interface.
    #[error("another process thins ACKs on {0}")]
    Taken(String),
    /// The kernel supports neither way to queue packets.
    #[error(
        "the kernel has neither nftables' queue statement ({statement}) nor xtables' target \
         NFQUEUE ({target}): modprobe nft_queue or xt_NFQUEUE; needs CAP_NET_ADMIN"
    )]
    NoQueue {
        /// The error of the queue statement.
        statement: io::Error,
        /// The error of the target NFQUEUE.
        target: io::Error,
    },
    /// The kernel refused to remove the rules.
    #[error("cannot remove the rules of ACK thinning: {0}")]
    Remove(#[source] io::Error),
    /// Midspan cannot find out whether another process thins ACKs on this interface.
    #[error("cannot make sure that no other process thins ACKs on this interface: {0}")]
    Claim(#[source] io::Error),
}

/// How the rules put packets into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueMethod {
    Statement,
    Target,
}

/// Which packets are queued, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgementRules {
    interface: String,
    queue: u16,
    longest: u32,
    first: bool,
}

impl AcknowledgementRules {
    /// TCP packets that leave by `interface` and have at most `longest` bytes, including the IP
    /// header, go to the queue with number `queue`.
    ///
    /// # Errors
    /// `interface` cannot be the name of an interface.
    pub fn new(interface: &str, queue: u16, longest: u32) -> Result<Self, RulesError> {
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'"';
        if interface.is_empty() || interface.len() >= NAME_LIMIT || !interface.bytes().all(is_name)
        {
            return Err(RulesError::Name(interface.to_owned()));
        }
        Ok(Self {
            interface: interface.to_owned(),
            queue,
            longest,
            first: false,
        })
    }

    /// The queued packets also get the priority of
    /// [`acknowledgements_first`](crate::acknowledgements_first).
    #[must_use]
    pub fn with_priority(mut self) -> Self {
        self.first = true;
        self
    }

    /// The same rules for another queue.
    #[must_use]
    pub fn with_queue(mut self, queue: u16) -> Self {
        self.queue = queue;
        self
    }

    /// Claims the interface for this process; one process in a network namespace can have it.
    /// Removes the tables of processes that no longer run, of all interfaces, and returns their
    /// number.
    ///
    /// # Errors
    /// Another process has the interface, or a table of an earlier process cannot be removed.
    pub fn claim(&self) -> Result<(Claim, usize), RulesError> {
        let held = claim::claim(Kind::Thinning, &self.interface).map_err(RulesError::Claim)?;
        let held = held.ok_or_else(|| RulesError::Taken(self.interface.clone()))?;
        let removed = remove_leftovers(&self.interface)?;
        Ok((held, removed))
    }

    /// Sets the rules, and replaces old ones.
    ///
    /// # Errors
    /// See [`RulesError`].
    pub fn install(&self) -> Result<(), RulesError> {
        match self.install_by(QueueMethod::Statement) {
            Ok(()) => Ok(()),
            Err(statement) => self
                .install_by(QueueMethod::Target)
                .map_err(|target| RulesError::NoQueue { statement, target }),
        }
    }

    fn install_by(&self, method: QueueMethod) -> io::Result<()> {
        let table = self.table();
        transaction(|request| {
            for family in FAMILIES {
                delete_table(request, family, &table, COMMENT);
                new_table(request, family, &table, COMMENT);
                new_chain(request, family, &table, hook::POSTROUTING, PRIORITY);
                new_rule(request, family, &table, |rule| self.rule(rule, method));
            }
        })
    }

    fn rule(&self, rule: &mut Attributes<'_>, method: QueueMethod) {
        let mut name = [0; NAME_LIMIT];
        for (to, from) in name.iter_mut().zip(self.interface.bytes()) {
            *to = from;
        }
        load_meta(rule, meta::OUT_INTERFACE_NAME);
        compare(rule, Comparison::Equal, &name);
        load_meta(rule, meta::TRANSPORT);
        compare(rule, Comparison::Equal, &[TCP]);
        load_meta(rule, meta::LENGTH);
        to_network_order(rule);
        compare(rule, Comparison::AtMost, &self.longest.to_be_bytes());
        if self.first {
            set_meta(rule, meta::PRIORITY, ACK_FIRST);
        }
        match method {
            QueueMethod::Statement => queue_by_statement(rule, self.queue),
            QueueMethod::Target => queue_by_target(rule, self.queue),
        }
    }

    /// Removes the rules, if there are any.
    ///
    /// # Errors
    /// The error of netlink.
    pub fn remove(&self) -> Result<(), RulesError> {
        remove(&self.table()).map_err(RulesError::Remove)
    }

    fn table(&self) -> String {
        format!("{TABLE}{}", self.interface)
    }
}

/// The rules as an `nft` that supports the queue statement prints them.
impl Display for AcknowledgementRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = if self.first {
            format!(
                " meta priority set {:x}:{:x}",
                ACK_FIRST >> 16,
                ACK_FIRST & 0xffff
            )
        } else {
            String::new()
        };
        for family in ["ip", "ip6"] {
            writeln!(
                f,
                "table {family} {} {{\n    comment \"{COMMENT}\"\n    chain to_queue {{\n        \
                 type filter hook postrouting priority {PRIORITY}; policy accept;\n        \
                 oifname \"{}\" meta l4proto tcp meta length <= {}{first} queue flags bypass to {}\n    \
                 }}\n}}",
                self.table(),
                self.interface,
                self.longest,
                self.queue
            )?;
        }
        Ok(())
    }
}

fn remove(table: &str) -> io::Result<()> {
    transaction(|request| {
        for family in FAMILIES {
            delete_table(request, family, table, COMMENT);
        }
    })
}

/// Removes the tables of ACK thinning that processes have left: those of interfaces that no running process
/// has claimed, and old ones of the interface `own`, which this process itself has claimed. Returns the number
/// of removed tables.
///
/// # Errors
/// The claims in this network namespace cannot be read, or a table cannot be removed.
pub(crate) fn remove_leftovers(own: &str) -> Result<usize, RulesError> {
    let running = claim::taken(Kind::Thinning).map_err(RulesError::Claim)?;
    // Without the program `nft`, the tables of other interfaces cannot be listed. The tables of
    // `own` are replaced anyway.
    let tables = nftables::tables().unwrap_or_default();
    let mut names: Vec<&str> = tables
        .iter()
        .filter(|(family, _)| family == "ip" || family == "ip6")
        .filter_map(|(_, name)| name.strip_prefix(TABLE))
        .filter(|name| *name == own || !running.iter().any(|other| other == name))
        .collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    for name in names {
        remove(&format!("{TABLE}{name}")).map_err(RulesError::Remove)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use midspan_linux::nftables::NftablesError;

    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["", "a b", "a/b", "a\"b", "0123456789abcdef"] {
            let rules = AcknowledgementRules::new(name, 1, 128);
            assert!(matches!(rules, Err(RulesError::Name(_))), "{name}");
        }
        let rules = AcknowledgementRules::new("wan0.7", 5, 128).unwrap();
        let text = rules.to_string();
        assert!(text.contains("oifname \"wan0.7\" meta l4proto tcp meta length <= 128"));
    }

    /// Whether or not this kernel has all of it, and whether or not this process may ask the kernel.
    #[test]
    fn nft_can_read_the_text() {
        let mut rules = AcknowledgementRules::new("wan0.7", 5, 128).unwrap();
        for first in [false, true] {
            rules.first = first;
            let text = rules.to_string();
            let complaint = match nftables::check(&text) {
                Ok(()) => String::new(),
                Err(NftablesError::Refused { complaint, .. }) => complaint,
                Err(error) => panic!("{error}"),
            };
            assert!(!complaint.contains("syntax error"), "{complaint}\n{text}");
        }
    }
}
