//! Where the lab's numbers come from, for reports: the programs, the seeds, the path files.

use std::collections::BTreeSet;

use midspan_lab::versions;
use midspan_report::{Download, Fact};

use super::Point;

/// The programs of the cases with their versions, and the seeds of the first repetition.
#[must_use]
pub fn facts(points: &[Point]) -> Vec<Fact> {
    let cases = || points.iter().flat_map(|point| &point.cases);
    let seeds: BTreeSet<u64> = cases().map(|case| case.path.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let mut facts = Vec::new();
    if !seeds.is_empty() {
        facts.push(Fact::new("seed of the first repetition", seeds.join(", ")));
    }
    facts.extend(versions(cases().map(|case| (case.kind, &case.path))));
    facts
}

/// The path file of each point, that of its first case. The cases of a point differ in their proxies
/// and hosts only.
#[must_use]
pub fn path_files(points: &[Point]) -> Vec<Download> {
    let files = points.iter().filter_map(|point| {
        let mut file = Download::path_file(point.cases.first()?.path.to_text()?);
        file.name = format!("{}.toml", name(&point.name));
        Some(file)
    });
    files.collect()
}

/// A point's name as the name of a file.
fn name(point: &str) -> String {
    let mut name = String::new();
    for part in point.split(|c: char| !c.is_alphanumeric() && c != '.') {
        if !part.is_empty() && !name.is_empty() {
            name.push('-');
        }
        name += part;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_file_has_the_name_of_its_point() {
        assert_eq!(name("geo-1e-3, 1 MB"), "geo-1e-3-1-MB");
        assert_eq!(name("P_L 0.02, Reno / B_L"), "P-L-0.02-Reno-B-L");
    }
}
