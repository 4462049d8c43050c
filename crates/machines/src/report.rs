//! What is printed: a line for each job, the totals, and a table of what Midspan found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::job::{Outcome, Row};
use crate::release::Release;

/// The results of all chosen jobs; without a row, a job has not run yet.
#[derive(Debug, Default)]
pub struct Results(Vec<(&'static str, String, Option<Row>)>);

/// A job that has ended, in one line, and what it printed if it failed.
pub fn line(release: Release, job: &str, row: &Row) -> String {
    let outcome = match row.outcome {
        Outcome::Passed => "passed",
        Outcome::Skipped => "skipped",
        Outcome::Failed => "FAILED",
    };
    let mut line = format!(
        "{} {job}: {outcome} in {:.0} s",
        release.name(),
        row.seconds
    );
    for kept in &row.lines {
        let _ = write!(line, "\n    {kept}");
    }
    line
}

impl Results {
    /// Adds a job.
    pub fn add(&mut self, release: Release, job: String, row: Option<Row>) {
        self.0.push((release.name(), job, row));
    }

    /// Whether a job has failed.
    pub fn have_failed(&self) -> bool {
        self.rows().any(|(.., row)| row.outcome == Outcome::Failed)
    }

    /// Whether a job has not run yet.
    pub fn are_incomplete(&self) -> bool {
        self.0.iter().any(|(.., row)| row.is_none())
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, &String, &Row)> {
        self.0
            .iter()
            .filter_map(|(release, job, row)| Some((*release, job, row.as_ref()?)))
    }

    /// All of it; with each job if `lists_jobs`.
    pub fn text(&self, lists_jobs: bool) -> String {
        let mut text = String::new();
        if lists_jobs {
            for (release, job, row) in &self.0 {
                let outcome = row.as_ref().map_or("not run", |row| match row.outcome {
                    Outcome::Passed => "passed",
                    Outcome::Skipped => "skipped",
                    Outcome::Failed => "FAILED",
                });
                let _ = writeln!(text, "{release} {job}: {outcome}");
            }
        }
        self.add_findings(&mut text);
        for (release, job, row) in self.rows() {
            if row.outcome != Outcome::Passed || !row.lines.is_empty() {
                let reasons = row.lines.first().map_or("", String::as_str);
                let outcome = match row.outcome {
                    Outcome::Failed => "FAILED",
                    Outcome::Skipped => "skipped",
                    Outcome::Passed => "passed, but",
                };
                let _ = writeln!(text, "{release} {job}: {outcome}: {reasons}");
            }
        }
        let releases: BTreeSet<_> = self.0.iter().map(|(release, ..)| *release).collect();
        for release in releases {
            let count = |outcome| {
                let is_counted =
                    |(name, _, row): &(&str, _, &Row)| *name == release && row.outcome == outcome;
                self.rows().filter(is_counted).count()
            };
            let all = self.0.iter().filter(|(name, ..)| *name == release).count();
            let seconds: f64 = self
                .rows()
                .filter(|(name, ..)| *name == release)
                .map(|(.., row)| row.seconds)
                .fold(0.0, |sum, seconds| sum + seconds);
            let (passed, skipped, failed) = (
                count(Outcome::Passed),
                count(Outcome::Skipped),
                count(Outcome::Failed),
            );
            let _ = writeln!(
                text,
                "{release}: {all} jobs: {passed} passed, {skipped} skipped, {failed} failed, {} not \
                 run yet; {:.0} minutes without starts",
                all - passed - skipped - failed,
                seconds / 60.0
            );
        }
        text
    }

    /// A row for each name that was found in any kernel, a column for each kernel.
    fn add_findings(&self, text: &mut String) {
        let mut kernels = Vec::new();
        let mut names = Vec::new();
        let mut cells = BTreeMap::new();
        for (_, _, row) in self.rows() {
            for (name, found) in &row.findings {
                if !kernels.contains(&&row.kernel) {
                    kernels.push(&row.kernel);
                }
                if !names.contains(&name) {
                    names.push(name);
                }
                cells.insert((name, &row.kernel), found);
            }
        }
        if names.is_empty() {
            return;
        }
        let heads: Vec<String> = kernels
            .iter()
            .map(|kernel| format!("Linux {kernel}"))
            .collect();
        let _ = writeln!(text, "| what Midspan does | {} |", heads.join(" | "));
        let _ = writeln!(text, "| --- |{}", " --- |".repeat(kernels.len()));
        for name in names {
            let found = |kernel: &&String| {
                let cell = cells.get(&(name, *kernel));
                cell.map_or("–".to_owned(), |text| text.replace('|', "\\|"))
            };
            let row: Vec<String> = kernels.iter().map(found).collect();
            let name = name.replace('|', "\\|");
            let _ = writeln!(text, "| {name} | {} |", row.join(" | "));
        }
    }
}
