//! Bhole on the lab: where a proxy stands (Table 4), what buffer a session has (Table 6), how many
//! there are (Fig. 9).

use std::fmt::Write as _;

use midspan_path::Path;

use super::LaboratoryError;
use super::plan::{Arm, Extent, JUDGED, LabPlan, Point, read};
use super::statement::{Metric, Statement};

const DIRECT: &str = "no proxy";
/// Data of a packet of a kernel.
const PACKET: u32 = 1448;
/// Of the paper's window.
const WINDOW: u32 = 20;

/// Of Table 4: the place, hops before it, and the paper's packets.
const PLACES: [(&str, u32, f64); 7] = [
    ("1:7", 1, 2530.0),
    ("2:6", 2, 2970.0),
    ("3:5", 3, 3570.0),
    ("1:1", 4, 4470.0),
    ("5:3", 5, 3570.0),
    ("6:2", 6, 2970.0),
    ("7:1", 7, 2530.0),
];
const PLAIN_4: f64 = 2210.0;
/// Of Table 6: the buffer, in packets, and the paper's packets.
const BUFFERS: [(&str, u32, f64); 4] = [
    ("buffer of 10 packets", 10, 1948.0),
    ("buffer of 20 packets", 20, 2361.0),
    ("buffer of 30 packets", 30, 2602.0),
    ("buffer of 40 packets", 40, 2708.0),
];
const PLAIN_6: f64 = 1390.0;
/// Of Fig. 9.
const COUNTS: [(&str, &[u32]); 3] = [
    ("one proxy", &[7]),
    ("two proxies", &[5, 9]),
    ("three proxies", &[3, 7, 10]),
];

/// The points.
pub(super) fn plan(extent: Extent) -> Result<LabPlan, LaboratoryError> {
    let points = vec![table_4(extent)?, table_6(extent)?, figure_9(extent)?];
    Ok(LabPlan::of(points))
}

const fn effort(extent: Extent) -> (u32, u32) {
    match extent {
        Extent::Quick => (4, 1),
        Extent::Normal | Extent::Full => (10, JUDGED),
    }
}

fn table_4(extent: Extent) -> Result<Point, LaboratoryError> {
    let (seconds, repetitions) = effort(extent);
    let row = Row::new(10, 5, 8, seconds);
    let is_wanted = |place: &&(&str, u32, f64)| match extent {
        Extent::Quick => place.1 == 1 || place.1 == 4,
        Extent::Normal => !matches!(place.1, 3 | 5),
        Extent::Full => true,
    };
    let mut arms = vec![row.direct()?];
    let mut statements = Vec::new();
    for (name, hops, packets) in PLACES.iter().filter(is_wanted) {
        arms.push(row.split(name, &[*hops], None)?);
        let gain = Statement::new(Metric::Goodput, name, &[DIRECT]);
        statements.push(gain.with_paper(packets / PLAIN_4).at_least(1.0));
        if *hops != 4 {
            statements.push(Statement::new(Metric::Goodput, "1:1", &[name]).at_least(1.0));
        }
    }
    Ok(Point {
        item: "table 4",
        name: "8 hops of 10 Mbit/s and 5 ms, by place".to_owned(),
        place: None,
        arms,
        repetitions,
        statements,
    })
}

fn table_6(extent: Extent) -> Result<Point, LaboratoryError> {
    let (seconds, repetitions) = effort(extent);
    let row = Row::new(10, 8, 8, seconds);
    let is_wanted = |buffer: &&(&str, u32, f64)| extent != Extent::Quick || buffer.1 == 40;
    let mut arms = vec![row.direct()?];
    let mut statements = Vec::new();
    let mut last = None;
    for (name, packets, paper) in BUFFERS.iter().filter(is_wanted) {
        arms.push(row.split(name, &[4], Some(*packets))?);
        let gain = Statement::new(Metric::Goodput, name, &[DIRECT]);
        statements.push(gain.with_paper(paper / PLAIN_6));
        // Monotone and saturating is what can be asked.
        if let Some(smaller) = last {
            let more = Statement::new(Metric::Goodput, name, &[smaller]);
            statements.push(more.at_least(0.99));
        }
        last = Some(*name);
    }
    Ok(Point {
        item: "table 6",
        name: "8 hops of 10 Mbit/s and 8 ms, by buffer".to_owned(),
        place: None,
        arms,
        repetitions,
        statements,
    })
}

fn figure_9(extent: Extent) -> Result<Point, LaboratoryError> {
    let (seconds, repetitions) = effort(extent);
    let row = Row::new(5, 2, 14, seconds);
    let mut arms = vec![row.direct()?];
    let mut statements = Vec::new();
    let mut fewer = DIRECT;
    for (name, places) in COUNTS {
        if extent == Extent::Quick && places.len() == 2 {
            continue;
        }
        arms.push(row.split(name, places, None)?);
        // Each is better than the last in the paper; where the link is full it cannot be.
        let more = Statement::new(Metric::Goodput, name, &[fewer]);
        statements.push(more.at_least(0.99));
        fewer = name;
    }
    Ok(Point {
        item: "figure 9",
        name: "14 hops of 5 Mbit/s and 2 ms, by proxies".to_owned(),
        place: None,
        arms,
        repetitions,
        statements,
    })
}

/// Equal links in a row.
struct Row {
    /// Mbit/s.
    rate: u32,
    /// ms, one way, of each.
    delay: u32,
    hops: u32,
    /// Of a transfer.
    seconds: u32,
}

impl Row {
    const fn new(rate: u32, delay: u32, hops: u32, seconds: u32) -> Self {
        Self {
            rate,
            delay,
            hops,
            seconds,
        }
    }

    fn direct(&self) -> Result<Arm, LaboratoryError> {
        let path = self.path(&[], None)?;
        Ok(Arm::direct(DIRECT, path, f64::from(self.seconds)))
    }

    fn split(
        &self,
        name: &'static str,
        places: &[u32],
        buffer: Option<u32>,
    ) -> Result<Arm, LaboratoryError> {
        let path = self.path(places, buffer)?;
        Ok(Arm::midspan(name, path, f64::from(self.seconds)))
    }

    /// With proxies after so many hops from the sender, each with a send buffer of `buffer`
    /// packets.
    fn path(&self, proxies: &[u32], buffer: Option<u32>) -> Result<Path, LaboratoryError> {
        let Self {
            rate,
            delay,
            hops,
            seconds,
        } = self;
        // Half of a host's buffer is advertised; what is set on a socket a kernel doubles.
        let window = WINDOW * PACKET;
        let receive = 2 * window;
        // What it keeps for a packet is counted with what it takes itself, which is about half.
        let send = buffer.map_or_else(
            || "\"auto\"".to_owned(),
            |packets| format!("\"{} B\"", packets * PACKET),
        );
        let mut text = format!(
            r#"
[[host]]
name = "n0"
congestion_control = "reno"
[[host]]
name = "n{hops}"
congestion_control = "reno"
receive_buffer = "{receive} B"
"#
        );
        for hop in 0..*hops {
            let next = hop + 1;
            let link = format!(
                r#"
[[link]]
name = "hop-{next}"
between = ["n{hop}", "n{next}"]
rate = "{rate} Mbit/s"
delay = "{delay} ms"
queue = "50 packets"
"#
            );
            text.push_str(&link);
            if next == *hops {
                continue;
            }
            // Writing to a string cannot fail.
            let _ = if proxies.contains(&next) {
                write!(
                    text,
                    r#"
[[proxy]]
name = "n{next}"
client_leg = {{ congestion_control = "reno", receive_buffer = "{window} B" }}
server_leg = {{ congestion_control = "reno", send_buffer = {send} }}
"#
                )
            } else {
                write!(text, "\n[[router]]\nname = \"n{next}\"\n")
            };
        }
        let _ = write!(
            text,
            r#"
[[flow]]
name = "ftp"
from = "n0"
to = "n{hops}"
workload = "bulk-upload"
duration = "{seconds} s"
"#
        );
        read("bhole", &text)
    }
}
