//! `midspan capture SESSION`: the packets of both legs of a session.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use midspan_proxy::capture::{self, CaptureEnd, CaptureError, Captured};
use midspan_proxy::client::Place;
use midspan_proxy::command::find_socket;
use miette::{Context, IntoDiagnostic, miette};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Outcome;
use crate::observing_arguments::CaptureOptions;
use crate::printing;
use crate::progress::Spinner;

/// Captures until the session ends, a signal comes or a limit is reached.
pub fn capture(options: CaptureOptions) -> Outcome {
    let proxy = match options.admin {
        Some(admin) => Place::Admin(admin),
        None => Place::Socket(find_socket(
            options.socket.as_deref(),
            options.config.as_deref(),
        )?),
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .into_diagnostic()
            .wrap_err("cannot catch signals")?;
    }
    let session = options.session;
    let output = options
        .output
        .unwrap_or_else(|| format!("session-{session}.pcapng").into());
    let what = capture::CaptureOptions {
        proxy,
        session,
        output: output.clone(),
        duration: options.seconds.map(Duration::from_secs),
        packets: options.packets,
        snap: usize::try_from(options.snap).unwrap_or(capture::SNAP_LIMIT),
        client_interface: options.client_interface,
        server_interface: options.server_interface,
    };
    let spinner = Spinner::new();
    let result = capture::capture(&what, &stop, &mut |captured| {
        spinner.say(&line_of(captured))
    });
    spinner.finish();
    let (captured, end) = result.map_err(explain)?;
    printing::line(format_args!("{}: {}", output.display(), line_of(&captured)));
    printing::line(reason_of(end));
    for (leg, (packets, interface)) in ["client leg", "server leg"]
        .iter()
        .zip(captured.packets.iter().zip(&captured.interfaces))
    {
        if *packets == 0 {
            printing::warning(format_args!(
                "no packet of the {leg} was seen at {interface}: it was idle, or its packets pass \
                 another interface (--client-interface, --server-interface), or NAT gives it \
                 another port"
            ));
        }
    }
    if captured.missed > 0 {
        printing::warning(format_args!(
            "{} packets came too fast and are missing",
            captured.missed
        ));
    }
    Ok(true)
}

fn explain(error: CaptureError) -> miette::Report {
    miette!("{error}")
}

fn line_of(captured: &Captured) -> String {
    let [client, server] = captured.packets;
    let [client_interface, server_interface] = &captured.interfaces;
    format!(
        "client leg ({client_interface}) {client} packets, server leg ({server_interface}) {server} \
         packets, {} bytes",
        captured.bytes
    )
}

const fn reason_of(end: CaptureEnd) -> &'static str {
    match end {
        CaptureEnd::SessionEnded => "the session has ended",
        CaptureEnd::ProxyGone => "Midspan does not answer any more",
        CaptureEnd::Stopped => "stopped",
        CaptureEnd::TimeOver => "the time is over",
        CaptureEnd::PacketLimit => "the number of packets is reached",
    }
}
