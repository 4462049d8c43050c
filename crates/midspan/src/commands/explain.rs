//! `midspan explain CLIENT SERVER:PORT`: the decision for one connection.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use midspan_linux::netlink::Netlink;
use midspan_proxy::client::{self, Place};
use midspan_proxy::command::{Request, Status, ask, find_socket};
use midspan_proxy::configuration::Configuration;
use midspan_proxy::learned::PathRow;
use midspan_proxy::summary::{By, Query, Summary};
use midspan_relay::observation::SessionReport;
use midspan_top::numbers;
use miette::miette;
use serde::Serialize;

use super::{Outcome, learned};
use crate::explanation::{Explanation, Flow, Machine, Running, explain, path_to};
use crate::observing_arguments::ExplainOptions;
use crate::printing;

/// Live sessions that are printed.
const LIVE_LIMIT: usize = 10;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Explained {
    /// Live sessions between the two.
    live: Vec<SessionReport>,
    /// The decision for a new connection.
    new: Explanation,
    /// What was learned about the path to the client.
    path: Option<PathRow>,
}

/// Explains live sessions, and the decision for a new connection.
pub fn explain_flow(options: &ExplainOptions) -> Outcome {
    let socket = find_socket(options.socket.as_deref(), options.config.as_deref())?;
    let answer = ask(&socket, &Request::Status)?;
    let status = answer
        .status
        .ok_or_else(|| miette!("{}", answer.error.unwrap_or_default()))?;
    let flow = Flow {
        client: options.client,
        server: options.server,
    };
    if flow.client.is_ipv4() != flow.server.is_ipv4() {
        return Err(miette!("one address is IPv4, the other is IPv6"));
    }
    let left_alone = ask(&socket, &Request::LeftAlone).ok();
    let left_alone = left_alone.and_then(|answer| answer.left_alone);
    let place = Place::Socket(socket);
    let summary = sessions_of(&place, flow.client);
    let live = live(&place, &flow, summary.as_ref());
    let learned = learned::about(&place, Some(flow.client.into())).ok();
    let configuration = Configuration::load(Path::new(&status.configuration))?;
    let machine = machine(&flow);
    let running = Running {
        status: &status,
        summary: summary.as_ref(),
        learned: learned.as_ref(),
        left_alone: left_alone.as_deref(),
    };
    let path = learned.as_ref();
    let path = path.and_then(|learned| path_to(learned, flow.client));
    let explained = Explained {
        live,
        new: explain(&flow, &machine, &configuration, &running),
        path: path.cloned(),
    };
    if options.output.json {
        printing::json(&explained)?;
    } else {
        print(&flow, &explained, &status);
    }
    Ok(true)
}

/// The summary with the client's sessions; `None` if the relay does not answer.
fn sessions_of(place: &Place, client: IpAddr) -> Option<Summary> {
    let query = Query {
        by: By::Session,
        client: Some(client.into()),
        limit: usize::MAX,
        ..Query::default()
    };
    match client::get(place.clone(), &format!("/summary?{query}")) {
        Ok((200, text)) => serde_json::from_slice(text.as_bytes()).ok(),
        _ => None,
    }
}

/// The live sessions between client and server.
fn live(place: &Place, flow: &Flow, summary: Option<&Summary>) -> Vec<SessionReport> {
    let rows = summary.into_iter().flat_map(|summary| &summary.sessions);
    rows.filter(|row| row.server == flow.server)
        .take(LIVE_LIMIT)
        .filter_map(|row| client::session(place, row.id).ok().flatten())
        .collect()
}

fn machine(flow: &Flow) -> Machine {
    let interface = Netlink::open().and_then(|netlink| netlink.interface_towards(flow.client));
    Machine {
        interface: interface.ok(),
        // A socket can have only an address of this machine.
        server_is_local: UdpSocket::bind(SocketAddr::new(flow.server.ip(), 0)).is_ok(),
    }
}

fn print(flow: &Flow, explained: &Explained, status: &Status) {
    for session in &explained.live {
        printing::line(format_args!("live: session {} is split", session.id));
        printing::line(format_args!(
            "  listener {}, handshake {}, start {}",
            session.listener,
            session.handshake,
            session.start.as_deref().unwrap_or("not chosen")
        ));
        for (name, leg) in [
            ("client leg", &session.client_leg),
            ("server leg", &session.server_leg),
        ] {
            printing::line(format_args!(
                "  {name}: {} because: {}",
                leg.congestion_control.as_deref().unwrap_or("unknown"),
                leg.congestion_control_reason
                    .as_deref()
                    .unwrap_or("unknown")
            ));
        }
    }
    let new = &explained.new;
    let decision = match new.decision {
        "split" => "would be split",
        "refused" => "would be refused",
        _ => "would pass untouched",
    };
    printing::line(format_args!(
        "a new connection from {} to {} {decision}",
        flow.client, flow.server
    ));
    printing::line(format_args!("  reason: {}", new.reason));
    printing::line(format_args!("  to change it: {}", new.change));
    for unless in &new.unless {
        printing::line(format_args!("  unless: {unless}"));
    }
    if let Some(path) = &explained.path {
        printing::line(format_args!(
            "  the path to {} is known for {}: {}, {} ms, losses {}, initial window {} segments",
            path.peer,
            numbers::age(path.age_seconds),
            numbers::rate(path.rate_bits_per_second),
            numbers::milliseconds(Some(path.min_rtt_seconds)),
            if path.lossy { "random" } else { "from queues" },
            path.window_segments
        ));
    }
    printing::note(format_args!(
        "note: read from {}, as it is now, and the state of the running Midspan",
        status.configuration
    ));
}
