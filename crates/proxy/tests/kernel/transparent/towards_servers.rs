//! What `policy = "auto"` learns of servers: the receive window that is open from the first ACK on, and the
//! start of uploads.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::tcp;
use midspan_units::ByteSize;

use super::learning::DelayedAccess;
use super::support::*;

/// Above the limit of long legs, on a busy machine too.
const DELAY: Duration = Duration::from_millis(250);
/// What a Linux kernel offers at first, in bytes, with a margin.
const WINDOW: u64 = 67_000;
/// On a busy machine, Midspan may learn nothing from a single connection.
const LESSONS: usize = 8;

fn configuration(more: &str) -> String {
    format!(
        "[interception]\nleave_alone_time = \"0 s\"\n{TRANSPARENT}policy = \"auto\"\n\
         control_group = \"0 %\"\n{more}"
    )
}

/// Transfers `count` bytes over one connection, to the client or to the server; returns the client's port,
/// and what `ss` reports of the leg to the server before its first data.
fn transfer(
    network: &Network,
    midspan: &Midspan,
    listener: &TcpListener,
    (server, is_upload): (&str, bool),
    count: usize,
) -> (u16, String) {
    let ended = midspan.ended();
    let near = bounded(network.connect(server, PORT).unwrap());
    let port = near.local_addr().unwrap().port();
    let (far, _): (TcpStream, _) = accept(listener);
    let host = match server.contains(':') {
        true => format!("[{server}]"),
        false => server.to_owned(),
    };
    let legs = ["-Htin", "state", "established", "dst", host.as_str()];
    let leg = output(&network.gateway, "ss", &legs);
    match is_upload {
        true => carries(near, far, count),
        false => carries(far, near, count),
    }
    // Afterwards the next connection can use what was learned.
    wait_until("ended", || midspan.ended() > ended);
    (port, leg)
}

/// The server begins with a large initial window, as a second proxy would.
fn begin_large(server: &NetworkNamespace) {
    for (family, router) in [("-4", "10.3.0.1"), ("-6", "fd03::1")] {
        let route = ["route", "replace", "default", "via", router, "dev", "eth"];
        let more = ["initcwnd", "600"];
        let words: Vec<&str> = [family]
            .iter()
            .chain(&route)
            .chain(&more)
            .copied()
            .collect();
        output(server, "ip", &words);
    }
}

/// The first download finds out that its server fills the window. From then on, the window is open in the
/// ACK after the SYN/ACK. Other servers, and a listener with the key, see the window of the kernel.
#[kernel_test]
fn the_window_is_open_for_a_server_that_filled_it() {
    let possible = tcp::largest_open_window(ByteSize::from_bytes(1 << 20));
    if !possible.is_ok_and(|window| window.bytes() > 2 * WINDOW) {
        return skip("this kernel opens no window from the first ACK on");
    }
    for (more, is_off) in [
        ("", false),
        ("server_leg = { receive_window = \"off\" }\n", true),
    ] {
        let network = Network::new();
        begin_large(&network.server);
        let path = DelayedAccess::before_server(&network, DELAY);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &configuration(more));
        let mut windows = Vec::new();
        for _ in 0..LESSONS {
            let to = (SERVER, false);
            let (port, _) = transfer(&network, &midspan, &listener, to, 4_000_000);
            windows.push(path.first_window(port));
            if windows.last().is_some_and(|window| *window > 2 * WINDOW) {
                break;
            }
        }
        let (port, _) = transfer(&network, &midspan, &listener, (SERVER6, false), 10_000);
        let other = path.first_window(port);
        println!("{windows:?} bytes are open, and {other} to a server of another network");
        midspan.end();
        assert!(windows[0] <= WINDOW && other <= WINDOW);
        let last = *windows.last().unwrap();
        assert_eq!(last > 2 * WINDOW, !is_off, "{windows:?}");
    }
}

/// The first upload over a long leg that loses packets begins as every connection. The next one begins with
/// BBR, with a larger congestion window, and so at a higher rate.
#[kernel_test]
fn an_upload_begins_as_the_last_one_has_shown() {
    let network = Network::new();
    let path = DelayedAccess::before_server(&network, DELAY);
    path.loses_to_server.store(true, Ordering::Relaxed);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &configuration(""));
    let mut legs = Vec::new();
    for _ in 0..LESSONS {
        let (_, leg) = transfer(&network, &midspan, &listener, (SERVER, true), 1_000_000);
        legs.push(leg);
        if legs.last().is_some_and(|leg| field(leg, "cwnd:") > 10.0) {
            break;
        }
    }
    let (_, other) = transfer(&network, &midspan, &listener, (SERVER6, true), 10_000);
    println!("{legs:#?}\n{other}");
    midspan.end();
    let (first, last) = (&legs[0], legs.last().unwrap());
    for unknown in [first, &other] {
        assert!(unknown.contains(" cubic "), "{unknown}");
        assert_eq!(field(unknown, "cwnd:"), 10.0, "{unknown}");
    }
    assert!(last.contains(" bbr "), "{last}");
    let window = field(last, "cwnd:");
    assert!([40.0, 320.0].contains(&window), "{last}");
    assert!(rate(last) > 2.0 * rate(first), "{last} {first}");
}

/// The number behind a name in the output of `ss`.
fn field(leg: &str, name: &str) -> f64 {
    let mut words = leg.split_whitespace();
    let number = words.find_map(|word| word.strip_prefix(name)).unwrap();
    number.parse().unwrap()
}

/// The pacing rate in bits per second.
fn rate(leg: &str) -> f64 {
    let words = leg.split_whitespace();
    let rate = words
        .skip_while(|word| *word != "pacing_rate")
        .nth(1)
        .unwrap();
    let number = rate.trim_end_matches("bps");
    let unit = number.chars().last().unwrap();
    let factor = match unit {
        'K' => 1e3,
        'M' => 1e6,
        'G' => 1e9,
        _ => 1.0,
    };
    let number = number.trim_end_matches(['K', 'M', 'G']);
    number.parse::<f64>().unwrap() * factor
}
