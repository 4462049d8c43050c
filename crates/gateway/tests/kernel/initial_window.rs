//! Initial windows of marked connections, between two network namespaces.
//!
//! Runs as root and, where the kernel allows user namespaces, as an ordinary user.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use crate::two_namespaces::{LIMIT, connect, listener, numbers, two_namespaces};
use midspan_gateway::initial_window::{InitialWindowError, InitialWindows, ROUTE_LIMIT, Refreshed};
use midspan_gateway::{PROTOCOL, leftovers};
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, interface_index};
use midspan_linux::routing::{self, Which};
use midspan_linux::tcp;
use midspan_testbed::kernel_test;
use midspan_testbed::kernel_tests::Command;
use midspan_testbed::network::Configure;
use midspan_testbed::program::Launch;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::{RouteMessageBuilder, RouteNextHopBuilder};
use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::{Domain, Socket, Type};

fn windows() -> BTreeSet<u32> {
    [77, 200].into()
}

/// A second process of this program, started in the test's namespace. It is killed before it cleans
/// up.
pub const COMMANDS: &[Command] = &[("leave-behind", |_| {
    let installed = InitialWindows::install(numbers(), &windows()).unwrap();
    std::mem::forget(installed);
    std::process::exit(0);
})];

fn install(proxy: &NetworkNamespace) -> Result<InitialWindows, InitialWindowError> {
    proxy
        .run(|| InitialWindows::install(numbers(), &windows()))
        .unwrap()
}

/// The end of a connection: its host, its address without a port, and the mark of its socket.
type End<'a> = (&'a NetworkNamespace, &'a str, Option<u32>);

/// A connection between two ends: the accepted socket and the one that was opened.
fn connection(accepting: End<'_>, opening: End<'_>) -> (TcpStream, TcpStream) {
    let at = |address: &str| -> SocketAddr { format!("{address}:0").parse().unwrap() };
    let (host, address, mark) = (accepting.0, at(accepting.1), accepting.2);
    let listener = host.run(move || listener(address, mark)).unwrap();
    let server = listener.local_addr().unwrap();
    let (host, address, mark) = (opening.0, at(opening.1), opening.2);
    let opened = host.run(move || connect(address, server, mark)).unwrap();
    (listener.accept().unwrap().0, opened)
}

fn congestion_window(socket: &TcpStream) -> u32 {
    tcp::information(socket).unwrap().congestion_window()
}

/// The congestion window of a connection that the proxy accepts with `mark`.
fn accepted_window(
    proxy: &NetworkNamespace,
    client: &NetworkNamespace,
    mark: Option<u32>,
    near: &str,
    far: &str,
) -> u32 {
    congestion_window(&connection((proxy, near, mark), (client, far, None)).0)
}

/// The congestion window of a connection that the proxy opens with `mark`.
fn opened_window(
    proxy: &NetworkNamespace,
    client: &NetworkNamespace,
    mark: Option<u32>,
    near: &str,
    far: &str,
) -> u32 {
    congestion_window(&connection((client, far, None), (proxy, near, mark)).1)
}

#[kernel_test]
fn connections_start_with_their_window() {
    let (proxy, client) = &two_namespaces();
    let installed = install(proxy).unwrap();
    assert_eq!(installed.mark(10), None);
    // A peer on the same link, a peer behind a gateway, and IPv6.
    for (near, far) in [
        ("192.0.2.1", "192.0.2.2"),
        ("192.0.2.1", "198.51.100.1"),
        ("[2001:db8::1]", "[2001:db8::2]"),
    ] {
        for (mark, window) in [
            (None, 10),
            (installed.mark(77), 77),
            (installed.mark(200), 200),
        ] {
            assert!(mark.is_some() || window == 10);
            let accepted = accepted_window(proxy, client, mark, near, far);
            assert_eq!(accepted, window, "accepted from {far}");
            let opened = opened_window(proxy, client, mark, near, far);
            assert_eq!(opened, window, "opened to {far}");
        }
    }
}

#[kernel_test]
fn copies_follow_the_main_table() {
    let (proxy, client) = &two_namespaces();
    let mut installed = install(proxy).unwrap();
    settle(&mut installed);
    client.add_address("lo", "203.0.113.1").unwrap();
    proxy
        .add_route("203.0.113.0/24", Some("192.0.2.2"), "near")
        .unwrap();
    assert!(is_readable(&installed), "the new route was not noticed");
    let refreshed = installed.refresh(false).unwrap();
    assert_eq!((refreshed.added, refreshed.removed), (2, 0));
    let mark = installed.mark(200);
    let window = accepted_window(proxy, client, mark, "192.0.2.1", "203.0.113.1");
    assert_eq!(window, 200);

    // A destination that becomes unreachable is unreachable for marked connections too.
    change_route(proxy, RouteType::Unreachable, true);
    settle(&mut installed);
    let to: SocketAddr = "203.0.113.1:9".parse().unwrap();
    let error = proxy
        .run(move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            tcp::set_mark(&socket, mark.unwrap()).unwrap();
            socket.connect_timeout(&to.into(), LIMIT).unwrap_err()
        })
        .unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable);

    change_route(proxy, RouteType::Unreachable, false);
    let refreshed = installed.refresh(true).unwrap();
    assert_eq!((refreshed.added, refreshed.removed), (0, 2));
    settle(&mut installed);

    // Routes and rules that another program removes are added again.
    remove_everything_of_ours(proxy);
    assert!(is_readable(&installed));
    assert!(installed.refresh(false).unwrap().added > 4);
    let window = accepted_window(proxy, client, mark, "192.0.2.1", "198.51.100.1");
    assert_eq!(window, 200);
    settle(&mut installed);
}

/// Refreshes until nothing changes. Midspan's own changes also wake it once.
fn settle(installed: &mut InitialWindows) {
    let start = Instant::now();
    while is_readable(installed) {
        installed.refresh(false).unwrap();
        assert!(start.elapsed() < LIMIT, "the copies never settle");
    }
    let refreshed = installed.refresh(true).unwrap();
    assert_eq!((refreshed.added, refreshed.removed), (0, 0));
    assert!(!is_readable(installed));
}

fn is_readable(installed: &InitialWindows) -> bool {
    let changes = installed.changes();
    let mut descriptors = [PollFd::new(&changes, PollFlags::IN)];
    rustix::event::poll(&mut descriptors, Some(&Timespec::default())).unwrap() > 0
}

fn change_route(proxy: &NetworkNamespace, kind: RouteType, add: bool) {
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(Ipv4Addr::new(203, 0, 113, 0), 24)
        .kind(kind)
        .build();
    proxy
        .run(move || {
            let action = || "change a route".to_owned();
            let netlink = Netlink::open().unwrap();
            if add {
                let request = async |handle: &rtnetlink::Handle| {
                    handle.route().add(route).replace().execute().await
                };
                netlink.request(action, request).unwrap();
            } else {
                let request =
                    async |handle: &rtnetlink::Handle| handle.route().del(route).execute().await;
                netlink.request(action, request).unwrap();
            }
        })
        .unwrap();
}

fn our_routes(namespace: &NetworkNamespace) -> Vec<RouteMessage> {
    namespace.run(all_of_our_routes).unwrap()
}

fn all_of_our_routes() -> Vec<RouteMessage> {
    let all = routing::routes(&Netlink::open().unwrap(), Which::All).unwrap();
    let is_ours = |route: &RouteMessage| route.header.protocol == RouteProtocol::Other(PROTOCOL);
    all.into_iter().filter(is_ours).collect()
}

fn remove_everything_of_ours(proxy: &NetworkNamespace) {
    proxy
        .run(|| {
            let netlink = Netlink::open().unwrap();
            for route in all_of_our_routes() {
                let request =
                    async |handle: &rtnetlink::Handle| handle.route().del(route).execute().await;
                netlink.request(String::new, request).unwrap();
            }
        })
        .unwrap();
}

fn rules(namespace: &NetworkNamespace) -> String {
    namespace
        .run(|| {
            let netlink = Netlink::open().unwrap();
            let families = [AddressFamily::Inet, AddressFamily::Inet6];
            let rules = families.map(|family| routing::rules(&netlink, family).unwrap());
            format!("{rules:?}")
        })
        .unwrap()
}

/// Adds routes of every kind to the main table. They disappear with the test's namespace.
fn add_routes_of_every_kind(proxy: &NetworkNamespace) {
    let gateways = [Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(192, 0, 2, 3)];
    let hops = gateways.map(|gateway| {
        let hop = RouteNextHopBuilder::new_ipv4().via(gateway.into()).unwrap();
        hop.build()
    });
    let to = |third: u8| {
        let destination = Ipv4Addr::new(10, 0, third, 0);
        RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(destination, 24)
    };
    let six = |third: u16| {
        let destination = Ipv6Addr::new(0x2001, 0xdb8, third, 0, 0, 0, 0, 0);
        RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(destination, 48)
    };
    let gateway = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
    let routes = vec![
        to(1).multipath(hops.to_vec()).build(),
        to(2).kind(RouteType::Prohibit).build(),
        to(3).gateway(gateways[0]).priority(7).build(),
        to(3).gateway(gateways[1]).priority(8).build(),
        six(1).gateway(gateway).build(),
        six(2).kind(RouteType::BlackHole).build(),
        six(3).gateway(gateway).priority(5).expires(600).build(),
    ];
    proxy
        .run(move || {
            let netlink = Netlink::open().unwrap();
            for route in routes {
                let request =
                    async |handle: &rtnetlink::Handle| handle.route().add(route).execute().await;
                netlink.request(String::new, request).unwrap();
            }
        })
        .unwrap();
}

#[kernel_test]
fn every_kind_of_route_is_copied_and_removed() {
    let (proxy, _client) = &two_namespaces();
    add_routes_of_every_kind(proxy);
    let mut installed = install(proxy).unwrap();
    assert_eq!(installed.refresh(true).unwrap().not_copied, 0);
    let copies = our_routes(proxy);
    let windows = |route: &RouteMessage| {
        route
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::Metrics(metrics) => Some(metrics.clone()),
                _ => None,
            })
    };
    let throws = copies
        .iter()
        .filter(|copy| copy.header.kind == RouteType::Throw);
    assert_eq!(throws.count(), 2 * 2);
    for copy in copies
        .iter()
        .filter(|copy| copy.header.kind == RouteType::Unicast)
    {
        let metrics = windows(copy).unwrap_or_default();
        let window = metrics
            .iter()
            .find(|metric| matches!(metric, RouteMetric::InitCwnd(77 | 200)));
        assert!(window.is_some(), "{copy:?}");
    }
    settle(&mut installed);
    drop(installed);
    assert_eq!(our_routes(proxy), []);
}

/// The main table keeps a route whose gateway has become unreachable. The kernel refuses its copy.
#[kernel_test]
fn a_refused_copy_is_left_to_the_main_table() {
    let (proxy, _client) = &two_namespaces();
    let add = |message: RouteMessage| {
        proxy
            .run(move || {
                let request =
                    async |handle: &rtnetlink::Handle| handle.route().add(message).execute().await;
                Netlink::open().unwrap().request(String::new, request)
            })
            .unwrap()
            .unwrap();
    };
    let gateway = Ipv4Addr::new(172, 16, 0, 1);
    let index = proxy.run(|| interface_index("near").unwrap()).unwrap();
    let to_gateway = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(gateway, 32)
        .output_interface(index)
        .scope(RouteScope::Link)
        .build();
    let behind = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(Ipv4Addr::new(10, 1, 0, 0), 24)
        .gateway(gateway)
        .build();
    add(to_gateway.clone());
    add(behind);
    proxy
        .run(move || {
            let request =
                async |handle: &rtnetlink::Handle| handle.route().del(to_gateway).execute().await;
            let netlink = Netlink::open().unwrap();
            netlink.request(String::new, request).unwrap();
        })
        .unwrap();

    let mut installed = install(proxy).unwrap();
    let throws = |routes: Vec<RouteMessage>| {
        let throws = routes
            .iter()
            .filter(|route| route.header.kind == RouteType::Throw);
        throws.count()
    };
    let before = throws(our_routes(proxy));
    // One throw route for each window stands for the copy. The copy is not tried again at every
    // change.
    for _ in 0..3 {
        let refreshed = installed.refresh(false).unwrap();
        let unchanged = Refreshed {
            added: 0,
            removed: 0,
            not_copied: 2,
        };
        assert_eq!(refreshed, unchanged);
    }
    assert_eq!(installed.refresh(true).unwrap().not_copied, 2);
    assert_eq!(throws(our_routes(proxy)), before);

    // When the gateway is reachable again, a thorough refresh copies the route.
    add(RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(gateway, 32)
        .output_interface(index)
        .scope(RouteScope::Link)
        .build());
    assert_eq!(installed.refresh(true).unwrap().not_copied, 0);
    assert_eq!(throws(our_routes(proxy)), before - 2);
    drop(installed);
    assert_eq!(our_routes(proxy), []);
}

/// Runs `ip -batch` with these lines (ip(8)).
fn batch(namespace: &NetworkNamespace, lines: &str) {
    let mut command = std::process::Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = namespace.spawn(command).unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Outdated copies would lead to a wrong place. Therefore there are no copies beyond the limit,
/// whatever happens to routes. The copies come back when there are few routes again.
#[kernel_test]
fn with_too_many_routes_there_are_no_copies() {
    let (proxy, client) = &two_namespaces();
    let mut installed = install(proxy).unwrap();
    let mark = installed.mark(200);
    let routes = |verb: &str, first: usize, last: usize| {
        let line = |number: usize| {
            let (high, low) = (number / 256, number % 256);
            format!(
                "route {verb} blackhole 172.{}.{}.{low}/32\n",
                16 + high / 256,
                high % 256
            )
        };
        batch(proxy, &(first..last).map(line).collect::<String>());
    };
    let half = ROUTE_LIMIT / 2;
    routes("add", 0, half + 200);
    let refreshed = installed.refresh(false).unwrap();
    assert!(installed.is_suspended() && refreshed.added == 0 && refreshed.removed > 4);
    assert_eq!(
        rules(proxy).matches("Other(77)").count(),
        0,
        "{}",
        rules(proxy)
    );
    assert!(our_routes(proxy).is_empty());
    // Marked connections use the same routes as other connections.
    let window = accepted_window(proxy, client, mark, "192.0.2.1", "198.51.100.1");
    assert_eq!(window, 10);
    // A few routes less are not enough; otherwise the copies would come and go with every change.
    routes("del", half, half + 200);
    assert_eq!(installed.refresh(true).unwrap(), Refreshed::default());
    assert!(installed.is_suspended());
    // A second start has the same result.
    drop(installed);
    let mut installed = install(proxy).unwrap();
    routes("add", half, half + 200);
    installed.refresh(false).unwrap();
    assert!(installed.is_suspended());
    drop(installed);
    let mut installed = install(proxy).unwrap();
    assert!(installed.is_suspended() && our_routes(proxy).is_empty());
    routes("del", 100, half + 200);
    let refreshed = installed.refresh(false).unwrap();
    assert!(
        !installed.is_suspended() && refreshed.added > 200,
        "{refreshed:?}"
    );
    let window = accepted_window(proxy, client, mark, "192.0.2.1", "198.51.100.1");
    assert_eq!(window, 200);
    routes("del", 0, 100);
    drop(installed);
    assert!(our_routes(proxy).is_empty());
}

#[kernel_test]
fn nothing_is_left() {
    let (proxy, _client) = &two_namespaces();
    let before = rules(proxy);
    let installed = install(proxy).unwrap();
    assert!(our_routes(proxy).len() >= 6);
    assert_ne!(rules(proxy), before);
    drop(installed);
    assert_eq!(our_routes(proxy), []);
    assert_eq!(rules(proxy), before);
}

#[kernel_test]
fn what_a_killed_run_left_is_removed() {
    let (proxy, _client) = &two_namespaces();
    let before = rules(proxy);
    let leave_behind = || {
        let launch = Launch::this_program("leave-behind").inside(proxy);
        assert!(launch.finish().unwrap().status.success());
        assert!(!our_routes(proxy).is_empty());
    };
    leave_behind();
    let removed = proxy
        .run(|| leftovers::rules_and_routes().unwrap())
        .unwrap();
    assert!(removed > 4);
    assert_eq!(our_routes(proxy), []);
    assert_eq!(rules(proxy), before);

    leave_behind();
    drop(install(proxy).unwrap());
    assert_eq!(our_routes(proxy), []);
    assert_eq!(rules(proxy), before);
}

#[kernel_test]
fn a_second_run_is_refused() {
    let (proxy, _client) = &two_namespaces();
    let installed = install(proxy).unwrap();
    let refused = install(proxy).err();
    assert!(matches!(
        refused,
        Some(InitialWindowError::InUse { table: 7700 })
    ));
    // It must not remove the tables of the first run either.
    proxy
        .run(|| leftovers::rules_and_routes().unwrap())
        .unwrap();
    assert!(!our_routes(proxy).is_empty());
    drop(installed);
}

#[kernel_test]
fn a_table_in_use_is_refused() {
    let (proxy, _client) = &two_namespaces();
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(Ipv4Addr::new(203, 0, 113, 0), 24)
        .kind(RouteType::BlackHole)
        .table_id(7701)
        .build();
    proxy
        .run(move || {
            let request =
                async |handle: &rtnetlink::Handle| handle.route().add(route).execute().await;
            let netlink = Netlink::open().unwrap();
            netlink.request(String::new, request).unwrap();
        })
        .unwrap();
    let refused = install(proxy).err();
    assert!(matches!(
        refused,
        Some(InitialWindowError::TableInUse { table: 7701 })
    ));
    assert_eq!(our_routes(proxy), []);
}

#[kernel_test]
fn too_many_windows_are_refused() {
    let (proxy, _client) = &two_namespaces();
    let refused = proxy
        .run(|| InitialWindows::install(numbers(), &(1..=16).collect()).err())
        .unwrap();
    assert_eq!(
        refused.map(|error| error.to_string()).as_deref(),
        Some(
            "16 different initial windows need as many marks, and the field 0x0f000000 has 15: \
             widen marks.mask, or use fewer different values"
        )
    );
}
