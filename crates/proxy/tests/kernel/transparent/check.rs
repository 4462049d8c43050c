//! `midspan check` on a gateway: existing features, and each kind of missing one.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::packet_queue::{PacketQueue, WHOLE};
use midspan_testbed::program::{AS, Launch};

use super::support::*;

/// The findings, one line each: state, check, finding, fix.
pub struct Report(Vec<[String; 4]>);

impl Report {
    pub fn of(gateway: &NetworkNamespace, text: &str) -> Self {
        Self::by(Launch::this_program("check"), gateway, text)
    }

    /// Runs the check with this rate of new connections per second.
    pub fn at_rate(gateway: &NetworkNamespace, text: &str, rate: u64) -> Self {
        let launch = Launch::this_program("check").arg(rate.to_string());
        Self::by(launch, gateway, text)
    }

    /// Runs the check with another launch.
    pub fn by(launch: Launch<'_>, gateway: &NetworkNamespace, text: &str) -> Self {
        let launch = launch.configuration(text).inside(gateway);
        let finished = launch.finish().unwrap();
        assert!(finished.status.success(), "{}", finished.status);
        let lines = finished.output.lines().map(|line| {
            let mut parts = line.split('\t').map(str::to_owned);
            std::array::from_fn(|_| parts.next().unwrap_or_default())
        });
        Self(lines.collect())
    }

    pub fn state(&self, check: &str) -> &str {
        let all: Vec<&str> = self.lines(check).map(|line| line[0].as_str()).collect();
        for state in ["missing", "warning", "ok"] {
            if all.contains(&state) {
                return state;
            }
        }
        panic!("no check \"{check}\": {:#?}", self.0);
    }

    pub fn lines<'a>(&'a self, check: &'a str) -> impl Iterator<Item = &'a [String; 4]> {
        self.0.iter().filter(move |line| line[1].starts_with(check))
    }

    /// The finding and the fix of the first line of `check` that is not ok.
    pub fn mend(&self, check: &str) -> (String, String) {
        let line = self.lines(check).find(|line| line[0] != "ok");
        let line = line.unwrap_or_else(|| panic!("\"{check}\" is well: {:#?}", self.0));
        (line[2].clone(), line[3].clone())
    }

    pub fn missing(&self) -> Vec<&str> {
        let missing = self.0.iter().filter(|line| line[0] == "missing");
        missing.map(|line| line[1].as_str()).collect()
    }
}

fn shell(network: &Network, command: &str) {
    let done = output(
        &network.gateway,
        "sh",
        &["-c", &format!("{command} && echo done")],
    );
    assert!(done.contains("done"), "{command}: {done}");
}

/// All rules, routes and parameters.
fn state(network: &Network) -> String {
    output(
        &network.gateway,
        "sh",
        &[
            "-c",
            // The kernel adds routes of its own when a link comes up.
            "{ nft -s list ruleset; ip rule; ip -6 rule; ip route show table all; \
             ip -6 route show table all; } | grep -v 'proto kernel'; \
             cat /proc/sys/net/ipv4/tcp_early_demux",
        ],
    )
}

/// When the kernel chooses a port for a connection of its own, it skips the ports of sessions.
#[kernel_test]
fn ports_that_clients_use_too() {
    let network = Network::new();
    const CHECK: &str = "sysctl net.ipv4.ip_local_port_range";
    for (range, state) in [("32768 60999", "warning"), ("10240 32767", "ok")] {
        network
            .gateway
            .set_parameter("net/ipv4/ip_local_port_range", range)
            .unwrap();
        let report = Report::of(&network.gateway, TRANSPARENT);
        assert_eq!(report.state(CHECK), state, "{range}");
        if state == "warning" {
            let (_, mend) = report.mend(CHECK);
            assert!(mend.ends_with("='10240 32767'"), "{mend}");
        }
    }
    let forward = "[[listener]]\nname = \"f\"\nlisten = \"127.0.0.1:8080\"\nto = \"10.3.0.2:80\"\n";
    let report = Report::of(&network.gateway, forward);
    assert!(
        report.lines(CHECK).next().is_none(),
        "only sessions with the ports of clients"
    );
}

#[kernel_test]
fn a_good_machine() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let before = state(&network);
    let report = Report::of(&network.gateway, TRANSPARENT);
    assert_eq!(report.missing(), Vec::<&str>::new(), "{:#?}", report.0);
    for check in [
        "file",
        "kernel",
        "kernel: nf_tables",
        "kernel: tproxy, IPv4",
        "kernel: tproxy, IPv6",
        "kernel: socket expression",
        "kernel: conntrack zones",
        "kernel: NAT",
        "kernel: queue for SYNs",
        "kernel: policy routing",
        "kernel: all rules together",
        "kernel: IPv6",
        "kernel: TCP_INFO",
        "kernel: TCP_REPAIR",
        "privilege CAP_NET_ADMIN",
        "privilege CAP_NET_RAW",
        "program nft",
        "sysctl net.ipv4.ip_forward",
        "sysctl net.ipv6.conf.all.forwarding",
        "sysctl rp_filter",
        "sysctl net.ipv4.tcp_early_demux",
        "interface acc",
        "another Midspan",
        "routing table 7690",
        "rule priority 100",
        "queue 7700",
        "table inet midspan",
        "conntrack zones 7700, 7701",
        "marks",
        "firewall",
    ] {
        assert_eq!(report.state(check), "ok", "{check}: {:#?}", report.0);
    }
    assert_eq!(report.lines("kernel: BBR").count(), 0);
    let automatic = Report::of(
        &network.gateway,
        &format!("{TRANSPARENT}policy = \"auto\"\n"),
    );
    assert_eq!(automatic.state("kernel: BBR"), "ok", "{:#?}", automatic.0);
    assert_eq!(state(&network), before, "something stays");
    // A check next to a running Midspan, whose connections continue.
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let report = Report::of(&network.gateway, TRANSPARENT);
    assert_eq!(report.missing(), Vec::<&str>::new(), "{:#?}", report.0);
    let running = report.lines("another Midspan").next().unwrap();
    assert!(
        running[2].contains(&format!("process {}", midspan.id())),
        "{running:?}"
    );
    assert_eq!(report.state("firewall"), "ok");
    echoes(&mut near, &mut far);
    assert_eq!(network.taken(PORT), 1);
    abort(near);
    midspan.stop();
    assert_eq!(state(&network), before);
}

#[kernel_test]
fn a_firewall_that_lacks_a_rule() {
    let network = Network::new();
    rules(
        &network.gateway,
        "table inet filter {\n chain input {\n type filter hook input priority 0; policy drop;\n \
         meta l4proto ipv6-icmp accept\n ct state established accept\n }\n}\n",
    );
    let before = state(&network);
    let report = Report::of(&network.gateway, TRANSPARENT);
    assert_eq!(state(&network), before);
    assert_eq!(report.missing(), ["firewall"], "{:#?}", report.0);
    let (found, command) = report.mend("firewall");
    assert!(
        found.contains("at INPUT, in chain \"inet filter input\""),
        "{found}"
    );
    shell(&network, &command);
    let report = Report::of(&network.gateway, TRANSPARENT);
    assert_eq!(report.missing(), Vec::<&str>::new(), "{:#?}", report.0);
}

#[kernel_test]
fn things_that_are_missing() {
    let network = Network::new();
    let gateway = &network.gateway;
    // Forwarding is off, and an interface's name has a spelling mistake.
    gateway.set_parameter("net/ipv4/ip_forward", "0").unwrap();
    let report = Report::of(gateway, TRANSPARENT);
    assert_eq!(
        report.missing(),
        ["sysctl net.ipv4.ip_forward"],
        "{:#?}",
        report.0
    );
    shell(&network, &report.mend("sysctl net.ipv4.ip_forward").1);
    let text = TRANSPARENT.replace("\"acc\"", "\"ac\"");
    let report = Report::of(gateway, &text);
    assert_eq!(report.missing(), ["interface ac"], "{:#?}", report.0);
    assert!(report.mend("interface").1.contains("did you mean \"acc\""));
    shell(&network, "ip link set lo down");
    let report = Report::of(gateway, TRANSPARENT);
    assert_eq!(report.missing(), ["firewall"], "{:#?}", report.0);
    shell(&network, &report.mend("firewall").1);
    // Marks, a routing table and a priority that another program uses.
    shell(
        &network,
        "ip rule add priority 2000 fwmark 0x05000000/0xff000000 lookup 200 && \
         ip rule add priority 2001 fwmark 0x3 lookup 200 && \
         ip rule add priority 100 fwmark 0x80/0x80 lookup 200 && \
         ip route add 192.0.2.0/24 dev wan table 7690",
    );
    let report = Report::of(gateway, TRANSPARENT);
    assert_eq!(
        report.missing(),
        ["routing table 7690", "marks"],
        "{:#?}",
        report.0
    );
    assert_eq!(report.state("rule priority 100"), "warning");
    let marks: Vec<_> = report.lines("marks").collect();
    assert_eq!(marks.len(), 2, "{marks:?}");
    assert!(marks[0][2].contains("routing rule 2000"), "{marks:?}");
    assert!(marks[1][3].contains("fwmark 0x3/0xf0ffffff"), "{marks:?}");
    // With the settings that the check proposes it succeeds, except for the rule of the other
    // program.
    let settings = |check: &str| report.mend(check).1.rsplit_once("] ").unwrap().1.to_owned();
    let text = format!(
        "{TRANSPARENT}[marks]\n{}\n[interception]\n{}\n{}\n",
        settings("marks"),
        settings("routing table"),
        settings("rule priority"),
    );
    let report = Report::of(gateway, &text);
    assert_eq!(report.missing(), Vec::<&str>::new(), "{:#?}", report.0);
    // A congestion control that does not exist.
    let text = format!("{TRANSPARENT}client_leg = {{ congestion_control = \"none_such\" }}\n");
    let report = Report::of(gateway, &text);
    let (found, command) = report.mend("client_leg of \"test\"");
    assert!(found.contains("does not offer it"), "{found}");
    assert_eq!(command, "modprobe tcp_none_such");
}

#[kernel_test]
fn names_and_numbers_of_others() {
    let network = Network::new();
    let gateway = &network.gateway;
    // Rules of another program in a table of the same name, with marks and a zone.
    rules(
        gateway,
        "table inet midspan {\n chain c {\n }\n}\n\
         table inet host {\n chain pre {\n type filter hook prerouting priority -300;\n \
         iifname \"wan\" meta mark set 0x7\n iifname \"wan\" ct zone set 7701\n \
         meta mark 0x5 counter\n meta mark & 0x0f000000 == 0x02000000 counter\n }\n}\n",
    );
    let report = Report::of(gateway, TRANSPARENT);
    let mut missing = report.missing();
    missing.sort_unstable();
    assert_eq!(
        missing,
        ["conntrack zones 7700, 7701", "marks", "table inet midspan"],
        "{:#?}",
        report.0
    );
    assert_eq!(report.lines("marks").count(), 3, "{:#?}", report.0);
    rules(gateway, "flush ruleset\n");
    // The packet queue is in use.
    let queue = gateway.run(|| PacketQueue::bind(7700, 16, WHOLE)).unwrap();
    match queue {
        Err(error) => skip_part(&format!("a queue cannot be had: {error}")),
        Ok(_queue) => {
            let report = Report::of(gateway, TRANSPARENT);
            assert_eq!(report.missing(), ["queue 7700"], "{:#?}", report.0);
            assert!(report.mend("queue").1.contains("queue = 7701"));
        }
    }
    // A port and an address in use, and the program that has the port.
    let taken = gateway
        .run(|| TcpListener::bind("127.0.0.1:8080").unwrap())
        .unwrap();
    let forward = |listen: &str| {
        format!("[[listener]]\nname = \"test\"\nlisten = \"{listen}\"\nto = \"10.3.0.2:80\"\n")
    };
    let report = Report::of(gateway, &forward("127.0.0.1:8081"));
    assert_eq!(report.missing(), Vec::<&str>::new(), "{:#?}", report.0);
    let report = Report::of(gateway, &forward("192.0.2.1:80"));
    assert!(
        report
            .mend("port of")
            .0
            .contains("no address of this machine")
    );
    // This program itself would count as a running Midspan.
    let report = Report::of(gateway, &forward("127.0.0.1:8080"));
    let line = report.lines("port of").next().unwrap();
    assert!(
        line[2].contains(&format!("process {}", std::process::id())),
        "{line:?}"
    );
    drop(taken);
    // More memory for pipes than a user may have.
    let text = format!(
        "[relay]\npipe_memory = \"32 GiB\"\n{}",
        forward("127.0.0.1:8081")
    );
    let report = Report::of(gateway, &text);
    let (found, command) = report.mend("sysctl fs.pipe-user-pages-soft");
    assert!(found.contains("data is copied"), "{found}");
    assert_eq!(command, "sysctl -w fs.pipe-user-pages-soft=8388608");
}

#[kernel_test]
fn leftovers_are_found_and_left() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    rustix::process::kill_process(midspan.helper(), rustix::process::Signal::KILL).unwrap();
    drop(midspan);
    let before = state(&network);
    let report = Report::of(&network.gateway, TRANSPARENT);
    assert_eq!(report.missing(), Vec::<&str>::new(), "{:#?}", report.0);
    assert!(report.mend("another Midspan").0.contains("was killed"));
    assert_eq!(report.state("firewall"), "warning");
    assert_eq!(state(&network), before);
    // The leftovers of a killed check would stop connections; a run removes them.
    shell(
        &network,
        "ip route add local default dev lo table 7691 proto 77",
    );
    rules(
        &network.gateway,
        "table inet midspan_check {\n chain client_side {\n \
         type filter hook prerouting priority -250;\n \
         iifname \"lo\" meta mark & 0x0f000000 == 0x0b000000 drop\n }\n}\n",
    );
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    assert!(
        !midspan.log().contains("pass untouched"),
        "{}",
        midspan.log()
    );
    assert!(!state(&network).contains("midspan_check"));
    midspan.stop();
    assert!(!state(&network).contains("midspan"));
}

/// Without privileges, the check reports what is missing, and the line that grants it.
#[kernel_test]
fn an_ordinary_user() {
    const NOBODY: u32 = 65_534;
    let network = Network::new();
    // The user must be able to execute the program.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("midspan");
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(directory.path(), mode(0o755)).unwrap();
    fs::set_permissions(&program, mode(0o755)).unwrap();
    let file = directory.path().join("midspan.toml");
    fs::write(&file, TRANSPARENT).unwrap();
    fs::set_permissions(&file, mode(0o644)).unwrap();
    let mut command = Command::new(&program);
    command
        .args([AS, "check"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .uid(NOBODY)
        .gid(NOBODY);
    let Ok(child) = network.gateway.spawn(command) else {
        return skip("this process may not become another user");
    };
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |check: &str| {
        let line = text.lines().find(|line| line.contains(check));
        line.unwrap_or_else(|| panic!("no {check}: {text}"))
    };
    let setcap = "setcap cap_net_admin,cap_net_raw+ep";
    for capability in ["CAP_NET_ADMIN", "CAP_NET_RAW"] {
        let line = line(&format!("privilege {capability}"));
        assert!(
            line.starts_with("missing") && line.contains(setcap),
            "{line}"
        );
    }
    assert!(line("firewall").starts_with("warning"), "{text}");
}
