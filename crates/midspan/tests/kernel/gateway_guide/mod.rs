//! A test of `docs/gateway.md`: writes its files and runs its commands, in order, on network namespaces with
//! the addresses in the guide's picture. The test replaces the commands that need a whole machine.
//!
//! The test runs in mount and network namespaces of its own, with a copy of /etc, a new /run, and
//! a /usr/local/bin that contains only the program under test. So it changes nothing on the machine.

#![allow(clippy::unwrap_used)]

mod network;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use crate::page::{self, Step};
use midspan_lab::workload::web_server::{Files, WebServer};
use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::kernel_tests::slowness;
use midspan_testbed::program::{Launch, Program};
use midspan_testbed::{kernel_test, kernel_tests, skip};
use network::{Network, OUTSIDE, SERVER, run, shell};

/// Commands that need a whole machine, with the test's replacement.
const NOT_IN_A_NAMESPACE: [(&str, &str); 7] = [
    (
        "apt-get",
        "the packages are installed, or the test prints the missing ones",
    ),
    ("git clone", "this is the clone"),
    (
        "cd midspan && make deb && apt-get install --yes ./target/debian/midspan_*.deb",
        "the program under test is put there",
    ),
    ("systemctl enable nftables", "the next line loads the rules"),
    (
        "systemctl enable --now midspan",
        "started as in the unit file",
    ),
    ("systemctl stop midspan", "SIGTERM, as systemd does"),
    ("systemctl disable midspan", "there is no systemd"),
];

/// The test replaces the log in systemd's journal by a file.
const JOURNAL: &str = "journalctl --unit midspan";

const PAGE: &str = include_str!("../../../../../docs/gateway.md");
const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/midspan.service");
/// The configuration that the guide makes.
const CONFIGURATION: &str = "/etc/midspan/midspan.toml";
const MIDSPAN: &str = env!("CARGO_BIN_EXE_midspan");
const NEEDED: [&str; 7] = ["unshare", "nft", "ip", "ss", "sysctl", "curl", "nginx"];

pub const FOLLOW: kernel_tests::Command = ("follow-the-page", |_| {
    try_the_page();
    ExitCode::SUCCESS
});

#[kernel_test]
fn what_is_shown_is_found_in_what_is_printed() {
    page::check_matching();
}

/// Runs this program in a mount namespace.
#[kernel_test]
fn the_page_can_be_followed() {
    let path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    for program in NEEDED {
        let there = path
            .split(':')
            .any(|folder| Path::new(folder).join(program).is_file());
        if !there {
            return skip(&format!("there is no program {program}"));
        }
    }
    let script = r#"
        mount -t tmpfs tmpfs "$1"
        cp -a /etc "$1/etc" 2>/dev/null || true
        mount --bind "$1/etc" /etc
        mkdir "$1/bin" "$1/tmp" "$1/run" "$1/run/midspan"
        mount --bind "$1/run" /run
        ln -s "$2" "$1/bin/midspan"
        mount --bind "$1/bin" /usr/local/bin
        TMPDIR="$1/tmp" exec "$3" --as follow-the-page
    "#;
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script, "sh"])
        .args([folder.path(), Path::new(MIDSPAN)])
        .arg(std::env::current_exe().unwrap())
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn try_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let network = Network::new();
    let files = Files::write(
        folder.path().join("files"),
        &BTreeSet::from([10_000_000, 100_000_000]),
    )
    .unwrap();
    let address: IpAddr = SERVER.parse().unwrap();
    let own = folder.path().join("server");
    let _web = WebServer::start(&network.server, address, &files, &own).unwrap();
    let mut reader = Reader {
        network: &network,
        midspan: None,
        background: Vec::new(),
        before: String::new(),
        log: folder.path().join("log").display().to_string(),
        met: BTreeSet::new(),
    };
    let mut printed = String::new();
    for step in page::steps(PAGE) {
        match step {
            Step::File { path, text } => {
                fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
                fs::write(&path, text).unwrap();
            }
            Step::Commands { place, lines } => {
                let node = network.place(&place);
                printed = lines.iter().map(|line| reader.follow(node, line)).collect();
            }
            Step::Output(shown) => {
                let shown_text = shown.join("\n");
                assert!(
                    page::is_shown(&printed, &shown),
                    "the page shows:\n{shown_text}\nprinted was:\n{printed}"
                );
            }
        }
    }
    for (command, _) in &NOT_IN_A_NAMESPACE {
        assert!(reader.met.contains(command), "not on the page: {command}");
    }
}

/// The state of the test while it follows the guide.
struct Reader<'a> {
    network: &'a Network,
    midspan: Option<Program>,
    background: Vec<Child>,
    /// The host's own rules and routes before Midspan was started.
    before: String,
    log: String,
    /// Commands of the two lists above that the guide contains.
    met: BTreeSet<&'static str>,
}

impl Reader<'_> {
    /// Runs a line of the guide and returns its output.
    fn follow(&mut self, node: &NetworkNamespace, line: &str) -> String {
        println!("{}$ {line}", node.name());
        let listed = NOT_IN_A_NAMESPACE
            .iter()
            .find(|(command, _)| line.starts_with(command));
        if let Some((command, instead)) = listed {
            println!("  {instead}");
            self.met.insert(command);
            match *command {
                "systemctl enable --now midspan" => self.start_midspan(),
                "systemctl stop midspan" => self.stop_midspan(),
                _ => {}
            }
            return String::new();
        }
        if line.starts_with(JOURNAL) {
            let log = fs::read_to_string(&self.log).unwrap();
            assert!(log.contains("ready"), "{log}");
            return log;
        }
        if let Some(line) = line.strip_suffix('&') {
            self.background.push(node.spawn(shell(line)).unwrap());
            wait_for_connections(node, "");
            return String::new();
        }
        let printed = run(node, line);
        if line.starts_with("midspan init ") {
            without_control_group();
        }
        if line.starts_with("ss ") {
            self.check_what_the_server_sees();
        }
        print!("{printed}");
        printed
    }

    /// Runs the command of the unit file, with the program in the place of `make install`.
    fn start_midspan(&mut self) {
        self.before = self.rules_and_routes();
        let unit = fs::read_to_string(UNIT).unwrap_or_else(|error| {
            println!("  there is no unit file yet: {error}");
            "ExecStart=/usr/local/bin/midspan run -c /etc/midspan/midspan.toml".to_owned()
        });
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let mut words = line.unwrap().split_whitespace();
        assert!(words.next().unwrap().ends_with("/midspan"));
        let launch = Launch::new("/usr/local/bin/midspan")
            .args(words)
            .args(["--ready-fd", "1"])
            .log_to(File::create(&self.log).unwrap())
            .inside(&self.network.gateway)
            .grace(Duration::from_secs(10));
        let midspan = launch.ready();
        let log = fs::read_to_string(&self.log).unwrap();
        self.midspan = Some(midspan.unwrap_or_else(|error| panic!("{error}: {log}")));
    }

    fn stop_midspan(&mut self) {
        // The sessions end first, so that Midspan does not wait for `drain_timeout`.
        for mut child in self.background.drain(..) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut midspan = self.midspan.take().unwrap();
        midspan.signal(rustix::process::Signal::TERM).unwrap();
        let status = midspan.wait_for(Duration::from_secs(45));
        let log = fs::read_to_string(&self.log).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{log}");
        // The guide's section "What is not touched".
        assert_eq!(self.rules_and_routes(), self.before);
    }

    /// All rules and routes of the gateway, and the one sysctl. The routes that the kernel itself
    /// makes for IPv6 are left out, because they appear with a delay.
    fn rules_and_routes(&self) -> String {
        let commands = "nft -s list ruleset; ip rule; ip -6 rule; \
                        ip route show table all | grep -v -e 'table local' -e '^fe80.* proto kernel'; \
                        sysctl net.ipv4.tcp_early_demux";
        run(&self.network.gateway, commands)
    }

    /// The server must only see the gateway's own address, because of the masquerade.
    fn check_what_the_server_sees(&self) {
        // The server may already have sent everything and closed its side.
        let states = " state fin-wait-1 state fin-wait-2 'sport = :80'";
        let seen = wait_for_connections(&self.network.server, states);
        let one = seen.lines().count() == 1 && seen.contains(&format!("{OUTSIDE}:"));
        assert!(one, "the server sees:\n{seen}");
    }
}

/// One in a hundred connections passes untouched for comparison; then the output is not that of the
/// page. The listener is the last table of the file.
fn without_control_group() {
    let file = fs::OpenOptions::new().append(true).open(CONFIGURATION);
    writeln!(file.unwrap(), "control_group = \"0 %\"").unwrap();
    println!("  the test has no control group");
}

/// The established connections, and those in further states of `filter`, once there are some.
fn wait_for_connections(node: &NetworkNamespace, filter: &str) -> String {
    let start = Instant::now();
    let command = format!("ss --no-header --tcp --numeric state established{filter}");
    loop {
        let seen = run(node, &command);
        if !seen.is_empty() {
            return seen;
        }
        let limit = Duration::from_secs(20) * slowness();
        assert!(start.elapsed() < limit, "no connection");
        std::thread::sleep(Duration::from_millis(50));
    }
}
