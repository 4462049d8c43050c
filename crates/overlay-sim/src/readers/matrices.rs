//! NetLatency-Data: one file for each time slice, a square matrix of round trips, with white space between numbers.

use midspan_units::TimeSpan;

use super::roles::roles;
use super::{MOST_BYTES, MOST_FILES, ReadError, file_error, line_error};
use crate::network::{MOST_NODES, Network, join_directions};

/// What the files do not contain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slices {
    /// How long a slice lasts.
    pub slice: TimeSpan,
    /// Seconds of one unit of the matrices: 1 for Seattle, 0.001 for PlanetLab.
    pub unit: f64,
    /// How many nodes become transit nodes: those with the smallest median round trip.
    pub transit: usize,
}

/// A longer round trip is an error in the data, in seconds.
const LONGEST: f64 = 3600.0;
/// A longer one is a missing measurement, in seconds: an answer after a time-out.
const MISSING: f64 = 10.0;

/// The network of these files, each with its name and its text, in the order of the slices. A value of 0 or less, or above 10 s, is a
/// missing measurement: that of an earlier slice or of the opposite direction replaces it. If both ends have measured a leg, the mean
/// counts. A leg that was never measured does not exist.
///
/// # Errors
/// A file is no matrix, or not of the same size as the first one.
pub fn matrices(files: &[(String, String)], options: &Slices) -> Result<Network, ReadError> {
    let Some((first, _)) = files.first() else {
        return Err(file_error("the folder", "it has no matrices"));
    };
    if files.len() > MOST_FILES {
        return Err(file_error(
            first,
            format!("there are more than {MOST_FILES} files"),
        ));
    }
    let mut slices: Vec<Vec<f32>> = Vec::with_capacity(files.len());
    let mut nodes = None;
    for (file, text) in files {
        let (count, mut slice) = matrix(file, text, options.unit)?;
        if *nodes.get_or_insert(count) != count {
            let what = format!("it has {count} nodes, but {first} has another number");
            return Err(file_error(file, what));
        }
        if let Some(before) = slices.last() {
            for (value, before) in slice.iter_mut().zip(before) {
                if *value <= 0.0 {
                    *value = *before;
                }
            }
        }
        slices.push(slice);
    }
    let count = nodes.unwrap_or(0);
    for slice in &mut slices {
        join_directions(slice, count);
    }
    let of_first = slices.first().map_or(&[][..], Vec::as_slice);
    let roles = roles(count, of_first, options.transit);
    Ok(Network::new(roles, slices, options.slice)?)
}

/// The number of nodes, and the round trips in seconds by rows.
fn matrix(file: &str, text: &str, unit: f64) -> Result<(usize, Vec<f32>), ReadError> {
    if text.len() > MOST_BYTES {
        return Err(file_error(file, "it is larger than 16 MiB"));
    }
    let lines = text.lines().enumerate();
    let lines: Vec<_> = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
    let count = lines.len();
    if count > MOST_NODES {
        return Err(file_error(
            file,
            format!("it has {count} lines; at most {MOST_NODES}"),
        ));
    }
    let mut values = Vec::with_capacity(count * count);
    for (place, line) in lines {
        let before = values.len();
        for word in line.split_whitespace() {
            let value: f64 = word
                .parse()
                .map_err(|_| line_error(file, place, format!("\"{word:.20}\" is no number")))?;
            let seconds = value * unit;
            if !value.is_finite() || seconds > LONGEST {
                let what = format!("\"{word:.20}\" is no round trip below 1 h");
                return Err(line_error(file, place, what));
            }
            if values.len() - before >= count {
                let what =
                    format!("it has more than {count} numbers, one for each line of the file");
                return Err(line_error(file, place, what));
            }
            #[allow(clippy::cast_possible_truncation)] // Seven digits are enough.
            values.push(if seconds <= MISSING {
                seconds.max(0.0) as f32
            } else {
                0.0
            });
        }
        if values.len() - before < count {
            let what = format!(
                "it has {} numbers instead of {count}",
                values.len() - before
            );
            return Err(line_error(file, place, what));
        }
    }
    Ok((count, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: Slices = Slices {
        slice: TimeSpan::from_seconds(10),
        unit: 1.0,
        transit: 1,
    };

    fn files(texts: &[&str]) -> Vec<(String, String)> {
        let numbered = texts.iter().enumerate();
        numbered
            .map(|(place, text)| (format!("SeattleData_{}", place + 1), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn slices_follow_each_other_and_missing_values_are_replaced() {
        let network = matrices(
            &files(&[
                "0 0.1 0.3\n0.1 0 0.1\n0 0.2 0\n",
                "0\t0.2\t0.3\n0.1 0 0\n0.3 0.2 0",
            ]),
            &OPTIONS,
        )
        .unwrap();
        let round_trip = |now, from, to| network.leg(now, from, to).unwrap().round_trip;
        assert_eq!(network.len(), 3);
        // Node 1 has the smallest median, so it is the transit node.
        assert_eq!(network.nodes(crate::Role::Transit).collect::<Vec<_>>(), [1]);
        assert!((round_trip(0.0, 0, 1) - 0.1).abs() < 1e-6);
        assert!((round_trip(0.0, 2, 0) - 0.3).abs() < 1e-6);
        // The ends have measured 0.2 s and 0.1 s, the latter for the second leg in the slice before.
        assert!((round_trip(10.0, 0, 1) - 0.15).abs() < 1e-6);
        assert!((round_trip(10.0, 1, 2) - 0.15).abs() < 1e-6);
        assert!((round_trip(10.0, 2, 1) - 0.15).abs() < 1e-6);
        assert!((round_trip(20.0, 0, 1) - 0.1).abs() < 1e-6);
        assert_eq!(network.leg(0.0, 1, 1), None);
    }

    #[test]
    fn errors_name_file_and_line() {
        for (texts, message) in [
            (
                &["0 1\n1"][..],
                "SeattleData_1, line 2: it has 1 numbers instead of 2",
            ),
            (&["0 x\n1 0"], "SeattleData_1, line 1: \"x\" is no number"),
            (
                &["0 NaN\n1 0"],
                "SeattleData_1, line 1: \"NaN\" is no round trip below 1 h",
            ),
            (
                &["0 1 2\n1 0 3"],
                "SeattleData_1, line 1: it has more than 2 numbers",
            ),
            (&["0 1\n1 0", "0"], "SeattleData_2: it has 1 nodes"),
            (&["0"], "a network needs"),
            (&[], "the folder: it has no matrices"),
        ] {
            let error = matrices(&files(texts), &OPTIONS).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9 .e\\-\nx]{0,200}", unit in 0.0_f64..10.0) {
            let _ = matrices(&files(&[&text, &text]), &Slices { unit, ..OPTIONS });
        }
    }
}
