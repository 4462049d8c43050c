//! The agent on a client host behind a narrow upstream, in network namespaces.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::nftables;
use midspan_testbed::network::{End, Link, Node};
use midspan_testbed::program::{AS, Launch, Program};
use midspan_testbed::testing::{exit_code, rules, stop_process};
use midspan_testbed::{KernelTests, kernel_test, kernel_tests};
use midspan_thin::{
    FlowStatus, PagesOptions, RunOptions, Settings, Status, Watcher, pages_main, run, worker_main,
};
use rustix::process::{Pid, Signal, kill_process};

mod interface;

const LIMIT: Duration = Duration::from_secs(60);
const SIZE: usize = 2_000_000;
/// Where metrics are asked for, on the client.
const PAGES: &str = "127.0.0.1:9465";

const COMMANDS: &[kernel_tests::Command] = &[
    ("thin", |arguments| {
        exit_code(thin(arguments[0], arguments[1], arguments.get(2).copied()))
    }),
    ("thin-worker", |_| exit_code(worker_main())),
    ("thin-pages", |_| exit_code(pages_main())),
];

fn main() -> ExitCode {
    KernelTests::new().commands(COMMANDS).main()
}

/// Each report is a line.
#[derive(Debug)]
struct Lines;

impl Watcher for Lines {
    fn handle_status(&mut self, status: &Status) {
        println!("{}", serde_json::to_string(status).unwrap());
    }
}

/// The option is "first": ACKs go first; "alone": without pages, whose address one process can have.
fn thin(interface: &str, policy: &str, option: Option<&str>) -> Result<(), midspan_thin::Error> {
    let pages = PagesOptions {
        listen: PAGES.parse().unwrap(),
        arguments: [AS, "thin-pages"].map(str::to_owned).to_vec(),
    };
    run(RunOptions {
        settings: Settings {
            policy: policy.parse().unwrap(),
            upstream: "64 kbit/s".parse().ok(),
            ack_first: option == Some("first"),
            ..Settings::new(interface)
        },
        worker_arguments: [AS, "thin-worker"].map(str::to_owned).to_vec(),
        pages: (option != Some("alone")).then_some(pages),
        ready: Some(&mut std::io::stdout()),
        watch: Some(&mut Lines),
    })
}

/// client – server, with an upstream of 64 kbit/s and a deep queue on the client.
struct Network {
    client: NetworkNamespace,
    server: NetworkNamespace,
}

impl Network {
    fn new() -> Self {
        let network = Self {
            client: Node::host("client").make().unwrap(),
            server: Node::host("server").make().unwrap(),
        };
        network.make_link();
        network.narrow();
        network
    }

    fn narrow(&self) {
        self.tc("qdisc add dev up root tbf rate 64kbit burst 1600 limit 20000");
    }

    /// With segments as they are on a real link, each with an ACK.
    fn make_link(&self) {
        Link::between(
            End::numbered(&self.client, "up", 1, 2).without_offloads(),
            End::numbered(&self.server, "down", 1, 1).without_offloads(),
        )
        .make()
        .unwrap();
    }

    fn ip(&self, arguments: &str) {
        let mut command = Command::new("ip");
        command.args(arguments.split(' '));
        let status = self.client.spawn(command).unwrap().wait().unwrap();
        assert!(status.success(), "ip {arguments}");
    }

    /// A server that sends `SIZE` bytes to each of `count` clients.
    fn serve(&self, count: usize) -> JoinHandle<()> {
        let bind = || TcpListener::bind("[::]:80").unwrap();
        let listener = self.server.run(bind).unwrap();
        std::thread::spawn(move || {
            for _ in 0..count {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_write_timeout(Some(LIMIT)).unwrap();
                stream.write_all(&content()).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
        })
    }

    /// As long as the client reads nothing, the data of its first window arrives, and no more: how many ACKs that
    /// takes depends on how the kernel joins segments.
    fn connect(&self, server: &str) -> TcpStream {
        let address = SocketAddr::new(server.parse().unwrap(), 80);
        let connect = move || TcpStream::connect_timeout(&address, LIMIT).unwrap();
        let stream = self.client.run(connect).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    fn tc(&self, arguments: &str) -> String {
        let mut command = Command::new("tc");
        command.args(arguments.split(' ')).stdout(Stdio::piped());
        let output = self.client.spawn(command).unwrap().wait_with_output();
        let output = output.unwrap();
        assert!(output.status.success(), "tc {arguments}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until no packet is in the upstream's queue.
    fn wait_until_drained(&self) {
        let start = Instant::now();
        while !self.tc("-s qdisc show dev up").contains("backlog 0b 0p") {
            assert!(start.elapsed() < LIMIT, "the queue is never empty");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn tables(&self) -> Vec<String> {
        let list = || nftables::tables().unwrap();
        let tables = self.client.run(list).unwrap();
        tables.into_iter().map(|(_, name)| name).collect()
    }
}

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

fn finish(mut stream: TcpStream) {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == content(), "{} bytes", received.len());
}

/// `midspan thin` on the client.
struct Thin {
    program: Program,
    /// The newest report.
    status: Arc<Mutex<Status>>,
}

/// On the interface `up`, with further arguments.
fn launch<'a>(network: &'a Network, arguments: &[&str]) -> Launch<'a> {
    Launch::this_program("thin")
        .arg("up")
        .args(arguments)
        .inside(&network.client)
}

impl Thin {
    fn start(network: &Network, policy: &str) -> Self {
        Self::of(launch(network, &[policy]))
    }

    fn of(launch: Launch<'_>) -> Self {
        let mut program = launch.start().unwrap();
        let mut lines = BufReader::new(program.take_output().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "thinning ACKs on up\n", "{}", program.log());
        let status = Arc::new(Mutex::new(Status::default()));
        let newest = Arc::clone(&status);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *newest.lock().unwrap() = serde_json::from_str(&line).unwrap();
            }
        });
        Self { program, status }
    }

    /// The first report of which this holds.
    fn status_when(&self, what: &str, condition: impl Fn(&Status) -> bool) -> Status {
        let start = Instant::now();
        loop {
            let status = self.status.lock().unwrap().clone();
            if condition(&status) {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "never {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn helper(&self) -> Pid {
        self.program.pid().unwrap()
    }

    fn worker(&self) -> Pid {
        self.program.child_with("thin-worker").unwrap()
    }

    fn end(mut self, network: &Network) {
        self.program.signal(Signal::TERM).unwrap();
        assert!(self.program.wait_for(LIMIT).unwrap().success());
        assert_eq!(network.tables(), Vec::<String>::new());
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the agent:\n{}", self.program.log());
        }
    }
}

/// A service manager gets the beginning, signs of life, and the end.
#[kernel_test]
fn the_service_manager_is_notified() {
    let network = Network::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let receive = || {
        let mut buffer = [0; 1024];
        let count = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    };
    let alive = "WATCHDOG=1";
    let news = || loop {
        let message = receive();
        if message != alive {
            return message;
        }
    };
    let mut thin = Thin::of(
        launch(&network, &["fda:8"])
            .environment("NOTIFY_SOCKET", &path)
            .environment("WATCHDOG_USEC", "200000"),
    );
    assert_eq!(news(), "READY=1\nSTATUS=thinning ACKs on up");
    for _ in 0..3 {
        assert_eq!(receive(), alive);
    }
    kill_process(thin.worker(), Signal::KILL).unwrap();
    assert_eq!(news(), "STATUS=ACKs pass: the worker is started again");
    assert_eq!(news(), "READY=1\nSTATUS=thinning ACKs on up");
    thin.program.signal(Signal::TERM).unwrap();
    assert!(news().starts_with("STOPPING=1\n"));
    assert!(thin.program.wait_for(LIMIT).unwrap().success());
}

/// Most downloads from one address. A busy machine pauses a download for longer than a round trip, and `ace` then
/// estimates the window again: such a download saves few ACKs.
const DOWNLOADS: usize = 6;

#[kernel_test]
fn downloads() {
    for policy in ["fda:8", "ace", "pass"] {
        let network = Network::new();
        let thin = Thin::start(&network, policy);
        for address in ["10.1.0.1", "fd01::1"] {
            for download in 1..=DOWNLOADS {
                // What `ace` takes for a round trip without a queue must not include ACKs of the last
                // download.
                network.wait_until_drained();
                let server = network.serve(1);
                finish(network.connect(address));
                server.join().unwrap();
                let address: IpAddr = address.parse().unwrap();
                let flows_of = |status: &Status| -> Vec<FlowStatus> {
                    let flows = status.busiest.iter();
                    flows
                        .filter(|flow| flow.remote.ip() == address)
                        .cloned()
                        .collect()
                };
                let status = thin.status_when("all decided", |status| {
                    let flows = flows_of(status);
                    flows.len() == download
                        && flows.iter().all(|flow| flow.acks_seen > 100)
                        && status.acks_seen == status.acks_sent + status.acks_saved
                });
                let flows = flows_of(&status);
                let share = status.saved_share();
                println!("{policy}: {share:.2} of {} ACKs saved", status.acks_seen);
                assert_eq!((status.unreadable, status.untracked), (0, 0));
                if policy == "ace" {
                    // `est_cwnd` may be 1 by now, since a pause resets it.
                    assert!(
                        flows.iter().all(|flow| flow.rcv_rtt.is_some()),
                        "{status:?}"
                    );
                }
                let has_saved = flows
                    .iter()
                    .any(|flow| flow.acks_saved * 10 > flow.acks_seen);
                if policy == "pass" || has_saved {
                    assert_eq!(has_saved, policy != "pass", "{status:?}");
                    break;
                }
                assert!(policy == "ace" && download < DOWNLOADS, "{status:?}");
            }
        }
        thin.end(&network);
    }
}

/// The answer to a request, on the client.
fn page(network: &Network, path: &'static str) -> String {
    let ask = move || {
        let mut stream = TcpStream::connect(PAGES).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    network.client.run(ask).unwrap()
}

#[kernel_test]
fn metrics() {
    let network = Network::new();
    let thin = Thin::start(&network, "fda:8");
    let server = network.serve(1);
    finish(network.connect("10.1.0.1"));
    server.join().unwrap();
    thin.status_when("saved", |status| status.acks_saved > 10);
    let start = Instant::now();
    loop {
        let text = page(&network, "/metrics");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("midspan_thin_acks_saved_total "));
        if line.unwrap().parse::<u64>().unwrap() > 10 {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{text}");
    }
    assert!(page(&network, "/status").contains("\"busiest\":[{\"local\":\"10.1.0.2:"));
    // On a busy machine a report may be late.
    let start = Instant::now();
    while !page(&network, "/health").ends_with("\r\n\r\nok\n") {
        assert!(start.elapsed() < LIMIT);
    }
    assert!(page(&network, "/other").starts_with("HTTP/1.1 404 "));
    // No report arrives until the next worker starts, after a second.
    kill_process(thin.worker(), Signal::KILL).unwrap();
    let start = Instant::now();
    while !page(&network, "/health").starts_with("HTTP/1.1 503 ") {
        assert!(start.elapsed() < LIMIT);
    }
    thin.end(&network);
}

/// This is reported once, and thinning continues.
#[kernel_test]
fn killed_metrics() {
    let network = Network::new();
    let thin = Thin::start(&network, "fda:8");
    kill_process(thin.program.child_with("thin-pages").unwrap(), Signal::KILL).unwrap();
    let told = || {
        let log = thin.program.log();
        log.matches("metrics are no longer available").count()
    };
    let start = Instant::now();
    while told() == 0 {
        assert!(start.elapsed() < LIMIT, "not told");
        std::thread::sleep(Duration::from_millis(20));
    }
    let server = network.serve(1);
    finish(network.connect("10.1.0.1"));
    server.join().unwrap();
    thin.status_when("saved", |status| status.acks_saved > 10);
    assert_eq!(told(), 1);
    thin.end(&network);
}

/// Neither the helper nor its worker waits for the reader of the log.
#[kernel_test]
fn an_unread_log() {
    let network = Network::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b'x'; size]).unwrap();
    let mut thin = Thin::of(launch(&network, &["fda:8"]).log_to(writer));
    for _ in 0..2 {
        let worker = thin.worker();
        kill_process(worker, Signal::KILL).unwrap();
        let start = Instant::now();
        while thin.worker() == worker {
            assert!(start.elapsed() < LIMIT, "not started again");
            std::thread::sleep(Duration::from_millis(20));
        }
        let server = network.serve(1);
        finish(network.connect("10.1.0.1"));
        server.join().unwrap();
        thin.status_when("saved", |status| status.acks_saved > 10);
    }
    kill_process(thin.helper(), Signal::TERM).unwrap();
    assert!(thin.program.wait_for(LIMIT).unwrap().success());
    assert_eq!(network.tables(), Vec::<String>::new());
    // The helper's output is truncated, or was never written.
    drop(reader);
}

#[kernel_test]
fn a_killed_worker() {
    let network = Network::new();
    let thin = Thin::start(&network, "fda:8");
    let server = network.serve(2);
    let stream = network.connect("10.1.0.1");
    thin.status_when("saved", |status| status.acks_saved > 0);
    let first = thin.worker();
    kill_process(first, Signal::KILL).unwrap();
    finish(stream);
    // Another has taken its place, and counts from zero.
    let start = Instant::now();
    while thin.worker() == first {
        assert!(start.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    // The rules lead to it once it has its queue.
    while network.tables().is_empty() {
        assert!(start.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    let stream = network.connect("10.1.0.1");
    finish(stream);
    server.join().unwrap();
    thin.status_when("saved again", |status| status.acks_saved > 10);
    thin.end(&network);
}

#[kernel_test]
fn a_stopped_worker() {
    let network = Network::new();
    let thin = Thin::start(&network, "fda:8");
    let server = network.serve(2);
    let stream = network.connect("10.1.0.1");
    thin.status_when("saved", |status| status.acks_saved > 0);
    let stopped = thin.worker();
    stop_process(stopped);
    finish(stream);
    finish(network.connect("fd01::1"));
    server.join().unwrap();
    assert_ne!(thin.worker(), stopped);
    thin.end(&network);
}

#[kernel_test]
fn a_killed_helper() {
    let network = Network::new();
    let mut thin = Thin::start(&network, "fda:8");
    let server = network.serve(2);
    let stream = network.connect("10.1.0.1");
    thin.status_when("saved", |status| status.acks_saved > 0);
    kill_process(thin.helper(), Signal::KILL).unwrap();
    thin.program.wait_for(LIMIT).unwrap();
    finish(stream);
    finish(network.connect("fd01::1"));
    server.join().unwrap();
    // The rules are there still, lead nowhere, and are replaced and removed by the next run.
    assert_eq!(network.tables(), ["midspan_thin_up"; 2]);
    Thin::start(&network, "fda:8").end(&network);
}

#[kernel_test]
fn a_firewall_reload() {
    let network = Network::new();
    let thin = Thin::start(&network, "fda:8");
    rules(&network.client, "flush ruleset\n");
    let start = Instant::now();
    while network.tables() != ["midspan_thin_up"; 2] {
        assert!(start.elapsed() < LIMIT, "the rules do not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    thin.end(&network);
}

#[kernel_test]
fn one_at_a_time() {
    let network = Network::new();
    let thin = Thin::start(&network, "fda:8");
    let complaint = launch(&network, &["ace"]).finish().unwrap().log;
    assert_eq!(complaint, "error: another process thins ACKs on up\n");
    assert_eq!(network.tables().len(), 2);
    thin.end(&network);
}

/// A host with two narrow upstreams: each instance takes a queue of its own.
#[kernel_test]
fn two_interfaces() {
    let network = Network::new();
    network.ip("link add second type veth peer name third");
    network.ip("link set dev second up");
    let second = Launch::this_program("thin")
        .args(["second", "ace", "alone"])
        .inside(&network.client);
    let mut second = second.start().unwrap();
    let mut line = String::new();
    // Kept until the end: the program prints reports.
    let mut reports = BufReader::new(second.take_output().unwrap());
    reports.read_line(&mut line).unwrap();
    assert_eq!(line, "thinning ACKs on second\n", "{}", second.log());
    let thin = Thin::start(&network, "ace");
    let server = network.serve(1);
    finish(network.connect("10.1.0.1"));
    server.join().unwrap();
    thin.status_when("saved", |status| status.acks_saved > 10);
    second.signal(Signal::TERM).unwrap();
    assert!(second.wait_for(LIMIT).unwrap().success());
    thin.end(&network);
}

#[kernel_test]
fn acks_go_first() {
    let network = Network::new();
    let complaint = launch(&network, &["ace", "first"]).finish().unwrap().log;
    assert!(
        complaint.starts_with("error: up has a queue discipline of its own (qdisc tbf"),
        "{complaint}"
    );
    network.tc("qdisc del dev up root");
    let thin = Thin::of(launch(&network, &["fda:2", "first"]));
    let server = network.serve(1);
    // Data up and down at once.
    let stream = network.connect("10.1.0.1");
    let mut upload = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || upload.write_all(&content()[..30_000]).unwrap());
    finish(stream);
    sender.join().unwrap();
    server.join().unwrap();
    thin.status_when("judged", |status| status.acks_seen > 100);
    let classes = network.tc("-s class show dev up");
    let sent = |class: &str| -> u64 {
        let rest = classes
            .split(&format!("class htb {class} "))
            .nth(1)
            .unwrap();
        let sent = rest.split("Sent ").nth(1).unwrap();
        sent.split(' ').next().unwrap().parse().unwrap()
    };
    assert!(
        sent("5317:10") > 1000 && sent("5317:20") > 30_000,
        "{classes}"
    );
    thin.end(&network);
    let queue = network.tc("qdisc show dev up root");
    assert!(!queue.contains("htb"), "{queue}");
}
