//! Sessions of a gateway that has lost its power.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};

use super::support::*;

/// Rules that drop all packets of the gateway while its sockets are closed, as if it were switched
/// off.
const OFF: &str =
    "table inet off {\n chain out {\n type filter hook output priority -500;\n drop\n }\n}\n";

/// The table in the gateway guide, with the interfaces of this network.
fn reset_unknown() -> String {
    let page = include_str!("../../../../../docs/gateway.md");
    let section = page.split("## After a power loss").nth(1).unwrap();
    let table = section.split("```nft\n").nth(1).unwrap();
    let table = table.split("```").next().unwrap();
    table.replace("eth1", "acc").replace("eth0", "wan")
}

/// Without the guide's table, both ends wait. With it, an end that sends something gets a reset.
#[kernel_test]
fn sessions_of_a_gateway_that_was_switched_off() {
    for (server, _) in BOTH {
        let network = Network::new();
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
        let mut pairs: Vec<_> = (0..3)
            .map(|_| {
                let mut near = network.connect(server, PORT).unwrap();
                let (mut far, _) = accept(&listener);
                echoes(&mut near, &mut far);
                (near, far)
            })
            .collect();
        assert_eq!(network.taken(PORT), 3);
        rules(&network.gateway, OFF);
        kill_process_group(midspan.helper(), Signal::KILL).unwrap();
        wait_until("switched off", || network.taken(PORT) == 0);
        // The gateway is on again, without any rule or route of Midspan.
        rules(&network.gateway, "flush ruleset\n");
        output(&network.gateway, "ip", &["rule", "flush", "proto", "77"]);
        output(
            &network.gateway,
            "ip",
            &["-6", "rule", "flush", "proto", "77"],
        );

        let (mut near, far) = pairs.pop().unwrap();
        near.write_all(b"x").unwrap();
        near.set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let waits = near.read(&mut [0]).unwrap_err().kind();
        assert_eq!(waits, ErrorKind::WouldBlock, "without the table");
        drop((near, far));

        rules(&network.gateway, &reset_unknown());
        let (mut near, _far) = pairs.pop().unwrap();
        near.write_all(b"x").unwrap();
        assert!(is_reset(&mut near), "the client");
        let (_near, mut far) = pairs.pop().unwrap();
        far.write_all(b"x").unwrap();
        assert!(is_reset(&mut far), "the server");
        // New connections pass.
        assert!(!network.is_taken(&listener, server, 0).unwrap());
    }
}
