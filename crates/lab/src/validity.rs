//! The judgement of a run: whether the emulator kept up, and whether the run measured its case.

use std::fmt;

use midspan_units::TimeSpan;

use crate::emulator::LinkReport;

/// 99 % of the frames must be less late than this.
const P99_LIMIT: TimeSpan = TimeSpan::from_milliseconds(1);
/// Share of frames that may be later than 2 ms; a single short pause does not make a run void.
const LATE_SHARE: f64 = 0.002;
/// Number of frames that may be later than 2 ms, however large their share.
const LATE_FRAMES: u64 = 5;
/// Share of processor time that other programs may use before a run.
const LOAD_LIMIT: f64 = 0.25;
/// Share of processor time that other machines on the same hardware may use during a run.
const STOLEN_LIMIT: f64 = 0.05;

/// The reasons why a run is void; a run without a reason is valid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Validity {
    reasons: Vec<String>,
}

impl Validity {
    /// Judges a run by its links (with names), the load before the run, and the processor time that
    /// other machines took during the run.
    #[must_use]
    pub fn judge<'a>(
        links: impl IntoIterator<Item = (&'a str, &'a LinkReport)>,
        load_before: f64,
        stolen: f64,
    ) -> Self {
        let mut reasons = Vec::new();
        for (name, link) in links {
            reasons.extend(judge_link(name, link));
        }
        if load_before > LOAD_LIMIT {
            let percent = load_before * 100.0;
            reasons.push(format!(
                "other programs used {percent:.0} % of the processors before the run"
            ));
        }
        if stolen > STOLEN_LIMIT {
            let percent = stolen * 100.0;
            reasons.push(format!(
                "other machines took {percent:.0} % of the processors during the run"
            ));
        }
        Self { reasons }
    }

    /// Adds further reasons why the run is void.
    #[must_use]
    pub fn with(mut self, reasons: Vec<String>) -> Self {
        self.reasons.extend(reasons);
        self
    }

    /// Whether the run is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.reasons.is_empty()
    }
}

fn judge_link(name: &str, link: &LinkReport) -> Vec<String> {
    let mut reasons = Vec::new();
    if link.kernel_drops > 0 {
        reasons.push(format!(
            "link \"{name}\": the kernel dropped {} frames that the emulator did not take in time",
            link.kernel_drops
        ));
    }
    for (direction, report) in [("up", &link.up), ("down", &link.down)] {
        let late = report.lateness;
        let too_many = late.late_frames > LATE_FRAMES
            && late.late_frames as f64 > late.frames as f64 * LATE_SHARE;
        if too_many || (late.p99 > P99_LIMIT && late.frames > 100) {
            reasons.push(format!(
                "link \"{name}\" {direction}: deliveries were late (99 % within {:.2} ms, {} of {} \
                 above 2 ms, the latest {:.1} ms)",
                late.p99.as_milliseconds(),
                late.late_frames,
                late.frames,
                late.max.as_milliseconds()
            ));
        }
    }
    reasons
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_valid() {
            f.write_str("valid")
        } else {
            write!(f, "void: {}", self.reasons.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::{DirectionReport, Lateness};

    fn link(frames: u64, late_frames: u64, p99_us: u64, kernel_drops: u64) -> LinkReport {
        LinkReport {
            up: DirectionReport {
                lateness: Lateness {
                    frames,
                    late_frames,
                    p99: TimeSpan::from_nanoseconds(p99_us * 1000),
                    ..Lateness::default()
                },
                ..DirectionReport::default()
            },
            kernel_drops,
            ..LinkReport::default()
        }
    }

    #[test]
    fn each_reason_voids_by_itself() {
        let judge = |link: &LinkReport, load, stolen| {
            Validity::judge([("l", link)], load, stolen).is_valid()
        };
        assert!(judge(&link(10_000, 5, 300, 0), 0.1, 0.0));
        assert!(!judge(&link(10_000, 21, 300, 0), 0.1, 0.0));
        assert!(!judge(&link(10_000, 0, 1_500, 0), 0.1, 0.0));
        assert!(!judge(&link(10_000, 0, 300, 1), 0.1, 0.0));
        assert!(!judge(&link(10_000, 0, 300, 0), 0.3, 0.0));
        assert!(!judge(&link(10_000, 0, 300, 0), 0.1, 0.1));
        let links: [(&str, &LinkReport); 0] = [];
        assert!(
            !Validity::judge(links, 0.0, 0.0)
                .with(vec!["nothing carried".into()])
                .is_valid()
        );
    }

    #[test]
    fn the_reason_is_said() {
        let link = link(10, 0, 0, 7);
        let text = Validity::judge([("satellite", &link)], 0.0, 0.0).to_string();
        assert!(
            text.contains("satellite") && text.contains("dropped 7 frames"),
            "{text}"
        );
    }
}
