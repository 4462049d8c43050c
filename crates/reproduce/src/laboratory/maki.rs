//! Maki on the lab: Fig. 11, what the proxies' send buffers do to three equal legs.

use std::fmt::Write as _;

use midspan_model::papers::maki_figures::{FIGURE_11_RECEIVE_BUFFERS, FIGURE_11_SEND_BUFFERS};
use midspan_path::Path;

use super::LaboratoryError;
use super::plan::{Arm, Extent, JUDGED, LabPlan, Place, Point, read};
use super::statement::{Metric, Statement};

const SPLIT: &str = "three legs";
const ALONE: &str = "a leg alone";
const ADAPTIVE: &str = "three legs, adaptive send buffers";

/// The receive buffer of the default grid, in KB.
const RECEIVE: u32 = 64;
/// The send buffer that the text names, in KB.
const PAPER: u32 = 512;
/// What it must bring of a leg's own throughput ("more than about 512 Kbytes"), as asked of the
/// simulator.
const RESTORED: f64 = 0.9;
/// What a buffer that sets itself must reach of that.
const ADAPTS: f64 = 0.95;

/// The points.
pub(super) fn plan(extent: Extent) -> Result<LabPlan, LaboratoryError> {
    let (receive, send): (&[u32], &[u32]) = match extent {
        Extent::Quick => (&[RECEIVE], &[32, PAPER]),
        Extent::Normal => (&[RECEIVE], &FIGURE_11_SEND_BUFFERS),
        Extent::Full => (&FIGURE_11_RECEIVE_BUFFERS, &FIGURE_11_SEND_BUFFERS),
    };
    let mut points = Vec::new();
    for &receive in receive {
        for &send in send {
            points.push(figure_11(receive, send, extent)?);
        }
    }
    Ok(LabPlan::of(points))
}

fn figure_11(receive: u32, send: u32, extent: Extent) -> Result<Point, LaboratoryError> {
    let (seconds, repetitions) = match extent {
        Extent::Quick => (8, 1),
        Extent::Normal => (40, JUDGED),
        Extent::Full => (100, JUDGED),
    };
    let path = |legs, send: &str| path(legs, receive, send, seconds);
    let time = f64::from(seconds);
    let mut arms = vec![Arm::midspan(SPLIT, path(3, &format!("{send} KB"))?, time)];
    let mut statements = Vec::new();
    if send == PAPER {
        arms.push(Arm::direct(ALONE, path(1, "auto")?, time));
        arms.push(Arm::midspan(ADAPTIVE, path(3, "adaptive")?, time));
        let share = Statement::new(Metric::Goodput, SPLIT, &[ALONE]).with_paper(1.0);
        let adaptive = Statement::new(Metric::Goodput, ADAPTIVE, &[SPLIT]);
        let is_judged = extent != Extent::Quick;
        statements.push(if is_judged {
            share.at_least(RESTORED)
        } else {
            share
        });
        statements.push(if is_judged {
            adaptive.at_least(ADAPTS)
        } else {
            adaptive
        });
    }
    Ok(Point {
        item: "figure 11",
        name: format!("receive buffer {receive} KB, send buffer {send} KB"),
        place: Some(Place::logarithmic(
            format!("receive buffer {receive} KB"),
            ("send buffer", "bytes"),
            f64::from(send) * 1000.0,
        )),
        arms,
        repetitions,
        statements,
    })
}

/// `legs` networks in a row with a proxy between any two. As in Figs 10 and 11 each loses 1 % and
/// takes 50 ms one way; ACKs are not lost, and no rate is a limit.
fn path(legs: u32, receive: u32, send: &str, seconds: u32) -> Result<Path, LaboratoryError> {
    // Half of a host's buffer is advertised; what is set on a socket a kernel doubles.
    let host = 2 * receive;
    let mut text = format!(
        r#"
[[host]]
name = "R0"
congestion_control = "reno"
[[host]]
name = "R{legs}"
congestion_control = "reno"
receive_buffer = "{host} KB"
"#
    );
    for leg in 0..legs {
        let next = leg + 1;
        if next < legs {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                r#"
[[proxy]]
name = "R{next}"
client_leg = {{ congestion_control = "reno", receive_buffer = "{receive} KB" }}
server_leg = {{ congestion_control = "reno", send_buffer = "{send}" }}
"#
            );
        }
        let _ = write!(
            text,
            r#"
[[link]]
name = "network-{next}"
between = ["R{leg}", "R{next}"]
rate = "100 Mbit/s"
delay = "50 ms"
up = {{ loss = "0.01" }}
"#
        );
    }
    let _ = write!(
        text,
        r#"
[[flow]]
name = "file"
from = "R0"
to = "R{legs}"
workload = "bulk-upload"
duration = "{seconds} s"
"#
    );
    read("maki", &text)
}
