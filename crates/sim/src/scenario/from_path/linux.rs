//! TCP of hosts and proxies, set as Linux sets it, as far as the simulator models that.

use midspan_path::{HostSettings, NodeIndex, NodeKind, Path, ProxySettings, Window};
use midspan_policy::{Buffer, Handshake, LegSettings, ReceiveWindow};
use midspan_units::TimeSpan;

use super::acknowledge::of_host;
use crate::proxy::{Buffers, RelayConfiguration};
use crate::scenario::{NodeId, ScenarioError, Split};
use crate::tcp::{
    AckRule, ByteCounting, ReceiverConfiguration, SenderConfiguration, Variant, WindowGrowth,
};

/// The most that Linux's autotuning advertises and keeps unacknowledged, in bytes: half of the
/// third number of `tcp_rmem`, and the third number of `tcp_wmem`, with Linux's default values.
const RECEIVE_WINDOW: u64 = 3 << 20;
const SEND_BUFFER: u64 = 4 << 20;
/// Size of a packet at the network layer, in bytes.
const PACKET: u32 = 1500;
const KNOWN: &str = "cubic, reno and bbr";
/// The window that Linux advertises at first, in bytes.
const FIRST_WINDOW: u64 = 65_535;
/// Number of time-outs in a row after which Linux gives up (`tcp_retries2`).
const RETRIES: u32 = 15;

fn host(path: &Path, node: NodeIndex) -> HostSettings {
    match &path.node(node).kind {
        NodeKind::Host(settings) => settings.clone(),
        NodeKind::Router | NodeKind::Proxy(_) => HostSettings::default(),
    }
}

/// Changes the senders of a flow if a host at one of its ends has no SACK. `legs` are all senders
/// of the flow, from `from` to `to`.
pub(super) fn leave_out_sack<'a>(
    path: &Path,
    [from, to]: [NodeIndex; 2],
    legs: impl Iterator<Item = &'a mut SenderConfiguration>,
) {
    let mut legs: Vec<_> = legs.collect();
    let last = legs.len().saturating_sub(1);
    for (node, leg) in [(from, 0), (to, last)] {
        if host(path, node).without_sack
            && let Some(sender) = legs.get_mut(leg)
            && sender.variant == Variant::Sack
        {
            sender.variant = Variant::NewReno;
        }
    }
}

pub(super) fn host_sender(
    path: &Path,
    node: NodeIndex,
) -> Result<SenderConfiguration, ScenarioError> {
    let settings = host(path, node);
    let name = &path.node(node).name;
    Ok(SenderConfiguration {
        window_limit: settings
            .send_buffer
            .map_or(SEND_BUFFER, |size| size.bytes()),
        ..sender(
            path,
            name,
            settings.congestion_control.as_deref(),
            settings.initial_window,
        )?
    })
}

pub(super) fn host_receiver(path: &Path, node: NodeIndex) -> ReceiverConfiguration {
    let settings = host(path, node);
    let most = settings.receive_buffer.map(|size| size.bytes() / 2);
    ReceiverConfiguration {
        buffer: most.unwrap_or(RECEIVE_WINDOW),
        window_growth: match settings.window {
            Window::Autotuned => WindowGrowth::Autotuned {
                initial: FIRST_WINDOW,
            },
            Window::Fixed => WindowGrowth::Fixed,
            Window::Linux24 => WindowGrowth::Linux24,
        },
        // For a sender that starts as Linux does; only window prediction uses this.
        acknowledge: of_host(settings.acknowledge, 10),
        ..receiver(path, None)
    }
}

/// A proxy's session: its legs, assigned by the direction of the data.
pub(super) fn split(path: &Path, node: NodeIndex, upload: bool) -> Result<Split, ScenarioError> {
    let default = ProxySettings::default();
    let settings = match &path.node(node).kind {
        NodeKind::Proxy(settings) => &**settings,
        NodeKind::Host(_) | NodeKind::Router => &default,
    };
    let (inbound, outbound) = if upload {
        (&settings.client_leg, &settings.server_leg)
    } else {
        (&settings.server_leg, &settings.client_leg)
    };
    let name = &path.node(node).name;
    let control = outbound.congestion_control.as_deref();
    Ok(Split {
        node: NodeId(node.0),
        inbound: proxy_receiver(path, inbound),
        outbound: sender(path, name, control, outbound.initial_window)?,
        relay: relay(outbound),
    })
}

fn proxy_receiver(path: &Path, inbound: &LegSettings) -> ReceiverConfiguration {
    let receiver = receiver(path, fixed(inbound.receive_buffer));
    match inbound.receive_window {
        Some(ReceiveWindow::Fixed(size)) => ReceiverConfiguration {
            buffer: receiver.buffer.max(size.bytes()),
            window_growth: WindowGrowth::Autotuned {
                initial: size.bytes(),
            },
            ..receiver
        },
        Some(ReceiveWindow::Auto | ReceiveWindow::Off) | None => receiver,
    }
}

fn relay(outbound: &LegSettings) -> RelayConfiguration {
    RelayConfiguration {
        buffers: Buffers::Separate {
            send: fixed(outbound.send_buffer).unwrap_or(SEND_BUFFER),
        },
        notsent_lowat: outbound.notsent_lowat.map(|most| most.bytes()),
        pacing: outbound.pacing_rate,
        handshake: Handshake::Early,
        ..RelayConfiguration::default()
    }
}

const fn fixed(buffer: Buffer) -> Option<u64> {
    match buffer {
        Buffer::Auto | Buffer::Adaptive => None,
        Buffer::Fixed(size) => Some(size.bytes()),
    }
}

/// Size of the IP and TCP headers in bytes, timestamps included.
const fn header_size(path: &Path) -> u32 {
    match path.family {
        midspan_path::Family::Ipv4 => 20 + 32,
        midspan_path::Family::Ipv6 => 40 + 32,
    }
}

fn sender(
    path: &Path,
    place: &str,
    congestion_control: Option<&str>,
    initial_window: Option<u32>,
) -> Result<SenderConfiguration, ScenarioError> {
    let variant = match congestion_control {
        // "auto" starts with CUBIC until the policy chooses BBR.
        None | Some("cubic" | "auto") => Variant::Cubic,
        Some("reno") => Variant::Sack,
        Some("bbr") => Variant::Bbr,
        Some(name) => {
            return Err(ScenarioError::CongestionControl {
                place: place.to_owned(),
                name: name.to_owned(),
                known: KNOWN,
            });
        }
    };
    Ok(SenderConfiguration {
        variant,
        byte_counting: ByteCounting::All,
        hystart: true,
        tracks_segments: true,
        threshold_from_cwnd: true,
        segment_size: PACKET - header_size(path),
        header_size: header_size(path),
        initial_window: initial_window.unwrap_or(10),
        minimum_timeout: TimeSpan::from_milliseconds(200),
        maximum_timeout: TimeSpan::from_seconds(120),
        give_up_after: RETRIES,
        // curl, web servers and proxies turn Nagle's algorithm off.
        nagle: false,
        ..SenderConfiguration::default()
    })
}

/// A receiver. A buffer that the operator has fixed is not autotuned.
fn receiver(path: &Path, fixed: Option<u64>) -> ReceiverConfiguration {
    ReceiverConfiguration {
        buffer: fixed.unwrap_or(RECEIVE_WINDOW),
        window_growth: match fixed {
            Some(_) => WindowGrowth::Fixed,
            None => WindowGrowth::Autotuned {
                initial: FIRST_WINDOW,
            },
        },
        acknowledge: AckRule::Delayed {
            segments: 2,
            timeout: TimeSpan::from_milliseconds(40),
        },
        selective: true,
        header_size: header_size(path),
        segment_size: PACKET - header_size(path),
        ..ReceiverConfiguration::default()
    }
}

#[cfg(test)]
mod tests {
    use midspan_document::Source;
    use midspan_path::Path;

    use crate::Scenario;
    use crate::tcp::Variant;

    fn variants(first: &str, last: &str) -> Vec<Variant> {
        let text = format!(
            r#"
[[host]]
name = "a"
congestion_control = "reno"
{first}
[[proxy]]
name = "p"
server_leg = {{ congestion_control = "reno" }}
[[proxy]]
name = "q"
server_leg = {{ congestion_control = "reno" }}
[[host]]
name = "b"
{last}
[[link]]
name = "1"
between = ["a", "p"]
[[link]]
name = "2"
between = ["p", "q"]
[[link]]
name = "3"
between = ["q", "b"]
[[flow]]
name = "f"
from = "a"
to = "b"
workload = "upload"
size = "1 MB"
"#
        );
        let path = Path::read(&Source::new("test", text.as_str())).unwrap();
        let made = Scenario::from_path(&path, true).unwrap().remove(0);
        let flow = &made.scenario.flows[0];
        let first = std::iter::once(flow.sender.variant);
        first
            .chain(flow.splits.iter().map(|split| split.outbound.variant))
            .collect()
    }

    #[test]
    fn a_host_without_sack_has_none_on_its_own_leg_only() {
        use Variant::{NewReno, Sack};
        assert_eq!(variants("", ""), [Sack, Sack, Sack]);
        assert_eq!(variants("sack = false", ""), [NewReno, Sack, Sack]);
        assert_eq!(variants("", "sack = false"), [Sack, Sack, NewReno]);
        assert_eq!(variants("sack = true", "sack = true"), [Sack, Sack, Sack]);
    }
}
