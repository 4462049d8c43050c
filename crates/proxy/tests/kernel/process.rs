//! Helper and relay as processes: start, signals, crashes, privileges.
//!
//! All tests use the loopback interface of a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use midspan_gateway::leftovers;
use midspan_linux::namespace::Privilege;
use midspan_linux::netlink::Netlink;
use midspan_linux::{capability, processors};
use midspan_testbed::kernel_tests::{Command, privilege};
use midspan_testbed::program::Launch;
use midspan_testbed::testing::{Midspan, assert_no_refused_call, bounded, is_refused, wait_until};
use midspan_testbed::{KernelTests, kernel_test, skip};
use rustix::process::{Pid, Signal, kill_process};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::common::{exit_code, run};

const COMMANDS: &[Command] = &[
    ("run-without-rights", |arguments| {
        capability::give_up_all_but(&[]).unwrap();
        exit_code(run(arguments[0]))
    }),
    ("run-before-linux-6.4", |arguments| {
        refuse_auxiliary_vector();
        exit_code(run(arguments[0]))
    }),
];

/// These tests, with their set-up.
pub const TESTS: KernelTests = KernelTests::new().commands(COMMANDS).set_up(set_up_network);

/// Sets up the network, with a link on which no host answers.
fn set_up_network() {
    let netlink = Netlink::open().unwrap();
    netlink.set_up("lo").unwrap();
    netlink.add_veth("near", "far").unwrap();
    netlink.set_up("near").unwrap();
    netlink.set_up("far").unwrap();
    let address = "192.0.2.1/24".parse().unwrap();
    netlink.add_address("near", address).unwrap();
}

/// Makes `prctl(PR_GET_AUXV)` fail with EINVAL in this process and in its children, as before Linux
/// 6.4, where a process has to read `/proc/self/auxv` instead. It may not, once it has another user.
fn refuse_auxiliary_vector() {
    const PRCTL: i64 = if cfg!(target_arch = "x86_64") {
        157
    } else {
        167
    };
    const PR_GET_AUXV: u64 = 0x4155_5856;
    const EINVAL: u32 = 22;
    let option = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, PR_GET_AUXV);
    let rule = SeccompRule::new(vec![option.unwrap()]).unwrap();
    let filter = SeccompFilter::new(
        BTreeMap::from([(PRCTL, vec![rule])]),
        SeccompAction::Allow,
        SeccompAction::Errno(EINVAL),
        TargetArch::try_from(std::env::consts::ARCH).unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

const LISTEN: &str = "127.0.0.1:8080";
const SERVER: &str = "127.0.0.1:9090";

fn configuration(more: &str) -> String {
    format!(
        "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n{more}\n\
         [[listener]]\nname = \"test\"\nlisten = \"{LISTEN}\"\nto = \"{SERVER}\"\n"
    )
}

/// A client and a server, connected through the proxy.
struct Session {
    client: TcpStream,
    server: TcpStream,
    listener: TcpListener,
}

impl Session {
    fn open() -> Self {
        let listener = TcpListener::bind(SERVER).unwrap();
        let client = TcpStream::connect(LISTEN).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (client, server) = (bounded(client), bounded(server));
        let mut session = Self {
            client,
            server,
            listener,
        };
        session.exchange();
        session
    }

    fn exchange(&mut self) {
        let mut buffer = [0; 4];
        self.client.write_all(b"ping").unwrap();
        self.server.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"ping");
        self.server.write_all(b"pong").unwrap();
        self.client.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"pong");
    }

    fn assert_reset(&mut self) {
        for socket in [&mut self.client, &mut self.server] {
            let error = socket.read(&mut [0; 1]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }

    /// Closes the server's listening socket, so that the next test can use its port.
    fn close(self) {
        let Self {
            mut client,
            mut server,
            listener,
        } = self;
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
        drop(server);
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        drop(listener);
    }
}

fn refuses_connections() -> bool {
    is_refused(LISTEN)
}

#[kernel_test]
fn an_idle_proxy_ends() {
    let mut proxy = Midspan::here(&configuration(""));
    let session = Session::open();
    session.close();
    wait_until("said", || proxy.log().contains("ready"));
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success(), "{}", proxy.log());
    assert!(refuses_connections());
}

/// The processors of the relay's threads, as the kernel lists them, in the order of the threads.
fn processors_of_relay_threads(proxy: &Midspan) -> Vec<String> {
    let tasks = format!("/proc/{}/task", proxy.relay().as_raw_nonzero());
    let mut found = BTreeMap::new();
    for task in fs::read_dir(tasks).unwrap().flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap();
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let prefix = "Cpus_allowed_list:";
        let list = status.lines().find_map(|line| line.strip_prefix(prefix));
        if let Some(number) = name.trim().strip_prefix("relay ") {
            found.insert(number.to_owned(), list.unwrap().trim().to_owned());
        }
    }
    found.into_values().collect()
}

#[kernel_test]
fn pinned_threads_run_on_one_processor_each() {
    let allowed = processors::allowed();
    let of_thread = |thread: usize| allowed[thread % allowed.len()].to_string();
    let mut proxy = Midspan::here(&configuration("pin_threads = true"));
    wait_until("the threads are pinned", || {
        processors_of_relay_threads(&proxy) == [of_thread(0), of_thread(1)]
    });
    // Connections from every processor are accepted.
    for processor in allowed.clone() {
        let inside = std::thread::spawn(move || {
            processors::run_only_on(processor).unwrap();
            Session::open().close();
        });
        inside.join().unwrap();
    }
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success(), "{}", proxy.log());
    assert_no_refused_call(&proxy.log());
}

#[kernel_test]
fn threads_run_everywhere_by_default() {
    let allowed = processors::allowed();
    if allowed.len() < 2 {
        skip("there is one processor");
    }
    let proxy = Midspan::here(&configuration(""));
    wait_until("the threads run", || {
        processors_of_relay_threads(&proxy).len() == 2
    });
    let lists = processors_of_relay_threads(&proxy);
    assert_eq!(lists[0], lists[1]);
    assert_ne!(lists[0], allowed[0].to_string());
}

#[kernel_test]
fn sessions_go_on() {
    let mut proxy = Midspan::here(&configuration(""));
    let mut session = Session::open();
    // A terminal sends the signal to both processes.
    kill_process(proxy.relay(), Signal::INT).unwrap();
    proxy.signal(Signal::INT);
    wait_until("refused", refuses_connections);
    session.exchange();
    assert!(proxy.is_running());
    session.close();
    assert!(proxy.wait().success(), "{}", proxy.log());
}

#[kernel_test]
fn the_time_to_drain_is_limited() {
    let mut proxy = Midspan::here(&configuration("drain_timeout = \"300 ms\""));
    let mut session = Session::open();
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success(), "{}", proxy.log());
    session.assert_reset();
}

#[kernel_test]
fn a_second_signal_resets() {
    let mut proxy = Midspan::here(&configuration("drain_timeout = \"1 h\""));
    let mut session = Session::open();
    proxy.signal(Signal::TERM);
    wait_until("refused", refuses_connections);
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success(), "{}", proxy.log());
    session.assert_reset();
}

#[kernel_test]
fn a_killed_relay() {
    let mut proxy = Midspan::here(&configuration(""));
    let mut session = Session::open();
    kill_process(proxy.relay(), Signal::KILL).unwrap();
    session.assert_reset();
    assert_eq!(proxy.wait().code(), Some(1));
    let log = proxy.log();
    let expected = "error: the relay process ended unexpectedly (signal: 9 (SIGKILL)); its \
                    connections were reset";
    assert!(log.contains(expected), "{log}");
    assert!(refuses_connections());
}

#[kernel_test]
fn a_killed_helper() {
    let mut proxy = Midspan::here(&configuration(""));
    let mut session = Session::open();
    let relay = proxy.relay().as_raw_nonzero();
    proxy.kill();
    session.assert_reset();
    // This process is not the relay's parent and cannot wait for it, so it checks the process id
    // only while the id is the relay's.
    let is_relay = || {
        fs::read_to_string(format!("/proc/{relay}/cmdline"))
            .is_ok_and(|arguments| arguments.contains("\0relay"))
    };
    wait_until("the relay's end", || !is_relay());
    wait_until("refused", refuses_connections);
}

/// A line of `/proc/…/status`.
fn status(id: Pid, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", id.as_raw_nonzero())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap().trim_start_matches(':').trim().to_owned()
}

#[kernel_test]
fn rights_are_given_up() {
    let proxy = Midspan::here(&configuration(""));
    const NET_ADMIN: &str = "0000000000001000";
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW.
    const HELPER: &str = "0000000000003400";
    // Also CAP_KILL, to end a relay of another user.
    const ROOT_HELPER: &str = "0000000000003420";
    // In reserve, for the next program: CAP_SETGID, CAP_SETUID and CAP_SETPCAP for another user, and CAP_BPF, which some
    // containers do not have.
    const FOR_USER: u64 = 0x1c0;
    const BPF: u64 = 1 << 39;
    let number = |rights: &str| u64::from_str_radix(rights.trim(), 16).unwrap();
    let has_bpf = number(&status(rustix::process::getpid(), "CapPrm")) & BPF;
    let (helper, user) = match is_root() {
        true => (ROOT_HELPER, "65534"),
        false => (HELPER, "0"),
    };
    let for_user = if is_root() { FOR_USER } else { 0 };
    let in_reserve = format!("{:016x}", number(helper) | for_user | has_bpf);
    let in_reserve = in_reserve.as_str();
    assert_eq!(status(proxy.relay(), "Seccomp"), "2");
    assert_eq!(status(proxy.relay(), "Groups").is_empty(), is_root());
    for ids in ["Uid", "Gid"] {
        let line = status(proxy.relay(), ids);
        assert!(line.split_whitespace().all(|id| id == user), "{ids} {line}");
    }
    for (id, rights, permitted) in [
        (proxy.helper(), helper, in_reserve),
        (proxy.relay(), NET_ADMIN, NET_ADMIN),
    ] {
        for (set, expected) in [
            ("CapEff", rights),
            ("CapPrm", permitted),
            ("CapBnd", permitted),
        ] {
            assert_eq!(status(id, set), expected, "{set} of {id:?}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(status(id, set), "0000000000000000", "{set} of {id:?}");
        }
        assert_eq!(status(id, "NoNewPrivs"), "1");
    }
    // The relay's other threads have the same capabilities.
    let relay = proxy.relay();
    for task in fs::read_dir(format!("/proc/{}/task", relay.as_raw_nonzero())).unwrap() {
        let file = task.unwrap().path().join("status");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("CapEff:\t{NET_ADMIN}\n")));
    }
    // The helper has no listening socket: only the relay has the ports.
    assert_eq!(listening_sockets(proxy.helper()), 0);
    assert_eq!(listening_sockets(relay), 2);
}

/// Whether the user is root of the machine, not of a user namespace.
fn is_root() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    map.split_whitespace().nth(2) == Some("4294967295") && rustix::process::geteuid().is_root()
}

fn listening_sockets(id: Pid) -> usize {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let listening: Vec<&str> = table
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            (columns.get(3) == Some(&"0A")).then(|| columns[9])
        })
        .collect();
    fs::read_dir(format!("/proc/{}/fd", id.as_raw_nonzero()))
        .unwrap()
        .filter(|entry| {
            let link = fs::read_link(entry.as_ref().unwrap().path()).unwrap_or_default();
            let link = link.to_string_lossy().into_owned();
            listening
                .iter()
                .any(|inode| link == format!("socket:[{inode}]"))
        })
        .count()
}

#[kernel_test]
fn initial_windows_come_and_go() {
    let text = format!(
        "{}client_leg = {{ initial_window = 77 }}\nserver_leg = {{ initial_window = 20 }}\n",
        configuration("")
    );
    // However the proxy ends, nothing is left, unless the helper is killed.
    for end in ["signal", "killed relay"] {
        let mut proxy = Midspan::here(&text);
        Session::open().close();
        if end == "signal" {
            proxy.signal(Signal::TERM);
        } else {
            kill_process(proxy.relay(), Signal::KILL).unwrap();
        }
        assert_eq!(proxy.wait().success(), end == "signal", "{}", proxy.log());
        assert_eq!(leftovers::rules_and_routes().unwrap(), 0);
    }
    let mut proxy = Midspan::here(&text);
    proxy.kill();
    wait_until("refused", refuses_connections);
    // The next run removes the leftovers, even if it has no initial window itself.
    let proxy = Midspan::here(&configuration(""));
    proxy.wait_for_line("removed rules and routes of an earlier run");
    drop(proxy);
    assert_eq!(leftovers::rules_and_routes().unwrap(), 0);
}

#[kernel_test]
fn both_families_share_a_port() {
    let six = "[[listener]]\nname = \"six\"\nlisten = \"[::]:8080\"\nto = \"127.0.0.1:9090\"\n";
    let four = configuration("").replace(LISTEN, "0.0.0.0:8080");
    let proxy = Midspan::here(&format!("{four}{six}"));
    Session::open().close();
    let server = TcpListener::bind(SERVER).unwrap();
    let mut client = TcpStream::connect("[::1]:8080").unwrap();
    client.write_all(b"six").unwrap();
    let mut buffer = [0; 3];
    server.accept().unwrap().0.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"six");
    drop(proxy);
}

#[kernel_test]
fn log_lines_for_programs() {
    let text = format!("{}[log]\nformat = \"json\"\n", configuration(""));
    let mut proxy = Midspan::here(&text);
    Session::open().close();
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success(), "{}", proxy.log());
    let log = proxy.log();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ready = lines.iter().find(|line| line["message"] == "ready");
    assert_eq!(ready.unwrap()["threads"], 2, "{log}");
}

#[kernel_test]
fn what_needs_no_rights_works() {
    let text = format!(
        "{}client_leg = {{ congestion_control = \"reno\", notsent_lowat = \"64 KiB\" }}\n",
        configuration("")
    );
    let mut proxy = Midspan::of(Launch::this_program("run-without-rights").configuration(&text));
    Session::open().close();
    assert_eq!(status(proxy.relay(), "CapPrm"), "0000000000000000");
    proxy.signal(Signal::TERM);
    assert!(proxy.wait().success(), "{}", proxy.log());
}

fn fails_with(command: &str, text: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::this_program(command).configuration(text);
    let finished = launch.folder(folder.path()).finish().unwrap();
    assert_eq!(finished.status.code(), Some(1));
    let folder = format!("{}/", folder.path().display());
    let log = finished.log.replace(&folder, "");
    assert!(log.contains(expected), "{log}");
}

#[kernel_test]
fn initial_window_needs_rights() {
    let text = format!(
        "{}client_leg = {{ initial_window = 77 }}\n",
        configuration("")
    );
    fails_with(
        "run-without-rights",
        &text,
        "error: initial_window needs CAP_NET_ADMIN to add routes and rules: run as root, give \
         the program the capability (setcap cap_net_admin+ep), or remove the key",
    );
}

#[kernel_test]
fn a_restricted_congestion_control_needs_rights() {
    if privilege() != Some(Privilege::Root) {
        return skip("it takes root");
    }
    let unrestricted = midspan_linux::tcp::unrestricted_congestion_controls().unwrap();
    let available = midspan_linux::tcp::available_congestion_controls().unwrap();
    let restricted = available.iter().find(|name| !unrestricted.contains(name));
    let Some(name) = restricted else {
        return skip("every congestion control of this kernel is open to all");
    };
    let leg = format!("client_leg = {{ congestion_control = \"{name}\" }}\n");
    let text = format!("{}{leg}", configuration(""));
    fails_with(
        "run-without-rights",
        &text,
        &format!(
            "error: midspan.toml:10:16: congestion_control = \"{name}\" needs CAP_NET_ADMIN, only "
        ),
    );
    let proxy = Midspan::here(&text);
    Session::open().close();
    drop(proxy);
}

#[kernel_test]
fn it_starts_before_linux_6_4() {
    let launch = Launch::this_program("run-before-linux-6.4").configuration(&configuration(""));
    let proxy = Midspan::of(launch);
    Session::open().close();
    drop(proxy);
}

#[kernel_test]
fn errors_are_located() {
    let occupied = TcpListener::bind(LISTEN).unwrap();
    fails_with(
        "run",
        &configuration(""),
        "error: midspan.toml:8:10: 127.0.0.1:8080 is in use by another program",
    );
    drop(occupied);
    let proxy = Midspan::here(&configuration(""));
    fails_with(
        "run",
        &configuration(""),
        "error: midspan.toml:8:10: 127.0.0.1:8080 is in use by another program",
    );
    drop(proxy);
    fails_with(
        "run",
        &configuration("").replace(LISTEN, "198.51.100.1:80"),
        "error: midspan.toml:8:10: 198.51.100.1 is no address of this machine",
    );
    fails_with(
        "run",
        &configuration("")
            .replace(LISTEN, "0.0.0.0:8080")
            .replace(SERVER, "192.0.2.1:8080"),
        "error: midspan.toml:9:6: listener \"test\" forwards to itself",
    );
    fails_with(
        "run",
        &format!(
            "{}server_leg = {{ congestion_control = \"nonsuch\" }}\n",
            configuration("")
        ),
        "error: midspan.toml:10:16: congestion_control = \"nonsuch\": this kernel does not offer it",
    );
}

#[kernel_test]
fn the_relay_alone_refuses() {
    let finished = Launch::this_program("relay").finish().unwrap();
    assert_eq!(finished.status.code(), Some(1));
    let error = finished.log;
    assert!(
        error.contains("only `midspan run` runs this command"),
        "{error}"
    );
}
