//! Skyplane's profiles: `latency.csv` and `throughput.csv`, each with a line for each measured leg between two regions.

use std::collections::BTreeMap;

use midspan_units::TimeSpan;

use super::roles::roles;
use super::{MOST_BYTES, ReadError, file_error, line_error};
use crate::network::{MOST_NODES, Network, join_directions};

/// A round trip in ms, or a rate in bit/s, between two regions.
type Values<'a> = BTreeMap<(&'a str, &'a str), f64>;

/// The network of these texts, each with the name of its file. `transit` regions become transit nodes. Round trips do
/// not change over time; a leg that was not measured does not exist. The rate of a leg is the throughput of all 64 connections with which
/// it was measured: the sessions on a leg share its rate.
///
/// # Errors
/// A column is missing, or a line is wrong.
pub fn regions(
    (latency_file, latency): (&str, &str),
    throughput: Option<(&str, &str)>,
    transit: usize,
) -> Result<Network, ReadError> {
    let times = values(latency_file, latency, "avg_rtt", 60_000.0)?;
    let rates = match throughput {
        Some((file, text)) => values(file, text, "throughput_sent", 1e13)?,
        None => Values::new(),
    };
    let mut names: Vec<&str> = times.keys().flat_map(|(from, to)| [*from, *to]).collect();
    names.sort_unstable();
    names.dedup();
    let count = names.len();
    if count > MOST_NODES {
        let what = format!("it has {count} regions; at most {MOST_NODES}");
        return Err(file_error(latency_file, what));
    }
    let place = |name: &str| names.binary_search(&name).ok();
    let mut slice = vec![0.0_f32; count * count];
    for ((from, to), milliseconds) in &times {
        let (Some(from), Some(to)) = (place(from), place(to)) else {
            continue;
        };
        #[allow(clippy::cast_possible_truncation)] // Seven digits are enough.
        if let Some(value) = slice.get_mut(from * count + to).filter(|_| from != to) {
            *value = (milliseconds / 1_000.0) as f32;
        }
    }
    join_directions(&mut slice, count);
    let roles = roles(count, &slice, transit);
    let mut network = Network::new(roles, vec![slice], TimeSpan::from_seconds(3600))?;
    for ((from, to), rate) in &rates {
        if let (Some(from), Some(to)) = (place(from), place(to)) {
            network.set_measured_rate(from, to, *rate);
        }
    }
    Ok(network)
}

/// The values of one column, by the regions of the line. Of several lines with the same regions, the last one counts.
fn values<'a>(file: &str, text: &'a str, column: &str, most: f64) -> Result<Values<'a>, ReadError> {
    if text.len() > MOST_BYTES {
        return Err(file_error(file, "it is larger than 16 MiB"));
    }
    let mut lines = text.lines().enumerate();
    let head: Vec<&str> = lines
        .next()
        .map_or("", |(_, line)| line)
        .split(',')
        .collect();
    let find = |name: &str| {
        let place = head.iter().position(|column| column.trim() == name);
        place.ok_or_else(|| line_error(file, 0, format!("the column {name} is missing")))
    };
    let (from, to, value) = (find("src_region")?, find("dst_region")?, find(column)?);
    let mut values = Values::new();
    for (place, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split(',').collect();
        let word = |column: usize| {
            let word = words.get(column).map(|word| word.trim());
            word.ok_or_else(|| line_error(file, place, format!("it has {} columns", words.len())))
        };
        // A measurement that failed has no value.
        let text = word(value)?;
        if text.is_empty() {
            continue;
        }
        let number: Result<f64, _> = text.parse();
        let number = number.ok().filter(|number| (0.0..=most).contains(number));
        let what = || format!("{column} is \"{text:.20}\", not a number between 0 and {most}");
        let number = number.ok_or_else(|| line_error(file, place, what()))?;
        if number > 0.0 {
            values.insert((word(from)?, word(to)?), number);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = "src_region,src_tier,dst_region,avg_rtt\na:1,P,b:2,20.5\nb:2,P,a:1,21\na:1,P,c:3,80\nb:2,P,c:3,50\n";
    const RATES: &str = "src_region,dst_region,throughput_sent,success\na:1,b:2,6400000000.5,True\na:1,c:3,,False\n";

    #[test]
    fn regions_become_nodes() {
        let network =
            regions(("latency.csv", LATENCY), Some(("throughput.csv", RATES)), 1).unwrap();
        let drawn = {
            let mut drawn = network.clone();
            crate::weather(&mut drawn, 1, TimeSpan::from_seconds(1));
            drawn
        };
        // Only the rate that was not measured is drawn.
        let rate = |of: &Network, from, to| of.leg(0.0, from, to).unwrap().rate;
        assert!((rate(&drawn, 0, 1) - rate(&network, 0, 1)).abs() < 1.0);
        assert!((rate(&drawn, 1, 2) - rate(&network, 1, 2)).abs() > 1.0);
        let leg = |from, to| network.leg(0.0, from, to).unwrap();
        assert_eq!(network.len(), 3);
        // The mean of both measurements.
        assert!((leg(0, 1).round_trip - 0.020_75).abs() < 1e-6);
        assert!((leg(1, 0).round_trip - 0.020_75).abs() < 1e-6);
        // The opposite direction was not measured.
        assert!((leg(2, 0).round_trip - 0.08).abs() < 1e-6);
        assert!((leg(0, 1).rate - 6.4e9).abs() < 1_000.0);
        assert!((leg(1, 2).rate - 1e8).abs() < 10.0);
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = |text: &str| {
            regions(("latency.csv", text), None, 1)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(""),
            "latency.csv, line 1: the column src_region is missing"
        );
        let wrong = LATENCY.replace("80", "-80");
        assert!(
            error(&wrong).starts_with("latency.csv, line 4: avg_rtt is \"-80\""),
            "{}",
            error(&wrong)
        );
        let short = LATENCY.replace("b:2,P,c:3,50", "b:2,P");
        assert_eq!(error(&short), "latency.csv, line 5: it has 2 columns");
    }
}
