//! Where listeners listen: addresses, ports, interfaces.

use std::fs;
use std::net::SocketAddr;

use midspan_linux::owner;

use super::{Context, Finding};
use crate::configuration::{Explicit, Forward, Listener, Mode};
use crate::helper::{ListenError, try_to_listen};

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for listener in &context.configuration.listeners {
        match &listener.mode {
            Mode::Forward(Forward { listen, .. }) | Mode::Explicit(Explicit { listen, .. }) => {
                findings.push(port(listener, *listen));
            }
            Mode::Transparent(transparent) => {
                findings.extend(transparent.interfaces.iter().map(|name| interface(name)))
            }
        }
    }
    findings
}

fn port(listener: &Listener, address: SocketAddr) -> Finding {
    let check = format!("port of \"{}\"", listener.relay.name);
    let Err(error) = try_to_listen(listener) else {
        return Finding::ok(check, format!("{address} is free"));
    };
    let found = error.to_string();
    match error {
        ListenError::InUse(_) => match owner::of_listener(address) {
            Some(owner) if owner.name == own_name() => Finding::ok(
                check,
                format!("{address} is in use by {owner}, which runs already"),
            ),
            Some(owner) => Finding::missing(
                check,
                format!("{address} is in use by {owner}"),
                "stop that program, or use another port (listen)",
            ),
            None => Finding::missing(
                check,
                format!("{address} is in use"),
                "find out by whom: ss -tlnp; or use another port (listen)",
            ),
        },
        ListenError::NotLocal(ip) => {
            let length = if ip.is_ipv4() { 32 } else { 128 };
            let mend = format!("ip address add {ip}/{length} dev INTERFACE, or another address");
            Finding::missing(check, format!("{ip} is no address of this machine"), mend)
        }
        ListenError::PrivilegedPort(port) => Finding::missing(
            check,
            format!("port {port} needs CAP_NET_BIND_SERVICE"),
            "a port from 1024 on, root, or setcap cap_net_bind_service+ep",
        ),
        _ => Finding::missing(check, found, "see the text"),
    }
}

/// The name of this program's processes.
fn own_name() -> String {
    fs::read_to_string("/proc/self/comm")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn interface(name: &str) -> Finding {
    let check = format!("interface {name}");
    let all = interfaces();
    let matching = named_interfaces(std::slice::from_ref(&name.to_owned()));
    if let Some(start) = name.strip_suffix('*') {
        return match matching.is_empty() {
            true => Finding::warning(
                check,
                format!("no interface begins with \"{start}\" at present"),
                format!("there are {}", all.join(", ")),
            ),
            false => Finding::ok(check, matching.join(", ")),
        };
    }
    if matching.is_empty() {
        let near = midspan_document::nearest(name, all.iter().map(String::as_str));
        let hint = near.map_or_else(String::new, |near| format!("did you mean \"{near}\"? "));
        return Finding::missing(
            check,
            "there is none of this name",
            format!("{hint}there are {}", all.join(", ")),
        );
    }
    Finding::ok(check, "there")
}

/// Those of the named interfaces that exist; a name may end in `*`.
pub(super) fn named_interfaces(names: &[String]) -> Vec<String> {
    interfaces()
        .into_iter()
        .filter(|interface| {
            names.iter().any(|name| match name.strip_suffix('*') {
                Some(start) => interface.starts_with(start),
                None => interface == name,
            })
        })
        .collect()
}

/// The names of all interfaces of this network namespace.
#[must_use]
pub fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    text.lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}
