//! A gateway that takes over from another one: what it resets, and what continues.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use midspan_document::Source;
use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::command::Request;
use midspan_proxy::configuration::Configuration;
use midspan_proxy::take_over;
use midspan_units::TimeSpan;
use socket2::{Domain, Socket, Type};

use super::support::*;

const TAKEOVER: &str = "[interception]\ntakeover_reset = true\n";
const TIME: TimeSpan = TimeSpan::from_seconds(600);

/// A second gateway next to the one of the network, over which the packets of the client pass at first.
struct Other {
    _node: NetworkNamespace,
}

impl Other {
    fn new(network: &Network) -> Self {
        let other = node("other");
        link(&network.client, "eth2", &other, "acc", 6);
        link(&network.router, "near2", &other, "wan", 7);
        route(&other, "10.3.0.0/24", "10.7.0.2", "wan");
        route(&other, "10.1.0.0/24", "10.6.0.2", "acc");
        route(&network.client, "10.3.0.2/32", "10.6.0.1", "eth2");
        route(&network.router, "10.1.0.2/32", "10.7.0.1", "near2");
        Self { _node: other }
    }

    /// From now on, packets pass the network's own gateway.
    fn dies(&self, network: &Network) {
        output(&network.client, "ip", &["route", "del", "10.3.0.2/32"]);
        output(&network.router, "ip", &["route", "del", "10.1.0.2/32"]);
    }
}

/// A connection from the client's own address, whatever its route is.
fn connect_from_client(network: &Network) -> TcpStream {
    let server: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
    let near: SocketAddr = format!("{CLIENT}:0").parse().unwrap();
    let socket = (network.client)
        .run(move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&near.into()).unwrap();
            socket.connect_timeout(&server.into(), LIMIT).unwrap();
            socket
        })
        .unwrap();
    bounded(socket.into())
}

fn take(network: &Network, configuration: &str, time: Option<TimeSpan>) {
    let source = Source::new("midspan.toml", configuration);
    let configuration = Configuration::read(&source).unwrap();
    let taken = (network.gateway)
        .run(move || take_over(&configuration, time).map_err(|error| error.to_string()))
        .unwrap();
    assert_eq!(taken.unwrap().interfaces, ["acc"]);
}

/// The number of packets that have been answered by a reset.
fn resets(network: &Network) -> u64 {
    let text = output(
        &network.gateway,
        "nft",
        &["list", "table", "inet", "midspan_takeover"],
    );
    let number = text.split("packets ").nth(1).unwrap();
    number.split_whitespace().next().unwrap().parse().unwrap()
}

#[kernel_test]
fn sessions_of_another_gateway_are_reset_and_own_connections_continue() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let other = Other::new(&network);
    let mut by_client = connect_from_client(&network);
    let (mut of_client, _) = accept(&listener);
    echoes(&mut by_client, &mut of_client);
    let by_server = connect_from_client(&network);
    let (mut of_server, _) = accept(&listener);
    other.dies(&network);

    let configuration = format!("{TAKEOVER}{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &configuration);
    // A connection that passes this gateway untouched, and is known to it.
    assert!(midspan.ask(&Request::BypassOn { prefix: None }).ok);
    let mut untouched = connect_from_client(&network);
    let (mut of_untouched, _) = accept(&listener);
    echoes(&mut untouched, &mut of_untouched);
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    // A session of this gateway.
    network.wait_until_taken(&listener, SERVER, true, 0);
    let mut split = network.connect(SERVER, PORT).unwrap();
    let (mut of_split, _) = accept(&listener);
    echoes(&mut split, &mut of_split);
    assert_eq!(network.taken(PORT), 1);

    take(&network, &configuration, Some(TIME));
    // The client's next packet is answered by a reset, and so is the server's.
    by_client.write_all(b"next").unwrap();
    assert!(is_reset(&mut by_client));
    of_server.write_all(b"next").unwrap();
    assert!(is_reset(&mut of_server));
    assert!(resets(&network) >= 2);
    let before = resets(&network);
    echoes(&mut untouched, &mut of_untouched);
    echoes(&mut split, &mut of_split);
    network.wait_until_taken(&listener, SERVER, true, 1);
    assert_eq!(resets(&network), before);

    // Again: the time begins again, and the number stays.
    take(&network, &configuration, Some(TIME));
    assert_eq!(resets(&network), before);
    drop((by_server, of_client));
    take(&network, &configuration, None);
    let tables = output(&network.gateway, "nft", &["list", "tables"]);
    assert!(!tables.contains("midspan_takeover"), "{tables}");
    midspan.stop();
}

#[kernel_test]
fn after_its_time_nothing_is_reset() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let other = Other::new(&network);
    let mut near = connect_from_client(&network);
    let (mut far, _) = accept(&listener);
    let configuration = format!("{TAKEOVER}{TRANSPARENT}");
    take(&network, &configuration, Some(TimeSpan::from_seconds(1)));
    wait_until("the time is over", || {
        let set = ["list", "set", "inet", "midspan_takeover", "active"];
        !output(&network.gateway, "nft", &set).contains("tcp")
    });
    other.dies(&network);
    // A connection without a split continues over any gateway.
    echoes(&mut near, &mut far);
    assert_eq!(resets(&network), 0);
}

#[kernel_test]
fn without_its_key_a_takeover_is_refused() {
    let source = Source::new("midspan.toml", TRANSPARENT);
    let configuration = Configuration::read(&source).unwrap();
    let error = take_over(&configuration, Some(TIME))
        .unwrap_err()
        .to_string();
    assert!(error.contains("takeover_reset"), "{error}");
}
