//! Bhole on the lab: the place of a proxy (Table 4), the buffer of a session (Table 6), the number
//! of proxies (Fig. 9).

use super::conditions::{BUFFERS, FIGURE_9, PLACES, PLAIN_4, PLAIN_6, PROXIES, Row};
use super::conditions::{TABLE_4, TABLES_5_AND_6};
use crate::laboratory::point::JUDGED;
use crate::laboratory::{Case, Extent, LaboratoryError, Metric, Point, Statement};
use crate::run::number;

const DIRECT: &str = "no proxy";
/// The names of those of [`BUFFERS`] that the paper prints.
const BUFFER_NAMES: [&str; 4] = [
    "buffer of 10 packets",
    "buffer of 20 packets",
    "buffer of 30 packets",
    "buffer of 40 packets",
];
/// The names of [`PROXIES`] with at least one proxy.
const COUNT_NAMES: [&str; 3] = ["one proxy", "two proxies", "three proxies"];
/// Bytes of data in a packet of a kernel.
const PACKET: u32 = 1448;

const fn effort(extent: Extent) -> (u32, u32) {
    match extent {
        Extent::Quick => (4, 1),
        Extent::Normal | Extent::Full => (10, JUDGED),
    }
}

/// Table 4.
pub(super) fn table_4(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let (seconds, repetitions) = effort(extent);
    let is_wanted = |place: &&(u32, &str, u64)| match extent {
        Extent::Quick => place.0 == 1 || place.0 == 4,
        Extent::Normal => !matches!(place.0, 3 | 5),
        Extent::Full => true,
    };
    let mut cases = vec![direct(TABLE_4, seconds)?];
    let mut statements = Vec::new();
    for &(hops, name, packets) in PLACES.iter().filter(is_wanted) {
        cases.push(split(TABLE_4, name, &[hops], None, seconds)?);
        let gain = Statement::new(Metric::Goodput, name, &[DIRECT]);
        let paper = number(packets) / number(PLAIN_4);
        statements.push(gain.with_paper(paper).at_least(1.0));
        if hops != 4 {
            statements.push(Statement::new(Metric::Goodput, "1:1", &[name]).at_least(1.0));
        }
    }
    Ok(vec![Point {
        item: "table 4",
        name: "8 hops of 10 Mbit/s and 5 ms, by place".to_owned(),
        cases,
        repetitions,
        statements,
        ..Point::default()
    }])
}

/// Table 6, the part that the paper prints.
pub(super) fn table_6(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let (seconds, repetitions) = effort(extent);
    let mut cases = vec![direct(TABLES_5_AND_6, seconds)?];
    let mut statements = Vec::new();
    let mut last = None;
    for (name, (packets, printed)) in BUFFER_NAMES.into_iter().zip(BUFFERS) {
        if extent == Extent::Quick && packets != 40 {
            continue;
        }
        cases.push(split(TABLES_5_AND_6, name, &[4], Some(packets), seconds)?);
        let mut gain = Statement::new(Metric::Goodput, name, &[DIRECT]);
        if let Some(printed) = printed {
            gain = gain.with_paper(number(printed) / number(PLAIN_6));
        }
        statements.push(gain);
        // The bounds only require that goodput grows with the buffer, and then stays the same.
        if let Some(smaller) = last {
            let more = Statement::new(Metric::Goodput, name, &[smaller]);
            statements.push(more.at_least(0.99));
        }
        last = Some(name);
    }
    Ok(vec![Point {
        item: "table 6",
        name: "8 hops of 10 Mbit/s and 8 ms, by buffer".to_owned(),
        cases,
        repetitions,
        statements,
        ..Point::default()
    }])
}

/// Fig. 9.
pub(super) fn figure_9(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    let (seconds, repetitions) = effort(extent);
    let mut cases = vec![direct(FIGURE_9, seconds)?];
    let mut statements = Vec::new();
    let mut fewer = DIRECT;
    for (name, proxies) in COUNT_NAMES.into_iter().zip(&PROXIES[1..]) {
        if extent == Extent::Quick && proxies.len() == 2 {
            continue;
        }
        cases.push(split(FIGURE_9, name, proxies, None, seconds)?);
        // In the paper, each additional proxy is better. With a full link that is not possible.
        let more = Statement::new(Metric::Goodput, name, &[fewer]);
        statements.push(more.at_least(0.99));
        fewer = name;
    }
    Ok(vec![Point {
        item: "figure 9",
        name: "14 hops of 5 Mbit/s and 2 ms, by proxies".to_owned(),
        cases,
        repetitions,
        statements,
        ..Point::default()
    }])
}

fn duration(seconds: u32) -> String {
    format!("flow.ftp.duration={seconds} s")
}

fn direct(row: Row, seconds: u32) -> Result<Case, LaboratoryError> {
    let path = row.path(&[], &[duration(seconds)])?;
    Ok(Case::direct(DIRECT, path, f64::from(seconds)))
}

/// With proxies after these numbers of links from the sender, each with a send buffer of `buffer`
/// packets.
fn split(
    row: Row,
    name: &'static str,
    proxies: &[u32],
    buffer: Option<u32>,
    seconds: u32,
) -> Result<Case, LaboratoryError> {
    let mut changes = vec![duration(seconds)];
    if let Some(packets) = buffer {
        // A kernel counts its own overhead for a packet as part of the buffer. The overhead is
        // about as large as the data, and the kernel doubles the size that is set.
        let bytes = packets * PACKET;
        let of = |hops| format!("proxy.n{hops}.server_leg.send_buffer={bytes} B");
        changes.extend(proxies.iter().map(of));
    }
    let path = row.path(proxies, &changes)?;
    Ok(Case::midspan(name, path, f64::from(seconds)))
}
