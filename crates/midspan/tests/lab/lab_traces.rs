//! Time series and captures of `midspan lab`.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use midspan_testbed::kernel_tests::slowness;

use crate::common::{DOWNLOAD, MIDSPAN, alone, midspan, path_file, records, two_proxies, value};

/// The round-trip time of the whole path is 110 ms. Each leg has data for long enough that a busy machine reads
/// its socket several times; on a slow one, there is more data.
fn path() -> String {
    let size = format!("size = \"{} KB\"", 300 * slowness());
    two_proxies(
        "ipv4",
        "40 ms",
        &DOWNLOAD.replace("size = \"300 KB\"", &size),
    )
}

/// The lines of a table behind its heading, each as its fields.
fn lines(table: &str) -> Vec<Vec<String>> {
    let fields = |line: &str| line.split(',').map(str::to_owned).collect();
    table.lines().skip(1).map(fields).collect()
}

/// The number of packets in a capture (libpcap, nanoseconds, link type 101), and their bytes.
fn packets(capture: &[u8]) -> (usize, u64) {
    let number = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    assert_eq!((number(0), number(20)), (0xa1b2_3c4d, 101));
    let (mut at, mut count, mut bytes) = (24, 0, 0);
    while at < capture.len() {
        let kept = number(at + 8) as usize;
        // IPv4, and not cut before the end of the headers.
        assert!(kept >= 40 && capture[at + 16] >> 4 == 4);
        count += 1;
        bytes += u64::from(number(at + 12));
        at += 16 + kept;
    }
    (count, bytes)
}

#[test]
fn traces_have_the_columns_of_the_simulator_and_the_numbers_of_the_run() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = path_file(folder.path(), &path());
    let at = |name: &str| folder.path().join(name);
    let read = |name: &str| {
        let file = at("traces").join(name);
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let common = [
        file.to_str().unwrap(),
        "--trace",
        "cwnd,rtt,queue,rate",
        "--output-directory",
    ];
    let (pcap, html) = (at("run.pcap"), at("report.html"));
    let output = Command::new(MIDSPAN)
        .arg("lab")
        .args(common)
        .arg(at("traces"))
        .args([
            "--against",
            "direct,midspan-forward",
            "--seed",
            "7",
            "--pcap",
        ])
        .arg(&pcap)
        .arg("--html")
        .arg(&html)
        .arg("--json")
        .output()
        .unwrap();
    let records = records(&output);
    let simulated = Command::new(MIDSPAN)
        .arg("sim")
        .args(common)
        .arg(at("traces"))
        .output()
        .unwrap();
    assert!(simulated.status.success());
    let of_run = |case: &str, kind: &str| read(&format!("{case}-repetition-1-seed-7-{kind}.csv"));
    for kind in ["cwnd", "rtt", "queue", "rate"] {
        let sim = read(&format!("direct-{kind}.csv"));
        let lab = of_run("direct", kind);
        assert_eq!(lab.lines().next(), sim.lines().next(), "{kind}");
        assert!(lines(&lab).len() > 3, "{kind}: {lab}");
        let times: Vec<f64> = lines(&lab)
            .iter()
            .map(|line| line[0].parse().unwrap())
            .collect();
        assert!(times.is_sorted(), "{kind}");
    }
    // Two proxies make three legs. The sampler uses a twentieth of a processor at most, so on a slow machine its
    // pauses are longer than some legs.
    for (case, expected) in [("direct", 1), ("midspan-forward", 3)] {
        let cwnd = lines(&of_run(case, "cwnd"));
        assert!(!cwnd.is_empty(), "{case}");
        let completion = value(&records, &format!("300 KB {case}"), "completion time");
        for leg in 1..=expected {
            let mut own = cwnd
                .iter()
                .filter(|line| line[1] == "300 KB" && line[2] == leg.to_string());
            let windows: Vec<u64> = own.clone().map(|line| line[3].parse().unwrap()).collect();
            if windows.is_empty() && slowness() > 1 {
                println!("  {case}, leg {leg}: over before this slow machine read its socket");
                continue;
            }
            assert!(
                windows.iter().any(|bytes| *bytes >= 10 * 1000),
                "{case}, leg {leg}: {windows:?}"
            );
            // The connection ends some round trips after the last byte.
            let last: f64 = own.next_back().unwrap()[0].parse().unwrap();
            assert!(
                last < completion + f64::from(slowness()),
                "{case}, leg {leg}: {last} s, {completion} s"
            );
        }
        assert!(
            cwnd.iter()
                .all(|line| line[2].parse::<usize>().unwrap() <= expected)
        );
        let carried: u64 = lines(&of_run(case, "rate"))
            .iter()
            .filter(|line| line[1] == "access" && line[2] == "down")
            .map(|line| line[3].parse::<u64>().unwrap())
            .sum();
        assert!(
            (300_000..600_000).contains(&(carried / u64::from(slowness()))),
            "{case}: {carried} bytes"
        );
    }
    // The direct connection's round trip is that of the path; that of the last leg is that of its link.
    for (case, leg, expected) in [
        ("direct", "1", 0.040..0.2),
        ("midspan-forward", "3", 0.010..0.1),
    ] {
        let all = lines(&of_run(case, "rtt"));
        match all.iter().find(|line| line[2] == leg) {
            Some(line) => {
                let rtt: f64 = line[3].parse().unwrap();
                // On a slow machine, the first reading is later, and there is a queue.
                let most = expected.end * f64::from(slowness());
                assert!((expected.start..most).contains(&rtt), "{case}: {rtt} s");
            }
            None => assert!(slowness() > 1, "{case}"),
        }
    }
    // The client's end of the access link has all that came out of it, and what the client sent.
    for case in ["direct", "midspan-forward"] {
        let name = format!("run-{case}-repetition-1-seed-7-client-access.pcap");
        let (count, bytes) = packets(&std::fs::read(at(&name)).unwrap());
        assert!(
            count > 250 && bytes > 300_000,
            "{case}: {count} packets, {bytes} bytes"
        );
    }
    let captures = std::fs::read_dir(folder.path()).unwrap();
    let captures = captures.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".pcap")
    });
    assert_eq!(captures.count(), 2 * 3 * 2);
    let page = std::fs::read_to_string(html).unwrap();
    for part in [
        "Time series: 300 KB",
        "congestion window",
        "smoothed round-trip time",
        "leg 3",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn traces_of_what_the_lab_cannot_record_are_refused() {
    for (arguments, reason) in [
        (
            &["--trace", "sequence"][..],
            "possible values: cwnd, rtt, queue, rate",
        ),
        (
            &["--trace", "cwnd", "--trace-interval", "1 us"],
            "between 1 ms and 10 s",
        ),
        (
            &["--trace", "cwnd", "--sweep", "seed=1,2"],
            "cannot be used with",
        ),
    ] {
        let output = midspan(&[&["lab", "geo"], arguments].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(reason), "{told}");
    }
}
