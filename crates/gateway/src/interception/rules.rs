//! The ruleset as text. Without I/O.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Instant;

use super::bypass::Bypass;
use super::chain::Chain;
use super::left_alone;
use super::machine::{Machine, QueueMethod};
use super::mark_matches::{marked, one_of, socket_marked, to_listeners};
use super::own_tables::{self, Parameter};
use super::plan::{FormerListeners, FormerSessions, Marks, Plan, Selection};
use super::port_reuse::ReusePorts;
use super::quic::{self, QUIC};

/// Before connection tracking (-200), because the chain sets the zone, and after defragmentation
/// (-400).
pub(super) const BEFORE_CONNTRACK: i32 = -250;
/// `mangle`: after connection tracking, before routing.
const MANGLE: i32 = -150;
/// After `dstnat` (-100).
const AFTER_NAT: i32 = -95;
/// Before `srcnat` (100).
const BEFORE_SOURCE_NAT: i32 = 90;
pub(super) const SYN: &str = "tcp flags & (fin|syn|rst|ack) == syn";
/// The packet with which a client completes the handshake.
const ACKNOWLEDGEMENT: &str = "tcp flags & (fin|syn|rst|ack) == ack";
/// Sets of connections that have passed untouched and are watched. The kernel adds and removes
/// their elements.
const WATCHED: [(&str, &str, &str); 2] = [
    ("watched_ipv4", "ip", "ipv4_addr"),
    ("watched_ipv6", "ip6", "ipv6_addr"),
];
/// Sets of connections whose half-open socket is about to become a full socket. When a client's
/// first two packets arrive at two processors at once, the kernel finds neither socket for an
/// instant. It would forward the client's packet, and the server would answer with a RST. Therefore
/// the packet is dropped; the client sends it again.
const OPENING: [(&str, &str, &str); 2] = [
    ("opening_ipv4", "ip", "ipv4_addr"),
    ("opening_ipv6", "ip6", "ipv6_addr"),
];
/// The largest number of watched connections in each set, and the time for which each is watched.
const WATCHED_SIZE: usize = 4096;
const WATCHED_TIME: &str = "15s";
/// The kernel removes old elements once a second, so that elements outlive their time. The set has
/// room for the connections of 1.2 s, at 50,000 new connections a second.
const OPENING_SIZE: usize = 65_536;
const OPENING_TIME: &str = "200ms";
/// `nft` has these names itself. It looks others up in `/etc/protocols`, which a small system lacks.
const OURS: &str = "meta l4proto { tcp, icmp, icmpv6 } socket transparent 1";

/// The text for `nft -f`: replaces the table as a whole. If `taking` is false, no new connections
/// are intercepted; existing connections continue.
pub fn ruleset(plan: &Plan, marks: &Marks, machine: Machine, taking: bool) -> String {
    let table = &plan.numbers.table;
    let rules = Rules {
        plan,
        marks,
        reuse_ports: machine.reuse_ports,
        takes_vrfs: machine.takes_vrfs,
    };
    let mut text = removal(table);
    // Writing to a string does not fail.
    let _ = writeln!(text, "table inet {table} {{");
    let was_on: &[Parameter] = match machine.early_demux_was {
        true => &[Parameter::EarlyDemuxWasOn],
        false => &[],
    };
    let comment = own_tables::comment(was_on);
    let _ = writeln!(text, "\tcomment \"{comment}\"");
    let watched = WATCHED.map(|set| (set, WATCHED_SIZE, WATCHED_TIME));
    let opening = OPENING.map(|set| (set, OPENING_SIZE, OPENING_TIME));
    for ((set, _, address), size, time) in watched.into_iter().chain(opening) {
        let _ = writeln!(
            text,
            "\tset {set} {{\n\t\ttype {address} . inet_service . {address} . inet_service\n\t\t\
             size {size}; flags dynamic,timeout; timeout {time}\n\t}}"
        );
    }
    for chain in [
        rules.client_side(),
        rules.syns_sent_again(),
        rules.packets_of_clients(),
        rules.syns_of_clients(),
        rules.our_socket(),
        rules.our_whole_socket(),
        rules.syn_for_socket(),
        rules.client_leg(),
        rules.server_side(),
        rules.server_side_behind_nat(),
        rules.server_leg(),
        rules.to_this_machine(),
        rules.output(),
        rules.keep_source(),
    ] {
        let _ = write!(text, "{chain}");
    }
    for (number, former) in plan.former_sessions.iter().enumerate() {
        let _ = write!(text, "{}", former.client_leg(number));
    }
    if taking {
        rules.intercept(&mut text);
    }
    if machine.queue == QueueMethod::Statement {
        let _ = write!(text, "{}", rules.queue());
    }
    let _ = write!(text, "{}", rules.untaken());
    text.push_str("}\n");
    text
}

/// The text that removes the table, if there is one.
pub fn removal(table: &str) -> String {
    format!("table inet {table}\ndelete table inet {table}\n")
}

/// The smallest ruleset with the statement `queue`, to test whether the kernel supports it.
pub fn queue_probe(table: &str) -> String {
    format!(
        "table inet {table}_probe {{\n\tchain probe {{\n\t\tqueue flags bypass to 1\n\t}}\n}}\n"
    )
}

struct Rules<'a> {
    plan: &'a Plan,
    marks: &'a Marks,
    reuse_ports: ReusePorts,
    takes_vrfs: bool,
}

impl Rules<'_> {
    /// Packets from the clients' interfaces, and SYNs that come back through `lo`. Every packet
    /// that the host receives passes this chain; therefore packets of other interfaces match few
    /// rules.
    fn client_side(&self) -> Chain {
        Chain::base("client_side", "filter", "prerouting", BEFORE_CONNTRACK)
            .rule("iifname \"lo\" goto from_this_machine")
            .rules(
                self.interfaces()
                    .map(|name| format!("iifname \"{name}\" goto from_clients")),
            )
    }

    /// SYNs that the relay has sent again, or the former one.
    fn syns_sent_again(&self) -> Chain {
        let marks = (self.marks.mask, &self.marks.listeners[..]);
        let former = self.plan.former_listeners.iter();
        Chain::regular("from_this_machine")
            .rules(former.flat_map(FormerListeners::syns_sent_again))
            .rules(to_listeners(&self.plan.selections, marks))
    }

    /// Packets from the clients' interfaces.
    fn packets_of_clients(&self) -> Chain {
        let client = self.socket_is_marked(self.client_leg_marks());
        Chain::regular("from_clients")
            .rule(format!("{SYN} goto syns_of_clients"))
            // Nearly all packets belong to established sessions.
            .rule(format!(
                "meta l4proto tcp socket transparent 1 {client} goto client_leg"
            ))
            .rules(
                self.plan
                    .former_client_legs("meta l4proto tcp socket transparent 1 "),
            )
            // Twice: the second match finds a socket that the kernel was just replacing (see
            // `OPENING`).
            .rules([0, 1].map(|_| format!("{OURS} jump our_socket")))
    }

    /// SYNs go through the chains like those of new connections, even if an old socket is in
    /// TIME-WAIT.
    fn syns_of_clients(&self) -> Chain {
        Chain::regular("syns_of_clients").rule("socket transparent 1 jump syn_for_socket")
    }

    /// A SYN with the addresses of a socket that exists.
    fn syn_for_socket(&self) -> Chain {
        let client = self.socket_is_marked(self.client_leg_marks());
        let half_open = self.plan.half_open();
        // A kernel may lack `tproxy` for a family that is not intercepted.
        let ports = self.reuse_ports;
        let ipv4 = ports.ipv4.filter(|_| self.plan.takes_ipv4());
        let ipv6 = ports.ipv6.filter(|_| self.plan.takes_ipv6());
        Chain::regular("syn_for_socket")
            // The client has lost the connection, and detects from the answer that Midspan still
            // has it.
            .rule(format!("{client} goto client_leg"))
            .rules(self.plan.former_client_legs(""))
            .rules(not_a_whole_socket())
            // These rules remove a socket in TIME-WAIT, and end there: the SYN opens a new
            // connection, which may pass untouched. A half-open socket gets the SYN, and repeats
            // its answer (see `port_reuse`).
            .rules(ipv4.map(|port| {
                format!(
                    "meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:{port} \
                     goto {half_open}"
                )
            }))
            .rules(ipv6.map(|port| {
                format!(
                    "meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:{port} goto {half_open}"
                )
            }))
    }

    /// A packet for a transparent socket, which may belong to another program.
    fn our_socket(&self) -> Chain {
        Chain::regular("our_socket")
            .rules(["0", "1"].map(|w| format!("socket wildcard {w} goto our_whole_socket")))
            // A connection that is being opened, or whose socket is in TIME-WAIT.
            .rules(OPENING.map(|(set, ip, _)| format!("update @{set} {{ {} }}", ends(ip))))
            .rule(format!("goto {}", self.plan.half_open()))
    }

    /// Each match looks for the socket again, and may find another one than an earlier match.
    /// Therefore this chain does not rely on earlier matches.
    fn our_whole_socket(&self) -> Chain {
        let client = self.socket_is_marked(self.client_leg_marks());
        let server = self.socket_is_marked(self.server_leg_marks());
        Chain::regular("our_whole_socket")
            .rule(format!("{client} goto client_leg"))
            .rules(self.plan.former_client_legs(""))
            // Servers, too, may be behind an interface of clients.
            .rule(format!("{server} goto to_this_machine"))
            .rules(self.plan.former_server_legs())
    }

    fn client_leg(&self) -> Chain {
        let zone = self.plan.numbers.zone;
        Chain::regular("client_leg").rule(format!("ct zone set {zone} goto to_this_machine"))
    }

    /// Packets from servers, for sockets with the addresses of clients.
    fn server_side(&self) -> Chain {
        Chain::base("server_side", "filter", "prerouting", MANGLE)
            // This rule comes first, for the packets of clients, which are marked already.
            .rule(format!("{} accept", self.is_ours()))
            .rule(format!("{SYN} accept"))
            .rule(format!("{OURS} jump server_leg"))
    }

    /// Like `server_side`, for hosts that translate IPv6 addresses: older kernels find the socket
    /// only after the translation.
    fn server_side_behind_nat(&self) -> Chain {
        Chain::base("server_side_behind_nat", "filter", "prerouting", AFTER_NAT)
            .rule("meta nfproto ipv4 accept")
            .rule(format!("{} accept", self.is_ours()))
            .rule(format!("{SYN} accept"))
            .rule(format!("ct status snat {OURS} jump server_leg"))
    }

    fn server_leg(&self) -> Chain {
        let server = self.socket_is_marked(self.server_leg_marks());
        let former = self.plan.former_sessions.iter();
        let zones: BTreeSet<u16> = former
            .map(FormerSessions::server_zone)
            .chain([self.plan.numbers.server_zone()])
            .collect();
        let zones = one_of(zones);
        Chain::regular("server_leg")
            .rule(format!("{server} goto to_this_machine"))
            .rules(self.plan.former_server_legs())
            .rules(not_a_whole_socket())
            // The socket is in TIME-WAIT, and the client has used its port again for a connection
            // that passes untouched.
            .rule(format!(
                "ct direction reply ct original zone != {zones} return"
            ))
            .rule("goto to_this_machine")
    }

    fn to_this_machine(&self) -> Chain {
        let mark = self.marks.listeners.first().copied().unwrap_or_default();
        Chain::regular("to_this_machine").rule(format!("{} accept", self.set_mark(mark)))
    }

    /// Both legs of a session have the same addresses; connection tracking distinguishes them by
    /// zones. Only packets of Midspan's sockets get a zone. The replies on a server leg get none,
    /// because they arrive with the addresses that the host's NAT has set.
    fn output(&self) -> Chain {
        let zone = self.plan.numbers.zone;
        let server_zone = self.plan.numbers.server_zone();
        let clients = self.is_marked(self.client_leg_marks().chain(&self.marks.listeners));
        let servers = self.is_marked(self.server_leg_marks());
        Chain::base("output", "filter", "output", BEFORE_CONNTRACK)
            .rule(format!("{clients} ct zone set {zone}"))
            .rule(format!("{servers} ct original zone set {server_zone}"))
            .rules(self.plan.former_output())
    }

    /// A SYN that comes back through `lo` keeps its addresses, even if the host masquerades on
    /// every interface.
    ///
    /// This chain of the type `nat` is needed on every host, because with such a chain the kernel
    /// sets up the translation of every connection. A packet of a client whose session has ended is
    /// forwarded, and the server leg may still have an entry with the same answers in connection
    /// tracking. Without translation the kernel drops the packet, and the client gets no RST.
    fn keep_source(&self) -> Chain {
        let ours = self.is_marked(&self.marks.listeners);
        let conditions = self.plan.former_syns_sent_again().into_iter().chain([ours]);
        let rules = conditions.flat_map(|ours| {
            [("ipv4", "ip"), ("ipv6", "ip6")].map(|(family, ip)| {
                format!(
                    "oifname \"lo\" {ours} meta nfproto {family} meta l4proto tcp snat {ip} to {ip} saddr"
                )
            })
        });
        Chain::base("keep_source", "nat", "postrouting", BEFORE_SOURCE_NAT).rules(rules)
    }

    /// SYNs that the host forwards, and QUIC that is rejected. This chain chooses their listener.
    fn intercept(&self, text: &mut String) {
        let bypass = Bypass::of(&self.plan.bypasses);
        text.push_str(&bypass.sets());
        text.push_str(&self.plan.left_alone.sets(Instant::now()));
        let mut intercept = Chain::base(
            "intercept",
            "filter",
            "forward",
            self.plan.numbers.forward_priority,
        )
        .rules((!self.takes_vrfs).then(|| "meta iifkind \"vrf\" return".to_owned()))
        .rules(bypass.rules())
        .rules(left_alone::rules(SYN));
        if self.plan.selections.iter().any(|one| one.rejects_quic) {
            // If TCP is not split, it has no advantage over QUIC.
            intercept = intercept.rules(left_alone::rules(QUIC));
        }
        for name in self.interfaces() {
            intercept = intercept.rules(self.proof(name));
        }
        for (index, selection) in self.plan.selections.iter().enumerate() {
            for name in &selection.interfaces {
                intercept =
                    intercept.rule(format!("iifname \"{name}\" {SYN} jump intercept_{index}"));
                if selection.rejects_quic {
                    let jump = format!("iifname \"{name}\" {QUIC} jump quic_{index}");
                    intercept = intercept.rule(jump);
                }
            }
        }
        for (index, (selection, mark)) in
            (self.plan.selections.iter().zip(&self.marks.listeners)).enumerate()
        {
            let _ = write!(
                text,
                "{}",
                self.intercept_selection(index, selection, *mark)
            );
            if selection.rejects_quic {
                let _ = write!(text, "{}", self.reject_quic(index, selection, *mark));
            }
        }
        let _ = write!(text, "{intercept}");
    }

    /// A client acknowledges a SYN-ACK that has not passed this machine. The packet goes to the
    /// relay through the queue for SYNs.
    fn proof(&self, interface: &str) -> impl Iterator<Item = String> {
        let mark = self.set_mark(self.marks.listeners.first().copied().unwrap_or_default());
        WATCHED.into_iter().map(move |(set, ip, _)| {
            let ends = ends(ip);
            format!(
                "iifname \"{interface}\" {ACKNOWLEDGEMENT} ct state != established {ends} @{set} \
                 delete @{set} {{ {ends} }} {mark} accept"
            )
        })
    }

    fn intercept_selection(&self, index: usize, selection: &Selection, mark: u32) -> Chain {
        let mut chain = Chain::regular(&format!("intercept_{index}"))
            // The connection's tracking entry is older than this SYN: an earlier SYN passed
            // untouched.
            .rule("ct status confirmed return")
            // The host sends the SYN to another destination than the client's.
            .rule("ct status dnat return")
            .rule("ct state untracked return")
            // The server leg uses the client's port, which below 1024 needs a privileged process.
            .rule("tcp sport < 1024 return");
        chain = chain.rules(left_out(selection));
        if !selection.except_ports.is_empty() {
            chain = chain.rule(format!(
                "tcp dport {} return",
                ports(&selection.except_ports)
            ));
        }
        if !selection.ports.is_empty() {
            chain = chain.rule(format!("tcp dport != {} return", ports(&selection.ports)));
        }
        chain.rule(format!("{} accept", self.set_mark(mark)))
    }

    /// New connections of QUIC whose TCP connections would be intercepted. The relay decides, as
    /// about SYNs: if no relay runs, they pass.
    fn reject_quic(&self, index: usize, selection: &Selection, mark: u32) -> Chain {
        Chain::regular(&format!("quic_{index}"))
            .rule("ct status dnat return")
            .rules(left_out(selection))
            .rule(quic::limit())
            .rule(format!("{} accept", self.set_mark(mark)))
    }

    fn queue(&self) -> Chain {
        let intercepted = self.is_marked(&self.marks.listeners);
        let number = self.plan.numbers.queue;
        let priority = self.plan.numbers.forward_priority.saturating_add(1);
        Chain::base("to_queue", "filter", "forward", priority)
            .rule(format!("{intercepted} queue flags bypass to {number}"))
    }

    /// SYNs that come out of the queue: those that the server refused, and those that are not
    /// intercepted after all.
    fn untaken(&self) -> Chain {
        let refused = self.is_marked([&self.marks.refused]);
        let intercepted = self.is_marked(&self.marks.listeners);
        let clear = format!("meta mark set meta mark & {:#010x}", !self.marks.mask);
        let priority = self.plan.numbers.forward_priority.saturating_add(2);
        let watched = self.is_marked([&self.marks.watched]);
        Chain::base("untaken", "filter", "forward", priority)
            .rule(format!(
                "{refused} meta l4proto tcp {clear} reject with tcp reset"
            ))
            .rule(format!(
                "{refused} meta l4proto udp {clear} reject with icmpx type port-unreachable"
            ))
            .rules(WATCHED.map(|(set, ip, _)| format!("{watched} add @{set} {{ {} }}", ends(ip))))
            .rule(format!("{watched} {clear}"))
            .rules(self.interfaces().flat_map(|name| {
                OPENING.map(|(set, ip, _)| {
                    format!(
                        "iifname \"{name}\" tcp flags & (syn|rst|ack) == ack \
                         ct state {{ invalid, new }} {} @{set} drop",
                        ends(ip)
                    )
                })
            }))
            .rule(format!("{intercepted} {clear}"))
    }

    fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.plan.interfaces()
    }

    fn client_leg_marks(&self) -> impl Iterator<Item = &u32> {
        std::iter::once(&self.marks.client_leg).chain(&self.plan.client_leg_marks)
    }

    fn server_leg_marks(&self) -> impl Iterator<Item = &u32> {
        std::iter::once(&self.marks.server_leg).chain(&self.plan.server_leg_marks)
    }

    fn is_marked<'m>(&self, marks: impl IntoIterator<Item = &'m u32>) -> String {
        marked(self.marks.mask, marks)
    }

    fn is_ours(&self) -> String {
        format!("meta mark & {:#010x} != 0", self.marks.mask)
    }

    fn socket_is_marked<'m>(&self, marks: impl IntoIterator<Item = &'m u32>) -> String {
        socket_marked(self.marks.mask, marks)
    }

    /// The other bits of the mark belong to other programs.
    fn set_mark(&self, mark: u32) -> String {
        format!(
            "meta mark set meta mark & {:#010x} | {mark:#010x}",
            !self.marks.mask
        )
    }
}

/// Lets the families and hosts pass untouched that a listener leaves out.
fn left_out(selection: &Selection) -> Vec<String> {
    let families = [("ipv4", selection.ipv4_port), ("ipv6", selection.ipv6_port)];
    let missing = families.into_iter().filter(|(_, port)| port.is_none());
    let families = missing.map(|(family, _)| format!("meta nfproto {family} return"));
    let hosts = selection.except.iter().flat_map(|prefix| {
        let family = match prefix.addr() {
            IpAddr::V4(_) => "ip",
            IpAddr::V6(_) => "ip6",
        };
        ["daddr", "saddr"].map(|end| format!("{family} {end} {prefix} return"))
    });
    families.chain(hosts).collect()
}

/// Lets packets for a full socket of another program pass. A half-open socket has neither a mark
/// nor this property, so that neither rule matches it.
fn not_a_whole_socket() -> [String; 2] {
    ["socket wildcard 0 return", "socket wildcard 1 return"].map(str::to_owned)
}

/// Addresses and ports of a connection, as the client sends them.
fn ends(ip: &str) -> String {
    format!("{ip} saddr . tcp sport . {ip} daddr . tcp dport")
}

fn ports(ranges: &[RangeInclusive<u16>]) -> String {
    // nft refuses sets with overlapping ranges.
    let mut sorted: Vec<(u16, u16)> = ranges.iter().map(|r| (*r.start(), *r.end())).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (start, end) in sorted {
        match merged.last_mut() {
            Some(last) if start <= last.1.saturating_add(1) => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    let texts: Vec<String> = merged
        .iter()
        .map(|(start, end)| match start == end {
            true => start.to_string(),
            false => format!("{start}-{end}"),
        })
        .collect();
    format!("{{ {} }}", texts.join(", "))
}
