//! What Midspan learns from earlier connections. A new connection begins with a window that suits the path to
//! its client, and the connections of a route without a gain pass untouched.

use std::collections::VecDeque;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TcpOptionElement, TransportSlice};
use midspan_gateway::acknowledgement_queue::AcknowledgementRules;
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::packet_queue::{BUFFER, PacketQueue, Verdict, WHOLE};
use midspan_proxy::command::Request;

use super::learned::{forget, learned};
use super::support::*;

/// A delay below the limit of long round trips, so that losses count against the start.
const DELAY: Duration = Duration::from_millis(30);
/// The usual initial window (RFC 6928), which a peer's first connection has, in segments.
const USUAL: u64 = 10;
const COLD: u64 = 80;
/// Bytes of data in a segment.
const SEGMENT: u64 = 1448;
/// Longest time to wait for a decision that rests on measured times.
const BUSY_LIMIT: Duration = Duration::from_secs(180);

/// A packet between client and gateway.
#[derive(Debug, Clone, Copy)]
struct Seen {
    is_towards_client: bool,
    /// The client's port.
    port: u16,
    data: u64,
    /// The window field, and the scale of a SYN.
    window: u64,
    scale: Option<u8>,
}

/// An access router that delays packets to the client, and records the packets.
pub struct DelayedAccess {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Whether data is lost towards the client.
    pub loses: Arc<AtomicBool>,
    /// Whether data is lost towards the server.
    pub loses_to_server: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DelayedAccess {
    fn start(network: &Network) -> Self {
        Self::with_delay(network, DELAY)
    }

    /// A router that delays packets to the client by this time.
    pub fn with_delay(network: &Network, by: Duration) -> Self {
        Self::on(network.access.as_ref().unwrap(), ["inner", "outer"], by)
    }

    /// The same between the gateway and the server.
    pub fn before_server(network: &Network, by: Duration) -> Self {
        Self::on(&network.router, ["near", "far"], by)
    }

    fn on(router: &NetworkNamespace, interfaces: [&'static str; 2], by: Duration) -> Self {
        let queue = router.run(move || {
            for interface in interfaces {
                // All TCP packets, of any length.
                let rules = AcknowledgementRules::new(interface, 1, u32::MAX).unwrap();
                rules.install().unwrap();
            }
            PacketQueue::bind(1, 20_000, WHOLE).unwrap()
        });
        let queue = queue.unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let loses = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let loses_to_server = Arc::new(AtomicBool::new(false));
        let (noted, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let losing = [&loses, &loses_to_server].map(Arc::clone);
        let thread = std::thread::spawn(move || delay(queue, by, &noted, &losing, &stopped));
        Self {
            seen,
            loses,
            loses_to_server,
            stop,
            thread: Some(thread),
        }
    }

    /// Bytes of data to the client's port so far.
    pub fn towards_client(&self, port: u16) -> u64 {
        let seen = self.seen.lock().unwrap();
        let own = (seen.iter()).filter(|packet| packet.port == port && packet.is_towards_client);
        own.map(|packet| packet.data).sum()
    }

    /// The window in bytes that the client's end of the leg to the server offers with its first packet after
    /// the SYN.
    pub fn first_window(&self, port: u16) -> u64 {
        let seen = self.seen.lock().unwrap();
        let mut own =
            (seen.iter()).filter(|packet| packet.port == port && !packet.is_towards_client);
        let scale = own.next().unwrap().scale.unwrap();
        let first = own.find(|packet| packet.scale.is_none()).unwrap();
        first.window << scale
    }

    /// Bytes of data to the client's port before the client's first answer.
    pub fn first_flight(&self, port: u16) -> u64 {
        let seen = self.seen.lock().unwrap();
        let own = seen.iter().filter(|packet| packet.port == port);
        own.skip_while(|packet| packet.data == 0 || !packet.is_towards_client)
            .take_while(|packet| packet.is_towards_client)
            .map(|packet| packet.data)
            .sum()
    }
}

impl Drop for DelayedAccess {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn delay(
    mut queue: PacketQueue,
    by: Duration,
    seen: &Mutex<Vec<Seen>>,
    [loses, loses_to_server]: &[Arc<AtomicBool>; 2],
    stop: &AtomicBool,
) {
    let mut buffer = vec![0; BUFFER];
    let mut held: VecDeque<(Instant, u32)> = VecDeque::new();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut arrived = Vec::new();
        while queue
            .receive(&mut buffer, |packet| {
                arrived.push((packet.id, read(packet.payload)));
            })
            .unwrap()
        {}
        let now = Instant::now();
        for (id, packet) in arrived {
            seen.lock().unwrap().push(packet);
            count += u32::from(packet.data > 0);
            if !packet.is_towards_client {
                let is_lost =
                    packet.data > 0 && loses_to_server.load(Ordering::Relaxed) && count % 20 == 0;
                let verdict = match is_lost {
                    true => Verdict::Drop,
                    false => Verdict::Accept { mark: None },
                };
                queue.decide(id, verdict).unwrap();
            } else if packet.data > 0 && loses.load(Ordering::Relaxed) && count % 20 == 0 {
                queue.decide(id, Verdict::Drop).unwrap();
            } else {
                held.push_back((now + by, id));
            }
        }
        while held.front().is_some_and(|(due, _)| *due <= now) {
            let (_, id) = held.pop_front().unwrap();
            queue.decide(id, Verdict::Accept { mark: None }).unwrap();
        }
        queue.flush().unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn read(packet: &[u8]) -> Seen {
    let packet = SlicedPacket::from_ip(packet).unwrap();
    let source: IpAddr = match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => ip.header().source_addr().into(),
        NetSlice::Ipv6(ip) => ip.header().source_addr().into(),
        NetSlice::Arp(_) => panic!("no TCP"),
    };
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
        panic!("no TCP");
    };
    let is_towards_client = [SERVER, SERVER6].contains(&source.to_string().as_str());
    Seen {
        is_towards_client,
        port: match is_towards_client {
            true => tcp.destination_port(),
            false => tcp.source_port(),
        },
        data: tcp.payload().len() as u64,
        window: u64::from(tcp.window_size()),
        scale: tcp.options_iterator().find_map(|option| match option {
            Ok(TcpOptionElement::WindowScale(scale)) => Some(scale),
            _ => None,
        }),
    }
}

/// Connects a client whose window limits the rate, so that the rate is about the same on every
/// machine.
fn call(network: &Network, server: &str) -> (TcpStream, u16) {
    let socket = socket(&network.client, server);
    socket.set_recv_buffer_size(256 << 10).unwrap();
    let address = SocketAddr::new(server.parse().unwrap(), PORT);
    socket.connect_timeout(&address.into(), LIMIT).unwrap();
    let stream = bounded(TcpStream::from(socket));
    let port = stream.local_addr().unwrap().port();
    (stream, port)
}

/// Downloads `count` bytes over one connection; returns the client's port.
fn download(
    network: &Network,
    midspan: &Midspan,
    listener: &TcpListener,
    server: &str,
    count: usize,
) -> u16 {
    let ended = midspan.ended();
    let (near, port) = call(network, server);
    let (far, _) = accept(listener);
    assert_eq!(network.taken(PORT), 1);
    carries(far, near, count);
    // Afterwards the next connection can use what was learned.
    wait_until("ended", || midspan.ended() > ended);
    port
}

/// The starts in the log lines of sessions that ended, in order.
fn starts(log: &str) -> Vec<(String, u64)> {
    let field = |line: &str, name: &str| {
        let mut words = line.split_whitespace();
        let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().trim_matches('"').to_owned()
    };
    let lines = log.lines().filter(|line| line.contains("session ended"));
    lines
        .map(|line| {
            let window = field(line, "initial_window_segments");
            (field(line, "start"), window.parse().unwrap())
        })
        .collect()
}

/// The initial windows in the log lines of sessions that ended, in order.
fn windows(log: &str) -> Vec<u64> {
    starts(log).iter().map(|(_, window)| *window).collect()
}

/// The policy without connections that pass only for comparison. On most of the tests' routes splitting has
/// no benefit, so that Midspan leaves them alone, unless the time is "0 s".
fn without_control_group(leave_alone_time: &str) -> String {
    format!(
        "[interception]\nleave_alone_time = \"{leave_alone_time}\"\n{}control_group = \"0 %\"\n",
        automatic()
    )
}

fn automatic() -> String {
    format!("{TRANSPARENT}policy = \"auto\"\n")
}

/// The second connection begins with a larger window than the first, and a connection after losses
/// with a smaller one.
#[kernel_test]
fn the_next_connection_begins_with_what_the_first_has_taught() {
    for server in [SERVER, SERVER6] {
        let network = Network::with_access_router();
        let access = DelayedAccess::start(&network);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &without_control_group("0 s"));
        let cold = download(&network, &midspan, &listener, server, 4_000_000);
        // On a busy gateway, the server's data may arrive in small pieces, and the first connection
        // may be slower than the path.
        let is_raised = || {
            windows(&midspan.log())
                .last()
                .is_some_and(|window| *window > COLD)
        };
        let mut learned = 0;
        for turn in 0..10 {
            if turn > 0 {
                download(&network, &midspan, &listener, server, 4_000_000);
            }
            learned = download(&network, &midspan, &listener, server, 300_000);
            if access.first_flight(learned) > USUAL * SEGMENT && is_raised() {
                break;
            }
        }
        let raised = *windows(&midspan.log()).last().unwrap();
        // There, the losses may also count as those of a long path, which do not lower the start.
        let mut halved = 0;
        for _ in 0..10 {
            access.loses.store(true, Ordering::Relaxed);
            download(&network, &midspan, &listener, server, 1_000_000);
            access.loses.store(false, Ordering::Relaxed);
            halved = download(&network, &midspan, &listener, server, 50_000);
            if windows(&midspan.log())
                .last()
                .is_some_and(|window| *window < raised)
            {
                break;
            }
        }
        let flights = [cold, learned, halved].map(|port| access.first_flight(port));
        let starts = starts(&midspan.end());
        println!("{server}: {flights:?} bytes at once, {starts:?}");
        let names: Vec<&str> = starts.iter().map(|(start, _)| start.as_str()).collect();
        assert!(
            names[1..].iter().all(|name| *name == "learned"),
            "{names:?}"
        );
        let last = starts.last().unwrap().1;
        assert_eq!(starts[0], ("cold".to_owned(), COLD));
        assert!(raised > USUAL && last < raised, "{starts:?}");
        assert!(
            flights[0] > 0 && flights[0] <= COLD * SEGMENT,
            "{flights:?}"
        );
        assert!(flights[1] > USUAL * SEGMENT, "{flights:?}");
        assert!(flights[1] <= raised * SEGMENT, "{flights:?}");
        assert!(flights[2] <= last * SEGMENT, "{flights:?}");
    }
}

/// Thirty connections at once share the capacity of the path.
#[kernel_test]
fn thirty_starts_at_once_do_not_flood_the_path() {
    let network = Network::with_access_router();
    let access = DelayedAccess::start(&network);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &without_control_group("0 s"));
    // On a busy machine, Midspan may learn nothing from a single connection.
    let mut taught = 0;
    let is_known = || {
        let starts = starts(&midspan.log());
        starts
            .last()
            .is_some_and(|(start, window)| start == "learned" && *window > USUAL)
    };
    while taught < 10 && !is_known() {
        download(&network, &midspan, &listener, SERVER, 4_000_000);
        taught += 1;
    }
    let network = &network;
    let (clients, ports): (Vec<TcpStream>, Vec<u16>) = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..30)
            .map(|_| scope.spawn(|| call(network, SERVER)))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).unzip()
    });
    let servers: Vec<TcpStream> = clients.iter().map(|_| accept(&listener).0).collect();
    std::thread::scope(|scope| {
        for (mut near, far) in clients.into_iter().zip(servers) {
            scope.spawn(move || carry(far));
            scope.spawn(move || near.read_to_end(&mut Vec::new()).unwrap());
        }
    });
    wait_until("closed", || network.taken(PORT) == 0);
    let sent: u64 = ports.iter().map(|port| access.first_flight(*port)).sum();
    let starts = starts(&midspan.end());
    let windows: Vec<u64> = starts
        .iter()
        .skip(taught)
        .map(|(_, window)| *window)
        .collect();
    println!("{sent} bytes at once, windows {windows:?}");
    assert_eq!(windows.len(), 30);
    let largest = *windows.iter().max().unwrap();
    assert!(largest > USUAL, "{windows:?}");
    // The largest window is at least a quarter and at most half of the path's capacity.
    let bound = 4 * largest + 30 * USUAL;
    assert!(windows.iter().sum::<u64>() <= bound, "{windows:?}");
    assert!(sent <= bound * SEGMENT, "{sent} bytes");
}

/// Sends 100 KB and ends the data.
fn carry(mut stream: TcpStream) {
    use std::io::Write;
    stream.write_all(&[7; 100_000]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

/// If splitting has no benefit for a route, its connections pass untouched for a while.
#[kernel_test]
fn a_route_without_anything_to_gain_is_left_alone() {
    for server in [SERVER, SERVER6] {
        let network = Network::with_access_router();
        let _access = DelayedAccess::start(&network);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &without_control_group("8 s"));
        let is_taken = |count| {
            let ended = midspan.ended();
            let (near, _) = call(&network, server);
            let (far, _) = accept(&listener);
            let taken = network.taken(PORT) == 1;
            carries(far, near, count);
            wait_until("ended", || !taken || midspan.ended() > ended);
            taken
        };
        for _ in 0..8 {
            is_taken(120_000);
        }
        // On a busy machine the measured times scatter, and more connections are needed.
        wait_within(BUSY_LIMIT, "left alone", || !is_taken(120_000));
        wait_until("told", || midspan.log().contains("splitting does not help"));
        wait_until("taken again", || is_taken(1000));
        midspan.stop();
    }
}

/// Connections of the control group pass untouched and are measured.
#[kernel_test]
fn the_control_group_is_compared_with() {
    let network = Network::with_access_router();
    let _access = DelayedAccess::start(&network);
    let listener = network.listen(PORT);
    let text = format!(
        "[admin]\nlisten = \"127.0.0.1:9464\"\n[interception]\nleave_alone_time = \"0 s\"\n\
         {}control_group = \"50 %\"\n",
        automatic()
    );
    let midspan = Midspan::ready(&network.gateway, &text);
    let mut split = 0;
    for _ in 0..24 {
        let (near, _) = call(&network, SERVER);
        let (far, _) = accept(&listener);
        split += network.taken(PORT);
        carries(far, near, 500_000);
        wait_until("closed", || network.taken(PORT) == 0);
    }
    let metric = |name: &str| -> Option<f64> {
        let text = output(
            &network.gateway,
            "curl",
            &["-s", "http://127.0.0.1:9464/metrics"],
        );
        let line = text.lines().find(|line| line.starts_with(name))?.to_owned();
        line.rsplit(' ').next()?.parse().ok()
    };
    // 24 fair decisions: one time in eight million, all go to one side.
    let direct = 24 - split;
    assert!(split > 0 && direct > 0);
    let counted = |path: &str| {
        let name = format!("midspan_flows_compared_total{{path=\"{path}\",size=\"1MB\"}}");
        metric(&name).unwrap_or_default()
    };
    let (split, direct) = (split as f64, direct as f64);
    wait_until("measured", || counted("direct") + counted("split") >= 24.0);
    assert_eq!((counted("split"), counted("direct")), (split, direct));
    assert_eq!(
        metric("midspan_bypasses_total{reason=\"control\"}"),
        Some(direct)
    );
    assert_eq!(metric("midspan_control_unmeasured_total"), Some(0.0));
    let gain = metric("midspan_split_gain_ratio{size=\"1MB\"}").unwrap();
    println!("{split} split, {direct} direct, gain {gain}");
    assert!(gain > 0.1 && gain < 10.0, "{gain}");
    midspan.stop();
}

/// A route that is left alone is listed, and intercepted again when that is forgotten.
#[kernel_test]
fn a_forgotten_route_is_no_longer_left_alone() {
    let network = Network::with_access_router();
    let _access = DelayedAccess::start(&network);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &without_control_group("10 min"));
    let is_taken = |count| {
        let ended = midspan.ended();
        let (near, _) = call(&network, SERVER);
        let (far, _) = accept(&listener);
        let taken = network.taken(PORT) == 1;
        carries(far, near, count);
        wait_until("ended", || !taken || midspan.ended() > ended);
        taken
    };
    // A short transfer ends before its rate is measured, so the path may stay unknown. This one does not.
    assert!(is_taken(1_000_000));
    wait_within(BUSY_LIMIT, "left alone", || !is_taken(120_000));
    let left_alone = || midspan.ask(&Request::LeftAlone).left_alone.unwrap();
    let routes = left_alone();
    assert_eq!(routes.len(), 1, "{routes:?}");
    assert_eq!(
        (routes[0].client.as_str(), routes[0].servers.as_str()),
        ("10.1.0.2/32", "10.3.0.0/24")
    );
    assert!(routes[0].left_seconds > 60.0);
    // The client's path is known, too.
    let path = &learned(&midspan, CLIENT).paths[0];
    assert!(path.rate_bits_per_second.unwrap() > 0 && path.min_rtt_seconds > 0.02);
    let forgotten = forget(&midspan, Some(CLIENT)).forgotten.unwrap();
    assert_eq!(
        (forgotten.left_alone, forgotten.paths),
        (1, 1),
        "{forgotten:?}"
    );
    assert!(left_alone().is_empty());
    assert!(is_taken(1000));
    let started = starts(&midspan.end());
    assert_eq!(started.last().unwrap().0, "cold", "{started:?}");
}
