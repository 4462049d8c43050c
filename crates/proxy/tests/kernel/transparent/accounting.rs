//! What the counters of a gateway count of a connection, with and without Midspan: nftables,
//! connection tracking and NetFlow. docs/accounting.md has the printed table.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::{Launch, Program};

use super::support::*;

/// Bytes that the server sends to the client.
const DOWN: usize = 3_000_000;
/// Bytes that the client sends to the server first.
const UP: usize = 1_000_000;

/// Counters in every hook. For each, the first part of the name is the hook; then the interface, or
/// the direction of the data.
const COUNTERS: &str = r#"
table inet count {
    counter prerouting_acc_up {}
    counter prerouting_wan_down {}
    counter prerouting_lo_up {}
    counter forward_up {}
    counter forward_down {}
    counter input_up {}
    counter input_down {}
    counter output_up {}
    counter output_down {}
    counter postrouting_acc_down {}
    counter postrouting_wan_up {}
    counter postrouting_lo_up {}
    chain prerouting { type filter hook prerouting priority -310;
        iifname "acc" tcp dport 80 counter name prerouting_acc_up
        iifname "wan" tcp sport 80 counter name prerouting_wan_down
        iifname "lo" tcp dport 80 counter name prerouting_lo_up
    }
    chain forward { type filter hook forward priority 0;
        tcp dport 80 counter name forward_up
        tcp sport 80 counter name forward_down
    }
    chain input { type filter hook input priority 0;
        tcp dport 80 counter name input_up
        tcp sport 80 counter name input_down
    }
    chain output { type filter hook output priority 0;
        tcp dport 80 counter name output_up
        tcp sport 80 counter name output_down
    }
    chain postrouting { type filter hook postrouting priority 310;
        oifname "acc" tcp sport 80 counter name postrouting_acc_down
        oifname "wan" tcp dport 80 counter name postrouting_wan_up
        oifname "lo" tcp dport 80 counter name postrouting_lo_up
    }
}
"#;

/// The counts of one connection.
#[derive(Debug, Default)]
struct Counted {
    /// Bytes of each nftables counter.
    nftables: BTreeMap<String, u64>,
    /// For each entry of connection tracking: its zone, and the bytes of the client and of the
    /// server.
    tracking: Vec<(String, u64, u64)>,
    /// For each interface: the flows of NetFlow.
    netflow: BTreeMap<&'static str, Vec<Flow>>,
}

fn nftables(gateway: &NetworkNamespace) -> BTreeMap<String, u64> {
    let list = ["-j", "list", "counters", "table", "inet", "count"];
    let text = output(gateway, "nft", &list);
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let objects = answer["nftables"].as_array().unwrap().iter();
    objects
        .filter_map(|object| object.get("counter"))
        .map(|counter| {
            let name = counter["name"].as_str().unwrap().to_owned();
            (name, counter["bytes"].as_u64().unwrap())
        })
        .collect()
}

fn tracking(gateway: &NetworkNamespace, port: u16) -> Vec<(String, u64, u64)> {
    let table = gateway
        .run(|| fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap())
        .unwrap();
    let port = format!(" sport={port} dport={PORT} ");
    let mut entries: Vec<(String, u64, u64)> = table
        .lines()
        .filter(|line| line.contains(&port))
        .map(|line| {
            let values = |key: &str| -> Vec<&str> {
                let parts = line.split_whitespace();
                parts.filter_map(|part| part.strip_prefix(key)).collect()
            };
            let bytes = values("bytes=");
            let [client, server] = bytes[..] else {
                panic!("{line}");
            };
            let both = values("zone=").into_iter();
            let of_client = values("zone-orig=").into_iter();
            let zone = both.chain(of_client).next().unwrap_or("none").to_owned();
            (zone, client.parse().unwrap(), server.parse().unwrap())
        })
        .collect();
    entries.sort();
    entries
}

/// A capture at one interface, from which softflowd makes NetFlow records.
struct Capture {
    interface: &'static str,
    /// Ends with this value.
    _program: Program,
    file: PathBuf,
}

impl Capture {
    fn start(gateway: &NetworkNamespace, folder: &Path, interface: &'static str) -> Self {
        let file = folder.join(format!("{interface}.pcap"));
        let options = ["-i", interface, "--immediate-mode", "-s", "96", "-U"];
        let program = Launch::new("tcpdump")
            .args(options)
            .args(["-Z", "root", "-w"])
            .arg(&file)
            .args(["tcp", "port", &PORT.to_string()])
            .inside(gateway)
            .start()
            .unwrap();
        program.wait_for_line("listening on").unwrap();
        Self {
            interface,
            _program: program,
            file,
        }
    }

    /// The records of NetFlow version 5, one for each direction of each connection; none if the last
    /// packet of the file is not complete.
    fn flows(&self, gateway: &NetworkNamespace) -> Vec<Flow> {
        let collector = gateway
            .run(|| UdpSocket::bind("127.0.0.1:0").unwrap())
            .unwrap();
        let limit = Duration::from_secs(1);
        collector.set_read_timeout(Some(limit)).unwrap();
        let address = collector.local_addr().unwrap().to_string();
        let file = self.file.to_str().unwrap();
        let pid = self.file.with_extension("pid");
        let softflowd = [
            "-r",
            file,
            "-n",
            &address,
            "-v",
            "5",
            "-c",
            "none",
            "-p",
            pid.to_str().unwrap(),
        ];
        output(gateway, "softflowd", &softflowd);
        let mut packet = [0; 2000];
        collector
            .recv(&mut packet)
            .map(|length| records(&packet[..length]))
            .unwrap_or_default()
    }
}

#[derive(Debug)]
struct Flow {
    is_to_server: bool,
    bytes: u64,
}

/// The header has 24 bytes, each record 48: bytes at 20, ports at 32 and 34.
fn records(packet: &[u8]) -> Vec<Flow> {
    let number = |at: &[u8]| at.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    assert_eq!(number(&packet[..2]), 5);
    packet[24..]
        .chunks_exact(48)
        .map(|record| Flow {
            is_to_server: number(&record[34..36]) == u64::from(PORT),
            bytes: number(&record[20..24]),
        })
        .collect()
}

/// Whether the programs that make NetFlow records are installed.
fn has_netflow() -> bool {
    ["softflowd", "tcpdump"].iter().all(|program| {
        ["/usr/sbin", "/usr/bin"]
            .iter()
            .any(|folder| Path::new(folder).join(program).exists())
    })
}

/// Counts one connection that carries [`UP`] and then [`DOWN`] bytes.
fn counted(midspan: Option<&str>) -> Counted {
    let network = Network::new();
    let gateway = &network.gateway;
    rules(gateway, STRICT);
    rules(gateway, COUNTERS);
    gateway
        .set_parameter("net/netfilter/nf_conntrack_acct", "1")
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let captures: Vec<Capture> = match has_netflow() {
        true => ["acc", "wan"]
            .map(|interface| Capture::start(gateway, folder.path(), interface))
            .into(),
        false => {
            skip_part("softflowd or tcpdump is not installed");
            Vec::new()
        }
    };
    let listener = network.listen(PORT);
    let midspan = midspan.map(|text| Midspan::ready(gateway, text));
    let near = network.connect(SERVER, PORT).unwrap();
    let (far, _) = accept(&listener);
    let port = near.local_addr().unwrap().port();
    assert_eq!(network.taken(PORT), usize::from(midspan.is_some()));
    carries_open(&near, &far, UP);
    carries_open(&far, &near, DOWN);
    let mut counted = Counted::default();
    // The last ACK may be in flight.
    wait_until("counted", || {
        counted.nftables = nftables(gateway);
        counted.tracking = tracking(gateway, port);
        let client: u64 = counted.tracking.iter().map(|entry| entry.1).sum();
        client > UP as u64
    });
    drop((near, far));
    if let Some(midspan) = midspan {
        wait_until("ended", || midspan.ended() == 1);
        let log = midspan.log();
        for field in [
            format!("bytes_to_client={DOWN} "),
            format!("bytes_to_server={UP} "),
        ] {
            assert!(log.contains(&field), "{field}: {log}");
        }
        midspan.stop();
    }
    for capture in &captures {
        wait_until("captured", || {
            let flows = capture.flows(gateway);
            let sum = |is_to_server: bool| -> u64 {
                let one_way = flows
                    .iter()
                    .filter(|flow| flow.is_to_server == is_to_server);
                one_way.map(|flow| flow.bytes).sum()
            };
            let is_complete = sum(true) > UP as u64 && sum(false) > DOWN as u64;
            counted.netflow.insert(capture.interface, flows);
            is_complete
        });
    }
    counted
}

/// Sends `count` bytes; the connection stays open.
fn carries_open(mut from: &TcpStream, mut to: &TcpStream, count: usize) {
    std::thread::scope(|scope| {
        scope.spawn(move || from.write_all(&vec![7; count]).unwrap());
        to.read_exact(&mut vec![0; count]).unwrap();
    });
}

/// Whether `bytes` is `data` once, with headers and ACKs but without a second copy.
fn is_once(bytes: u64, data: usize) -> bool {
    let data = data as u64;
    (data..data + data / 4).contains(&bytes)
}

/// SYNs, or the packets of a handshake, but no data.
const NO_DATA: u64 = 1000;

#[kernel_test]
fn what_is_counted_of_a_split_session() {
    let direct = counted(None);
    let split = counted(Some(TRANSPARENT));
    println!("{UP} bytes to the server, {DOWN} bytes to the client\n");
    println!(
        "{:<22}{:>12}{:>12}",
        "nftables counter", "untouched", "split"
    );
    for (name, bytes) in &direct.nftables {
        println!("{name:<22}{bytes:>12}{:>12}", split.nftables[name]);
    }
    for (kind, counted) in [("untouched", &direct), ("split", &split)] {
        println!("\n{kind}: connection tracking (zone, bytes of client, bytes of server)");
        for (zone, client, server) in &counted.tracking {
            println!("{zone:<22}{client:>12}{server:>12}");
        }
        println!("{kind}: NetFlow (interface, direction, bytes)");
        for (interface, flows) in &counted.netflow {
            for flow in flows {
                let direction = if flow.is_to_server { "up" } else { "down" };
                println!("{interface:<22}{direction:>12}{:>12}", flow.bytes);
            }
        }
    }
    for (name, data) in [
        ("prerouting_acc_up", UP),
        ("prerouting_wan_down", DOWN),
        ("postrouting_wan_up", UP),
        ("postrouting_acc_down", DOWN),
    ] {
        for counted in [&direct, &split] {
            assert!(is_once(counted.nftables[name], data), "{name}: {counted:?}");
        }
    }
    for (name, data) in [("up", UP), ("down", DOWN)] {
        let of = |hook: &str, counted: &Counted| counted.nftables[&format!("{hook}_{name}")];
        assert!(is_once(of("forward", &direct), data), "{direct:?}");
        assert!(of("forward", &split) < NO_DATA, "{split:?}");
        for hook in ["input", "output"] {
            assert_eq!(of(hook, &direct), 0, "{direct:?}");
            assert!(is_once(of(hook, &split), data), "{split:?}");
        }
    }
    for name in ["prerouting_lo_up", "postrouting_lo_up"] {
        assert!(split.nftables[name] < NO_DATA, "{split:?}");
    }
    // One entry without Midspan; with Midspan, one for each leg, and each counts all data.
    assert_eq!(direct.tracking.len(), 1, "{direct:?}");
    assert_eq!(split.tracking.len(), 2, "{split:?}");
    for counted in [&direct, &split] {
        for (_, client, server) in &counted.tracking {
            assert!(
                is_once(*client, UP) && is_once(*server, DOWN),
                "{counted:?}"
            );
        }
        for flows in counted.netflow.values() {
            assert_eq!(flows.len(), 2, "{counted:?}");
            for flow in flows {
                let data = if flow.is_to_server { UP } else { DOWN };
                assert!(is_once(flow.bytes, data), "{counted:?}");
            }
        }
    }
}
