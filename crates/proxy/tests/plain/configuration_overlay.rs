//! `[overlay]` and its file of members: accepted files, refused files, and the texts of errors.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;

use midspan_document::Source;
use midspan_policy::overlay::{NodeKey, NodeSecret, RouteBy, RouteDestination};
use midspan_proxy::configuration::Configuration;

const MEMBERS: &str = r#"
[[node]]
name = "ams"
address = "10.0.0.1:7704"
security = "network"
[[node]]
name = "fra"
address = "10.0.0.2:7704"
security = "network"
transit = true
[[node]]
name = "sin"
address = "10.0.0.3:7704"
security = "network"
serves = ["203.0.113.0/24"]
ports = [80, "8000-8100"]
[[node]]
name = "laptop"
from = "10.0.9.0/24"
security = "network"
[[node]]
name = "squid"
kind = "connect"
address = "10.0.0.4:3128"
security = "network"
"#;

const MAIN: &str = r#"[overlay]
name = "ams"
members = "members.toml"
[[overlay.route]]
destinations = ["203.0.113.0/24", "www.Example.org", "*.corp.example", "all"]
through = ["fra", "sin"]
[[listener]]
name = "hops"
mode = "hop"
listen = "10.0.0.1:7704"
[[listener]]
name = "socks"
mode = "socks5"
overlay = true
"#;

/// The configuration, or the text of the error without the folder.
fn load(main: &str, members: &str) -> Result<Configuration, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("members.toml"), members).unwrap();
    let file = folder.path().join("midspan.toml");
    std::fs::write(&file, main).unwrap();
    let start = format!("{}/", folder.path().display());
    Configuration::load(&file).map_err(|error| error.to_string().replace(&start, ""))
}

#[test]
fn a_listener_has_the_whole_overlay() {
    let configuration = load(MAIN, MEMBERS).unwrap();
    for listener in &configuration.listeners {
        let overlay = listener.relay.negotiation().unwrap().overlay.as_ref();
        let overlay = overlay.unwrap();
        assert_eq!((overlay.own.as_str(), overlay.nodes.len()), ("ams", 5));
        let by_two = |by: &RouteBy| matches!(by, RouteBy::Nodes(nodes) if nodes.len() == 2);
        assert!(by_two(&overlay.routes[0].by));
        assert!(!overlay.has_choice() && !overlay.choice.exchange);
        let name = RouteDestination::Name("www.example.org".to_owned());
        assert!(overlay.routes[0].destinations.contains(&name));
        assert_eq!(overlay.nodes[2].ports, [(80, 80), (8000, 8100)]);
    }
    let without = MAIN.replace("overlay = true\n", "");
    let socks = &load(&without, MEMBERS).unwrap().listeners[1];
    assert!(socks.relay.negotiation().unwrap().overlay.is_none());
}

#[test]
fn a_transparent_listener_has_the_overlay_without_a_negotiation() {
    let transparent = "mode = \"transparent\"\ninterfaces = [\"eth1\"]";
    let main = MAIN.replace("mode = \"socks5\"", transparent);
    let listener = &load(&main, MEMBERS).unwrap().listeners[1].relay;
    assert!(listener.negotiation().is_none() && listener.is_transparent());
    assert_eq!(listener.overlay().unwrap().nodes.len(), 5);
    let off = main.replace("overlay = true", "overlay = false");
    let listener = &load(&off, MEMBERS).unwrap().listeners[1].relay;
    assert!(listener.overlay().is_none());
    let alone = &main[main.rfind("[[listener]]").unwrap()..];
    let error = load(alone, MEMBERS).unwrap_err();
    assert!(error.contains("the table [overlay] is missing"), "{error}");
}

#[test]
fn an_exit_connects_as_its_clients() {
    let with = |keys: &str| MAIN.replace("mode = \"hop\"", &format!("mode = \"hop\"\n{keys}"));
    let keys = "source = \"client\"\nclients = [\"192.0.2.0/24\"]";
    let configuration = load(&with(keys), MEMBERS).unwrap();
    let hops = &configuration.listeners[0];
    let negotiation = hops.relay.negotiation().unwrap();
    assert!(hops.connects_as_clients() && configuration.has_clients_addresses());
    assert!(negotiation.access.clients.is_empty());
    let may = |client: &str| negotiation.may_connect_for(client.parse().unwrap());
    assert!(may("192.0.2.9") && !may("198.51.100.9") && !may("127.0.0.1"));
    let own = load(&with("source = \"own\""), MEMBERS).unwrap();
    assert!(!own.listeners[0].connects_as_clients() && !own.has_clients_addresses());
    for (main, expected) in [
        (with("source = \"client\""), "needs `clients`"),
        (with("source = \"server\""), "\"server\" is no source"),
        (
            MAIN.replace("overlay = true", "source = \"client\""),
            "is for listeners of mode \"hop\"",
        ),
    ] {
        let error = load(&main, MEMBERS).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn uplinks_have_names_and_addresses_of_their_own() {
    let with = |uplinks: &str| {
        let keys = format!("members = \"members.toml\"\nchoose = true\nuplinks = [{uplinks}]");
        load(&MAIN.replace("members = \"members.toml\"", &keys), MEMBERS)
    };
    let vsat = "{ name = \"vsat\", from = \"10.1.0.2\" }";
    let lte = "{ name = \"lte\", from = \"10.2.0.2\" }";
    let configuration = with(&format!("{vsat}, {lte}")).unwrap();
    let overlay = configuration.listeners[1].relay.overlay().unwrap();
    let legs = overlay.legs_to(&"fra".parse().unwrap());
    let names: Vec<_> = legs.iter().map(|leg| leg.as_str()).collect();
    assert_eq!(names, ["fra/vsat", "fra/lte"]);
    assert_eq!(overlay.source_of(&legs[1]), "10.2.0.2".parse().ok());
    for (uplinks, expected) in [
        (
            format!("{vsat}, {vsat}"),
            "has the name or the address of another one",
        ),
        (
            vsat.replace("10.1.0.2", "0.0.0.0"),
            "is no address of this machine",
        ),
        (
            vsat.replace("\"vsat\"", "\"VSAT\""),
            "the name of a node has",
        ),
    ] {
        let error = with(&uplinks).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let keys = format!("members = \"members.toml\"\nuplinks = [{vsat}]");
    let fixed = MAIN.replace("members = \"members.toml\"", &keys);
    let error = load(&fixed, MEMBERS).unwrap_err();
    assert!(error.contains("has no choice of routes"), "{error}");
}

#[test]
fn errors_name_the_file_the_line_and_the_reason() {
    let through = |text: &str| MAIN.replace("[\"fra\", \"sin\"]", text);
    for (main, expected) in [
        (
            MAIN.replace("\"ams\"", "\"asm\""),
            "midspan.toml:2:8: members.toml has no node \"asm\" (did you mean `ams`?)",
        ),
        (
            MAIN.replace("\"ams\"", "\"AMS\""),
            "midspan.toml:2:8: the name of a node has",
        ),
        (
            MAIN.replace("members.toml", "other.toml"),
            "midspan.toml:3:11: cannot read other.toml",
        ),
        (
            through("[\"fra\", \"sni\"]"),
            "midspan.toml:6:19: there is no node \"sni\" (did you mean `sin`?)",
        ),
        (
            through("[\"sin\", \"fra\"]"),
            "midspan.toml:6:12: node \"sin\" is no transit node",
        ),
        (
            through("[\"fra\"]"),
            "midspan.toml:6:12: node \"fra\" serves nothing",
        ),
        (
            through("[\"fra\", \"ams\"]"),
            "midspan.toml:6:19: a route begins after this node",
        ),
        (
            through("[\"fra\", \"laptop\"]"),
            "midspan.toml:6:19: node \"laptop\" has no address",
        ),
        (
            through("[\"fra\", \"fra\", \"sin\"]"),
            "midspan.toml:6:11: a route has at most 4 nodes",
        ),
        (
            MAIN.replace("\"all\"", "\"10.0.0.0/33\""),
            "midspan.toml:5:",
        ),
        (
            MAIN.replace("listen = ", "clients = [\"10.0.0.2\"]\nlisten = "),
            "midspan.toml:10:11: `clients` is not for listeners of mode \"hop\"",
        ),
        (
            MAIN[MAIN.find("[[listener]]").unwrap()..].to_owned(),
            "midspan.toml:2:8: the table [overlay] is missing",
        ),
    ] {
        let error = load(&main, MEMBERS).expect_err("the file was accepted");
        assert!(error.starts_with(expected), "{expected}\n{error}");
    }
    load(&through("[\"fra\", \"squid\"]"), MEMBERS).unwrap();
    load(&through("[]"), MEMBERS).unwrap();
    // A text that is not from a file names no other file.
    let error = Configuration::read(&Source::new("text", MAIN)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("only a text that was read from a file")
    );
}

#[test]
fn members_are_checked() {
    for (from, to, expected) in [
        (
            "security = \"network\"\n",
            "",
            "members.toml:3:8: node \"ams\" has no key",
        ),
        (
            "\"network\"",
            "\"none\"",
            "members.toml:5:12: unknown value `none`",
        ),
        (
            "10.0.0.1:",
            "203.0.113.1:",
            "members.toml:4:11: 203.0.113.1 is a public address",
        ),
        (
            "security = \"network\"\n",
            "key = \"AAEC\"\n",
            "members.toml:5:7: a key is 32 bytes in Base64",
        ),
        (
            "security = \"network\"\n",
            "security = \"network\"\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n",
            "members.toml:6:7: with security = \"network\", nothing is encrypted",
        ),
        (
            "10.0.0.1:7704",
            "0.0.0.0:7704",
            "members.toml:4:11: 0.0.0.0:7704 is not the address",
        ),
        (
            "\"fra\"",
            "\"ams\"",
            "members.toml:7:8: there are two nodes \"ams\"",
        ),
        (
            "from = \"10.0.9.0/24\"\n",
            "",
            "members.toml:18:8: node \"laptop\" has no address",
        ),
        (
            "\"10.0.9.0/24\"",
            "\"all\"",
            "members.toml:19:8: `from` lists addresses",
        ),
        (
            "[\"203.0.113.0/24\"]",
            "\"all\"",
            "members.toml:15:10: `serves` lists prefixes",
        ),
        (
            "kind = \"connect\"\n",
            "kind = \"connect\"\ntransit = true\n",
            "members.toml:24:11: a node of kind",
        ),
    ] {
        let members = MEMBERS.replacen(from, to, 1);
        let error = load(MAIN, &members).expect_err("the members were accepted");
        assert!(error.starts_with(expected), "{expected}\n{error}");
    }
    let public = MEMBERS.replacen(
        "10.0.0.1:7704\"",
        "203.0.113.1:7704\"\nallow_public = true",
        1,
    );
    load(MAIN, &public).unwrap();
    let many: String = (0..65)
        .map(|number| {
            format!("[[node]]\nname = \"n{number}\"\nfrom = \"10.0.0.1\"\nsecurity = \"network\"\n")
        })
        .collect();
    let error = load(MAIN, &many).unwrap_err();
    assert!(error.contains("an overlay has 1 to 64 nodes"), "{error}");
}

/// Private keys, and the lines of their public keys.
fn key(byte: u8) -> (String, String) {
    let secret = [byte; 32];
    let public = NodeKey::new(midspan_tls::public_key(&secret).unwrap());
    (
        NodeSecret::new(secret).to_text(),
        format!("key = \"{public}\"\n"),
    )
}

/// The configuration of ams with this file of its private key, whose mode is `mode`.
fn load_with_key(members: &str, text: &str, mode: u32) -> Result<Configuration, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("members.toml"), members).unwrap();
    std::fs::write(path("key"), text).unwrap();
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path("key"), permissions).unwrap();
    let main = MAIN.replace(
        "members = \"members.toml\"\n",
        "members = \"members.toml\"\nprivate_key = \"key\"\n",
    );
    std::fs::write(path("midspan.toml"), main).unwrap();
    let start = format!("{}/", folder.path().display());
    Configuration::load(path("midspan.toml")).map_err(|error| error.to_string().replace(&start, ""))
}

/// The members, whose first ones have these keys.
fn members_with(keys: &[String]) -> String {
    keys.iter().fold(MEMBERS.to_owned(), |members, key| {
        members.replacen("security = \"network\"\n", key, 1)
    })
}

#[test]
fn a_private_key_has_to_fit() {
    let ((secret, own), (other_secret, other)) = (key(1), key(2));
    let members = members_with(&[own, other]);
    let configuration = load_with_key(&members, &format!("{secret}\n"), 0o600).unwrap();
    let overlay = configuration.listeners[0].relay.negotiation().unwrap();
    let overlay = overlay.overlay.as_ref().unwrap();
    let keys = |name: &str| overlay.keys_to(&name.parse().unwrap());
    assert!(keys("fra").is_some() && keys("sin").is_none());
    // The text of a private key is in no message.
    assert!(!format!("{configuration:?}").contains(secret.trim_end_matches('=')));
    load_with_key(&members, &secret, 0o640).unwrap();
    let without_own = MEMBERS.to_owned();
    let mixed = members.replace("10.0.9.0/24", "10.0.0.0/16");
    for (members, text, mode, expected) in [
        (
            &members,
            &secret,
            0o644,
            "midspan.toml:4:15: other users can use the private key in key",
        ),
        (
            &members,
            &secret,
            0o660,
            "midspan.toml:4:15: other users can use",
        ),
        (
            &members,
            &other_secret,
            0o600,
            "midspan.toml:4:15: the list of members has another key",
        ),
        (
            &members,
            &"x".to_owned(),
            0o600,
            "midspan.toml:4:15: key is no private key",
        ),
        (
            &without_own,
            &secret,
            0o600,
            "midspan.toml:4:15: node \"ams\" has no key in the list",
        ),
        (
            &mixed,
            &secret,
            0o600,
            "midspan.toml:3:11: nodes \"fra\" and \"laptop\" have a common",
        ),
    ] {
        let error = load_with_key(members, text, mode).expect_err("the key was accepted");
        assert!(error.starts_with(expected), "{expected}\n{error}");
        assert!(!error.contains(secret.trim_end_matches('=')), "{error}");
    }
    let error = load(MAIN, &members).unwrap_err();
    let expected =
        "midspan.toml:2:8: node \"ams\" has a key in the list of members, and no private key here";
    assert!(error.starts_with(expected), "{error}");
}
