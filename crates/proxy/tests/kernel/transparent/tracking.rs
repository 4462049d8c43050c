//! Connection tracking: entries disappear soon after their sessions and never before. If the table
//! is nearly full, new connections pass untouched.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::{ConnectionTracking, Occupancy};
use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::command::{Request, TrackingStatus};
use rustix::net::netlink::NETFILTER;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::support::*;
use midspan_testbed::program::Launch;

const ZONES: [&str; 2] = [" zone=7700 ", " zone-orig=7701 "];
/// The time-out of entries in Midspan's zones after their sessions have ended.
const ENDED_SECONDS: u64 = 5;
/// A larger table would take too long to fill.
const LARGEST_TABLE: u64 = 1 << 20;

/// An entry in one of Midspan's zones.
#[derive(Debug)]
struct Entry {
    seconds: u64,
    state: String,
}

/// The gateway's entries of connections from a client's port to the server. (A probe of the firewall
/// may have the same port.)
fn entries(gateway: &NetworkNamespace, port: u16) -> Vec<Entry> {
    let text = gateway
        .run(|| fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap())
        .unwrap();
    let port = format!(" sport={port} ");
    let is_to_server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.find_map(|word| word.strip_prefix("dst="));
        let address: IpAddr = address.unwrap().parse().unwrap();
        [SERVER, SERVER6].contains(&address.to_string().as_str())
    };
    text.lines()
        .filter(|line| line.contains(&port) && is_to_server(line))
        .filter(|line| ZONES.iter().any(|zone| line.contains(zone)))
        .map(|line| {
            // ipv4 2 tcp 6 SECONDS STATE …
            let fields: Vec<&str> = line.split_whitespace().collect();
            Entry {
                seconds: fields[4].parse().unwrap(),
                state: fields[5].to_owned(),
            }
        })
        .collect()
}

fn host_seconds(gateway: &NetworkNamespace, state: &str, seconds: &str) {
    let parameter = format!("net/netfilter/nf_conntrack_tcp_timeout_{state}");
    gateway.set_parameter(&parameter, seconds).unwrap();
}

#[kernel_test]
fn entries_go_soon_after_their_sessions() {
    let network = Network::new();
    let gateway = &network.gateway;
    rules(gateway, STRICT);
    host_seconds(gateway, "time_wait", "120");
    host_seconds(gateway, "close", "90");
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(gateway, TRANSPARENT);
    let mut open = Vec::new();
    for server in [SERVER, SERVER6, SERVER, SERVER6] {
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        let port = near.local_addr().unwrap().port();
        let of = entries(gateway, port);
        assert_eq!(of.len(), 2, "{of:?}");
        assert!(
            of.iter().all(|entry| entry.state == "ESTABLISHED"),
            "{of:?}"
        );
        open.push((near, far, port));
    }
    // The rules are set again; existing entries keep their time-outs.
    assert!(midspan.ask(&Request::BypassOn { prefix: None }).ok);
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    assert!(midspan.reload(&with_other_limits()).ok);
    for (number, (near, far, port)) in open.into_iter().enumerate() {
        let state = match number < 2 {
            true => {
                drop((near, far));
                "TIME_WAIT"
            }
            false => {
                abort(near);
                "CLOSE"
            }
        };
        let ended = || {
            let of = entries(gateway, port);
            of.iter().all(|entry| entry.state == state)
                && of.iter().all(|entry| entry.seconds <= ENDED_SECONDS)
        };
        wait_until(state, ended);
    }
    // The kernel removes entries when it visits them.
    wait_until("forgotten", || {
        let text = gateway
            .run(|| fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap())
            .unwrap();
        !ZONES.iter().any(|zone| text.contains(zone))
    });
    midspan.stop();
}

fn with_other_limits() -> String {
    format!("[limits]\nsessions = 1000\n{TRANSPARENT}")
}

#[kernel_test]
fn an_idle_session_outlives_the_hosts_time() {
    let network = Network::new();
    let gateway = &network.gateway;
    rules(gateway, STRICT);
    host_seconds(gateway, "established", "2");
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(gateway, TRANSPARENT);
    for (server, _) in BOTH {
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        let of = entries(gateway, near.local_addr().unwrap().port());
        assert_eq!(of.len(), 2, "{of:?}");
        assert!(of.iter().all(|entry| entry.seconds > 400_000), "{of:?}");
        std::thread::sleep(Duration::from_secs(3));
        // The client sends first, so no packet of Midspan has made a new entry.
        echoes(&mut near, &mut far);
        abort(near);
    }
    midspan.stop();
}

/// An `nft` that does not support time-out policies, which has the same effect as a kernel without
/// them.
struct OldNft(tempfile::TempDir);

impl OldNft {
    const SCRIPT: &str = "#!/bin/sh\ncase \"$*\" in *-f*) text=$(cat) ;; esac\n\
        case \"$text\" in *'ct timeout'*) echo 'Error: syntax error' >&2; exit 1 ;; esac\n\
        printf '%s\\n' \"$text\" | DIRECTORY/nft \"$@\"\n";

    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let script = directory.path().join("script");
        let text = Self::SCRIPT.replace("DIRECTORY", directory.path().to_str().unwrap());
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, mode).unwrap();
        fs::copy(Self::program(), directory.path().join("nft")).unwrap();
        Self(directory)
    }

    fn program() -> PathBuf {
        let found = Command::new("sh").args(["-c", "command -v nft"]).output();
        PathBuf::from(String::from_utf8(found.unwrap().stdout).unwrap().trim())
    }

    /// Launches a command of this program with this `nft`.
    fn before(&self, command: &str) -> Launch<'static> {
        Launch::this_program(command).in_place_of(self.0.path().join("script"), Self::program())
    }
}

#[kernel_test]
fn without_time_outs_it_is_said() {
    use super::check::Report;
    let network = Network::new();
    let gateway = &network.gateway;
    let listener = network.listen(PORT);
    host_seconds(gateway, "time_wait", "100");
    host_seconds(gateway, "established", "500");
    let old = OldNft::new();
    let midspan = Midspan::of(old.before("run").configuration(TRANSPARENT).inside(gateway));
    for (server, _) in BOTH {
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        let port = near.local_addr().unwrap().port();
        drop((near, far));
        wait_until("closed", || {
            let of = entries(gateway, port);
            let is_host_time = |entry: &Entry| entry.state == "TIME_WAIT" && entry.seconds > 50;
            of.len() == 2 && of.iter().all(is_host_time)
        });
    }
    let status = midspan.ask(&Request::Status).status.unwrap();
    assert!(!status.connection_tracking.unwrap().has_timeouts);
    let report = Report::by(old.before("check"), gateway, TRANSPARENT);
    assert_eq!(report.missing(), Vec::<&str>::new());
    let (found, _) = report.mend("kernel: conntrack time-outs");
    assert!(found.contains("neither the kernel nor nft"), "{found}");
    let established = "sysctl net.netfilter.nf_conntrack_tcp_timeout_established";
    let (found, mend) = report.mend(established);
    assert!(
        found.contains("500 s, not longer than keepalive = \"600 s\""),
        "{found}"
    );
    assert!(mend.contains("socket transparent 1 accept"), "{mend}");
    let leg = "keepalive = \"5 min\"";
    let text = format!("{TRANSPARENT}client_leg = {{ {leg} }}\nserver_leg = {{ {leg} }}\n");
    let report = Report::by(old.before("check"), gateway, &text);
    assert_eq!(report.state(established), "ok");
    let log = midspan.end();
    assert!(
        log.contains("has time-outs of connection tracking"),
        "{log}"
    );
}

/// All entries are deleted, as by `conntrack -F` or when the kernel module is loaded again.
#[kernel_test]
fn a_session_outlives_its_entries() {
    let network = Network::new();
    let gateway = &network.gateway;
    // The rule that `midspan check` and the gateway guide recommend.
    let sockets_first = STRICT.replace(
        "iifname \"lo\" accept",
        "iifname \"lo\" accept\n        meta l4proto tcp socket transparent 1 accept",
    );
    assert_ne!(sockets_first, STRICT);
    rules(gateway, &sockets_first);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(gateway, TRANSPARENT);
    for (server, _) in BOTH {
        let mut near = network.connect(server, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
        forget_all(gateway);
        assert_eq!(entries(gateway, near.local_addr().unwrap().port()).len(), 0);
        echoes(&mut near, &mut far);
        abort(near);
    }
    midspan.stop();
}

/// Sends `IPCTNL_MSG_CT_DELETE` without a tuple, which deletes all entries.
fn forget_all(namespace: &NetworkNamespace) {
    namespace
        .run(|| {
            let socket = rustix::net::socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                Some(NETFILTER),
            )
            .unwrap();
            let mut message = Vec::new();
            message.extend(20_u32.to_ne_bytes());
            message.extend(0x0102_u16.to_ne_bytes());
            // NLM_F_REQUEST; the kernel has deleted the entries when `send` returns.
            message.extend(1_u16.to_ne_bytes());
            message.extend([0; 12]);
            rustix::net::send(&socket, &message, SendFlags::empty()).unwrap();
        })
        .unwrap();
}

fn occupancy(gateway: &NetworkNamespace) -> Occupancy {
    let look = || ConnectionTracking::open().unwrap().occupancy().unwrap();
    let by_netlink = gateway.run(look).unwrap();
    let by_files = gateway.run(|| Occupancy::read_files().unwrap()).unwrap();
    assert_eq!(by_netlink.limit, by_files.limit);
    by_netlink
}

#[kernel_test]
fn above_seven_eighths_of_the_table_new_connections_pass() {
    let network = Network::new();
    let gateway = &network.gateway;
    let listener = network.listen(PORT);
    // Entries of other connections, which stay until they are deleted.
    let parameter = "net/netfilter/nf_conntrack_udp_timeout";
    rules(&network.router, DROP_UDP);
    let midspan = Midspan::ready(gateway, &with_admin());
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    assert_eq!(network.taken(PORT), 1);
    gateway.set_parameter(parameter, "3600").unwrap();
    let Some(limit) = occupancy(gateway)
        .limit
        .filter(|most| *most <= LARGEST_TABLE)
    else {
        return skip("the table of connection tracking is unlimited, or very large");
    };
    let start = Instant::now();
    fill(&network, limit - limit / 8);
    println!("  {:?} after {:.1?}", occupancy(gateway), start.elapsed());
    assert!(occupancy(gateway).is_nearly_full());
    let tracking = || -> TrackingStatus {
        let answer = midspan.ask(&Request::Status);
        answer.status.unwrap().connection_tracking.unwrap()
    };
    assert!(tracking().is_nearly_full && tracking().has_timeouts);
    // The gate reads the table's occupancy twenty times per second.
    network.wait_until_taken(&listener, SERVER, false, 1);
    assert!(!network.is_taken(&listener, SERVER6, 1).unwrap());
    echoes(&mut near, &mut far);
    midspan.wait_for_line("is nearly full");
    assert_eq!(midspan.log().matches("is nearly full").count(), 1);
    let metrics = metrics(gateway);
    let value = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {metrics}"))
            .trim()
            .parse()
            .unwrap()
    };
    assert!(value("midspan_bypasses_total{reason=\"connection_tracking\"}") >= 2);
    assert!(value("midspan_connection_tracking_entries ") >= limit - limit / 8);
    assert_eq!(value("midspan_connection_tracking_entries_limit "), limit);
    forget_all(gateway);
    network.wait_until_taken(&listener, SERVER, true, 1);
    assert!(!tracking().is_nearly_full);
    midspan.wait_for_line("has room again");
    assert_eq!(midspan.log().matches("has room again").count(), 1);
    abort(near);
    midspan.stop();
}

const DROP_UDP: &str = "table inet dark {\n chain c {\n type filter hook prerouting priority -500;\n \
    meta l4proto udp drop\n }\n}\n";
const ADMIN: &str = "127.0.0.1:9464";

pub fn with_admin() -> String {
    format!("[admin]\nlisten = \"{ADMIN}\"\n{TRANSPARENT}")
}

pub fn metrics(gateway: &NetworkNamespace) -> String {
    gateway
        .run(|| {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(ADMIN).unwrap();
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        })
        .unwrap()
}

/// Sends datagrams from the client to new ports, each of which makes an entry on the gateway, until
/// the table has this many.
fn fill(network: &Network, entries: u64) {
    let start = Instant::now();
    for source in 20_000_u16..60_000 {
        network
            .client
            .run(move || {
                let socket = UdpSocket::bind((CLIENT, source)).unwrap();
                for port in 1..=4096_u16 {
                    let server = SocketAddr::new(SERVER.parse().unwrap(), port);
                    // The socket's queue may be full for a moment.
                    let _ = socket.send_to(b"x", server);
                }
            })
            .unwrap();
        if occupancy(&network.gateway).entries >= entries {
            return;
        }
        assert!(start.elapsed() < 6 * LIMIT, "the table cannot be filled");
    }
}

#[kernel_test]
fn check_finds_what_is_too_small_or_blind() {
    use super::check::Report;
    let network = Network::new();
    let gateway = &network.gateway;
    let report = Report::of(gateway, TRANSPARENT);
    for check in [
        "kernel: conntrack time-outs",
        "sysctl net.netfilter.nf_conntrack_max",
        "sysctl net.netfilter.nf_conntrack_tcp_timeout_established",
        "helpers of connection tracking",
        "rules that count connections",
    ] {
        assert_eq!(report.state(check), "ok", "{check}");
    }
    let limit = occupancy(gateway).limit.unwrap();
    for (rate, state) in [(limit / 100, "ok"), (limit, "warning")] {
        let report = Report::at_rate(gateway, TRANSPARENT, rate);
        assert_eq!(report.state("new connections"), state);
    }
    rules(gateway, COUNTING);
    let report = Report::of(gateway, TRANSPARENT);
    assert_eq!(report.missing(), Vec::<&str>::new());
    let found: Vec<_> = report.lines("rules that count").collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0][2].contains("\"inet host filtered\" limits open"),
        "{found:?}"
    );
    assert!(found[0][3].contains("sessions_per_client"), "{found:?}");
    assert!(
        found[1][2].contains("\"inet host filtered\" has a quota"),
        "{found:?}"
    );
    assert_eq!(report.state("helpers of connection tracking"), "ok");
    for text in [
        format!("{TRANSPARENT}[interception]\nhelper_ports = []\n"),
        format!("{TRANSPARENT}ports = [\"20-30\"]\n"),
    ] {
        let (found, _) = Report::of(gateway, &text).mend("helpers of connection tracking");
        assert!(
            found.contains("\"inet host pre\"") && found.contains("21"),
            "{found}"
        );
    }
    let text = format!("{TRANSPARENT}ports = [443]\n");
    let report = Report::of(gateway, &text);
    assert_eq!(report.state("helpers of connection tracking"), "ok");
}

/// The rules after the base chain, and a counter in `input`, which sees all connections of Midspan.
const COUNTING: &str = r#"
table inet host {
    set many { type ipv4_addr; flags dynamic; }
    ct helper ftp { type "ftp" protocol tcp; }
    chain pre { type filter hook prerouting priority filter;
        tcp dport 21 ct helper set "ftp"
    }
    chain filtered {
        tcp dport 6379 ct state new add @many { ip saddr ct count over 5 } reject with tcp reset
        quota over 50 mbytes drop
    }
    chain forward { type filter hook forward priority filter;
        iifname "acc" jump filtered
    }
    chain input { type filter hook input priority filter;
        tcp dport 22 ct count over 5 drop
    }
}
"#;
