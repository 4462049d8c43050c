//! The load of the machine by other work (`/proc/stat`, proc(5)).

use std::time::Duration;

/// Ticks of all processors since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticks {
    total: u64,
    idle: u64,
    stolen: u64,
}

impl Ticks {
    /// Reads the ticks; zero if the file cannot be read.
    #[must_use]
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/stat")
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    /// `cpu user nice system idle iowait irq softirq steal …`
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let fields: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .take(8)
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Self {
            total: fields.iter().sum(),
            idle: field(3) + field(4),
            stolen: field(7),
        }
    }

    /// Share of processor time that was used since `earlier`, 0 to 1.
    #[must_use]
    pub fn busy_since(self, earlier: Self) -> f64 {
        1.0 - share(
            self.idle - earlier.idle.min(self.idle),
            self.total - earlier.total.min(self.total),
            1.0,
        )
    }

    /// Share of processor time that other machines on the same hardware took since `earlier`.
    #[must_use]
    pub fn stolen_since(self, earlier: Self) -> f64 {
        share(
            self.stolen - earlier.stolen.min(self.stolen),
            self.total - earlier.total.min(self.total),
            0.0,
        )
    }
}

fn share(part: u64, whole: u64, otherwise: f64) -> f64 {
    if whole == 0 {
        otherwise
    } else {
        part as f64 / whole as f64
    }
}

/// Share of processor time that other work uses, measured for a moment while the lab does nothing.
#[must_use]
pub fn other_load() -> f64 {
    let before = Ticks::now();
    std::thread::sleep(Duration::from_millis(300));
    Ticks::now().busy_since(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_from_differences() {
        let before = Ticks::parse("cpu 100 0 0 100 0 0 0 0 0 0\n");
        let after = Ticks::parse("cpu 120 0 10 160 0 0 0 10 0 0\n");
        assert!((after.busy_since(before) - 0.4).abs() < 1e-12);
        assert!((after.stolen_since(before) - 0.1).abs() < 1e-12);
        assert!((before.busy_since(before)).abs() < 1e-12);
    }
}
