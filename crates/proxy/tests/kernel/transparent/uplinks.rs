//! Midspan together with policy routing over two uplinks.

use super::support::*;

/// The host routes some connections over a second uplink, by marks of its own.
#[kernel_test]
fn marks_of_others_choose_the_way() {
    const UPLINKS: &str = r#"
table inet host {
    chain pre { type filter hook prerouting priority mangle;
        tcp dport 8443 meta mark set meta mark | 0x2
    }
    chain post { type nat hook postrouting priority srcnat;
        oifname "wan" masquerade
        oifname "wan2" masquerade
    }
}
"#;
    for text in [TRANSPARENT.to_owned(), early()] {
        let network = Network::new();
        link(&network.router, "near2", &network.gateway, "wan2", 4);
        rules(&network.gateway, UPLINKS);
        // Packets that arrive from the second uplink do not match the main table.
        for interface in ["all", "wan", "wan2"] {
            let parameter = format!("net/ipv4/conf/{interface}/rp_filter");
            network.gateway.set_parameter(&parameter, "2").unwrap();
        }
        for (family, gateway) in [("-4", "10.4.0.2"), ("-6", "fd04::2")] {
            let run = |command: &str| {
                let arguments: Vec<&str> = command.split_whitespace().collect();
                let all = [&[family][..], &arguments].concat();
                output(&network.gateway, "ip", &all);
            };
            run(&format!(
                "route add default via {gateway} dev wan2 table 200"
            ));
            run("rule add priority 1000 fwmark 0x2/0xff lookup 200");
        }
        let first = network.listen(PORT);
        let second = network.listen(8443);
        let midspan = Midspan::ready(&network.gateway, &text);
        for (server, outside, outside2) in [
            (SERVER, OUTSIDE, "10.4.0.1"),
            (SERVER6, OUTSIDE6, "fd04::1"),
        ] {
            for (port, listener, outside) in [(PORT, &first, outside), (8443, &second, outside2)] {
                let near = network.connect(server, port).unwrap();
                let (far, from) = accept(listener);
                assert_eq!(from.ip().to_string(), outside);
                assert_eq!(network.taken(port), 1);
                carries(near, far, 500_000);
            }
        }
        midspan.stop();
    }
}

/// Rules like those of `mwan3` and similar programs: marks under a mask of their own, stored in
/// connection tracking and restored for every packet in both directions. Each uplink has a routing
/// table and masquerading.
const BALANCE: &str = r#"
table inet balance {
    chain restore {
        ct mark & 0x3f00 == 0x100 meta mark set meta mark & 0xffffc0ff | 0x100
        ct mark & 0x3f00 == 0x200 meta mark set meta mark & 0xffffc0ff | 0x200
    }
    chain by_interface {
        iifname "wan" meta mark set meta mark & 0xffffc0ff | 0x100
        iifname "wan2" meta mark set meta mark & 0xffffc0ff | 0x200
    }
    chain choose {
        ip daddr { 10.1.0.0/16, 10.2.0.0/16, 10.4.0.0/16 } return
        ip6 daddr { fd01::/64, fd02::/64, fd04::/64, fe80::/10, ff00::/8 } return
        tcp dport 8443 meta mark set meta mark & 0xffffc0ff | 0x200 return
        meta mark set meta mark & 0xffffc0ff | 0x100
    }
    chain save {
        meta mark & 0x3f00 == 0x100 ct mark set ct mark & 0xffffc0ff | 0x100
        meta mark & 0x3f00 == 0x200 ct mark set ct mark & 0xffffc0ff | 0x200
    }
    chain pre { type filter hook prerouting priority mangle;
        jump restore
        meta mark & 0x3f00 == 0 jump by_interface
        meta mark & 0x3f00 == 0 jump choose
        jump save
    }
    chain out { type route hook output priority mangle;
        jump restore
        meta mark & 0x3f00 == 0 jump choose
        jump save
    }
    chain wrong { type filter hook postrouting priority mangle;
        oifname "wan" tcp sport >= 1024 meta mark & 0x3f00 != 0x100 counter comment "other mark"
        oifname "wan2" tcp sport >= 1024 meta mark & 0x3f00 != 0x200 counter comment "other mark"
    }
    chain post { type nat hook postrouting priority srcnat;
        oifname { "wan", "wan2" } masquerade
    }
}
"#;

/// The network with a second uplink, and a routing table for each.
fn two_uplinks() -> Network {
    let network = Network::new();
    link(&network.router, "near2", &network.gateway, "wan2", 4);
    rules(&network.gateway, BALANCE);
    for interface in ["all", "wan", "wan2", "acc"] {
        let parameter = format!("net/ipv4/conf/{interface}/rp_filter");
        network.gateway.set_parameter(&parameter, "2").unwrap();
    }
    for (family, clients, uplinks) in [
        ("-4", "10.1.0.0/24", ["10.2.0.2", "10.4.0.2"]),
        ("-6", "fd01::/64", ["fd02::2", "fd04::2"]),
    ] {
        let run = |command: String| {
            let arguments: Vec<&str> = command.split_whitespace().collect();
            let all = [&[family][..], &arguments].concat();
            output(&network.gateway, "ip", &all);
        };
        for (number, (uplink, interface)) in (1..).zip(uplinks.iter().zip(["wan", "wan2"])) {
            let table = 200 + number;
            run(format!("route add {clients} dev acc table {table}"));
            run(format!(
                "route add default via {uplink} dev {interface} table {table}"
            ));
            run(format!(
                "rule add priority {} iif {interface} lookup {table}",
                1000 + number
            ));
            run(format!(
                "rule add priority {} fwmark {number}00/0x3f00 lookup {table}",
                2000 + number
            )
            .replace("fwmark ", "fwmark 0x"));
        }
    }
    network
}

#[kernel_test]
fn marks_kept_in_conntrack_keep_each_session_on_its_uplink() {
    for text in [TRANSPARENT.to_owned(), early()] {
        let network = two_uplinks();
        let first = network.listen(PORT);
        let second = network.listen(8443);
        let midspan = Midspan::ready(&network.gateway, &text);
        let mut open = Vec::new();
        for (server, outside, outside2) in [
            (SERVER, OUTSIDE, "10.4.0.1"),
            (SERVER6, OUTSIDE6, "fd04::1"),
        ] {
            for (port, listener, outside) in [(PORT, &first, outside), (8443, &second, outside2)] {
                let mut near = network.connect(server, port).unwrap();
                let (mut far, from) = accept(listener);
                assert_eq!(from.ip().to_string(), outside);
                echoes(&mut near, &mut far);
                open.push((near, far));
            }
        }
        assert_eq!((network.taken(PORT), network.taken(8443)), (2, 2));
        // From now on all new connections use the first uplink; existing ones stay.
        rules(
            &network.gateway,
            "flush chain inet balance choose\n\
             add rule inet balance choose ip daddr { 10.1.0.0/16, 10.2.0.0/16, 10.4.0.0/16 } return\n\
             add rule inet balance choose ip6 daddr { fd01::/64, fd02::/64, fd04::/64, fe80::/10, ff00::/8 } return\n\
             add rule inet balance choose meta mark set meta mark & 0xffffc0ff | 0x100\n",
        );
        for (server, outside) in [(SERVER, OUTSIDE), (SERVER6, OUTSIDE6)] {
            let near = network.connect(server, 8443).unwrap();
            let (far, from) = accept(&second);
            assert_eq!(from.ip().to_string(), outside);
            carries(near, far, 100_000);
        }
        for (near, far) in open {
            carries(near, far, 500_000);
        }
        let table = output(
            &network.gateway,
            "nft",
            &["list", "table", "inet", "balance"],
        );
        let counted: Vec<&str> = table
            .lines()
            .filter(|line| line.contains("other mark"))
            .collect();
        assert_eq!(counted.len(), 2, "{table}");
        for line in counted {
            assert!(line.contains("packets 0"), "others' marks are lost: {line}");
        }
        midspan.stop();
    }
}
