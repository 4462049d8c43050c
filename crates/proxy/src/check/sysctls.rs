//! Parameters of the kernel (`sysctl`).

use std::collections::BTreeSet;
use std::fs;

use midspan_linux::netlink::Netlink;
use midspan_linux::own_addresses;
use midspan_policy::{Buffer, Leg};

use super::listeners::named_interfaces;
use super::{Context, Finding};

/// Connections with at least this much room are rarely held back.
const WIDE: u64 = 16 << 20;
/// A round trip over a geostationary satellite, in milliseconds.
const LONG_ROUND_TRIP: u64 = 600;
/// Of a buffer as the kernel counts it, this part (in percent) is data, about.
const DATA: u64 = 78;

/// Reads a parameter by its name with dots.
pub(super) fn text(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Reads a parameter that is one number.
pub(super) fn number(name: &str) -> Option<u64> {
    text(name)?.parse().ok()
}

pub(super) fn findings(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if context.is_transparent {
        findings.extend(forwarding(context));
        findings.extend(reverse_path(context));
        findings.push(early_demux());
        findings.push(accepted_marks());
        findings.extend(local_ports());
        findings.extend(vrfs(context));
    }
    findings.extend(buffers(context));
    findings
}

/// Of an interface, whose name may have dots.
fn of_interface(family: &str, interface: &str, name: &str) -> Option<u64> {
    let path = format!("/proc/sys/net/{family}/conf/{interface}/{name}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn forwarding(context: &Context<'_>) -> Vec<Finding> {
    let addresses = Netlink::open()
        .and_then(|netlink| netlink.addresses())
        .unwrap_or_default();
    let mut findings = Vec::new();
    for (family, name) in [
        ("ipv4", "net.ipv4.ip_forward"),
        ("ipv6", "net.ipv6.conf.all.forwarding"),
    ] {
        let is_ipv4 = family == "ipv4";
        let wanted = context
            .configuration
            .transparent()
            .filter(|(_, t)| if is_ipv4 { t.ipv4 } else { t.ipv6 });
        let interfaces: Vec<String> = wanted
            .flat_map(|(_, transparent)| named_interfaces(&transparent.interfaces))
            .collect();
        if interfaces.is_empty() {
            continue;
        }
        let check = format!("sysctl {name}");
        let off: Vec<&str> = interfaces
            .iter()
            .map(String::as_str)
            .filter(|interface| of_interface(family, interface, "forwarding") == Some(0))
            .collect();
        // Without addresses there is nothing to forward yet.
        let in_use = is_ipv4
            || addresses
                .iter()
                .any(|(interface, prefix)| match prefix.addr() {
                    std::net::IpAddr::V6(six) => {
                        interfaces.contains(interface) && !six.is_unicast_link_local()
                    }
                    std::net::IpAddr::V4(_) => false,
                });
        let mend = match is_ipv4 {
            true => format!("sysctl -w {name}=1"),
            false => format!("sysctl -w {name}=1, or families = [\"ipv4\"]"),
        };
        findings.push(match (off.is_empty(), in_use) {
            (true, _) => Finding::ok(check, "forwarded"),
            (false, true) => Finding::missing(
                check,
                format!("not forwarded from {}", off.join(", ")),
                mend,
            ),
            (false, false) => Finding::warning(
                check,
                format!(
                    "not forwarded from {}, which has no addresses of it",
                    off.join(", ")
                ),
                mend,
            ),
        });
    }
    findings
}

/// Every value works: packets for intercepted connections arrive where their route leads back.
fn reverse_path(context: &Context<'_>) -> Option<Finding> {
    let all = number("net.ipv4.conf.all.rp_filter").unwrap_or(0);
    let each: Vec<String> = context
        .configuration
        .transparent()
        .flat_map(|(_, transparent)| named_interfaces(&transparent.interfaces))
        .map(|interface| {
            let own = of_interface("ipv4", &interface, "rp_filter").unwrap_or(0);
            format!("{interface} {}", own.max(all))
        })
        .collect();
    let found = format!("{}: works as it is, as without Midspan", each.join(", "));
    (!each.is_empty()).then(|| Finding::ok("sysctl rp_filter", found))
}

fn early_demux() -> Finding {
    const NAME: &str = "net.ipv4.tcp_early_demux";
    let check = format!("sysctl {NAME}");
    match number(NAME) {
        Some(0) => Finding::ok(check, "off"),
        Some(_) if is_writable(NAME) => Finding::ok(check, "on; switched off while Midspan runs"),
        Some(_) => Finding::warning(
            check,
            "on, and not to be changed by this process: a client that uses a port again for a \
             connection that passes untouched may wait for a minute",
            format!("sysctl -w {NAME}=0"),
        ),
        None => Finding::ok(check, "not known to this kernel"),
    }
}

/// Clients in a VRF pass untouched where the kernel does not find sockets without a VRF for them.
fn vrfs(context: &Context<'_>) -> Option<Finding> {
    const NAME: &str = "net.ipv4.tcp_l3mdev_accept";
    let vrfs = own_addresses::vrfs().unwrap_or_default();
    let named: BTreeSet<String> = (context.configuration.transparent())
        .flat_map(|(_, transparent)| named_interfaces(&transparent.interfaces))
        .filter(|interface| vrfs.contains(interface))
        .collect();
    if named.is_empty() {
        return None;
    }
    let named: Vec<String> = named.into_iter().collect();
    let (check, named) = (format!("sysctl {NAME}"), named.join(", "));
    Some(match number(NAME) {
        Some(1..) => Finding::ok(check, format!("on, as the VRF {named} needs it")),
        Some(0) | None => Finding::warning(
            check,
            format!("off: clients in the VRF {named} pass untouched"),
            format!(
                "sysctl -w {NAME}=1 and midspan reload, if all programs may get connections of every VRF"
            ),
        ),
    })
}

fn is_writable(name: &str) -> bool {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::OpenOptions::new().write(true).open(path).is_ok()
}

fn accepted_marks() -> Finding {
    const NAME: &str = "net.ipv4.tcp_fwmark_accept";
    let found = match number(NAME) {
        Some(0) | None => "off",
        Some(_) => "on; not for Midspan's listeners, which have marks of their own",
    };
    Finding::ok(format!("sysctl {NAME}"), found)
}

/// A server leg has the port of its client, and the kernel gives no port to a connection of this
/// machine's own that a leg has, whatever the addresses.
fn local_ports() -> Option<Finding> {
    const NAME: &str = "net.ipv4.ip_local_port_range";
    let check = format!("sysctl {NAME}");
    let range = text(NAME)?;
    let mut ends = range.split_whitespace().map(str::parse);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else {
        return None;
    };
    Some(match shared_ports(first, last) {
        0 => Finding::ok(check, format!("{first} to {last}: clients use others")),
        shared => Finding::warning(
            check,
            format!(
                "{first} to {last}: clients use {shared} of these ports, from {CLIENT_PORTS} on, and \
                 a port that a session has is lost for this machine's own connections: with some \
                 ten thousand sessions they get slow, and then fail (EADDRNOTAVAIL)"
            ),
            format!("sysctl -w {NAME}='{LOCAL_PORTS}'"),
        ),
    })
}

/// The ports of most clients begin here: Linux has 32768 to 60999, others 49152 to 65535.
const CLIENT_PORTS: u16 = 32_768;
/// A range below them.
const LOCAL_PORTS: &str = "10240 32767";

/// How many ports of a range clients use too.
fn shared_ports(first: u16, last: u16) -> u32 {
    let begin = u32::from(first.max(CLIENT_PORTS));
    (u32::from(last) + 1).saturating_sub(begin)
}

/// Limits of buffers whose size the kernel chooses. They limit the data that a leg can have in
/// flight: `tcp_wmem` for sent data, `tcp_rmem` for received data.
fn buffers(context: &Context<'_>) -> Vec<Finding> {
    let auto = |pick: fn(&midspan_policy::LegSettings) -> Buffer| {
        context
            .configuration
            .legs()
            .filter(|(_, _, leg)| !matches!(pick(leg), Buffer::Fixed(_)))
            .map(|(_, which, leg)| (which, leg.pacing_rate))
            .collect::<Vec<(Leg, _)>>()
    };
    let mut findings = Vec::new();
    for (name, legs) in [
        ("net.ipv4.tcp_wmem", auto(|leg| leg.send_buffer)),
        ("net.ipv4.tcp_rmem", auto(|leg| leg.receive_buffer)),
    ] {
        if legs.is_empty() {
            continue;
        }
        let values = text(name).unwrap_or_default();
        let values: Vec<&str> = values.split_whitespace().collect();
        let [least, first, most] = values[..] else {
            continue;
        };
        let most: u64 = most.parse().unwrap_or(0);
        let rate = most * DATA / 100 * 8 / LONG_ROUND_TRIP / 1000;
        let found = format!(
            "at most {} KiB: one connection gets at most about {rate} Mbit/s where the round \
             trip is {LONG_ROUND_TRIP} ms",
            most >> 10
        );
        let check = format!("sysctl {name}");
        // A paced leg needs no larger buffer than its rate can fill.
        let enough = legs
            .iter()
            .map(|(_, pacing)| {
                pacing.map_or(WIDE, |rate| {
                    rate.bits_per_second() / 8 * LONG_ROUND_TRIP / 1000 * 100 / DATA
                })
            })
            .max()
            .unwrap_or(WIDE)
            .min(1 << 30);
        findings.push(match most < enough {
            true => Finding::warning(
                check,
                found,
                format!("sysctl -w {name}='{least} {first} {}'", enough.max(WIDE)),
            ),
            false => Finding::ok(check, found),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_shared_from_the_first_of_the_clients_on() {
        assert_eq!(shared_ports(32_768, 60_999), 28_232);
        assert_eq!(shared_ports(10_240, 32_767), 0);
        assert_eq!(shared_ports(10_240, 32_768), 1);
        assert_eq!(shared_ports(1024, 65_535), 32_768);
        assert_eq!(shared_ports(50_000, 40_000), 0);
    }
}
