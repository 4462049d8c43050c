//! `midspan status`, `bypass`, `drain`, `kick` and `reload`: commands to a running proxy.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use midspan_proxy::client::{self, Place};
use midspan_proxy::command::{
    Answer, DrainedListener, ListenerStatus, Request, Status, TrackingStatus, ask, find_socket,
};
use midspan_proxy::summary::{DrainedClients, ServerRow, Summary};
use miette::miette;

use super::Outcome;
use crate::arguments::{BypassOptions, DrainOptions, KickOptions, Switch};
use crate::control_options::ControlOptions;
use crate::printing;

/// Shows the state of the proxy.
pub fn status(options: &ControlOptions) -> Outcome {
    exchange(options, &Request::Status, |answer| {
        if let Some(status) = &answer.status {
            print_status(status);
        }
    })
}

/// Adds the servers of listeners that have several. The relay has them; if it does not answer, they are
/// missing.
fn add_servers(socket: &Path, status: &mut Status) {
    if !(status.listeners.iter()).any(|listener| listener.mode == "forward") {
        return;
    }
    let Ok((200, text)) = client::get(Place::Socket(socket.to_owned()), "/servers") else {
        return;
    };
    let mut servers: BTreeMap<String, Vec<ServerRow>> =
        serde_json::from_slice(text.as_bytes()).unwrap_or_default();
    for listener in &mut status.listeners {
        listener.servers = servers.remove(&listener.name).unwrap_or_default();
    }
}

/// Sets or lists bypasses.
pub fn bypass(options: &BypassOptions) -> Outcome {
    let prefix = options.prefix.clone();
    let request = match options.switch {
        None => Request::BypassList,
        Some(Switch::On) => Request::BypassOn { prefix },
        Some(Switch::Off) => Request::BypassOff { prefix },
    };
    exchange(&options.control, &request, |answer| {
        printing::line(bypassed(answer.bypasses.as_deref().unwrap_or_default()));
    })
}

/// Drains listeners or some of their clients, or lists what is drained.
pub fn drain(options: &DrainOptions) -> Outcome {
    let (listener, clients) = (options.listener.clone(), options.clients.clone());
    let request = match (options.switch, listener) {
        (None, _) => Request::DrainList,
        (Some(Switch::On), Some(listener)) => Request::DrainOn { listener, clients },
        (Some(Switch::On), None) => return Err(miette!("drain on needs the name of a listener")),
        (Some(Switch::Off), listener) => Request::DrainOff { listener, clients },
    };
    exchange(&options.control, &request, |answer| {
        printing::line(drained(answer.drained.as_deref().unwrap_or_default()));
        print_drained_clients(answer.drained_clients.as_deref().unwrap_or_default());
    })
}

/// Resets live sessions.
pub fn kick(options: &KickOptions) -> Outcome {
    let request = Request::Kick {
        target: options.target.clone(),
    };
    exchange(&options.control, &request, |answer| {
        if let Some(kicked) = answer.kicked {
            printing::line(format_args!(
                "sessions reset: {}, clients without a session yet: {}, held SYNs: {}",
                kicked.sessions, kicked.negotiations, kicked.held
            ));
        }
    })
}

/// Makes the proxy read its file again.
pub fn reload(options: &ControlOptions) -> Outcome {
    exchange(options, &Request::Reload, |_| printing::line("reloaded"))
}

fn exchange(options: &ControlOptions, request: &Request, print: impl FnOnce(&Answer)) -> Outcome {
    let socket = find_socket(options.socket.as_deref(), options.config.as_deref())?;
    let mut answer = ask(&socket, request)?;
    count_sessions(&socket, &mut answer);
    if let Some(status) = &mut answer.status {
        add_servers(&socket, status);
    }
    if options.output.json {
        printing::json(&answer)?;
    } else if answer.ok {
        print(&answer);
        for note in &answer.notes {
            printing::warning(format_args!("note: {note}"));
        }
    }
    match answer.ok {
        true => Ok(true),
        false => Err(miette!("{}", answer.error.unwrap_or_default())),
    }
}

/// Adds the numbers of sessions of drained clients. The helper, which answers commands, does not count
/// sessions; without an answer of the relay, the numbers stay unknown.
fn count_sessions(socket: &Path, answer: &mut Answer) {
    let of_status = answer.status.iter_mut();
    let of_status = of_status.flat_map(|status| &mut status.drained_clients);
    let of_answer = answer.drained_clients.iter_mut().flatten();
    let rows: Vec<&mut DrainedClients> = of_status.chain(of_answer).collect();
    if rows.is_empty() {
        return;
    }
    let place = Place::Socket(socket.to_owned());
    let Ok((200, text)) = client::get(place, "/summary?limit=1") else {
        return;
    };
    let Ok(summary) = serde_json::from_slice::<Summary>(text.as_bytes()) else {
        return;
    };
    for row in rows {
        let is_same = |other: &&DrainedClients| {
            (&other.listener, &other.clients) == (&row.listener, &row.clients)
        };
        let counted = summary.drained_clients.iter().find(is_same);
        row.sessions = counted.and_then(|counted| counted.sessions);
    }
}

fn print_status(status: &Status) {
    printing::line(format_args!("midspan {}: {}", status.version, status.state));
    printing::line(format_args!("configuration: {}", status.configuration));
    printing::line(format_args!(
        "uptime: {} s, reloads: {}, processes: {} (helper), {} (relay)",
        status.uptime_seconds, status.reloads, status.pid, status.relay_pid
    ));
    if let Some(error) = &status.reload_error {
        printing::line(format_args!("the last reload failed: {error}"));
    }
    if !status.passing.is_empty() {
        let reasons = status.passing.join(", ");
        printing::line(format_args!("new connections pass untouched: {reasons}"));
    }
    for late in &status.late_threads {
        let how = if late.stuck { "stuck" } else { "late" };
        let still = Duration::from_millis(late.still_milliseconds).as_secs_f64();
        printing::line(format_args!(
            "thread {} is {how}: no turn for {still:.1} s",
            late.thread
        ));
    }
    if status.log_lines_lost > 0 {
        printing::line(format_args!(
            "lines lost of the helper's log: {}",
            status.log_lines_lost
        ));
    }
    for listener in &status.listeners {
        printing::line(format_args!(
            "listener {}: {}",
            listener.name,
            way(listener)
        ));
        for server in &listener.servers {
            printing::line(format_args!(
                "  server {}: {}, sessions: {}, failed checks: {}",
                server.server, server.state, server.sessions, server.failed_checks
            ));
        }
    }
    printing::line(bypassed(&status.bypasses));
    if !status.drained.is_empty() {
        printing::line(drained(&status.drained));
    }
    print_drained_clients(&status.drained_clients);
    if let Some(tracking) = &status.connection_tracking {
        printing::line(tracked(tracking));
    }
    printing::line(page(status));
    for notice in &status.notices {
        printing::line(format_args!("note: {notice}"));
    }
}

/// Where the page is, or how to get it.
fn page(status: &Status) -> String {
    match &status.admin {
        Some(address) => format!("page and metrics: http://{address}/"),
        None => format!(
            "page and metrics: off. Add [admin] with listen = \"127.0.0.1:9464\" to {}, and restart",
            status.configuration
        ),
    }
}

fn tracked(tracking: &TrackingStatus) -> String {
    let mut line = format!("connection tracking: {} entries", tracking.entries);
    if let Some(limit) = tracking.limit {
        line.push_str(&format!(" of {limit}"));
    }
    if tracking.is_nearly_full {
        line.push_str("; new connections pass untouched");
    }
    if !tracking.has_timeouts {
        line.push_str("; entries of sessions stay as long as the host's");
    }
    line
}

fn bypassed(prefixes: &[String]) -> String {
    match prefixes {
        [] => "nothing is bypassed".to_owned(),
        prefixes => format!("bypassed: {}", prefixes.join(" ")),
    }
}

fn drained(listeners: &[DrainedListener]) -> String {
    let name = |listener: &DrainedListener| match listener.accepts {
        true => format!("{} (still accepts connections)", listener.name),
        false => listener.name.clone(),
    };
    match listeners {
        [] => "no listener is drained".to_owned(),
        listeners => {
            let names: Vec<String> = listeners.iter().map(name).collect();
            format!("drained: {}", names.join(", "))
        }
    }
}

fn print_drained_clients(drained: &[DrainedClients]) {
    for row in drained {
        let left = match row.sessions {
            Some(sessions) => format!(", sessions left: {sessions}"),
            None => String::new(),
        };
        printing::line(format_args!(
            "drained at {}: clients {}{left}",
            row.listener, row.clients
        ));
    }
}

fn way(listener: &ListenerStatus) -> String {
    match (&listener.listen, &listener.to) {
        (Some(listen), Some(to)) => format!("{listen} to {to}"),
        _ => format!(
            "{}, clients at {}",
            listener.mode,
            listener.interfaces.join(" ")
        ),
    }
}
