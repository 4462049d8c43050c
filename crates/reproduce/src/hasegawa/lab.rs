//! Hasegawa on the lab: the testbed of Fig. 7, a GEO satellite, and two clients that share a
//! downstream.

use midspan_path::{NodeKind, Path};

use super::network;
use crate::laboratory::point::{SHOWN, expected, repetitions};
use crate::laboratory::{Case, Extent, LaboratoryError, Metric, Place, Point, Statement};

/// Downstream rate in kbit/s.
const DOWN: f64 = 8000.0;
/// Bytes of an ACK with timestamps.
const ACK: f64 = 52.0;

const NORMAL: &str = "normal segments";
const AUTO: &str = "oversized segments, auto";
const FIXED: &str = "oversized segments of 5900 bytes";
const SMALL_WINDOW: &str = "window of 64 KB";
const AHEAD: &str = "window of 64 KB, sending ahead";
const WSO: &str = "automatic window, wso";

/// The value of the client's profile for each of the three cases (Hasegawa §3; 5,900 bytes fill 4
/// fragments).
const SIZES: [(&str, &str); 3] = [(NORMAL, "off"), (AUTO, "auto"), (FIXED, "5900 B")];

/// Goodput of client 2, a Linux, at 32 kbit/s up with normal segments (§6.1).
const PAPER_NORMAL: f64 = 1.6e6;
/// The factor by which client 2 is faster with oversized segments (§6).
const PAPER_GAIN: f64 = 3.0;

/// Fig. 8, with its ACKs (Fig. 11).
pub(super) fn figure_8(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let settings = settings(extent).into_iter();
    settings
        .map(|(up, queue, window)| without_delay(up, queue, window, extent))
        .collect()
}

/// Fig. 10; with `--full` also Fig. 9 with all sizes.
pub(super) fn figures_9_and_10(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let mut points = figure_10(extent)?;
    if extent == Extent::Full {
        points.extend(whole_grid()?);
    }
    Ok(points)
}

/// Upstream rates in kbit/s, queues in packets, and whether the client's window stays at 64 KB.
fn settings(extent: Extent) -> Vec<(u32, u32, bool)> {
    match extent {
        Extent::Quick => vec![(32, 200, false)],
        Extent::Normal => vec![
            (32, 200, false),
            (64, 200, false),
            (128, 200, false),
            (128, 20, false),
            (64, 20, false),
            (32, 20, false),
            (32, 200, true),
            (16, 200, false),
            (8, 200, false),
        ],
        Extent::Full => [128, 64, 32, 16, 8]
            .into_iter()
            .flat_map(|up| {
                let of = move |queue| [false, true].map(|window| (up, queue, window));
                [20, 200].into_iter().flat_map(of)
            })
            .collect(),
    }
}

/// A point of Fig. 8, with its ACKs (Fig. 11): no delay.
fn without_delay(
    up: u32,
    queue: u32,
    window: bool,
    extent: Extent,
) -> Result<Point, LaboratoryError> {
    let judged = queue == 200 && !window && (up == 32 || up == 64);
    let megabytes = match extent {
        Extent::Quick => 1.0,
        // The paper has no such rate, and the transfer is slow.
        Extent::Normal if up < 32 => 2.5,
        Extent::Normal | Extent::Full => 10.0,
    };
    let mut testbed = Testbed {
        up,
        queue,
        round_trip: 0,
        window,
        megabytes,
        access: Vec::new(),
    };
    let mut cases = Vec::new();
    for (name, size) in SIZES {
        testbed.access = vec![format!("oversized_segments={size}")];
        // In a short queue ACKs are lost, and the sender needs fewer of them.
        let factor = match (queue, name) {
            (20, _) => 10.0,
            (_, NORMAL) => 2.0,
            (_, FIXED) => 8.0,
            _ => 16.0,
        };
        let seconds = testbed.seconds(factor);
        cases.push(Case::midspan(name, testbed.path()?, seconds));
    }
    let mut statements = Vec::new();
    for oversized in [AUTO, FIXED] {
        // The bounds hold for the size that a user gets without choosing one.
        let asked = judged && oversized == AUTO && extent != Extent::Quick;
        let ratio = |metric| Statement::new(metric, oversized, &[NORMAL]);
        let mut gain = ratio(Metric::Goodput);
        let mut share = Statement::new(Metric::ShareOfLink, oversized, &[]);
        let mut acks = ratio(Metric::Acks);
        if up == 32 {
            gain = gain.with_paper(PAPER_GAIN);
            acks = acks.with_paper(1.0 / 3.0);
        }
        if asked && up == 32 {
            gain = gain.at_least(2.5);
            share = share.at_least(0.95);
        }
        if asked && up == 64 {
            share = share.at_least(0.97);
        }
        if asked {
            acks = acks.at_most(0.25);
        }
        statements.extend([gain, share, acks]);
    }
    let window = if window { ", window of 64 KB" } else { "" };
    Ok(Point {
        item: "figure 8",
        name: format!("{up} kbit/s up, queue of {queue}{window}"),
        place: Some(Place::upstream(
            format!("queue of {queue}, no delay{window}"),
            f64::from(up),
        )),
        cases,
        repetitions: repetitions(judged, extent),
        printed: (up == 32)
            .then_some((NORMAL, PAPER_NORMAL))
            .into_iter()
            .collect(),
        statements,
        ..Point::default()
    })
}

/// Figs 9 and 10: a round trip of 500 ms. A client whose window stays at 64 KB with a proxy that
/// sends ahead (TGW) is compared with a client whose window grows, with large buffers (WSO).
fn figure_10(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let rates: &[u32] = match extent {
        Extent::Quick => &[],
        Extent::Normal => &[128],
        Extent::Full => &[128, 64, 32],
    };
    let mut points = Vec::new();
    for &up in rates {
        let testbed = |window, ahead: &str| Testbed {
            up,
            queue: 200,
            round_trip: 500,
            window,
            megabytes: 10.0,
            access: vec![format!("send_ahead={ahead}")],
        };
        // With sending ahead off, at most 63,712 bytes a round trip. The other cases fill the link
        // after slow start.
        let slow: f64 = 10e6 / 63_712.0 * 0.5;
        let fast = testbed(false, "off").seconds(2.0) + 3.0;
        let cases = vec![
            Case::midspan(SMALL_WINDOW, testbed(true, "off").path()?, slow.max(fast)),
            Case::midspan(AHEAD, testbed(true, "524280 B").path()?, fast),
            Case::midspan(WSO, testbed(false, "wso").path()?, fast),
        ];
        let gain = Statement::new(Metric::Goodput, AHEAD, &[SMALL_WINDOW]);
        points.push(Point {
            item: "figure 10",
            name: format!("500 ms, {up} kbit/s up, queue of 200"),
            place: Some(Place::upstream(
                "round trip of 500 ms, normal segments".to_owned(),
                f64::from(up),
            )),
            cases,
            repetitions: repetitions(extent == Extent::Full, extent),
            statements: vec![
                if up == 128 { gain.at_least(4.0) } else { gain },
                // The paper: "5–9 % faster than WSO for client 2" with oversized segments.
                Statement::new(Metric::Goodput, AHEAD, &[WSO]),
            ],
            ..Point::default()
        });
    }
    Ok(points)
}

/// Each segment size with each treatment of the window, over 500 ms.
fn whole_grid() -> Result<Vec<Point>, LaboratoryError> {
    const CASES: [(&str, &str, &str, bool); 6] = [
        ("wso, normal segments", "off", "wso", false),
        ("wso, oversized segments, auto", "auto", "wso", false),
        (
            "wso, oversized segments of 5900 bytes",
            "5900 B",
            "wso",
            false,
        ),
        ("ahead, normal segments", "off", "524280 B", true),
        ("ahead, oversized segments, auto", "auto", "524280 B", true),
        (
            "ahead, oversized segments of 5900 bytes",
            "5900 B",
            "524280 B",
            true,
        ),
    ];
    let mut points = Vec::new();
    for queue in [20, 200] {
        for up in [128, 64, 32, 16, 8] {
            let mut cases = Vec::new();
            for (name, size, ahead, window) in CASES {
                let testbed = Testbed {
                    up,
                    queue,
                    round_trip: 500,
                    window,
                    megabytes: 10.0,
                    access: vec![
                        format!("oversized_segments={size}"),
                        format!("send_ahead={ahead}"),
                    ],
                };
                let factor = if size == "off" { 2.0 } else { 8.0 };
                let seconds = testbed.seconds(factor) + 3.0;
                cases.push(Case::midspan(name, testbed.path()?, seconds));
            }
            let auto = "ahead, oversized segments, auto";
            let rival = "wso, oversized segments, auto";
            points.push(Point {
                item: "figure 9",
                name: format!("500 ms, {up} kbit/s up, queue of {queue}, all sizes"),
                place: Some(Place::upstream(
                    format!("round trip of 500 ms, queue of {queue}"),
                    f64::from(up),
                )),
                cases,
                repetitions: SHOWN,
                statements: vec![Statement::new(Metric::Goodput, auto, &[rival])],
                ..Point::default()
            });
        }
    }
    Ok(points)
}

/// The built-in path `geo-ahead`, with and without its profile.
pub(super) fn geo(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    const SENDING: &str = "sending ahead";
    const NOT: &str = "not sending ahead";
    // The longest time that a download may take, in seconds.
    let flows = [("1 MB", 2.9, 5.0), ("10 MB", 6.2, 9.0)];
    let mut points = Vec::new();
    for (flow, bound, without) in flows {
        if extent == Extent::Quick && flow == "10 MB" {
            continue;
        }
        let mut ahead = Path::load("geo-ahead")?;
        ahead.flows.retain(|one| one.name == flow);
        let mut normal = ahead.clone();
        for node in &mut normal.nodes {
            if let NodeKind::Proxy(proxy) = &mut node.kind {
                proxy.access = None;
            }
        }
        points.push(Point {
            item: "geo-ahead",
            name: format!("20/2 Mbit/s, 600 ms, {flow}"),
            cases: vec![
                Case::midspan(NOT, normal, without),
                Case::midspan(SENDING, ahead, bound),
            ],
            repetitions: repetitions(true, extent),
            statements: vec![
                Statement::new(Metric::Completion, SENDING, &[]).at_most(bound),
                Statement::new(Metric::Completion, SENDING, &[NOT]),
            ],
            ..Point::default()
        });
    }
    Ok(points)
}

/// Two clients share a downstream. Each has an upstream of its own that limits neither. In one case
/// both have normal segments, in the other the first client has oversized ones.
pub(super) fn fair(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    const BOTH: &str = "both with normal segments";
    const ONE: &str = "the first with oversized segments";
    let seconds = if extent == Extent::Quick { 5 } else { 20 };
    let path = |size| shared(size, seconds);
    let share = |case| Statement::new(Metric::ShareOfFirst, case, &[]);
    Ok(vec![Point {
        item: "fair",
        name: "8 Mbit/s down shared by two".to_owned(),
        cases: vec![
            Case::midspan(BOTH, path("off")?, f64::from(seconds)),
            Case::midspan(ONE, path("auto")?, f64::from(seconds)),
        ],
        repetitions: repetitions(false, extent),
        statements: vec![share(BOTH), share(ONE)],
        ..Point::default()
    }])
}

/// The testbed of Fig. 7.
struct Testbed {
    /// Upstream rate in kbit/s.
    up: u32,
    /// Upstream queue in packets.
    queue: u32,
    /// Round-trip time without queues, in ms.
    round_trip: u32,
    /// Whether the client's window stays at 64 KB.
    window: bool,
    megabytes: f64,
    /// Changes of the clients' profile.
    access: Vec<String>,
}

impl Testbed {
    fn seconds(&self, packets_per_ack: f64) -> f64 {
        let up = f64::from(self.up);
        expected(self.megabytes, DOWN, up, ACK, packets_per_ack)
    }

    fn path(&self) -> Result<Path, LaboratoryError> {
        let up = self.up;
        let mut changes = vec![
            format!("link.access.up.rate={up} kbit/s"),
            format!("link.access.up.queue={} packets", self.queue),
            format!("link.access.delay={} ms", self.round_trip / 2),
            format!("proxy.gateway.access.upstream={up} kbit/s"),
            format!("flow.HTTP.size={} MB", self.megabytes),
        ];
        if self.window {
            // Client 2 advertises at most half of its buffer: 63,712 bytes.
            changes.push("host.client.receive_buffer=128 KiB".to_owned());
        }
        let profile = self.access.iter();
        changes.extend(profile.map(|change| format!("proxy.gateway.access.{change}")));
        Ok(network::TESTBED.path(&changes)?)
    }
}

fn shared(size: &str, seconds: u32) -> Result<Path, LaboratoryError> {
    Ok(network::SHARED.path(&[
        format!("proxy.gateway-1.access.oversized_segments={size}"),
        format!("flow.download 1.duration={seconds} s"),
        format!("flow.download 2.duration={seconds} s"),
    ])?)
}
