//! Gateways without IPv6.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use midspan_linux::netlink::Netlink;
use midspan_testbed::program::Launch;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::check::Report;
use super::support::*;

const IPV4_ALONE: &str = "families = [\"ipv4\"]\n";
const WINDOWS: &str =
    "client_leg = { initial_window = 30 }\nserver_leg = { initial_window = 20 }\n";

/// Makes `socket(AF_INET6, …)` fail with EAFNOSUPPORT in this process and in its children, as in a
/// kernel started with `ipv6.disable=1`.
pub fn refuse_sockets() {
    const AF_INET6: u64 = 10;
    const EAFNOSUPPORT: u32 = 97;
    const SOCKET: i64 = if cfg!(target_arch = "x86_64") {
        41
    } else {
        198
    };
    let family =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, AF_INET6).unwrap();
    let rules = BTreeMap::from([(SOCKET, vec![SeccompRule::new(vec![family]).unwrap()])]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(EAFNOSUPPORT),
        TargetArch::try_from(std::env::consts::ARCH).unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Switches IPv6 off, or on again with the addresses and routes that the network had.
fn switch(network: &Network, on: bool) {
    let value = if on { "0" } else { "1" };
    let parameter = "net/ipv6/conf/all/disable_ipv6";
    network.gateway.set_parameter(parameter, value).unwrap();
    if !on {
        return;
    }
    network
        .gateway
        .run(|| {
            let netlink = Netlink::open().unwrap();
            for (interface, address) in [("acc", "fd01::1/64"), ("wan", "fd02::1/64")] {
                netlink
                    .add_address(interface, address.parse().unwrap())
                    .unwrap();
            }
        })
        .unwrap();
    route(&network.gateway, "::/0", "fd02::2", "wan");
}

fn is_taken(network: &Network, listener: &std::net::TcpListener, server: &str) -> bool {
    network.is_taken(listener, server, 0).unwrap()
}

/// Switched off by a parameter, for all interfaces and for one.
#[kernel_test]
fn what_is_not_asked_for_does_not_matter() {
    for parameter in ["all", "lo", "acc"] {
        let network = Network::new();
        let listener = network.listen(PORT);
        let name = format!("net/ipv6/conf/{parameter}/disable_ipv6");
        network.gateway.set_parameter(&name, "1").unwrap();
        let text = format!("{TRANSPARENT}{IPV4_ALONE}{WINDOWS}");
        let report = Report::of(&network.gateway, &text);
        assert_eq!(report.missing(), Vec::<&str>::new(), "{parameter}");
        let midspan = Midspan::ready(&network.gateway, &text);
        assert!(is_taken(&network, &listener, SERVER), "{parameter}");
        assert_eq!(midspan.status().notices, Vec::<String>::new());
        let log = midspan.end();
        let complains =
            |line: &str| line.contains("ERROR") || line.contains("WARN") && line.contains("IPv6");
        assert!(!log.lines().any(complains), "{parameter}: {log}");
    }
}

/// The available family is intercepted; the missing one is reported, and used again when it
/// returns.
#[kernel_test]
fn the_other_family_is_taken() {
    let network = Network::new();
    let listener = network.listen(PORT);
    switch(&network, false);
    let text = format!("{TRANSPARENT}{WINDOWS}");
    let report = Report::of(&network.gateway, &text);
    assert_eq!(report.missing(), Vec::<&str>::new());
    let (found, mend) = report.mend("IPv6");
    assert!(
        found.contains("disable_ipv6") && mend.contains("families"),
        "{found}; {mend}"
    );
    let midspan = Midspan::ready(&network.gateway, &text);
    assert!(is_taken(&network, &listener, SERVER));
    let notices = midspan.status().notices;
    assert!(
        notices.len() == 1 && notices[0].contains("IPv4 only"),
        "{notices:?}"
    );
    midspan.wait_for_line("intercepts IPv4 only");
    switch(&network, true);
    assert!(!is_taken(&network, &listener, SERVER6));
    assert!(midspan.reload(&text).ok, "{}", midspan.log());
    assert!(is_taken(&network, &listener, SERVER6) && is_taken(&network, &listener, SERVER));
    assert_eq!(midspan.status().notices, Vec::<String>::new());
    // A reload without IPv6 leaves it out again.
    switch(&network, false);
    assert!(midspan.reload(&text).ok, "{}", midspan.log());
    assert!(is_taken(&network, &listener, SERVER));
    midspan.stop();
    // This listener has no other family.
    let alone = format!("{TRANSPARENT}families = [\"ipv6\"]\n");
    let mut midspan = Midspan::start(&network.gateway, &alone);
    assert!(!midspan.wait().success());
    assert!(
        midspan.log().contains("takes IPv6 only"),
        "{}",
        midspan.log()
    );
}

/// IPv6 is switched off and on while a proxy runs, without a reload.
#[kernel_test]
fn it_may_go_and_come() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &format!("{TRANSPARENT}{WINDOWS}"));
    for (server, _) in BOTH {
        assert!(is_taken(&network, &listener, server));
    }
    switch(&network, false);
    wait_until("said", || midspan.status().notices.len() == 1);
    midspan.wait_for_line("no IPv6 connections are intercepted any more");
    // Setting the rules again and probing the firewall work without IPv6.
    rules(&network.gateway, "flush ruleset\n");
    network.wait_until_taken(&listener, SERVER, true, 0);
    rules(&network.gateway, STRICT);
    network.wait_until_taken(&listener, SERVER, true, 0);
    rules(&network.gateway, "flush ruleset\n");
    // Before the rules are back, a SYN passes untouched, and connection tracking does not see it.
    // Its copy, a second later, would be intercepted, and the connection would be reset.
    network.wait_until_taken(&listener, SERVER, true, 0);
    switch(&network, true);
    network.wait_until_taken(&listener, SERVER6, true, 0);
    network.wait_until_taken(&listener, SERVER, true, 0);
    wait_until("all is well", || midspan.status().notices.is_empty());
    let log = midspan.end();
    assert!(
        !log.contains("cannot") && !log.contains("stops intercepted"),
        "{log}"
    );
}

/// Listeners of all modes, the admin listener, a fragmenter.
#[kernel_test]
fn a_kernel_without_it() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let text = format!(
        "[admin]\nlisten = \"127.0.0.1:9464\"\n{TRANSPARENT}{WINDOWS}\
         [[listener]]\nname = \"forward\"\nlisten = \"10.1.0.1:8080\"\nto = \"{SERVER}:{PORT}\"\n\
         [[listener]]\nname = \"socks\"\nmode = \"socks5\"\nlisten = \"10.1.0.1:1080\"\n\
         clients = [\"10.1.0.0/24\"]\n\
         [[listener]]\nname = \"http\"\nmode = \"http\"\nlisten = \"10.1.0.1:3128\"\n\
         clients = [\"10.1.0.0/24\"]\n\
         [profile.narrow]\nclients = [\"10.1.0.0/16\"]\noversized_segments = \"4420 B\"\n\
         fragment_size = \"1000 B\"\n"
    );
    let report = Report::by(
        Launch::this_program("check-without-ipv6"),
        &network.gateway,
        &text,
    );
    assert_eq!(report.missing(), Vec::<&str>::new());
    let (found, _) = report.mend("IPv6");
    assert!(found.contains("ipv6.disable=1"), "{found}");
    let midspan = Midspan::ready_by(&network.gateway, "run-without-ipv6", &text);
    assert!(is_taken(&network, &listener, SERVER));
    assert!(midspan.status().notices[0].contains("ipv6.disable=1"));
    let mut near = network.connect(GATEWAY, 8080).unwrap();
    let (mut far, _) = accept(&listener);
    echoes(&mut near, &mut far);
    abort(near);
    drop(far);
    // A SOCKS5 client that requests an IPv6 server gets an error code, and the next one reaches an
    // IPv4 server.
    let six: SocketAddr = format!("[{SERVER6}]:{PORT}").parse().unwrap();
    assert_ne!(socks(&network, six), 0);
    assert_eq!(
        socks(&network, format!("{SERVER}:{PORT}").parse().unwrap()),
        0
    );
    drop(accept(&listener));
    let web = network.connect(GATEWAY, 3128).unwrap();
    http_connect(web, &format!("{SERVER}:{PORT}"));
    drop(accept(&listener));
    let log = midspan.end();
    assert!(!log.contains("ERROR"), "{log}");
}

/// The answer code of a SOCKS5 listener.
fn socks(network: &Network, server: SocketAddr) -> u8 {
    use std::io::{Read, Write};
    let mut client = network.connect(GATEWAY, 1080).unwrap();
    client.write_all(b"\x05\x01\x00").unwrap();
    client.read_exact(&mut [0; 2]).unwrap();
    let mut request = b"\x05\x01\x00".to_vec();
    match server {
        SocketAddr::V4(four) => {
            request.push(1);
            request.extend(four.ip().octets());
        }
        SocketAddr::V6(six) => {
            request.push(4);
            request.extend(six.ip().octets());
        }
    }
    request.extend(server.port().to_be_bytes());
    client.write_all(&request).unwrap();
    let mut answer = [0; 10];
    client.read_exact(&mut answer).unwrap();
    answer[1]
}

fn http_connect(mut client: std::net::TcpStream, server: &str) {
    use std::io::{Read, Write};
    let request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}
