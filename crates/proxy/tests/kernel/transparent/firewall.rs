//! Host firewalls that would stop intercepted connections.

use std::path::Path;
use std::time::Duration;

use midspan_testbed::program::Launch;

use super::support::*;

/// A gateway's chain `input` that stops connections through `lo`.
const CLOSED_INPUT: &str = r#"
table inet filter {
    chain input { type filter hook input priority filter; policy drop;
        meta l4proto ipv6-icmp accept
        ct state established,related accept
        tcp dport 22 accept
    }
}
"#;

/// A chain that permits only connections of this machine to itself.
const CLOSED_OUTPUT: &str = r#"
table inet guard {
    chain out { type filter hook output priority 10; policy accept;
        meta l4proto ipv6-icmp accept
        ip saddr 10.1.0.0/16 ct state new oifname != "lo" drop
        ip6 saddr fd01::/16 ct state new oifname != "lo" drop
    }
}
"#;

/// A chain without connection tracking that drops answers with addresses of other hosts, as the
/// listener sends them.
const CLOSED_ANSWERS: &str = r#"
table inet guard {
    chain out { type filter hook output priority 10; policy accept;
        oifname "lo" accept
        fib saddr type != local tcp flags & (syn | ack) == (syn | ack) drop
    }
}
"#;

const EARLY_DROP: &str = r#"
table inet guard {
    chain raw { type filter hook prerouting priority raw; policy accept;
        iifname "lo" fib saddr type != local drop
    }
}
"#;

/// The shell commands in the last log line about a missing rule.
fn missing(log: &str) -> Vec<String> {
    let line = log
        .lines()
        .rev()
        .find_map(|line| line.split_once("what is missing: "));
    let (_, commands) = line.unwrap_or_else(|| panic!("nothing is missing: {log}"));
    commands.split("; ").map(str::to_owned).collect()
}

/// Runs the commands exactly as they were printed.
fn execute(network: &Network, commands: &[String]) {
    for command in commands {
        let shell = format!("{command} && echo done");
        let printed = output(&network.gateway, "sh", &["-c", &shell]);
        assert!(printed.contains("done"), "{command}");
    }
}

fn goes_through(network: &Network, listener: &std::net::TcpListener, taken: bool) -> bool {
    BOTH.iter().all(|(server, _)| {
        let Ok(mut near) = network.connect(server, PORT) else {
            panic!("no connection to {server}");
        };
        let (mut far, _) = accept(listener);
        echoes(&mut near, &mut far);
        let result = (network.taken(PORT) == 1) == taken;
        abort(near);
        wait_until("closed", || network.taken(PORT) == 0);
        result
    })
}

#[kernel_test]
fn a_firewall_that_stops_connections() {
    for (closed, hook, chain) in [
        (CLOSED_INPUT, "INPUT", "inet filter input"),
        (CLOSED_OUTPUT, "OUTPUT", "inet guard out"),
        (CLOSED_ANSWERS, "OUTPUT", "inet guard out"),
        (EARLY_DROP, "PREROUTING", "inet guard raw"),
    ] {
        for text in [TRANSPARENT.to_owned(), early()] {
            let network = Network::new();
            rules(&network.gateway, closed);
            let listener = network.listen(PORT);
            let midspan = Midspan::ready(&network.gateway, &text);
            wait_until("logged", || midspan.log().contains("ready"));
            let log = midspan.log();
            assert!(
                log.contains(&format!("at {hook}, in chain \"{chain}\"")),
                "{log}"
            );
            assert!(log.contains("IPv4 and IPv6"), "{log}");
            assert!(goes_through(&network, &listener, false), "{log}");
            let commands = missing(&log);
            assert_eq!(commands.len(), 1, "{commands:?}");
            execute(&network, &commands);
            wait_until("mended", || midspan.log().contains("pass again"));
            wait_until("taken", || goes_through(&network, &listener, true));
            midspan.stop();
        }
    }
}

/// `nft` looks names of protocols up in this file, which a small system lacks.
#[kernel_test]
fn rules_need_no_list_of_protocols() {
    const PROTOCOLS: &str = "/etc/protocols";
    let network = Network::new();
    let listener = network.listen(PORT);
    let mut launch = Launch::this_program("run")
        .configuration(TRANSPARENT)
        .inside(&network.gateway);
    if Path::new(PROTOCOLS).exists() {
        launch = launch.in_place_of("/dev/null", PROTOCOLS);
    }
    let midspan = Midspan::of(launch);
    assert!(goes_through(&network, &listener, true));
    midspan.stop();
}

#[kernel_test]
fn iptables_that_stop_connections() {
    let network = Network::new();
    let run = |command: &str| output(&network.gateway, "sh", &["-c", command]);
    if !run("iptables -A INPUT -m mark --mark 1 -j ACCEPT && echo done").contains("done") {
        return skip("there is no iptables, or no match of marks");
    }
    for program in ["iptables", "ip6tables"] {
        run(&format!("{program} -A INPUT -p ipv6-icmp -j ACCEPT"));
        run(&format!("{program} -A INPUT -i lo -j DROP"));
    }
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    assert!(goes_through(&network, &listener, false));
    wait_until("logged", || midspan.log().contains("ready"));
    let commands = missing(&midspan.log());
    assert_eq!(
        commands,
        [
            "iptables -I INPUT -m mark --mark 0x0b000000/0x0f000000 -j ACCEPT",
            "ip6tables -I INPUT -m mark --mark 0x0b000000/0x0f000000 -j ACCEPT",
        ]
    );
    execute(&network, &commands);
    wait_until("mended", || midspan.log().contains("pass again"));
    wait_until("taken", || goes_through(&network, &listener, true));
    midspan.stop();
}

/// A firewall reload may close what was open, and open it again.
#[kernel_test]
fn a_firewall_that_changes() {
    let network = Network::new();
    rules(&network.gateway, STRICT);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    assert_eq!(network.taken(PORT), 1);
    let said = |what: &str| midspan.log().matches(what).count();
    for reload in ["", "flush ruleset\n"] {
        // During a change, a probe may report another reason.
        let before = said("pass untouched");
        let closed = format!("{reload}table inet filter\ndelete table inet filter\n{CLOSED_INPUT}");
        rules(&network.gateway, &closed);
        wait_until("passing", || said("pass untouched") > before);
        // Until Midspan has changed its rules too, connections may be stopped. Midspan would not
        // notice another change of the firewall in this moment.
        std::thread::sleep(Duration::from_millis(500));
        wait_until("left alone", || {
            let is_taken = network.is_taken(&listener, SERVER, 1);
            is_taken.is_ok_and(|taken| !taken)
        });
        // Existing sessions continue.
        echoes(&mut near, &mut far);
        let before = said("pass again");
        let open = format!("flush ruleset\n{STRICT}");
        rules(&network.gateway, &open);
        wait_until("mended", || said("pass again") > before);
        std::thread::sleep(Duration::from_millis(500));
        echoes(&mut near, &mut far);
        network.wait_until_taken(&listener, SERVER, true, 1);
    }
    abort(near);
    midspan.stop();
}

/// A routing rule of another program, with a higher priority, leads packets with Midspan's marks
/// elsewhere.
#[kernel_test]
fn a_routing_rule_that_takes_the_mark() {
    let network = Network::new();
    for family in ["-4", "-6"] {
        let rule = "rule add priority 50 fwmark 0x0b000000/0x0b000000 lookup main";
        let arguments: Vec<&str> = std::iter::once(family).chain(rule.split(' ')).collect();
        output(&network.gateway, "ip", &arguments);
    }
    let listener = network.listen(PORT);
    let text = TRANSPARENT.to_owned();
    let midspan = Midspan::ready(&network.gateway, &text);
    wait_until("logged", || midspan.log().contains("ready"));
    let log = midspan.log();
    assert!(log.contains("another routing rule takes"), "{log}");
    assert!(goes_through(&network, &listener, false));
    midspan.stop();
}

/// None of the probe's packets leaves the gateway, and the probe leaves nothing behind.
#[kernel_test]
fn the_probe_stays_inside() {
    let network = Network::new();
    let count = |namespace, names: [&str; 1]| {
        rules(
            namespace,
            &format!(
                "table inet seen {{\n counter seen {{ }}\n chain in {{\n \
                 type filter hook prerouting priority 0;\n \
                 iifname \"{}\" meta l4proto tcp counter name seen\n }}\n}}\n",
                names[0]
            ),
        );
    };
    count(&network.client, ["eth"]);
    count(&network.router, ["near"]);
    rules(&network.gateway, STRICT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    let tables = output(&network.gateway, "nft", &["list", "tables"]);
    assert!(!tables.contains("probe"), "{tables}");
    // A listener that still had the probe's SYN would answer again after a second.
    std::thread::sleep(Duration::from_millis(1500));
    for namespace in [&network.client, &network.router] {
        let counters = output(namespace, "nft", &["list", "counters"]);
        assert!(counters.contains("packets 0"), "{counters}");
    }
    midspan.stop();
}
