//! Tests of the explanations of connections.

use super::*;

const FILE: &str = r#"
[[listener]]
name = "lan"
mode = "transparent"
interfaces = ["lan0", "wlan*"]
except = ["10.0.0.99", "203.0.113.0/24"]
except_ports = [22]

[[listener]]
name = "guests"
mode = "transparent"
interfaces = ["guest0"]
ports = [80, "8000-8100"]

[[listener]]
name = "front"
listen = "192.0.2.1:8080"
to = "198.51.100.1:80"
"#;

fn status() -> Status {
    let text = r#"{"version":"0.1.0","state":"running","pid":1,"relay_pid":2,
            "uptime_seconds":3,"configuration":"f","reloads":0,"listeners":[],
            "bypasses":["10.0.5.0/24"],"drained_clients":[
            {"listener":"lan","clients":"10.0.6.0/24"},{"listener":"front","clients":"10.0.6.0/24"}]}"#;
    serde_json::from_str(text).unwrap()
}

fn explained(client: &str, server: &str, interface: Option<&str>) -> Explanation {
    explained_with(client, server, interface, (None, None))
}

fn explained_with(
    client: &str,
    server: &str,
    interface: Option<&str>,
    (learned, left_alone): (Option<&Learned>, Option<&[LeftAloneRow]>),
) -> Explanation {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("midspan.toml");
    std::fs::write(&file, FILE).unwrap();
    let configuration = Configuration::load(&file).unwrap();
    let flow = Flow {
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
    };
    let machine = Machine {
        interface: interface.map(str::to_owned),
        server_is_local: flow.server.ip().to_string().starts_with("192.0.2."),
    };
    let status = status();
    let running = Running {
        status: &status,
        summary: None,
        learned,
        left_alone,
    };
    explain(&flow, &machine, &configuration, &running)
}

#[track_caller]
fn is_untouched(of: &Explanation, reason: &str, change: &str) {
    assert_eq!(of.decision, "untouched");
    assert!(of.reason.contains(reason), "{of:?}");
    assert!(of.change.contains(change), "{of:?}");
}

#[test]
fn each_reason_is_named() {
    let lan = Some("lan0");
    let split = explained("10.0.0.1", "198.51.100.7:443", lan);
    assert_eq!(
        (split.decision, split.listener.as_deref()),
        ("split", Some("lan"))
    );
    assert!(
        split
            .unless
            .iter()
            .any(|unless| unless.contains("answers do not come back"))
    );
    let split = explained("10.0.0.1", "198.51.100.7:443", Some("wlan7"));
    assert_eq!(split.decision, "split");
    let at = |client, server, interface| explained(client, server, interface);
    let of = at("10.0.0.1", "198.51.100.7:443", Some("eth9"));
    is_untouched(&of, "behind eth9", "add \"eth9\" to interfaces");
    let of = at("10.0.0.1", "198.51.100.7:22", lan);
    is_untouched(
        &of,
        "except_ports contains 22",
        "remove 22 from except_ports",
    );
    let of = at("10.0.0.1", "198.51.100.7:21", lan);
    is_untouched(&of, "control port", "helper_ports");
    let of = at("10.0.0.99", "198.51.100.7:443", lan);
    is_untouched(&of, "except contains 10.0.0.99/32", "from except");
    let of = at("10.0.0.1", "203.0.113.9:443", lan);
    is_untouched(&of, "except contains 203.0.113.0/24", "from except");
    let of = at("10.0.0.1", "198.51.100.7:443", Some("guest0"));
    assert_eq!(of.listener.as_deref(), Some("guests"));
    is_untouched(&of, "ports does not contain 443", "add 443 to ports");
    assert_eq!(
        at("10.0.0.1", "198.51.100.7:8050", Some("guest0")).decision,
        "split"
    );
    let of = at("10.0.5.7", "198.51.100.7:443", lan);
    is_untouched(
        &of,
        "bypasses 10.0.5.0/24",
        "midspan bypass off 10.0.5.0/24",
    );
    let of = at("10.0.6.7", "198.51.100.7:443", lan);
    is_untouched(
        &of,
        "drains 10.0.6.0/24 at listener \"lan\"",
        "midspan drain off lan --clients 10.0.6.0/24",
    );
    let of = at("10.0.6.7", "192.0.2.1:8080", lan);
    assert_eq!(of.decision, "refused");
    let of = at("10.0.0.1", "198.51.100.7:443", None);
    is_untouched(&of, "no route", "ip route get");
    let of = at("10.0.0.1", "192.0.2.1:22", lan);
    is_untouched(&of, "is this machine", "mode = \"forward\"");
    let of = at("10.0.0.1", "192.0.2.1:8080", lan);
    assert_eq!(
        (of.decision, of.listener.as_deref()),
        ("split", Some("front"))
    );
    assert!(of.reason.contains("forwards to 198.51.100.1:80"), "{of:?}");
}

/// States that are known are looked up, and are not named as possible.
#[test]
fn what_earlier_connections_showed_decides() {
    let lan = Some("lan0");
    let learned: Learned = serde_json::from_str(
        r#"{"gain":[],"paths":[],"cold_starts":[],"asymmetric_routes":[
            {"client":"10.0.0.1/32","servers":"198.51.100.0/24","left_seconds":812.2},
            {"client":"10.0.0.2/32","servers":"198.51.100.0/24","left_seconds":null}],
            "gains":[],"verdicts":[],"next":null}"#,
    )
    .unwrap();
    let left_alone = [LeftAloneRow {
        client: "10.0.0.3/32".to_owned(),
        servers: "198.51.100.0/24".to_owned(),
        left_seconds: 41.0,
    }];
    let of =
        |client, server| explained_with(client, server, lan, (Some(&learned), Some(&left_alone)));
    let server = "198.51.100.7:443";
    let proven = of("10.0.0.1", server);
    is_untouched(
        &proven,
        "for another 812 s",
        "midspan learned --forget 10.0.0.1/32",
    );
    assert_eq!(proven.listener.as_deref(), Some("lan"));
    is_untouched(
        &of("10.0.0.2", server),
        "the next connection passes",
        "except",
    );
    let alone = of("10.0.0.3", server);
    is_untouched(
        &alone,
        "another 41 s",
        "midspan learned --forget 10.0.0.3/32",
    );
    for (client, server) in [("10.0.0.4", server), ("10.0.0.1", "198.51.101.7:443")] {
        let split = of(client, server);
        assert_eq!(split.decision, "split");
        let mut unless = split.unless.iter();
        assert!(!unless.any(|unless| unless.contains("come back") || unless.contains("help")));
    }
    // A listener that does not intercept comes first.
    is_untouched(&of("10.0.0.1", "198.51.100.7:22"), "except_ports", "22");
}

/// Each reason for which everything passes untouched has a sentence of its own.
#[test]
fn what_holds_for_all_is_named_first() {
    let names = ["firewall", "relay", "bypass", "draining", "rules"];
    let mut sentences: Vec<String> = names.map(|name| passing(name).reason).to_vec();
    sentences.push(passing("something else").reason);
    sentences.sort();
    sentences.dedup();
    assert_eq!(sentences.len(), names.len() + 1);
}
