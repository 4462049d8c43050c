//! Metrics, live sessions, lines of the log.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::Value;

use rustix::process::Signal;

use super::support::*;

#[kernel_test]
fn each_end_is_counted() {
    let mut proxy = Midspan::here(CONFIGURATION);
    let listener = TcpListener::bind(SERVER).unwrap();
    let (client, server) = session(&listener);
    let address = client.local_addr().unwrap();
    close(client, server);
    let (client, server) = session(&listener);
    abort(client);
    is_reset(server);
    let (client, server) = session(&listener);
    abort(server);
    is_reset(client);
    for listen in ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"] {
        is_reset_at_once(listen);
    }
    let ends = [
        ("web", "closed"),
        ("web", "reset_by_client"),
        ("web", "reset_by_server"),
        ("closed", "refused"),
        ("silent", "connect_timed_out"),
        ("away", "server_unreachable"),
    ];
    for (name, how) in ends {
        let ended = format!("midspan_sessions_ended_total{{listener=\"{name}\",how=\"{how}\"}}");
        wait_until(how, || metric(&ended) == 1.0);
    }
    let counted = |metric_name: &str| metric(&format!("midspan_{metric_name}"));
    assert_eq!(counted("sessions_opened_total{listener=\"web\"}"), 3.0);
    wait_until("none active", || {
        counted("sessions_active{listener=\"web\"}") == 0.0
    });
    for direction in ["to_client", "to_server"] {
        let bytes = format!("forwarded_bytes_total{{listener=\"web\",direction=\"{direction}\"}}");
        assert_eq!(counted(&bytes), 12.0);
    }
    let setups = "session_setup_seconds_count{listener=\"web\",handshake=\"early\"}";
    assert_eq!(counted(setups), 3.0);
    // There is no round-trip time of the server that never answered.
    for (name, leg, count) in [
        ("web", "client", 3.0),
        ("web", "server", 3.0),
        ("silent", "client", 1.0),
        ("silent", "server", 0.0),
    ] {
        let times =
            format!("leg_round_trip_time_seconds_count{{listener=\"{name}\",leg=\"{leg}\"}}");
        assert_eq!(counted(&times), count, "{name} {leg}");
    }
    // A session that is live when the proxy ends.
    let (client, server) = session(&listener);
    proxy.signal(Signal::TERM);
    proxy.wait();
    is_reset(client);
    is_reset(server);
    check_lines(&proxy.ended_sessions(), &ends, address);
}

fn check_lines(lines: &[Value], ends: &[(&str, &str)], first_client: SocketAddr) {
    let all: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap();
            (text("listener"), text("ended"))
        })
        .collect();
    for end in ends.iter().chain(&[("web", "drained")]) {
        let count = all.iter().filter(|other| *other == end).count();
        assert_eq!(count, 1, "{end:?} in {all:?}");
    }
    assert_eq!(all.len(), ends.len() + 1);
    let mut numbers: Vec<u64> = lines
        .iter()
        .map(|line| line["session"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=7).collect::<Vec<u64>>());
    let closed = lines.iter().find(|line| line["ended"] == "closed").unwrap();
    assert_eq!(closed["client"], first_client.to_string());
    assert_eq!(closed["server"], SERVER);
    assert_eq!(closed["handshake"], "early");
    assert_eq!(closed["bytes_to_client"], 4);
    assert_eq!(closed["bytes_to_server"], 4);
    let number = |key: &str| closed[key].as_f64().unwrap();
    assert!(number("setup_seconds") <= number("duration_seconds"));
    for leg in ["client", "server"] {
        let least = number(&format!("{leg}_min_rtt_seconds"));
        assert!(least > 0.0 && number(&format!("{leg}_rtt_seconds")) < 1.0);
        assert_eq!(closed[format!("{leg}_retransmitted_segments")], 0);
    }
    let silent = lines.iter().find(|line| line["listener"] == "silent");
    let silent = silent.unwrap();
    assert!(silent.get("setup_seconds").is_none());
    assert!(silent.get("server_rtt_seconds").is_none());
    assert!(silent["duration_seconds"].as_f64().unwrap() >= 0.1);
}

#[kernel_test]
fn a_live_session_is_shown() {
    let _proxy = Midspan::here(CONFIGURATION);
    let listener = TcpListener::bind(SERVER).unwrap();
    let (client, server) = session(&listener);
    let all = complete("/sessions");
    assert_eq!(all["more"], false);
    let shown = &all["sessions"][0];
    assert_eq!(shown["id"], 1);
    assert_eq!(shown["phase"], "relaying");
    assert_eq!(shown["client"], client.local_addr().unwrap().to_string());
    assert_eq!(shown["client_leg"]["local"], LISTEN);
    assert_eq!(shown["server_leg"]["peer"], SERVER);
    assert_eq!(
        shown["server_leg"]["local"],
        server.peer_addr().unwrap().to_string()
    );
    assert_eq!(shown["bytes_to_client"], 4);
    assert!(shown["client_leg"]["rtt_seconds"].as_f64().unwrap() > 0.0);
    assert!(
        shown["client_leg"]["congestion_window_segments"]
            .as_u64()
            .unwrap()
            > 1
    );
    let one: Value = serde_json::from_str(&get("/sessions/1").1).unwrap();
    assert_eq!(one["server_leg"]["local"], shown["server_leg"]["local"]);
    assert_eq!(get("/sessions/2").0, 404);
    close(client, server);
    wait_until("gone", || get("/sessions/1").0 == 404);
}

#[kernel_test]
fn sessions_come_by_pages() {
    let _proxy = Midspan::here(CONFIGURATION);
    let listener = TcpListener::bind(SERVER).unwrap();
    let all: Vec<(TcpStream, TcpStream)> = (0..25).map(|_| session(&listener)).collect();
    let mut seen = Vec::new();
    loop {
        let after = seen.last().copied().unwrap_or(0);
        let page = complete(&format!("/sessions?after={after}&limit=10"));
        let sessions = page["sessions"].as_array().unwrap();
        assert!(sessions.len() <= 10);
        seen.extend(
            sessions
                .iter()
                .map(|session| session["id"].as_u64().unwrap()),
        );
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(seen, (1..=25).collect::<Vec<u64>>());
    for (client, server) in all {
        close(client, server);
    }
}

/// The session continues while it is queried.
#[kernel_test]
fn legs_are_sampled() {
    let _proxy = Midspan::here(CONFIGURATION);
    let listener = TcpListener::bind(SERVER).unwrap();
    let (client, server) = session(&listener);
    for leg in ["client", "server"] {
        let times =
            format!("midspan_leg_round_trip_time_seconds_count{{listener=\"web\",leg=\"{leg}\"}}");
        wait_until("sampled", || metric(&times) >= 1.0);
    }
    close(client, server);
}

#[kernel_test]
fn pages_and_errors() {
    let _proxy = Midspan::here(CONFIGURATION);
    assert_eq!(get("/health"), (200, "ok\n".to_owned()));
    for (page, status) in [
        ("/", 200),
        ("/nothing", 404),
        ("/sessions/", 404),
        ("/sessions/x", 404),
        ("/sessions/0", 404),
        ("/sessions/18446744073709551615", 404),
        ("/sessions/18446744073709551616", 404),
        ("/sessions?limit=0", 200),
        ("/sessions?limit=99999999", 200),
        ("/sessions?limit=-1", 400),
        ("/sessions?what=1", 400),
        ("/sessions?after", 400),
    ] {
        assert_eq!(get(page).0, status, "{page}");
    }
    let (_, text) = get("/metrics");
    assert!(text.ends_with("# EOF\n"));
    let answer = |request: &str| {
        use std::io::Write;
        let mut stream = connect(ADMIN);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let post = answer("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
    let rebound = answer("GET /sessions HTTP/1.1\r\nHost: example.org:9464\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");
}
