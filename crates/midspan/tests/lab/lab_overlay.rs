//! Overlay routes in `midspan lab`, with real overlay nodes.

#![allow(clippy::unwrap_used)]

use crate::common::{alone, error_text, midspan, path_file, records, value};

/// Three sites; the way over the third one has two links, the direct one has one. `ipv6` as the addresses.
fn triangle(family: &str) -> String {
    let mut text = format!("family = \"{family}\"\n");
    for name in ["client", "server"] {
        text += &format!("[[host]]\nname = \"{name}\"\n");
    }
    for (name, role) in [
        ("ams", ""),
        ("fra", "transit = true"),
        ("sin", "exit = true"),
    ] {
        text += &format!("[[proxy]]\nname = \"{name}\"\noverlay = {{ {role} }}\n");
    }
    for (first, second, delay) in [
        ("client", "ams", "1 ms"),
        ("ams", "sin", "40 ms"),
        ("ams", "fra", "10 ms"),
        ("fra", "sin", "10 ms"),
        ("sin", "server", "1 ms"),
    ] {
        text += &format!(
            "[[link]]\nname = \"{first}-{second}\"\nbetween = [\"{first}\", \"{second}\"]\n\
             rate = \"10 Mbit/s\"\ndelay = \"{delay}\"\n"
        );
    }
    text + "[[flow]]\nname = \"300 KB\"\nfrom = \"client\"\nto = \"server\"\n\
            workload = \"download\"\nsize = \"300 KB\"\n"
}

#[test]
fn real_nodes_carry_a_flow_over_each_static_route() {
    let _alone = alone();
    for family in ["ipv4", "ipv6"] {
        let folder = tempfile::tempdir().unwrap();
        let file = path_file(folder.path(), &triangle(family));
        let output = midspan(&[
            "lab",
            file.to_str().unwrap(),
            "--against",
            "direct,oracle",
            "--json",
        ]);
        let records = records(&output);
        let time =
            |case: &str, quantity: &str| value(&records, &format!("300 KB {case}"), quantity);
        // Handshake and request cross the links of the route: 82 ms direct, 42 ms over fra. Each hop opens its
        // connection before its request. The client's first data leaves with the request of the first hop.
        for (case, least) in [
            ("direct", 0.168),
            ("overlay-static=here", 0.164),
            ("overlay-static=sin", 0.164),
            ("overlay-static=fra/sin", 0.104),
        ] {
            let first_byte = time(case, "time to first byte");
            assert!(first_byte > least, "{family}, {case}: {first_byte} s");
        }
        let all = ["here", "sin", "fra/sin"]
            .map(|route| time(&format!("overlay-static={route}"), "completion time"));
        let least = all.into_iter().fold(f64::INFINITY, f64::min);
        assert!((time("oracle", "completion time") - least).abs() < 1e-9);
        let ratio = value(&records, "300 KB oracle / direct", "completion time ratio");
        assert!((ratio - least / time("direct", "completion time")).abs() < 1e-6);
    }
}

#[test]
fn a_case_that_the_path_does_not_have_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &triangle("ipv4"));
    for (case, reason) in [
        ("overlay-static=fra", "\"fra\" is no exit of the overlay"),
        ("overlay-static=lhr/sin", "no node is called \"lhr\""),
        ("overlay-statik=sin", "unknown case"),
    ] {
        let output = midspan(&["lab", file.to_str().unwrap(), "--against", case]);
        let errors = error_text(&output);
        assert!(!output.status.success());
        assert!(errors.contains(reason), "{case}: {errors}");
    }
    let output = midspan(&["lab", "geo", "--against", "oracle"]);
    assert!(error_text(&output).contains("no overlay node"));
}
