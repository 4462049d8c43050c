//! A node with two links to the exit.
//!
//! ```text
//! client – ams (ingress) ══ two links ══ sin (exit) – server
//! ```

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use midspan_proxy::overlay::{OverlayReport, RoutesReport};

use super::support::*;

const PATIENCE: Duration = Duration::from_secs(80);
const MEMBERS: &str = "[[node]]\nname = \"ams\"\naddress = \"10.5.0.1:7704\"\nfrom = [\"10.6.0.1\"]\n\
     security = \"network\"\n\
     [[node]]\nname = \"sin\"\naddress = \"10.5.0.2:7704\"\nserves = [\"10.4.0.0/24\"]\n\
     security = \"network\"\n";

#[kernel_test]
fn sessions_take_the_link_that_works() {
    let [client, ams, sin, server] = ["client", "ams", "sin", "server"].map(node);
    link(&client, "eth", &ams, "clients", 1);
    link(&sin, "one", &ams, "one", 5);
    link(&sin, "two", &ams, "two", 6);
    link(&server, "eth", &sin, "servers", 4);
    let listener = listen(&server, PORT);
    // Packets from its second address leave by the second link.
    for arguments in [
        "route add 10.5.0.2/32 via 10.6.0.2 dev two table 106",
        "rule add priority 1000 from 10.6.0.1 lookup 106",
    ] {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        output(&ams, "ip", &arguments);
    }
    let members = readable(MEMBERS);
    let overlay = |name: &str, keys: &str| {
        let members = members.path().display();
        format!("{RELAY}[overlay]\nname = \"{name}\"\nmembers = \"{members}\"\n{keys}")
    };
    let hops = "measure = true\n[[listener]]\nname = \"hops\"\nmode = \"hop\"\nlisten = \"10.5.0.2:7704\"\n\
                connect_timeout = \"3 s\"\n";
    let _sin = Midspan::ready(&sin, &overlay("sin", hops));
    let socks = "explore = \"0 %\"\ncontrol_group = \"0 %\"\n\
                 uplinks = [{ name = \"one\", from = \"10.5.0.1\" }, { name = \"two\", from = \"10.6.0.1\" }]\n\
                 [[overlay.route]]\ndestinations = [\"10.4.0.0/24\"]\nexits = [\"sin\"]\n\
                 [[listener]]\nname = \"socks\"\nmode = \"socks5\"\nlisten = \"10.1.0.1:1080\"\n\
                 clients = [\"10.1.0.0/24\"]\noverlay = true\n";
    let midspan = Midspan::ready(&ams, &overlay("ams", socks));
    wait_within(PATIENCE, "both legs are up", || {
        let report: OverlayReport = page(&midspan, "/overlay");
        let names: Vec<_> = report.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["sin/one", "sin/two"]);
        report.nodes.iter().all(|node| node.health == "up")
    });
    let talk = || {
        let mut near = from(&client, "10.1.0.1", 1080);
        near.write_all(b"\x05\x01\x00").unwrap();
        assert_eq!(exactly::<2>(&mut near), *b"\x05\x00");
        let request = [b"\x05\x01\x00", &address(2, PORT)[..]].concat();
        near.write_all(&request).unwrap();
        assert_eq!(exactly::<10>(&mut near)[1], 0);
        let (mut far, seen) = accept(&listener);
        echoes(&mut near, &mut far);
        drop(far);
        near.read_to_end(&mut Vec::new()).unwrap();
        seen
    };
    let exit: SocketAddr = "10.4.0.1:0".parse().unwrap();
    assert_eq!(talk().ip(), exit.ip());
    // The used link breaks. The next session takes the other one at the latest after the time limit of a handshake.
    let route = || -> Vec<String> {
        let report: RoutesReport = page(&midspan, "/overlay/routes?destination=10.4.0.2:80");
        report.route
    };
    let used = route();
    let (name, other) = match used[0].as_str() {
        "sin/one" => ("one", "sin/two"),
        _ => ("two", "sin/one"),
    };
    rules(
        &sin,
        &format!(
            "table inet broken {{\nchain in {{\ntype filter hook prerouting priority 0;\n\
             iifname \"{name}\" drop\n}}\n}}\n"
        ),
    );
    assert_eq!(talk().ip(), exit.ip());
    assert_eq!(talk().ip(), exit.ip());
    wait_within(PATIENCE, "sessions go over the other link", || {
        route() == [other]
    });
}
