//! Maki on the lab: Fig. 11, the effect of the proxies' send buffers on three equal legs.

use midspan_model::papers::maki_figures::{FIGURE_11_RECEIVE_BUFFERS, FIGURE_11_SEND_BUFFERS};
use midspan_path::Path;

use super::networks::row;
use crate::laboratory::point::JUDGED;
use crate::laboratory::{Case, Extent, LaboratoryError, Metric, Place, Point, Statement};

const SPLIT: &str = "three legs";
const ALONE: &str = "a leg alone";
const ADAPTIVE: &str = "three legs, adaptive send buffers";

/// The receive buffer of the default grid, in KB.
const RECEIVE: u32 = 64;
/// The send buffer that the text names, in KB.
const PAPER: u32 = 512;
/// The share of a leg's own throughput that this send buffer must reach ("more than about 512
/// Kbytes"). The simulator has the same bound.
const RESTORED: f64 = 0.9;
/// The share that an adaptive send buffer must reach.
const ADAPTS: f64 = 0.95;

/// Fig. 11.
pub(super) fn figure_11(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let (receive, send): (&[u32], &[u32]) = match extent {
        Extent::Quick => (&[RECEIVE], &[32, PAPER]),
        Extent::Normal => (&[RECEIVE], &FIGURE_11_SEND_BUFFERS),
        Extent::Full => (&FIGURE_11_RECEIVE_BUFFERS, &FIGURE_11_SEND_BUFFERS),
    };
    let mut points = Vec::new();
    for &receive in receive {
        for &send in send {
            points.push(point(receive, send, extent)?);
        }
    }
    Ok(points)
}

fn point(receive: u32, send: u32, extent: Extent) -> Result<Point, LaboratoryError> {
    let (seconds, repetitions) = match extent {
        Extent::Quick => (8, 1),
        Extent::Normal => (40, JUDGED),
        Extent::Full => (100, JUDGED),
    };
    let path = |legs, send: &str| path(legs, receive, send, seconds);
    let time = f64::from(seconds);
    let mut cases = vec![Case::midspan(SPLIT, path(3, &format!("{send} KB"))?, time)];
    let mut statements = Vec::new();
    if send == PAPER {
        cases.push(Case::direct(ALONE, path(1, "auto")?, time));
        cases.push(Case::midspan(ADAPTIVE, path(3, "adaptive")?, time));
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
        cases,
        repetitions,
        statements,
        ..Point::default()
    })
}

/// Networks in a row with a proxy between neighbours, and these buffers. The lab's emulator has
/// neither links of 10 Gbit/s nor queues of a million packets. A rate of 100 Mbit/s does not limit
/// either.
fn path(legs: u32, receive: u32, send: &str, seconds: u32) -> Result<Path, LaboratoryError> {
    // A kernel advertises half of a host's buffer, and doubles the size that is set on a socket.
    let host = 2 * receive;
    let mut changes = vec![
        format!("flow.file.duration={seconds} s"),
        format!("host.R{legs}.receive_buffer={host} KB"),
    ];
    for leg in 1..=legs {
        changes.push(format!("link.network-{leg}.rate=100 Mbit/s"));
        changes.push(format!("link.network-{leg}.queue=1000 packets"));
    }
    for proxy in 1..legs {
        changes.push(format!(
            "proxy.R{proxy}.client_leg.receive_buffer={receive} KB"
        ));
        changes.push(format!("proxy.R{proxy}.server_leg.send_buffer={send}"));
    }
    Ok(row(legs as usize, &changes)?)
}
