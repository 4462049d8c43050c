//! Networks that are built of namespaces.

use std::net::UdpSocket;
use std::time::Duration;

use midspan_linux::netlink::RouteMetrics;
use midspan_testbed::kernel_test;
use midspan_testbed::network::{Configure, End, Link, NetworkError, Node, wait_until_usable};
use midspan_testbed::testing::{accept, carries, connect_from, link, listen, output, route, rules};

#[kernel_test]
fn packets_pass_a_router_in_both_families() {
    let client = Node::host("client").make().unwrap();
    let router = Node::router("router").strict_sources().make().unwrap();
    let server = Node::host("server").make().unwrap();
    // Both hosts' interfaces have the same name.
    link(&client, "eth", &router, "near", 1);
    link(&server, "eth", &router, "far", 2);
    client.add_numbered_default_routes("eth", 1, 1).unwrap();
    server.add_numbered_default_routes("eth", 2, 1).unwrap();
    wait_until_usable([&client, &router, &server]).unwrap();
    let listener = listen(&server, 80);
    for (address, from) in [("10.2.0.2", "10.1.0.2"), ("fd02::2", "fd01::2")] {
        let near = connect_from(&client, address, 80, Duration::from_secs(10)).unwrap();
        let (far, peer) = accept(&listener);
        assert_eq!(peer.ip().to_string(), from);
        carries(near, far, 100_000);
    }
    rules(
        &router,
        "table inet path {\nchain through {\ntype filter hook forward priority 0; policy drop\n}\n}\n",
    );
    assert!(connect_from(&client, "10.2.0.2", 80, Duration::from_secs(1)).is_err());
}

#[kernel_test]
fn a_host_forwards_nothing() {
    for (node, expected) in [(Node::host("host"), "0"), (Node::router("router"), "1")] {
        let node = node.make().unwrap();
        for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let file = format!("/proc/sys/net/{file}");
            assert_eq!(output(&node, "cat", &[&file]).trim(), expected);
        }
    }
}

#[kernel_test]
fn an_end_without_addresses_and_without_ipv6_needs_no_neighbours() {
    let host = Node::host("host").make().unwrap();
    let tap = Node::host("tap").without_ipv6().make().unwrap();
    Link::between(
        End::new(&tap, "tap"),
        End::numbered(&host, "link", 3, 1).link_address([2, 77, 0, 0, 0, 1]),
    )
    .make()
    .unwrap();
    assert_eq!(output(&tap, "ip", &["neighbour", "show"]), "");
}

#[kernel_test]
fn fixed_link_addresses_are_known_from_the_start() {
    let one = Node::host("one").make().unwrap();
    let other = Node::host("other").make().unwrap();
    let (here, there) = ([2, 77, 0, 0, 0, 1], [2, 77, 0, 0, 0, 2]);
    Link::between(
        End::numbered(&one, "link", 3, 2)
            .link_address(here)
            .mtu(1300),
        End::numbered(&other, "link", 3, 1)
            .link_address(there)
            .without_offloads(),
    )
    .make()
    .unwrap();
    wait_until_usable([&one, &other]).unwrap();
    let neighbours = output(&one, "ip", &["neighbour", "show"]);
    for address in ["10.3.0.1", "fd03::1"] {
        let line = format!("{address} dev link lladdr 02:4d:00:00:00:02 PERMANENT");
        assert!(neighbours.contains(&line), "{neighbours}");
    }
    assert!(output(&one, "ip", &["link", "show", "link"]).contains("mtu 1300"));
    // A broadcast question for an address would be the first packet otherwise.
    let receiver = other
        .run(|| UdpSocket::bind("10.3.0.1:9"))
        .unwrap()
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let sender = one.run(|| UdpSocket::bind("10.3.0.2:9")).unwrap().unwrap();
    sender.send_to(b"word", "10.3.0.1:9").unwrap();
    assert_eq!(receiver.recv(&mut [0; 9]).unwrap(), 4);
}

#[kernel_test]
fn routes_have_metrics() {
    let one = Node::host("one").make().unwrap();
    let other = Node::host("other").make().unwrap();
    link(&one, "eth", &other, "eth", 1);
    let metrics = RouteMetrics {
        initial_window: Some(77),
        ..RouteMetrics::default()
    };
    one.add_route_with("198.51.100.0/24", Some("10.1.0.1"), "eth", &metrics)
        .unwrap();
    route(&one, "203.0.113.7", "10.1.0.1", "eth");
    let routes = output(&one, "ip", &["route"]);
    assert!(
        routes.contains("198.51.100.0/24 via 10.1.0.1 dev eth proto static initcwnd 77"),
        "{routes}"
    );
    assert!(
        routes.contains("203.0.113.7 via 10.1.0.1 dev eth"),
        "{routes}"
    );
}

#[kernel_test]
fn errors_name_host_and_text() {
    let node = Node::host("alpha").make().unwrap();
    let error = node
        .add_route("10.1.0.0/40", None::<&str>, "eth")
        .unwrap_err();
    assert!(matches!(error, NetworkError::Prefix(_)), "{error}");
    assert!(error.to_string().contains("\"10.1.0.0/40\""), "{error}");
    let error = node.set_up("missing").unwrap_err();
    assert!(error.to_string().starts_with("at alpha: "), "{error}");
    let error = node.add_route("::/0", Some("fd01"), "eth").unwrap_err();
    assert!(error.to_string().contains("\"fd01\""), "{error}");
    let broken = End::new(&node, "eth").address("x");
    let error = Link::between(broken, End::new(&node, "eth2"))
        .make()
        .unwrap_err();
    assert!(matches!(error, NetworkError::Prefix(_)), "{error}");
}
