//! Conditions of rules on the marks of packets and sockets, as text.

use std::fmt::Display;

use super::plan::Selection;

/// Rules that give SYNs with these marks to the sockets of listeners, one mark for each.
pub(super) fn to_listeners(selections: &[Selection], (mask, marks): (u32, &[u32])) -> Vec<String> {
    let mut rules = Vec::new();
    for (selection, mark) in selections.iter().zip(marks) {
        let marked = format!("{} meta l4proto tcp", marked(mask, [mark]));
        for rung in &selection.rungs {
            let hops = rung.hop_limit;
            rules.extend(rung.ipv4_port.map(|port| {
                format!("{marked} ip ttl {hops} tproxy ip to 127.0.0.1:{port} accept")
            }));
            rules.extend(rung.ipv6_port.map(|port| {
                format!("{marked} ip6 hoplimit {hops} tproxy ip6 to [::1]:{port} accept")
            }));
        }
        rules.extend(selection.ipv4_port.map(|port| {
            format!("{marked} meta nfproto ipv4 tproxy ip to 127.0.0.1:{port} accept")
        }));
        rules.extend(
            selection.ipv6_port.map(|port| {
                format!("{marked} meta nfproto ipv6 tproxy ip6 to [::1]:{port} accept")
            }),
        );
    }
    // Without a listening socket, this machine would answer in the server's name.
    rules.push(format!("{} drop", marked(mask, marks)));
    rules
}

/// The condition that a packet has one of these marks.
pub(super) fn marked<'m>(mask: u32, marks: impl IntoIterator<Item = &'m u32>) -> String {
    format!("meta mark & {mask:#010x} == {}", set(marks))
}

/// The condition that the socket of a packet has one of these marks.
pub(super) fn socket_marked<'m>(mask: u32, marks: impl IntoIterator<Item = &'m u32>) -> String {
    format!("socket mark & {mask:#010x} == {}", set(marks))
}

fn set<'m>(marks: impl IntoIterator<Item = &'m u32>) -> String {
    one_of(marks.into_iter().map(|mark| format!("{mark:#010x}")))
}

/// A value, or a set of values.
pub(super) fn one_of(values: impl IntoIterator<Item = impl Display>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    match &values[..] {
        [one] => one.clone(),
        _ => format!("{{ {} }}", values.join(", ")),
    }
}
