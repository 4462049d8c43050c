//! Tam on the lab: Fig. 9 and the other results of §5.2, the safety of thinning, and thinning
//! together with oversized segments.

use midspan_lab::ThinOptions;
use midspan_path::{Flow, NodeIndex, Order, Path, Workload};
use midspan_units::TimeSpan;

use super::network;
use crate::laboratory::point::{SHOWN, expected, repetitions};
use crate::laboratory::{Case, Extent, LaboratoryError, Metric, Place, Point, Statement};

/// Downstream rate in kbit/s, framing included.
const DOWN: f64 = 4000.0;
/// Bytes of an ACK with timestamps and framing.
const ACK: f64 = 75.0;

const NONE: &str = "not thinned";
const THIN: &str = "thinned";
const NONE_FIRST: &str = "not thinned, ACKs first";
const THIN_FIRST: &str = "thinned, ACKs first";

/// Upstream rate in kbit/s of the transfers in both directions. The paper does not print it.
const BOTH_WAYS: u32 = 400;
/// An upstream rate in kbit/s that does not limit: k is 0.48.
const WIDE: u32 = 400;

/// Fig. 9.
pub(super) fn figure_9(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let settings = settings(extent).into_iter();
    settings
        .map(|(up, queue, sender)| by_upstream(up, queue, sender, extent))
        .collect()
}

/// Upstream rates in kbit/s, queues in packets, and the servers' congestion control.
fn settings(extent: Extent) -> Vec<(u32, u32, &'static str)> {
    let cubic = |rates: &[u32], queue| rates.iter().map(|up| (*up, queue, "cubic")).collect();
    match extent {
        Extent::Quick => vec![(32, 200, "cubic")],
        Extent::Normal => {
            let mut all: Vec<_> = cubic(&[32, 100, 50, 10], 200);
            all.extend::<Vec<_>>(cubic(&[100, 50, 32, 10], 20));
            all.extend([(32, 200, "reno"), (32, 20, "reno")]);
            all
        }
        Extent::Full => ["cubic", "reno"]
            .into_iter()
            .flat_map(|sender| [20, 200].map(|queue| (sender, queue)))
            .flat_map(|(sender, queue)| {
                [100, 80, 60, 50, 40, 32, 20, 10].map(|up| (up, queue, sender))
            })
            .collect(),
    }
}

/// The path of a point of Fig. 9, with one download of `megabytes`.
pub(super) fn download_path(
    up: u32,
    queue: u32,
    sender: &str,
    megabytes: f64,
) -> Result<Path, LaboratoryError> {
    Testbed::new(up, queue, sender).path(&[download("client", megabytes)?])
}

/// A point of Fig. 9.
fn by_upstream(
    up: u32,
    queue: u32,
    sender: &str,
    extent: Extent,
) -> Result<Point, LaboratoryError> {
    let megabytes = match extent {
        Extent::Quick => 1.0,
        Extent::Normal if up <= 20 => 1.0,
        Extent::Normal => 4.0,
        Extent::Full => 10.0,
    };
    let judged = queue == 200 && sender == "cubic" && extent != Extent::Quick;
    let path = download_path(up, queue, sender, megabytes)?;
    let seconds = |per_ack| expected(megabytes, DOWN, f64::from(up), ACK, per_ack);
    let gain = Statement::new(Metric::Goodput, THIN, &[NONE]);
    let gain = match (up, judged) {
        (10, true) => gain.at_least(3.0).with_paper(3.0),
        (10, false) => gain.with_paper(3.0),
        (32, true) => gain.at_least(2.3),
        (50, true) => gain.at_least(1.9),
        (100, true) => gain.at_least(1.1),
        // k is below 2: delayed ACKs alone leave room on the upstream.
        (100, _) if extent != Extent::Quick => gain.at_least(0.97),
        _ => gain,
    };
    // All of the paper's lab fits 45 minutes.
    let repetitions = match (judged, extent) {
        (false, Extent::Normal) => 2,
        _ => repetitions(judged, extent),
    };
    Ok(Point {
        item: "figure 9",
        name: format!("{up} kbit/s up, queue of {queue}, {sender}"),
        place: Some(Place::upstream(
            format!("queue of {queue}, {sender}"),
            f64::from(up),
        )),
        cases: vec![
            Case::direct(NONE, path.clone(), seconds(2.0)),
            Case::thin(THIN, path, seconds(5.0)),
        ],
        repetitions,
        statements: vec![gain, Statement::new(Metric::Acks, THIN, &[NONE])],
        ..Point::default()
    })
}

/// The upstream does not limit: short transfers and a long one, one after another.
pub(super) fn no_limit(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let count = if extent == Extent::Quick { 4 } else { 20 };
    let flows = staggered(&["10 KB", "100 KB", "500 KB"], count, 3000)?;
    let mut testbed = Testbed::new(WIDE, 20, "cubic");
    testbed.delay = 20;
    let path = testbed.path(&flows)?;
    let seconds = f64::from(count) * 3.0;
    let statements = [10_000, 100_000, 500_000]
        .map(|size| Statement::new(Metric::CompletionOf(size), THIN, &[NONE]).at_most(1.03));
    Ok(vec![Point {
        item: "no limit",
        name: format!("{WIDE} kbit/s up, 40 ms, transfers of three sizes"),
        cases: vec![
            Case::direct(NONE, path.clone(), seconds),
            Case::thin(THIN, path, seconds),
        ],
        repetitions: repetitions(false, extent).min(2),
        statements: statements.to_vec(),
        ..Point::default()
    }])
}

/// Thinning together with the carrier's oversized segments.
pub(super) fn beside(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    if extent == Extent::Quick {
        return Ok(Vec::new());
    }
    const OVERSIZED: &str = "oversized segments";
    const TOGETHER: &str = "thinned, oversized segments";
    let up = 32;
    let megabytes = if extent == Extent::Full { 10.0 } else { 4.0 };
    let mut testbed = Testbed::new(up, 200, "cubic");
    let flow = [download("client", megabytes)?];
    let plain = testbed.path(&flow)?;
    testbed.oversized = true;
    let carrier = testbed.path(&flow)?;
    let seconds = expected(megabytes, DOWN, f64::from(up), ACK, 5.0);
    let together =
        Case::midspan(TOGETHER, carrier.clone(), seconds).with_thin(ThinOptions::default());
    Ok(vec![Point {
        item: "beside oversized segments",
        name: format!("{up} kbit/s up, queue of 200, a carrier's proxy"),
        cases: vec![
            Case::thin(THIN, plain, seconds),
            Case::midspan(OVERSIZED, carrier, seconds),
            together,
        ],
        repetitions: repetitions(true, extent),
        statements: vec![
            Statement::new(Metric::Goodput, TOGETHER, &[THIN, OVERSIZED]).at_least(0.98),
            Statement::new(Metric::Acks, TOGETHER, &[OVERSIZED]),
        ],
        ..Point::default()
    }])
}

/// §5.2: three terminals share 80 kbit/s upstream.
pub(super) fn three_terminals(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    if extent == Extent::Quick {
        return Ok(Vec::new());
    }
    let megabytes = 3.0;
    let mut testbed = Testbed::new(80, 20, "cubic");
    testbed.terminals = 3;
    let (_, clients) = network::testbed(3);
    let flows: Result<Vec<Transfer>, _> = clients
        .iter()
        .map(|client| download(client, megabytes))
        .collect();
    let path = testbed.path(&flows?)?;
    let seconds = expected(3.0 * megabytes, DOWN, 80.0, ACK, 2.0);
    Ok(vec![Point {
        item: "three terminals",
        name: "80 kbit/s up, three terminals".to_owned(),
        cases: vec![
            Case::direct(NONE, path.clone(), seconds),
            Case::thin(THIN, path, seconds),
        ],
        // The paper prints the goodput of each terminal.
        printed: vec![(NONE, 3.0 * 110e3), (THIN, 3.0 * 320e3)],
        repetitions: repetitions(false, extent),
        statements: vec![Statement::new(Metric::Goodput, THIN, &[NONE]).with_paper(320.0 / 110.0)],
        ..Point::default()
    }])
}

/// §5.2: a terminal that uploads while it downloads.
pub(super) fn both_ways(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    if extent == Extent::Quick {
        return Ok(Vec::new());
    }
    let testbed = Testbed::new(BOTH_WAYS, 20, "cubic");
    let flow = |name: &str, workload| Transfer {
        name: name.to_owned(),
        client: "client",
        workload,
        start: TimeSpan::ZERO,
    };
    let (down, up) = ("3 MB".parse()?, "750 KB".parse()?);
    let path = testbed.path(&[
        flow("download", Workload::Download { size: down }),
        flow("upload", Workload::Upload { size: up }),
    ])?;
    // The rate is below the link's, which includes framing, so that the queue is the host's own.
    let rate = format!("{} kbit/s", BOTH_WAYS * 9 / 10).parse()?;
    let first = |pass| ThinOptions {
        pass,
        ack_first: Some(rate),
    };
    let seconds = 20.0;
    let down = |case, against: &[&'static str]| Statement::new(Metric::GoodputOf(0), case, against);
    let up = |case, against: &[&'static str]| Statement::new(Metric::GoodputOf(1), case, against);
    Ok(vec![Point {
        item: "up- and download",
        name: format!("up- and download, {BOTH_WAYS} kbit/s up"),
        cases: vec![
            Case::direct(NONE, path.clone(), seconds),
            Case::thin(THIN, path.clone(), seconds),
            Case::direct(NONE_FIRST, path.clone(), seconds).with_thin(first(true)),
            Case::thin(THIN_FIRST, path, seconds).with_thin(first(false)),
        ],
        repetitions: repetitions(false, extent),
        statements: vec![
            down(THIN, &[NONE]),
            down(NONE_FIRST, &[NONE]),
            down(THIN_FIRST, &[NONE_FIRST]),
            down(THIN_FIRST, &[THIN]),
            up(THIN_FIRST, &[THIN]),
        ],
        ..Point::default()
    }])
}

/// Retransmission time-outs with losses in both directions.
pub(super) fn loss_both_ways(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let losses: &[&str] = match extent {
        Extent::Quick => &[],
        Extent::Normal => &["1 %"],
        Extent::Full => &["0.1 %", "0.5 %", "1 %"],
    };
    losses.iter().map(|loss| at_loss(loss, extent)).collect()
}

fn at_loss(loss: &str, extent: Extent) -> Result<Point, LaboratoryError> {
    let (sizes, count, gap): (&[&str], u32, u32) = match extent {
        Extent::Full => (&["10 KB", "100 KB", "1 MB"], 80, 4000),
        _ => (&["10 KB", "100 KB"], 120, 700),
    };
    let mut testbed = Testbed::new(100, 20, "cubic");
    testbed.delay = 20;
    testbed.loss = loss.to_owned();
    let path = testbed.path(&staggered(sizes, count, gap)?)?;
    let seconds = f64::from(count) * f64::from(gap) / 1000.0;
    Ok(Point {
        item: "loss both ways",
        name: format!("100 kbit/s up, 40 ms, loss of {loss} both ways"),
        cases: vec![
            Case::direct(NONE, path.clone(), seconds),
            Case::thin(THIN, path, seconds),
        ],
        repetitions: repetitions(extent == Extent::Full, extent).min(SHOWN),
        statements: vec![Statement::new(Metric::Timeouts, THIN, &[NONE]).at_most(1.1)],
        ..Point::default()
    })
}

/// The testbed of Fig. 8.
struct Testbed {
    /// Upstream rate in kbit/s.
    up: u32,
    /// The upstream queue in packets. The downstream queue is as printed.
    queue: u32,
    /// Congestion control of the servers.
    sender: &'static str,
    terminals: usize,
    /// One-way delay of the asymmetric link, in ms. The paper prints none.
    delay: u32,
    /// Loss in both directions.
    loss: String,
    /// Whether Midspan on router 2 sends oversized segments.
    oversized: bool,
}

/// A flow of the testbed.
struct Transfer {
    name: String,
    client: &'static str,
    workload: Workload,
    start: TimeSpan,
}

impl Testbed {
    fn new(up: u32, queue: u32, sender: &str) -> Self {
        Self {
            up,
            queue,
            sender: if sender == "reno" { "reno" } else { "cubic" },
            terminals: 1,
            delay: 0,
            loss: "0 %".to_owned(),
            oversized: false,
        }
    }

    /// The path with these flows. Several flows run at the same time.
    fn path(&self, transfers: &[Transfer]) -> Result<Path, LaboratoryError> {
        let Self { up, sender, .. } = self;
        let (network, clients) = network::testbed(self.terminals);
        let mut changes = vec![
            format!("link.asymmetric.up.rate={up} kbit/s"),
            format!("link.asymmetric.up.queue={} packets", self.queue),
            format!("link.asymmetric.delay={} ms", self.delay),
            format!("link.asymmetric.loss={}", self.loss),
            format!("host.server.congestion_control={sender}"),
            format!("proxy.router-2.client_leg.congestion_control={sender}"),
            format!("proxy.router-2.server_leg.congestion_control={sender}"),
            // The paper prints no delay; therefore the lab adds none.
            "link.backbone.delay=0 ms".to_owned(),
        ];
        // The device of a host has the host's own queue.
        for outer in clients.iter().chain(&["server-side"]) {
            changes.push(format!("link.{outer}.delay=0 ms"));
            changes.push(format!("link.{outer}.queue=1000 packets"));
        }
        if self.oversized {
            changes.push(format!(
                "proxy.router-2.access={{ downstream = \"4 Mbit/s\", upstream = \"{up} kbit/s\", \
                 oversized_segments = \"auto\" }}"
            ));
        }
        let mut path = network.path(&changes)?;
        let node = |name: &str| path.find_node(name).unwrap_or(NodeIndex(0));
        path.flows = transfers
            .iter()
            .map(|transfer| Flow {
                name: transfer.name.clone(),
                from: node(transfer.client),
                to: node("server"),
                workload: transfer.workload.clone(),
                start: transfer.start,
            })
            .collect();
        if transfers.len() > 1 {
            path.order = Order::Together;
        }
        Ok(path)
    }
}

fn download(client: &'static str, megabytes: f64) -> Result<Transfer, LaboratoryError> {
    let size = format!("{megabytes} MB").parse()?;
    Ok(Transfer {
        name: format!("download to {client}"),
        client,
        workload: Workload::Download { size },
        start: TimeSpan::ZERO,
    })
}

/// `count` transfers of each size. Groups with one transfer of each size start `gap` milliseconds
/// apart, so that most transfers are alone.
fn staggered(sizes: &[&str], count: u32, gap: u32) -> Result<Vec<Transfer>, LaboratoryError> {
    let mut flows = Vec::new();
    let part = gap / u32::try_from(sizes.len().max(1)).unwrap_or(1);
    for number in 0..count {
        for (place, text) in (0..).zip(sizes) {
            let size = text.parse()?;
            flows.push(Transfer {
                name: format!("{text} {number}"),
                client: "client",
                workload: Workload::Download { size },
                start: TimeSpan::from_milliseconds(u64::from(number * gap + place * part)),
            });
        }
    }
    Ok(flows)
}
