//! Forward listeners with several servers: accepted files, refused files, and the texts of errors.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use midspan_document::Source;
use midspan_policy::servers::Server;
use midspan_proxy::configuration::Configuration;
use midspan_relay::{Destination, Language};
use midspan_units::TimeSpan;

fn read(text: &str) -> Result<Configuration, String> {
    Configuration::read(&Source::new("midspan.toml", text)).map_err(|error| error.to_string())
}

/// A listener at port 8080 with this value of `to`, and further keys.
fn listener(to: &str, more: &str) -> String {
    format!("[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:8080\"\nto = {to}\n{more}\n")
}

/// The error that these values give.
fn error(to: &str, more: &str) -> String {
    read(&listener(to, more)).expect_err("the text was accepted")
}

#[test]
fn a_list_has_names_and_addresses() {
    let to = r#"["A.example:80", "192.0.2.9:81", "[2001:db8::1]:82"]"#;
    let configuration = read(&listener(to, "health_check = \"2 s\"")).unwrap();
    let listener = &configuration.listeners[0];
    let settings = listener.relay.servers.as_ref().unwrap();
    let expected = [
        Server::Name("a.example".to_owned(), 80),
        Server::Address("192.0.2.9:81".parse().unwrap()),
        Server::Address("[2001:db8::1]:82".parse().unwrap()),
    ];
    assert_eq!(settings.servers, expected);
    assert_eq!(settings.health_check, Some(TimeSpan::from_seconds(2)));
    let negotiation = listener.relay.negotiation().unwrap();
    assert_eq!(negotiation.language, Language::Servers);
    let to = listener.forward().unwrap().to.to_string();
    assert_eq!(to, "a.example:80, 192.0.2.9:81, [2001:db8::1]:82");
}

#[test]
fn one_string_stays_one_address_and_checks_are_off_unless_they_are_wanted() {
    let configuration = read(&listener("\"192.0.2.1:80\"", "")).unwrap();
    let relay = &configuration.listeners[0].relay;
    let address = "192.0.2.1:80".parse().unwrap();
    assert_eq!(relay.to, Destination::Fixed(address));
    assert_eq!(relay.servers, None);
    let configuration = read(&listener("[\"192.0.2.1:80\"]", "")).unwrap();
    let settings = configuration.listeners[0].relay.servers.clone().unwrap();
    assert_eq!(settings.servers, [Server::Address(address)]);
    assert_eq!(settings.health_check, None);
}

#[test]
fn wrong_servers_are_located() {
    let many: Vec<String> = (1..=17)
        .map(|host| format!("\"192.0.2.{host}:80\""))
        .collect();
    let many = format!("[{}]", many.join(", "));
    for (to, more, expected) in [
        ("[]", "", "the list has no server"),
        (&many, "", "a listener has at most 16 servers"),
        (
            "[\"a.example:80\", \"A.EXAMPLE.:80\"]",
            "",
            "a.example:80 is listed twice",
        ),
        ("[\"a.example\"]", "", "\"a.example\" is no server"),
        ("[\"a.example:0\"]", "", "\"a.example:0\" is no server"),
        ("[\"a b:80\"]", "", "\"a b:80\" is no server"),
        ("[\"192.0.2.1:0\"]", "", "needs a port other than 0"),
        ("[\"0.0.0.0:80\"]", "", "is not the address of one host"),
        (
            "[\"192.0.2.1:80\", \"127.0.0.1:8080\"]",
            "",
            "listener \"web\" forwards to itself",
        ),
        (
            "\"192.0.2.1:80\"",
            "health_check = \"2 s\"",
            "`health_check` is for listeners whose `to` is a list of servers",
        ),
        (
            "[\"192.0.2.1:80\"]",
            "health_check = \"10 ms\"",
            "health_check lies between 100 ms and 3600 s",
        ),
        (
            "[\"192.0.2.1:80\"]",
            "overlay = true",
            "`overlay` is not for listeners whose `to` is a list of servers",
        ),
        (
            "[\"192.0.2.1:80\"]",
            "source = [\"2001:db8::1\"]",
            "none of these addresses has the IP version of 192.0.2.1:80",
        ),
    ] {
        let error = error(to, more);
        assert!(error.contains(expected), "{to} {more}: {error}");
        assert!(error.starts_with("midspan.toml:"), "{error}");
    }
    let socks = "[[listener]]\nname = \"s\"\nmode = \"socks5\"\nhealth_check = \"2 s\"\n";
    let error = read(socks).unwrap_err();
    assert!(error.contains("4:16: `health_check` is for"), "{error}");
}

#[test]
fn the_shortest_circle_through_lists_is_named() {
    let more = |name: &str, port: u16, to: &str| {
        format!("[[listener]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\nto = {to}\n")
    };
    let text = [
        listener("[\"192.0.2.1:80\", \"127.0.0.1:8081\"]", ""),
        more("b", 8081, "[\"127.0.0.1:8082\", \"127.0.0.1:8083\"]"),
        more("c", 8082, "\"192.0.2.1:80\""),
        more("d", 8083, "[\"127.0.0.1:8080\"]"),
    ];
    let error = read(&text.concat()).unwrap_err();
    let circle = "these listeners forward in a circle: web → b → d → web";
    assert!(error.contains(circle), "{error}");
}

#[test]
fn addresses_of_one_ip_version_serve_a_list_with_both() {
    let to = "[\"192.0.2.1:80\", \"[2001:db8::1]:80\", \"a.example:80\"]";
    read(&listener(to, "source = [\"2001:db8::9\"]")).unwrap();
    read(&listener(
        "[\"a.example:80\"]",
        "source = [\"2001:db8::9\"]",
    ))
    .unwrap();
}
