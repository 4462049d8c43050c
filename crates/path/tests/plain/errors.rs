//! The messages that a user sees when a path file breaks a rule.
#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_path::Path;

const GOOD: &str = r#"description = "a path"
[[host]]
name = "client"
[[proxy]]
name = "gateway"
client_leg = { initial_window = 10 }
[[host]]
name = "server"
initial_window = 10
[[link]]
name = "access"
between = ["client", "gateway"]
rate = "10 Mbit/s"
delay = "10 ms"
loss = "1 %"
queue = "100 packets"
overhead = "18 B"
schedule = { repeat = "9 s", steps = [{ at = "1 s", rate = "1 Mbit/s" }, { at = "2 s", loss = "0 %" }] }
[[link]]
name = "core"
between = ["gateway", "server"]
[[flow]]
name = "a file"
from = "client"
to = "server"
workload = "download"
size = "1 MB"
"#;

/// The error after one change of the good file.
#[track_caller]
fn message(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old:?} is not in the good file");
    Path::read(&Source::new("p.toml", GOOD.replacen(old, new, 1)))
        .unwrap_err()
        .to_string()
}

#[track_caller]
fn assert_message(old: &str, new: &str, expected: &str) {
    assert_eq!(message(old, new), expected);
}

#[track_caller]
fn assert_contains(old: &str, new: &str, place: &str, expected: &str) {
    let message = message(old, new);
    let expected_start = format!("p.toml:{place}: ");
    assert!(message.starts_with(&expected_start), "{message}");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_key_of_client_legs_is_refused_in_a_server_leg() {
    assert_message(
        "client_leg = { initial_window = 10 }",
        "server_leg = { sending_ahead = \"off\" }",
        "p.toml:6:16: `sending_ahead` is for client_leg only",
    );
}

#[test]
fn a_receive_window_is_for_server_legs_without_a_fixed_buffer() {
    assert_message(
        "client_leg = { initial_window = 10 }",
        "client_leg = { receive_window = \"auto\" }",
        "p.toml:6:16: `receive_window` is for server_leg only",
    );
    assert_message(
        "client_leg = { initial_window = 10 }",
        "server_leg = { receive_window = \"1 MiB\", receive_buffer = \"1 MiB\" }",
        "p.toml:6:16: a fixed receive_buffer is open from the first ACK on: remove \
         receive_window, or receive_buffer",
    );
}

#[test]
fn the_good_file_is_good() {
    let path = Path::read(&Source::new("folder/p.toml", GOOD)).unwrap();
    assert_eq!(path.name, "p");
    assert_eq!(path.seed, 1);
}

#[test]
fn keys_and_values_that_do_not_exist_are_answered_by_the_nearest() {
    assert_message(
        "delay =",
        "dealy =",
        "p.toml:14:1: unknown key `dealy` (did you mean `delay`?)",
    );
    assert_message(
        "\"download\"",
        "\"donwload\"",
        "p.toml:26:12: unknown value `donwload` (did you mean `download`?)",
    );
    assert_message(
        "{ initial_window",
        "{ inital_window",
        "p.toml:6:16: unknown key `inital_window` (did you mean `initial_window`?)",
    );
}

#[test]
fn quantities_say_what_they_look_like() {
    assert_message(
        "\"10 Mbit/s\"",
        "\"10 Mbps\"",
        "p.toml:13:8: unknown unit \"Mbps\": write one of bit/s, kbit/s, Mbit/s, Gbit/s, \
         as in \"8 Mbit/s\"",
    );
    assert_message(
        "\"10 ms\"",
        "10",
        "p.toml:14:9: expected a time in quotes, such as \"250 ms\", found integer `10`",
    );
    assert_message(
        "\"100 packets\"",
        "\"100\"",
        "p.toml:16:9: \"100\" is not a queue: write packets, as in \"1000 packets\", or a size, \
         as in \"64 KiB\"",
    );
}

#[test]
fn names_are_unique_and_known() {
    assert_message(
        "name = \"server\"",
        "name = \"client\"",
        "p.toml:8:8: another node is called `client` already",
    );
    assert_message(
        "name = \"core\"",
        "name = \"access\"",
        "p.toml:20:8: another link is called `access` already",
    );
    assert_message(
        "[\"client\", \"gateway\"]",
        "[\"clinet\", \"gateway\"]",
        "p.toml:12:12: no node is called `clinet` (did you mean `client`?)",
    );
    assert_message(
        "to = \"server\"",
        "to = \"x\"",
        "p.toml:25:6: no node is called `x` (known: client, gateway, server)",
    );
    assert_contains("\"server\"", "\"\"", "8:8", "\"\" is not a name");
    assert_contains("\"server\"", "\"../x\"", "8:8", "is not a name");
    assert_contains("\"a file\"", "\"\"", "23:8", "1 to 64 printable characters");
    assert_contains("\"a path\"", "\"a\\npath\"", "1:15", "one line");
}

#[test]
fn links_reach_every_node_and_only_routers_and_proxies_join_several() {
    assert_message(
        "[\"client\", \"gateway\"]",
        "[\"client\", \"client\"]",
        "p.toml:12:22: a link joins two different nodes",
    );
    assert_message(
        "[\"gateway\", \"server\"]",
        "[\"client\", \"server\"]",
        "p.toml:21:12: host `client` has a link already: only routers and proxies join several",
    );
    assert_message(
        "[[flow]]",
        "[[router]]\nname = \"lost\"\n[[flow]]",
        "p.toml:23:8: no links lead from `lost` to `client`",
    );
    // These two have links, but none to the others.
    assert_message(
        "[[flow]]",
        "[[router]]\nname = \"r\"\n[[router]]\nname = \"s\"\n\
         [[link]]\nname = \"one\"\nbetween = [\"s\", \"r\"]\n\
         [[link]]\nname = \"two\"\nbetween = [\"r\", \"s\"]\n[[flow]]",
        "p.toml:23:8: no links lead from `r` to `client`",
    );
    assert_contains(
        "[\"client\", \"gateway\"]",
        "[\"client\"]",
        "12:11",
        "a link joins two nodes",
    );
    assert_contains(
        "[\"client\", \"gateway\"]",
        "[\"client\", \"gateway\", \"server\"]",
        "12:11",
        "a link joins two nodes",
    );
    assert!(
        Path::read(&Source::new("p.toml", ""))
            .unwrap_err()
            .to_string()
            .starts_with("p.toml:1:1: a path needs hosts")
    );
}

#[test]
fn flows_go_between_hosts_with_the_options_of_their_workload() {
    assert_message(
        "to = \"server\"",
        "to = \"gateway\"",
        "p.toml:25:6: `gateway` is a proxy: a flow goes between hosts",
    );
    assert_message(
        "to = \"server\"",
        "to = \"client\"",
        "p.toml:25:6: a flow goes from one host to another",
    );
    assert_message(
        "size = \"1 MB\"",
        "",
        "p.toml:26:12: a download flow needs `size`",
    );
    assert_message(
        "size = \"1 MB\"",
        "size = \"1 MB\"\nduration = \"1 s\"",
        "p.toml:28:12: a download flow has no `duration` (its keys are size)",
    );
    assert_message(
        "size = \"1 MB\"",
        "size = \"0 B\"",
        "p.toml:27:8: 0 B is too small for `size`: at least 1 B",
    );
    assert_message(
        "\"download\"\nsize = \"1 MB\"",
        "\"page\"\nsize = \"1 GB\"\nobjects = 1000",
        "p.toml:23:8: 1000 GB in all are too much for a flow: at most 100 GB",
    );
    assert_message(
        "size = \"1 MB\"",
        "size = \"1 MB\"\nstart = \"1 s\"",
        "p.toml:28:9: flows that run in turn have no `start` \
         (write `flows = \"together\"` under `[run]`)",
    );
}

#[test]
fn values_stay_within_bounds() {
    assert_contains("\"10 Mbit/s\"", "\"0 Mbit/s\"", "13:8", "out of range");
    assert_contains("\"10 Mbit/s\"", "\"1 bit/s\"", "13:8", "at least 100 bit/s");
    assert_contains("\"10 ms\"", "\"61 s\"", "14:9", "at most 60 s");
    assert_contains("\"1 %\"", "\"100 %\"", "15:8", "nothing passes");
    assert_contains("\"1 %\"", "\"101 %\"", "15:8", "out of range");
    assert_contains("100 packets", "2000000 packets", "16:9", "at most 1000000");
    assert_contains("100 packets", "2 GiB", "16:9", "at most 1 GiB");
    assert_contains("\"18 B\"", "\"1 MB\"", "17:12", "at most 1 KB");
    assert_contains("window = 10\n", "window = 0\n", "9:18", "at least 1");
    assert_contains(
        "{ initial_window = 10 }",
        "{ initial_window = 1001 }",
        "6:33",
        "at most 1000",
    );
    assert_contains(
        "{ initial_window = 10 }",
        "{ send_buffer = \"1 B\" }",
        "6:30",
        "at least 4 KiB",
    );
    assert_contains(
        "{ initial_window = 10 }",
        "{ congestion_control = \"BBR\" }",
        "6:37",
        "lower case",
    );
    assert_contains(
        "initial_window = 10\n[[link]]",
        "congestion_control = \"\"\n[[link]]",
        "9:22",
        "lower case",
    );
}

#[test]
fn schedules_are_in_order_and_change_something() {
    assert_message(
        "at = \"2 s\"",
        "at = \"1 s\"",
        "p.toml:18:81: a step is later than the one before it, at 1 s",
    );
    assert_message(
        "repeat = \"9 s\"",
        "repeat = \"2 s\"",
        "p.toml:18:23: a repetition is longer than its last step, at 2 s",
    );
    assert_contains(
        ", rate = \"1 Mbit/s\" }",
        " }",
        "18:39",
        "a step changes something",
    );
    assert_contains(
        "[{ at = \"1 s\", rate = \"1 Mbit/s\" }, { at = \"2 s\", loss = \"0 %\" }]",
        "[]",
        "18:12",
        "at least one step",
    );
    assert_contains("at = \"2 s\", loss", "loss", "18:74", "missing key `at`");
    let outage = GOOD.replacen("loss = \"0 %\"", "loss = \"100 %\"", 1);
    assert!(Path::read(&Source::new("p.toml", outage)).is_ok());
}

#[test]
fn counts_are_bounded() {
    let many = |count: usize, table: &dyn Fn(usize) -> String| -> String {
        (0..count).map(table).collect()
    };
    let routers = many(62, &|n| format!("[[router]]\nname = \"r{n}\"\n"));
    assert!(message("[[flow]]", &(routers + "[[flow]]")).contains("at most 64"));
    let links = many(63, &|n| {
        format!("[[link]]\nname = \"l{n}\"\nbetween = [\"client\", \"server\"]\n")
    });
    assert!(message("[[flow]]", &(links + "[[flow]]")).contains("at most 64"));
    let flows = many(256, &|n| {
        format!(
            "[[flow]]\nname = \"f{n}\"\nfrom = \"client\"\nto = \"server\"\n\
             workload = \"upload\"\nsize = \"1 B\"\n"
        )
    });
    assert!(message("[[flow]]", &(flows + "[[flow]]")).contains("at most 256"));
    let steps = many(1001, &|n| format!("{{ at = \"{n} s\", loss = \"0 %\" }}, "));
    assert!(message("steps = [", &format!("steps = [{steps}")).contains("at most 1000"));
}

#[test]
fn an_unknown_path_names_the_nearest_and_lists_the_rest() {
    let message = Path::load("geo-claen").unwrap_err().to_string();
    assert!(
        message.starts_with(
            "no built-in path and no file is called \"geo-claen\" (did you mean `geo-clean`?); \
             built in are geo, geo-clean, two-sided-geo, two-sided-geo-clean, leo, "
        ),
        "{message}"
    );
    let message = Path::load("./missing.toml").unwrap_err().to_string();
    assert!(
        message.starts_with("cannot read ./missing.toml: No such file"),
        "{message}"
    );
}

#[test]
fn a_file_is_loaded_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, GOOD).unwrap();
    let path = Path::load(file.to_str().unwrap()).unwrap();
    assert_eq!(path.name, "mine");
    assert_eq!(path.description, "a path");
}

#[test]
fn what_only_the_simulator_has_is_checked_as_well() {
    let traffic = |rest: &str| {
        let table = format!(
            "[[traffic]]\nname = \"t\"\nfrom = \"client\"\nto = \"gateway\"\nrate = \"1 Mbit/s\"\n\
             {rest}\n[[flow]]"
        );
        message("[[flow]]", &table)
    };
    assert!(traffic("on = \"1 s\"").contains("`on` and `off` come together"));
    assert!(traffic("shape = 1.5").contains("a `shape` belongs to times on and off"));
    let shape = traffic("on = \"1 s\"\noff = \"1 s\"\nshape = 1.0");
    assert!(
        shape.contains("1 is too small for `shape`: at least 1.01"),
        "{shape}"
    );
    assert!(traffic("packet_size = \"1 B\"").contains("too small for a packet"));
    assert!(traffic("sources = 0").contains("too small for `sources`"));
    let unknown = message(
        "[[flow]]",
        "[[traffic]]\nname = \"t\"\nfrom = \"cleint\"\nto = \"server\"\nrate = \"1 Mbit/s\"\n[[flow]]",
    );
    assert!(unknown.contains("no node is called `cleint`"), "{unknown}");
    let mtu = message("overhead = \"18 B\"", "mtu = \"67 B\"");
    assert!(
        mtu.contains("67 B is too small for an MTU: at least 68 B"),
        "{mtu}"
    );
    let window = message("name = \"client\"", "name = \"client\"\nwindow = \"huge\"");
    assert!(window.contains("huge"), "{window}");
}

#[test]
fn acks_queues_and_cables_are_checked() {
    let acknowledge = |value: &str| {
        let host = format!("name = \"client\"\nacknowledge = \"{value}\"");
        message("name = \"client\"", &host)
    };
    for wrong in [
        "fda",
        "fda(0)",
        "ace(101)",
        "ace(2",
        "every(1)",
        "sometimes",
    ] {
        let text = acknowledge(wrong);
        assert!(text.contains("no way to acknowledge"), "{text}");
    }
    let queue = "queue = \"64 KiB\"\nack_queue = \"filtered\"";
    let bytes = message("queue = \"100 packets\"", queue);
    assert!(bytes.contains("this queue counts bytes"), "{bytes}");
    let compressed = message("loss = \"1 %\"", "header_compression = true");
    assert!(compressed.contains("without a schedule"), "{compressed}");
    let cable = |links: &str, rest: &str| {
        let table = format!(
            "[[cable]]\nname = \"plant\"\nlinks = {links}\nrate = \"1 Mbit/s\"\n{rest}\n[[flow]]"
        );
        message("[[flow]]", &table)
    };
    assert!(cable("[\"acess\"]", "").contains("no link is called `acess`"));
    assert!(cable("[\"access\"]", "").contains("has a rate upwards"));
    assert!(cable("[\"core\", \"core\"]", "").contains("one cable, and once"));
    assert!(cable("[]", "").contains("at least one link"));
    assert!(cable("[\"core\"]", "rounds = 0").contains("too small for `rounds`"));
    assert!(cable("[\"core\"]", "poll = \"0 s\"").contains("too small for `poll`"));
}

#[test]
fn managed_queues_reordering_and_traces_have_rules() {
    let queue = "queue = \"100 packets\"";
    assert_contains(queue, "aqm = \"red\"", "16:7", "unknown value `red`");
    assert_contains(queue, "aqm = 5", "16:7", "\"codel\" or \"fq_codel\"");
    assert_contains(
        queue,
        "aqm = { method = \"codel\", target = \"200 ms\" }",
        "16:7",
        "a target of 200 ms and an interval of 100 ms",
    );
    assert_contains(
        queue,
        "aqm = { method = \"codel\", limit = 5 }",
        "16:27",
        "unknown key `limit`",
    );
    assert_contains(
        queue,
        "ack_queue = \"filtered\"\naqm = \"codel\"",
        "17:7",
        "leave out `aqm` or `ack_queue`",
    );
    assert_contains(
        queue,
        "reorder = { share = \"1 %\" }",
        "16:11",
        "either `earlier` or `later`",
    );
    assert_contains(
        queue,
        "reorder = { share = \"1 %\", later = \"11 s\" }",
        "16:11",
        "at most 10 s",
    );
    assert_contains(
        queue,
        "reorder = { share = \"1 %\", earlier = \"11 ms\" }",
        "16:11",
        "a packet cannot arrive 11 ms earlier after 10 ms",
    );
    // The shortest delay of the schedule counts.
    let shorter = GOOD
        .replace("loss = \"0 %\" }", "delay = \"4 ms\" }")
        .replace(queue, "reorder = { share = \"1 %\", earlier = \"5 ms\" }");
    let error = Path::read(&Source::new("p.toml", shorter)).unwrap_err();
    assert!(
        error.to_string().contains("5 ms earlier after 4 ms"),
        "{error}"
    );
    let compressed = GOOD
        .replace("schedule =", "header_compression = true #")
        .replace(queue, "aqm = \"codel\"");
    let error = Path::read(&Source::new("p.toml", compressed)).unwrap_err();
    assert!(error.to_string().contains("a plain queue"), "{error}");
    // A text in memory cannot open files.
    assert_contains(
        queue,
        "replay = \"/etc/hostname\"",
        "16:10",
        "only a text that was read from a file can name one",
    );
}
