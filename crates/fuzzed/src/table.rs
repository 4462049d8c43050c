//! The list of all targets.

use crate::{
    configuration, control_socket, fragmenter, gate_packets, handover, hop, http, http_answer,
    iperf3, metrics, netfilter_messages, nft_listings, overlay_row, overrides, path_file, pcap,
    ping, proc_tables, process_messages, proxy_protocol, recorded_trace, registry, route_lists,
    route_messages, socks5, ss, thin_messages, thin_packets, tls, verdicts,
};

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its corpus, of its file in `fuzz/fuzz_targets` and of its program.
    pub name: &'static str,
    /// Its input, in a few words.
    pub reads: &'static str,
    /// The function; takes any bytes.
    pub run: fn(&[u8]),
    /// Longest input that the fuzzer generates, in bytes.
    pub longest: usize,
    /// The parser's lines, which the corpus should reach.
    pub lines: &'static [Lines],
}

/// Lines of a source file.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// The file, from the repository's root.
    pub file: &'static str,
    /// Functions by name, including their closures; empty for the whole file without its tests.
    pub functions: &'static [&'static str],
}

const fn file(file: &'static str) -> Lines {
    functions(file, &[])
}

const fn functions(file: &'static str, functions: &'static [&'static str]) -> Lines {
    Lines { file, functions }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "socks5",
        reads: "SOCKS5 clients",
        run: socks5,
        longest: 1024,
        lines: &[
            functions(
                "crates/explicit/src/socks5.rs",
                &[
                    "take", "byte", "counted", "array", "advance", "methods", "password",
                    "request", "name",
                ],
            ),
            file("crates/explicit/src/credentials.rs"),
        ],
    },
    Target {
        name: "http",
        reads: "HTTP clients",
        run: http,
        longest: 4096,
        lines: &[
            functions(
                "crates/explicit/src/http.rs",
                &["advance", "respond", "tunnel", "is_authenticated", "refuse"],
            ),
            file("crates/explicit/src/http/request_head.rs"),
            file("crates/explicit/src/exchange/fields.rs"),
            file("crates/explicit/src/exchange/head.rs"),
            file("crates/explicit/src/http/rewrite.rs"),
        ],
    },
    Target {
        name: "http_answer",
        reads: "HTTP servers",
        run: http_answer,
        longest: 4096,
        lines: &[
            file("crates/explicit/src/exchange/answer.rs"),
            file("crates/explicit/src/exchange/body.rs"),
            file("crates/explicit/src/exchange/chunks.rs"),
            file("crates/explicit/src/exchange.rs"),
        ],
    },
    Target {
        name: "hop",
        reads: "nodes of an overlay: requests and answers of hops",
        run: hop,
        longest: 4096,
        lines: &[
            functions("crates/explicit/src/hop/request.rs", &["parse", "write"]),
            functions(
                "crates/explicit/src/hop/answer.rs",
                &["take", "parse", "write"],
            ),
            file("crates/explicit/src/hop/node_list.rs"),
            file("crates/explicit/src/hop/server_timing.rs"),
            functions(
                "crates/explicit/src/hop/forwarded.rs",
                &["client", "first_element", "node", "is_hidden"],
            ),
            functions(
                "crates/explicit/src/hop/proxy_status.rs",
                &["of_status", "read", "write", "first_element"],
            ),
        ],
    },
    Target {
        name: "overlay_row",
        reads: "nodes of an overlay: what they report of their legs",
        run: overlay_row,
        longest: 4096,
        lines: &[
            functions(
                "crates/explicit/src/hop/row.rs",
                &["take", "read_head", "read", "read_leg"],
            ),
            functions("crates/explicit/src/row_tag.rs", &["of_field"]),
        ],
    },
    Target {
        name: "registry",
        reads: "a registry of an overlay: its members in etcd, and the file of members",
        run: registry,
        longest: 4096,
        lines: &[
            functions("crates/proxy/src/registry/answer.rs", &["entries", "text"]),
            functions(
                "crates/proxy/src/registry/entries.rs",
                &["merged", "to_text", "read"],
            ),
        ],
    },
    Target {
        name: "tls",
        reads: "nodes of an overlay: encrypted connections",
        run: tls,
        longest: 4096,
        lines: &[functions(
            "crates/tls/src/codec.rs",
            &["receive", "take_decrypted", "take_in", "failure"],
        )],
    },
    Target {
        name: "proxy_protocol",
        reads: "headers of the PROXY protocol",
        run: proxy_protocol,
        longest: 1024,
        lines: &[functions(
            "crates/explicit/src/proxy_protocol.rs",
            &["read", "text", "binary", "proxied"],
        )],
    },
    Target {
        name: "fragmenter",
        reads: "packets that are cut",
        run: fragmenter,
        longest: 4096,
        lines: &[file("crates/fragmenter/src/cut.rs")],
    },
    Target {
        name: "pcap",
        reads: "captures, pcap and pcapng",
        run: pcap,
        longest: 4096,
        lines: &[
            file("crates/plan/src/measured/pcap.rs"),
            file("crates/wire/src/capture/read.rs"),
            file("crates/plan/src/measured/trace.rs"),
            functions("crates/wire/src/packet.rs", &["read_ethernet"]),
        ],
    },
    Target {
        name: "ss",
        reads: "output of ss",
        run: ss,
        longest: 4096,
        lines: &[
            file("crates/plan/src/measured/ss.rs"),
            file("crates/plan/src/measured/mod.rs"),
        ],
    },
    Target {
        name: "ping",
        reads: "output of ping",
        run: ping,
        longest: 2048,
        lines: &[file("crates/plan/src/measured/ping.rs")],
    },
    Target {
        name: "iperf3",
        reads: "output of iperf3 --json",
        run: iperf3,
        longest: 8192,
        lines: &[file("crates/plan/src/measured/iperf3.rs")],
    },
    Target {
        name: "metrics",
        reads: "metrics of a running proxy",
        run: metrics,
        longest: 8192,
        lines: &[file("crates/plan/src/measured/metrics.rs")],
    },
    Target {
        name: "path_file",
        reads: "path files",
        run: path_file,
        longest: 4096,
        lines: &[
            file("crates/document/src/located.rs"),
            file("crates/document/src/nearest.rs"),
            functions(
                "crates/document/src/read.rs",
                &[
                    "read",
                    "locate",
                    "header",
                    "in_words_of_toml",
                    "parse",
                    "message",
                ],
            ),
            file("crates/path/src/file.rs"),
            file("crates/path/src/link_table.rs"),
            file("crates/path/src/acknowledge.rs"),
            file("crates/path/src/resolve/mod.rs"),
            file("crates/path/src/resolve/cables.rs"),
            file("crates/path/src/resolve/connections.rs"),
            file("crates/path/src/resolve/flows.rs"),
            file("crates/path/src/resolve/limits.rs"),
            file("crates/path/src/resolve/links.rs"),
            file("crates/path/src/resolve/nodes.rs"),
            file("crates/path/src/resolve/traffic.rs"),
        ],
    },
    Target {
        name: "overrides",
        reads: "values behind --set",
        run: overrides,
        longest: 512,
        lines: &[file("crates/document/src/overrides.rs")],
    },
    Target {
        name: "recorded_trace",
        reads: "recorded traces of links",
        run: recorded_trace,
        longest: 1024,
        lines: &[
            functions(
                "crates/link/src/recorded_trace/mod.rs",
                &["parse", "place", "error", "trimmed", "cells", "lines"],
            ),
            functions(
                "crates/link/src/recorded_trace/opportunities.rs",
                &["new", "parse"],
            ),
            functions(
                "crates/link/src/recorded_trace/table.rs",
                &[
                    "parse",
                    "from_header",
                    "row",
                    "passes",
                    "read",
                    "value",
                    "is_zero",
                ],
            ),
        ],
    },
    Target {
        name: "configuration",
        reads: "the proxy's configuration file",
        run: configuration,
        longest: 4096,
        lines: &[
            file("crates/document/src/key.rs"),
            file("crates/proxy/src/configuration/admin.rs"),
            file("crates/proxy/src/configuration/check.rs"),
            file("crates/proxy/src/configuration/control.rs"),
            file("crates/proxy/src/configuration/explicit.rs"),
            file("crates/proxy/src/configuration/file.rs"),
            file("crates/proxy/src/configuration/limits.rs"),
            file("crates/proxy/src/configuration/profile.rs"),
            file("crates/proxy/src/configuration/state.rs"),
            file("crates/proxy/src/configuration/transparent.rs"),
            file("crates/proxy/src/configuration/values.rs"),
        ],
    },
    Target {
        name: "control_socket",
        reads: "requests and answers on the control socket",
        run: control_socket,
        longest: 8192,
        lines: &[
            functions("crates/proxy/src/command/mod.rs", &["read", "parameter"]),
            functions("crates/proxy/src/configuration/transparent.rs", &["prefix"]),
        ],
    },
    Target {
        name: "process_messages",
        reads: "messages between helper, relay and resolver; what a program leaves to the next one",
        run: process_messages,
        longest: 8192,
        lines: &[functions(
            "crates/proxy/src/fuzzing.rs",
            &["process_messages", "read_again"],
        )],
    },
    Target {
        name: "handover",
        reads: "messages of a relay that hands over its sessions, and of its successor",
        run: handover,
        longest: 8192,
        lines: &[
            file("crates/handover/src/message.rs"),
            functions(
                "crates/handover/src/session.rs",
                &["descriptors", "copied", "check"],
            ),
        ],
    },
    Target {
        name: "gate_packets",
        reads: "SYNs in the gate's queue",
        run: gate_packets,
        longest: 512,
        lines: &[
            functions(
                "crates/proxy/src/gate/syn.rs",
                &[
                    "read",
                    "set_hop_limit",
                    "options",
                    "without_data",
                    "direct_headers",
                    "set_length",
                ],
            ),
            file("crates/proxy/src/gate/timestamps.rs"),
            file("crates/wire/src/checksum.rs"),
            file("crates/wire/src/options.rs"),
            functions("crates/proxy/src/fragmenting.rs", &["client"]),
        ],
    },
    Target {
        name: "verdicts",
        reads: "the file of what clients were found to take",
        run: verdicts,
        longest: 2048,
        lines: &[functions(
            "crates/relay/src/remembered.rs",
            &["recall_at", "read"],
        )],
    },
    Target {
        name: "netfilter_messages",
        reads: "netlink: queued packets, tracked connections",
        run: netfilter_messages,
        longest: 2048,
        lines: &[
            functions(
                "crates/linux/src/nfnetlink.rs",
                &["messages", "attributes", "number_at"],
            ),
            functions("crates/linux/src/packet_queue.rs", &["parse"]),
            functions(
                "crates/linux/src/connection_tracking.rs",
                &["tracked", "passed", "find"],
            ),
            functions("crates/linux/src/nftables/generation.rs", &["read"]),
            functions("crates/linux/src/nftables/counter.rs", &["read"]),
        ],
    },
    Target {
        name: "route_messages",
        reads: "netlink: routes",
        run: route_messages,
        longest: 2048,
        lines: &[
            file("crates/gateway/src/initial_window/copy.rs"),
            functions(
                "crates/gateway/src/initial_window/metrics.rs",
                &["set", "lead_through"],
            ),
            functions(
                "crates/gateway/src/initial_window/mirror.rs",
                &["identity", "key"],
            ),
            functions("crates/linux/src/routing.rs", &["table_of", "set_table"]),
            functions("crates/gateway/src/ours.rs", &["is_ours"]),
            functions(
                "crates/gateway/src/initial_window/tables.rs",
                &["is_configured"],
            ),
        ],
    },
    Target {
        name: "route_lists",
        reads: "netlink: lists of interfaces, addresses, rules, routes",
        run: route_lists,
        longest: 4096,
        lines: &[
            functions(
                "crates/linux/src/route_socket.rs",
                &["take_in", "end", "messages"],
            ),
            functions(
                "crates/linux/src/own_addresses.rs",
                &[
                    "address_in",
                    "local_route_in",
                    "table_in",
                    "vrf_in",
                    "own",
                    "find",
                    "number",
                    "address_of",
                    "first_bits",
                ],
            ),
        ],
    },
    Target {
        name: "nft_listings",
        reads: "output of nft, JSON and text",
        run: nft_listings,
        longest: 8192,
        lines: &[
            functions(
                "crates/gateway/src/ruleset.rs",
                &[
                    "uses_of",
                    "statement",
                    "mangle",
                    "is_mark",
                    "operands",
                    "number",
                    "numbers",
                ],
            ),
            functions("crates/linux/src/nftables.rs", &["listed", "chains_at"]),
            functions(
                "crates/gateway/src/interception/own_tables.rs",
                &["tables", "note"],
            ),
        ],
    },
    Target {
        name: "proc_tables",
        reads: "tables of /proc/net",
        run: proc_tables,
        longest: 4096,
        lines: &[
            functions("crates/linux/src/owner.rs", &["listener"]),
            functions("crates/gateway/src/claim.rs", &["encode", "decode"]),
            functions("crates/gateway/src/interception/survey.rs", &["holder"]),
            functions("crates/proxy/src/admin/host.rs", &["find"]),
        ],
    },
    Target {
        name: "thin_packets",
        reads: "packets of midspan thin: TCP and its options",
        run: thin_packets,
        longest: 2048,
        lines: &[
            file("crates/thin/src/segment.rs"),
            functions(
                "crates/wire/src/packet.rs",
                &[
                    "read",
                    "read_first",
                    "read_ip",
                    "read_v4",
                    "read_v6",
                    "headers",
                    "payload",
                ],
            ),
        ],
    },
    Target {
        name: "thin_messages",
        reads: "messages between the processes of midspan thin",
        run: thin_messages,
        longest: 4096,
        lines: &[functions(
            "crates/thin/src/fuzzing.rs",
            &["process_messages"],
        )],
    },
];
