//! The features of a kernel that interception needs, tried one by one.

use std::io;

use super::machine::{Machine, QueueMethod};
use super::plan::{InterceptionNumbers, Marks, Plan, Selection};
use super::port_reuse::ReusePorts;
use super::rules;
use super::{local_delivery, queue_target, timeouts};
use midspan_linux::netlink::Netlink;
use midspan_linux::nftables;
use midspan_linux::routing::usable_families;

/// A feature that a kernel may lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The name of the feature.
    pub name: &'static str,
    /// How the feature is provided, or why it cannot be used.
    pub found: Result<String, String>,
    /// What to do if the feature is missing.
    pub mend: &'static str,
    /// Without this feature, nothing can be intercepted.
    pub is_needed: bool,
}

/// Rules that need one feature each: its name, the rules, the kernel's option.
const EXPRESSIONS: [(&str, &str, &str); 7] = [
    (
        "nf_tables",
        "chain c { type filter hook forward priority 0; }",
        "a kernel with CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET (modprobe nf_tables)",
    ),
    (
        "tproxy, IPv4",
        "chain c { type filter hook prerouting priority -150; \
         meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:1 accept; }",
        "a kernel with CONFIG_NFT_TPROXY (modprobe nft_tproxy)",
    ),
    (
        "tproxy, IPv6",
        "chain c { type filter hook prerouting priority -150; \
         meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:1 accept; }",
        "a kernel with CONFIG_NFT_TPROXY, CONFIG_NF_TPROXY_IPV6 (modprobe nft_tproxy)",
    ),
    (
        "socket expression",
        "chain c { type filter hook prerouting priority -150; \
         meta l4proto tcp socket transparent 1 socket wildcard 0 socket mark 1 accept; }",
        "a kernel from 5.10 with CONFIG_NFT_SOCKET (modprobe nft_socket)",
    ),
    (
        "conntrack zones",
        "chain c { type filter hook output priority -250; \
         meta mark 1 ct zone set 1; meta mark 2 ct original zone set 2; }",
        "a kernel with CONFIG_NFT_CT, CONFIG_NF_CONNTRACK_ZONES (modprobe nft_ct)",
    ),
    (
        "NAT",
        "chain c { type nat hook postrouting priority 90; \
         meta nfproto ipv4 meta l4proto tcp snat ip to ip saddr; }",
        "a kernel with CONFIG_NFT_NAT (modprobe nft_nat)",
    ),
    (
        "refusal by RST",
        "chain c { type filter hook forward priority 0; \
         meta l4proto tcp reject with tcp reset; }",
        "a kernel with CONFIG_NFT_REJECT_INET (modprobe nft_reject_inet)",
    ),
];

const TABLE: &str = "midspan_features";

/// Tries all features, and leaves rules and routes behind. Meant for a network namespace of its
/// own, in which `lo` is set up.
#[must_use]
pub fn features(numbers: &InterceptionNumbers) -> Vec<Feature> {
    let mut features: Vec<Feature> = EXPRESSIONS
        .into_iter()
        .map(|(name, chain, mend)| {
            let text = format!("table inet {TABLE} {{\n{chain}\n}}\ndelete table inet {TABLE}\n");
            Feature {
                name,
                found: nftables::apply(&text)
                    .map(|()| "there".to_owned())
                    .map_err(|error| one_line(&error.to_string())),
                mend,
                is_needed: true,
            }
        })
        .collect();
    features.push(Feature {
        name: "queue for SYNs",
        found: queue(numbers),
        mend: "a kernel with CONFIG_NFT_QUEUE (modprobe nft_queue), or with NFQUEUE of xtables \
               (modprobe xt_NFQUEUE nft_compat)",
        is_needed: true,
    });
    features.push(Feature {
        name: "policy routing",
        found: routing(numbers),
        mend: "a kernel with CONFIG_IP_MULTIPLE_TABLES, CONFIG_IPV6_MULTIPLE_TABLES",
        is_needed: true,
    });
    features.push(Feature {
        name: "conntrack time-outs",
        found: conntrack_timeouts(numbers),
        mend: "a kernel with CONFIG_NF_CONNTRACK_TIMEOUT and nft from 0.9.1; until then, \
               nf_conntrack_max with room for two entries of each session for two minutes after its \
               end",
        is_needed: false,
    });
    features.push(Feature {
        name: "all rules together",
        found: whole(numbers),
        mend: "report this, with the output of midspan run --dry-run",
        is_needed: true,
    });
    features
}

fn queue(numbers: &InterceptionNumbers) -> Result<String, String> {
    let probe = rules::queue_probe(&numbers.table);
    match nftables::is_possible(&probe) {
        Ok(true) => return Ok("as a statement of nftables".to_owned()),
        Ok(false) => {}
        Err(error) => return Err(error.to_string()),
    }
    let target = || -> Result<(), io::Error> {
        let marks = Marks::new(numbers.marks, 1, 0).map_err(io::Error::other)?;
        queue_target::install(numbers, &marks)?;
        queue_target::remove(&queue_target::table(numbers))
    };
    match target() {
        Ok(()) => Ok("as a target of xtables (nftables has no statement for it here)".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn conntrack_timeouts(numbers: &InterceptionNumbers) -> Result<String, String> {
    match timeouts::are_possible(numbers) {
        Ok(true) => Ok(format!(
            "entries of sessions are removed {} s after their end",
            timeouts::ENDED_SECONDS
        )),
        Ok(false) => {
            let missing = "neither the kernel nor nft supports them: after its end, each session \
                           keeps two entries for the host's time (two minutes by default)";
            Err(missing.to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn routing(numbers: &InterceptionNumbers) -> Result<String, String> {
    let marks = Marks::new(numbers.marks, 1, 0).map_err(|error| error.to_string())?;
    let netlink = Netlink::open().map_err(|error| error.to_string())?;
    local_delivery::ensure(&netlink, numbers, &marks, usable_families())
        .and_then(|_| local_delivery::remove(&netlink, numbers))
        .map(|_| "rules by marks, local routes".to_owned())
        .map_err(|error| error.to_string())
}

/// The complete rules of a listener.
fn whole(numbers: &InterceptionNumbers) -> Result<String, String> {
    let marks = Marks::new(numbers.marks, 1, 0).map_err(|error| error.to_string())?;
    let plan = Plan {
        numbers: numbers.clone(),
        selections: vec![Selection {
            interfaces: vec!["lo".to_owned()],
            ipv4_port: Some(1),
            ipv6_port: Some(1),
            ..Selection::default()
        }],
        as_clients: false,
        more_interfaces: [].into(),
        bypasses: Vec::new(),
        left_alone: Default::default(),
        client_leg_marks: [].into(),
        server_leg_marks: [].into(),
        former_sessions: Vec::new(),
        former_listeners: None,
    };
    let machine = Machine {
        queue: QueueMethod::Target,
        reuse_ports: ReusePorts::EXAMPLE,
        early_demux_was: true,
        takes_vrfs: false,
    };
    nftables::apply(&rules::ruleset(&plan, &marks, machine, true))
        .map(|()| "accepted by the kernel".to_owned())
        .map_err(|error| one_line(&error.to_string()))
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
