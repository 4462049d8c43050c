//! The configuration file: accepted files, refused files, and the texts of errors.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use midspan_document::Source;
use midspan_policy::{Buffer, Handshake, Leg};
use midspan_proxy::configuration::Configuration;
use midspan_service::logging::{LogFormat, LogLevel};
use midspan_units::{ByteSize, TimeSpan};
use proptest::prelude::*;

fn read(text: &str) -> Result<Configuration, String> {
    Configuration::read(&Source::new("midspan.toml", text)).map_err(|error| error.to_string())
}

/// The error that `text` gives.
fn error(text: &str) -> String {
    read(text).expect_err("the text was accepted")
}

const LISTENER: &str = r#"[[listener]]
name = "web"
listen = "127.0.0.1:8080"
to = "192.0.2.1:80"
"#;

#[test]
fn the_smallest_file_gets_the_defaults() {
    let configuration = read(LISTENER).unwrap();
    assert!(configuration.relay.threads >= 1);
    assert_eq!(configuration.relay.pipe_memory.to_string(), "48 MiB");
    assert_eq!(configuration.relay.drain_timeout.to_string(), "30 s");
    assert_eq!(configuration.log.level, LogLevel::Info);
    assert_eq!(configuration.log.format, LogFormat::Text);
    assert_eq!(configuration.marks.marks.mask(), 0x0f00_0000);
    assert_eq!(configuration.marks.table, 7700);
    assert_eq!(configuration.marks.priority, 32_765);
    let [listener] = &configuration.listeners[..] else {
        panic!("{} listeners", configuration.listeners.len());
    };
    let timeout = TimeSpan::from_seconds(30);
    assert_eq!(listener.relay.session.connect_timeout, Some(timeout));
    assert_eq!(listener.relay.session.client, listener.relay.session.server);
    assert_eq!(listener.relay.session.client.initial_window, None);
    assert_eq!(listener.relay.session.client.send_buffer, Buffer::Auto);
}

#[test]
fn pipes_are_smaller_where_threads_are_many() {
    for (threads, size) in [(1, "1 MiB"), (6, "1 MiB"), (7, "512 KiB"), (128, "64 KiB")] {
        let text = format!("[relay]\nthreads = {threads}\n{LISTENER}");
        let configuration = read(&text).unwrap();
        assert_eq!(configuration.relay.pipe_size.to_string(), size);
    }
}

#[test]
fn every_key_is_read() {
    let configuration = read(
        r#"
[relay]
threads = 3
pin_threads = true
pipe_size = "64 KiB"
pipe_memory = "1 MiB"
drain_timeout = "1.5 s"
reset_timeout = "2 s"
[log]
level = "debug"
format = "json"
[marks]
mask = 0xf0
table = 300
priority = 100
[[listener]]
name = "web"
mode = "forward"
listen = "[::1]:8080"
to = "[2001:db8::1]:80"
connect_timeout = "250 ms"
server_leg = { congestion_control = "cubic", receive_buffer = "1 MiB" }
[listener.client_leg]
congestion_control = "bbr"
initial_window = 200
send_buffer = "4 MiB"
receive_buffer = "auto"
notsent_lowat = "128 KiB"
pacing_rate = "20 Mbit/s"
keepalive = "60 s"
user_timeout = "30 s"
"#,
    )
    .unwrap();
    assert_eq!(configuration.relay.threads, 3);
    assert!(configuration.relay.pin_threads);
    assert_eq!(configuration.relay.drain_timeout.to_string(), "1.5 s");
    assert_eq!(configuration.log.format, LogFormat::Json);
    assert_eq!(configuration.marks.marks.mask(), 0xf0);
    assert_eq!(
        (configuration.marks.table, configuration.marks.priority),
        (300, 100)
    );
    let session = &configuration.listeners[0].relay.session;
    assert_eq!(session.client.congestion_control.as_deref(), Some("bbr"));
    assert_eq!(session.client.initial_window, Some(200));
    let four = ByteSize::from_bytes(4 << 20);
    assert_eq!(session.client.send_buffer, Buffer::Fixed(four));
    assert_eq!(session.server.congestion_control.as_deref(), Some("cubic"));
    let timeout = TimeSpan::from_milliseconds(250);
    assert_eq!(session.connect_timeout, Some(timeout));
}

#[test]
fn the_example_works() {
    let text = include_str!("../../../../deploy/midspan.toml");
    let configuration = read(text).unwrap();
    assert_eq!(configuration.listeners.len(), 5);
    // A key that is commented out shows its default: a file that sets the key to this value has the
    // same effect.
    let given: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.contains(" = ") && !key.contains('(') => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(given.contains("\npipe_size = "));
    let with_defaults = read(&given).unwrap();
    assert_eq!(with_defaults.relay.pipe_size, configuration.relay.pipe_size);
    assert_eq!(
        with_defaults.relay.pipe_memory,
        configuration.relay.pipe_memory
    );
    assert_eq!(
        with_defaults.relay.drain_timeout,
        configuration.relay.drain_timeout
    );
    assert_eq!(with_defaults.log, configuration.log);
    assert_eq!(with_defaults.marks, configuration.marks);
    assert_eq!(with_defaults.interception, configuration.interception);
    let pairs = with_defaults.listeners.iter().zip(&configuration.listeners);
    for (with_defaults, without) in pairs {
        assert_eq!(with_defaults.mode, without.mode);
    }
}

#[test]
fn an_unknown_key_is_located_and_the_nearest_named() {
    assert_eq!(
        error(&LISTENER.replace("listen =", "lisen =")),
        "midspan.toml:3:1: unknown key `lisen` (did you mean `listen`?)"
    );
    assert_eq!(
        error(&format!(
            "{LISTENER}client_leg = {{ congestion = \"bbr\", initial_windw = 2 }}\n"
        )),
        "midspan.toml:5:16: unknown key `congestion` (known: congestion_control, \
         initial_window, send_buffer, receive_buffer, notsent_lowat, pacing_rate, pacing, \
         pacing_by, sending_ahead, receive_window, keepalive, user_timeout)"
    );
}

#[test]
fn a_wrong_unit_is_located() {
    assert_eq!(
        error(&format!("[relay]\npipe_size = \"1 Mbit\"\n{LISTENER}")),
        "midspan.toml:2:13: unknown unit \"Mbit\": write one of B, KB, MB, GB, KiB, MiB, GiB, \
         as in \"64 KiB\""
    );
    assert_eq!(
        error(&format!("{LISTENER}connect_timeout = \"30\"\n")),
        "midspan.toml:5:19: \"30\" has no unit: write one of s, ms, us, µs, ns, min, h, as in \
         \"250 ms\""
    );
    assert_eq!(
        error(&format!(
            "{LISTENER}client_leg = {{ send_buffer = \"large\" }}\n"
        )),
        "midspan.toml:5:30: \"large\" is not a size: it must begin with a number, as in \
         \"64 KiB\", \"auto\" or \"adaptive\""
    );
}

#[test]
fn policy_auto_leaves_to_it_what_the_legs_leave_open() {
    use midspan_policy::{Pacing, PacingBy};
    let text = format!(
        "{LISTENER}policy = \"auto\"\nserver_leg = {{ pacing_rate = \"5 Mbit/s\", pacing_by = \
         \"input\", congestion_control = \"reno\", send_buffer = \"1 MiB\" }}\n"
    );
    let session = read(&text).unwrap().listeners.remove(0).relay.session;
    assert_eq!(session.client.pacing, Pacing::Auto);
    assert_eq!(session.client.congestion_control.as_deref(), Some("auto"));
    assert_eq!(session.client.send_buffer, Buffer::Adaptive);
    assert_eq!(session.server.pacing, Pacing::Fixed);
    assert_eq!(session.server.pacing_by, PacingBy::Input);
    assert_eq!(session.server.congestion_control.as_deref(), Some("reno"));
    assert!(
        !read(LISTENER).unwrap().listeners[0]
            .relay
            .session
            .is_automatic()
    );
    assert_eq!(
        error(&format!(
            "{LISTENER}client_leg = {{ receive_buffer = \"adaptive\" }}\n"
        )),
        "midspan.toml:5:16: \"adaptive\" is for send_buffer only"
    );
    assert!(session.sends_ahead());
    let off = format!("{LISTENER}policy = \"auto\"\nclient_leg = {{ sending_ahead = \"off\" }}\n");
    assert!(!read(&off).unwrap().listeners[0].relay.session.sends_ahead());
    assert_eq!(
        error(&off.replace("client_leg", "server_leg")),
        "midspan.toml:6:16: `sending_ahead` is for client_leg only"
    );
}

#[test]
fn receive_windows_are_for_server_legs() {
    let wrong = format!("{LISTENER}server_leg = {{ receive_window = \"2 KiB\" }}\n");
    assert!(error(&wrong).contains("between 64 KiB and 64 MiB, not 2 KiB"));
    let wrong = wrong.replace("server_leg", "client_leg");
    assert!(error(&wrong).contains("`receive_window` is for server_leg only"));
}

#[test]
fn a_bad_address_is_located() {
    assert_eq!(
        error(&LISTENER.replace("192.0.2.1:80", "example.org:80")),
        "midspan.toml:4:6: \"example.org:80\" is not an address with a port: write \
         \"192.0.2.1:80\" or \"[2001:db8::1]:80\"; names work in a list: [\"a.example:80\"]"
    );
    assert_eq!(
        error(&LISTENER.replace("\"127.0.0.1:8080\"", "8080")),
        "midspan.toml:3:10: expected an address with a port in quotes, as in \"192.0.2.1:80\", \
         found integer `8080`"
    );
    assert_eq!(
        error(&LISTENER.replace("192.0.2.1:80", "0.0.0.0:80")),
        "midspan.toml:4:6: 0.0.0.0 is not the address of one host"
    );
    assert_eq!(
        error(&LISTENER.replace(":8080", ":0")),
        "midspan.toml:3:10: a listener needs a port other than 0"
    );
}

#[test]
fn two_listeners_share_neither_address_nor_name() {
    assert_eq!(
        error(&format!("{LISTENER}\n{}", LISTENER.replace("web", "mail"))),
        "midspan.toml:8:10: listener \"web\" already listens on 127.0.0.1:8080 (line 3) (give \
         every listener an address or port of its own)"
    );
    assert_eq!(
        error(&format!("{LISTENER}\n{}", LISTENER.replace("8080", "8081"))),
        "midspan.toml:7:8: the name \"web\" is already used in line 2 (give every listener a \
         name of its own)"
    );
}

#[test]
fn a_listener_does_not_forward_to_itself() {
    assert_eq!(
        error(&LISTENER.replace("192.0.2.1:80", "127.0.0.1:8080")),
        "midspan.toml:4:6: listener \"web\" forwards to itself"
    );
    let any = LISTENER.replace("127.0.0.1:8080", "0.0.0.0:8080");
    assert_eq!(
        error(&any.replace("192.0.2.1:80", "127.0.0.9:8080")),
        "midspan.toml:4:6: listener \"web\" forwards to itself"
    );
    let there = LISTENER.replace("192.0.2.1:80", "127.0.0.1:8081");
    let back = "[[listener]]\nname = \"back\"\nlisten = \"127.0.0.1:8081\"\nto = \
                \"127.0.0.1:8080\"\n";
    assert_eq!(
        error(&format!("{there}{back}")),
        "midspan.toml:4:6: these listeners forward in a circle: web → back → web"
    );
    // The file alone does not show whether this address belongs to this machine.
    let configuration = read(&any.replace("192.0.2.1:80", "192.0.2.1:8080")).unwrap();
    let error = configuration.check_addresses(|_| true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "midspan.toml:4:6: listener \"web\" forwards to itself"
    );
    assert!(configuration.check_addresses(|_| false).is_ok());
}

#[test]
fn values_out_of_range_are_located() {
    for (key, message) in [
        (
            "initial_window = 0",
            "initial_window lies between 1 and 1000 segments, not 0",
        ),
        (
            "initial_window = 1001",
            "initial_window lies between 1 and 1000 segments, not 1001",
        ),
        (
            "congestion_control = \"b b r\"",
            "\"b b r\" is not the name of a congestion control, such as \"bbr\"",
        ),
        (
            "send_buffer = \"1 KiB\"",
            "send_buffer lies between 4 KiB and 1 GB, not 1 KiB",
        ),
        (
            "keepalive = \"10 h\"",
            "keepalive lies between 1 s and 32767 s, not 36000 s",
        ),
        (
            "user_timeout = \"0 s\"",
            "user_timeout lies between 1 ms and 86400 s, not 0 s",
        ),
    ] {
        let inline = format!("{LISTENER}server_leg = {{ {key} }}\n");
        assert_eq!(error(&inline), format!("midspan.toml:5:16: {message}"));
        let table = format!("{LISTENER}[listener.server_leg]\n# note\n{key}\n");
        assert_eq!(error(&table), format!("midspan.toml:7:1: {message}"));
    }
    for (table, place, message) in [
        (
            "[relay]\nthreads = 0",
            "2:11",
            "threads lies between 1 and 128, not 0",
        ),
        (
            "[relay]\npipe_size = \"1 KiB\"",
            "2:13",
            "pipe_size lies between 4 KiB and 64 MiB, not 1 KiB",
        ),
        (
            "[relay]\npipe_memory = \"512 KiB\"\npipe_size = \"1 MiB\"\nthreads = 1",
            "2:15",
            "pipe_memory (512 KiB) has no room for one pipe (1 MiB) of each of 1 threads (enlarge \
             pipe_memory, or set it to \"0 B\" to use no pipes)",
        ),
        (
            "[marks]\nmask = 0x0101",
            "2:8",
            "the bits of the mask 0x00000101 are not adjacent, as in \"0x0f000000\"",
        ),
        (
            "[marks]\ntable = 254",
            "2:9",
            "table lies between 256 and 2147483647, not 254",
        ),
    ] {
        assert_eq!(
            error(&format!("{table}\n{LISTENER}")),
            format!("midspan.toml:{place}: {message}")
        );
    }
}

#[test]
fn the_admin_listener_is_for_this_host_unless_told_otherwise() {
    assert_eq!(read(LISTENER).unwrap().admin, None);
    let with = |keys: &str| format!("[admin]\n{keys}\n{LISTENER}");
    for address in ["127.0.0.1:9464", "[::1]:9464"] {
        let admin = read(&with(&format!("listen = \"{address}\"")))
            .unwrap()
            .admin;
        let admin = admin.unwrap();
        assert_eq!(
            (admin.listen, admin.allow_remote),
            (address.parse().unwrap(), false)
        );
    }
    assert_eq!(
        error(&with("listen = \"0.0.0.0:9464\"")),
        "midspan.toml:2:10: 0.0.0.0 is no loopback address: other hosts could see who talks to \
         whom (use 127.0.0.1 or [::1], or set allow_remote = true in [admin])"
    );
    let remote = read(&with("listen = \"192.0.2.1:9464\"\nallow_remote = true")).unwrap();
    assert!(remote.admin.unwrap().allow_remote);
    assert_eq!(
        error(&with("listen = \"127.0.0.1:0\"")),
        "midspan.toml:2:10: the admin listener needs a port other than 0"
    );
    assert_eq!(error(&with("")), "midspan.toml:1:1: missing key `listen`");
    assert_eq!(
        error(&with("listen = \"127.0.0.1:8080\"")),
        "midspan.toml:2:10: listener \"web\" already listens on 127.0.0.1:8080 (line 5) (give \
         the admin listener an address or port of its own)"
    );
}

#[test]
fn a_file_without_a_listener_says_what_to_write() {
    assert_eq!(error(""), "midspan.toml:1:1: missing key `listener`");
    assert_eq!(
        error("listener = []"),
        "midspan.toml:1:12: there is no listener (write at least one [[listener]] with name, \
         listen and to)"
    );
}

#[test]
fn the_number_of_listeners_is_bounded() {
    let listeners = |count: usize| -> String {
        (0..count)
            .map(|number| {
                LISTENER
                    .replace("web", &format!("listener {number}"))
                    .replace("8080", &(10_000 + number).to_string())
            })
            .collect()
    };
    assert_eq!(read(&listeners(250)).unwrap().listeners.len(), 250);
    assert_eq!(
        error(&listeners(251)),
        "midspan.toml:1002:8: more than 250 listeners"
    );
}

#[test]
fn an_error_found_at_the_start_is_located_too() {
    let text = format!("{LISTENER}client_leg = {{ congestion_control = \"nonsuch\" }}\n");
    let configuration = read(&text).unwrap();
    let listener = &configuration.listeners[0];
    let located = configuration.leg_error(listener, Leg::Client, "congestion_control", "no");
    assert_eq!(located.to_string(), "midspan.toml:5:16: no");
    let located = configuration.listen_error(listener, "in use");
    assert_eq!(located.to_string(), "midspan.toml:3:10: in use");
}

#[test]
fn an_error_of_a_leg_points_to_the_key_of_that_leg() {
    let of = |leg: &str| error(&format!("{LISTENER}{leg}"));
    let message = "\"adaptive\" is for send_buffer only";
    // A comment or a value with the same text as the key is not the key.
    let text = "[listener.client_leg]\n# receive_buffer: as large as the path asks for\n\
                send_buffer = \"1 MiB\" # not receive_buffer\nreceive_buffer = \"adaptive\"\n";
    assert_eq!(of(text), format!("midspan.toml:8:1: {message}"));
    let text = "client_leg.send_buffer = \"1 MiB\"\nserver_leg.receive_buffer = \"auto\"\n\
                client_leg.receive_buffer = \"adaptive\"\n";
    assert_eq!(of(text), format!("midspan.toml:7:12: {message}"));
    let text = "[listener.client_leg]\ncongestion_control = \"keepalive\"\nkeepalive = \"0.1 s\"\n";
    assert!(of(text).starts_with("midspan.toml:7:1: keepalive lies"));

    // The key of another leg does not count either: the error names the leg without the key, or its
    // listener.
    let other = LISTENER.replace("web", "other").replace("8080", "8081");
    let text = format!(
        "# keepalive\n{LISTENER}client_leg = {{}}\n{other}client_leg = {{ keepalive = \"5 s\" }}\n"
    );
    let configuration = read(&text).unwrap();
    let place = |number: usize, leg| {
        let listener = &configuration.listeners[number];
        let located = configuration.leg_error(listener, leg, "keepalive", "no");
        located.to_string()
    };
    assert_eq!(place(0, Leg::Client), "midspan.toml:6:14: no");
    assert_eq!(place(0, Leg::Server), "midspan.toml:3:8: no");
    assert_eq!(place(1, Leg::Client), "midspan.toml:11:16: no");
    assert_eq!(place(1, Leg::Server), "midspan.toml:8:8: no");
}

/// Texts similar to the format, so that the parser gets far: lines of the format in any order, some
/// of them damaged.
fn near_texts() -> impl Strategy<Value = String> {
    let lines = prop::sample::select(vec![
        "[relay]",
        "threads = 2",
        "pipe_size = \"1 MiB\"",
        "pipe_memory = \"0 B\"",
        "[log]",
        "level = \"info\"",
        "[marks]",
        "mask = 0",
        "table = 7700",
        "[[listener]]",
        "name = \"web\"",
        "listen = \"127.0.0.1:80\"",
        "to = \"127.0.0.1:80\"",
        "to = \"[::1]:99999\"",
        "client_leg = { initial_window = 4294967295 }",
        "server_leg = { send_buffer = \"99999999999 GB\" }",
        "[listener.client_leg]",
        "keepalive = \"1 ns\"",
        "congestion_control = \"ümlaut\"",
        "listener = []",
    ]);
    let damaged =
        (lines, prop::option::weighted(0.2, any::<(u8, char)>())).prop_map(|(line, damage)| {
            match damage {
                None => line.to_owned(),
                Some((at, character)) => {
                    let mut characters: Vec<char> = line.chars().collect();
                    let at = usize::from(at) % (characters.len() + 1);
                    characters.insert(at, character);
                    characters.into_iter().collect()
                }
            }
        });
    prop::collection::vec(damaged, 0..20).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics(text in prop_oneof![near_texts(), any::<String>()]) {
        if let Err(error) = Configuration::read(&Source::new("x", text.as_str())) {
            prop_assert!(error.line() >= 1);
            prop_assert!(error.span().end <= text.len());
        }
    }
}

const TRANSPARENT: &str = "[[listener]]\nname = \"gateway\"\nmode = \"transparent\"\n";

#[test]
fn a_transparent_listener_takes_everything_unless_told_otherwise() {
    let configuration = read(&format!("{TRANSPARENT}interfaces = [\"eth1\", \"ppp*\"]\n")).unwrap();
    let (listener, transparent) = configuration.transparent().next().unwrap();
    assert_eq!(transparent.interfaces, ["eth1", "ppp*"]);
    assert!(transparent.ipv4 && transparent.ipv6 && transparent.ports.is_empty());
    assert_eq!(listener.relay.handshake, Handshake::EndToEnd);
    let place = &configuration.interception.numbers;
    assert_eq!(
        (place.table.as_str(), place.routing_table),
        ("midspan", 7690)
    );
    assert_eq!((place.rule_priority, place.forward_priority), (100, 100));
    assert_eq!((place.zone, place.queue), (7700, 7700));
    let text = format!(
        "[interception]\ntable = \"other\"\nzone = 5\nqueue = 6\nopening_limit = 7\n{TRANSPARENT}\
         interfaces = [\"a\"]\nfamilies = [\"ipv6\"]\nports = [80, \"90-95\"]\nexcept_ports = [91]\n\
         except = [\"192.0.2.0/24\", \"2001:db8::1\"]\nhandshake = \"early\"\n"
    );
    let configuration = read(&text).unwrap();
    assert_eq!(configuration.interception.numbers.table, "other");
    assert_eq!(configuration.interception.opening_limit, 7);
    let (listener, transparent) = configuration.transparent().next().unwrap();
    assert!(!transparent.ipv4 && transparent.ipv6);
    assert_eq!(transparent.ports, [80..=80, 90..=95]);
    assert_eq!(transparent.except_ports, [91..=91]);
    let lengths: Vec<u8> = transparent
        .except
        .iter()
        .map(|prefix| prefix.prefix_len())
        .collect();
    assert_eq!(lengths, [24, 128]);
    assert_eq!(listener.relay.handshake, Handshake::Early);
}

#[test]
fn what_a_transparent_listener_cannot_do_is_located() {
    for (keys, message) in [
        (
            "",
            "midspan.toml:2:8: a transparent listener needs the key `interfaces`",
        ),
        (
            "interfaces = []",
            "midspan.toml:4:14: 1 to 1000 interfaces can be named",
        ),
        (
            "interfaces = [\"a b\"]",
            "midspan.toml:4:15: \"a b\" is not the name of an interface",
        ),
        (
            "interfaces = [\"lo\"]",
            "midspan.toml:4:15: no client arrives at \"lo\"",
        ),
        (
            "interfaces = [\"a\\\" drop\"]",
            "midspan.toml:4:15: \"a\" drop\" is not the name",
        ),
        (
            "interfaces = [\"a\"]\nto = \"192.0.2.1:80\"",
            "`to` is for listeners of mode \"forward\"",
        ),
        ("interfaces = [\"a\"]\nports = [0]", "0 is not a port"),
        (
            "interfaces = [\"a\"]\nports = [\"9-8\"]",
            "\"9-8\" is not a range of ports",
        ),
        (
            "interfaces = [\"a\"]\nexcept = [\"192.0.2.0/33\"]",
            "is not an address or prefix",
        ),
        ("interfaces = [\"a\"]\nfamilies = []", "there is no family"),
    ] {
        let error = error(&format!("{TRANSPARENT}{keys}\n"));
        assert!(error.contains(message), "{error}");
    }
    let forward = error(&format!("{LISTENER}ports = [80]\n"));
    assert!(
        forward.contains("`ports` is for listeners of mode \"transparent\""),
        "{forward}"
    );
    let name = error(&format!("[interception]\ntable = \"a b\"\n{LISTENER}"));
    assert!(name.contains("2:9: a table's name has"), "{name}");
}
