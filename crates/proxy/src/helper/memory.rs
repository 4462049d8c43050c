//! The memory limits of the machine and of cgroups, read from time to time because both can change
//! while the proxy runs.

use std::time::{Duration, Instant};

use midspan_policy::memory_bounds::MemoryBounds;
use midspan_relay::RelayLimits;
use midspan_units::ByteSize;
use tracing::info;

use crate::configuration::RelaySettings;
use crate::machine_memory;

/// Time between two readings, each of which reads a few small files.
const INTERVAL: Duration = Duration::from_secs(5);

/// The last reading.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    found: MemoryBounds,
    next: Instant,
}

impl MemoryWatch {
    pub fn new() -> Self {
        Self {
            found: machine_memory::bounds(),
            next: Instant::now() + INTERVAL,
        }
    }

    /// When to call [`look`](Self::look) at the latest.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Reads again; returns new limits if they have changed.
    pub fn look(&mut self, settings: &RelaySettings, now: Instant) -> Option<RelayLimits> {
        if now < self.next {
            return None;
        }
        self.next = now + INTERVAL;
        self.compare(settings, machine_memory::bounds())
    }

    fn compare(&mut self, settings: &RelaySettings, found: MemoryBounds) -> Option<RelayLimits> {
        if std::mem::replace(&mut self.found, found) == found {
            return None;
        }
        let old = settings.limits;
        // Without a budget nothing is limited.
        let memory = old.memory?;
        let memory = match settings.memory_is_set {
            true => memory,
            false => ByteSize::from_bytes(found.budget().0),
        };
        let new = RelayLimits {
            memory: Some(memory),
            queues: Some(ByteSize::from_bytes(found.of_queues())),
            ..old
        };
        (new != old).then(|| {
            let queues = new.queues.map_or(u64::MAX, ByteSize::bytes);
            info!(
                memory_bytes = memory.bytes(),
                queues_bytes = queues,
                "the machine allows another budget of memory"
            );
            new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use midspan_document::Source;

    fn settings(limits: &str) -> RelaySettings {
        let listener =
            "[[listener]]\nname = \"a\"\nlisten = \"127.0.0.1:1\"\nto = \"127.0.0.1:2\"\n";
        let text = format!("[limits]\n{limits}\n{listener}");
        Configuration::read(&Source::new("file", text))
            .unwrap()
            .relay
    }

    #[test]
    fn a_change_is_told_once_and_only_of_what_the_operator_left_open() {
        let small = MemoryBounds {
            machine: 1 << 30,
            group: Some(128 << 20),
            pressure: Some(64 << 20),
        };
        let mut watch = MemoryWatch::new();
        let mut settings_now = settings("");
        let limits = watch.compare(&settings_now, small).unwrap();
        assert_eq!(limits.memory.unwrap().bytes(), 96 << 20);
        assert_eq!(limits.queues.unwrap().bytes(), 32 << 20);
        settings_now.limits = limits;
        assert_eq!(watch.compare(&settings_now, small), None);
        let other = MemoryBounds {
            pressure: Some(32 << 20),
            ..small
        };
        let mut watch = MemoryWatch::new();
        let limits = watch
            .compare(&settings("memory = \"1 GiB\""), other)
            .unwrap();
        assert_eq!(limits.memory.unwrap().bytes(), 1 << 30);
        assert_eq!(limits.queues.unwrap().bytes(), 16 << 20);
        let mut watch = MemoryWatch::new();
        assert_eq!(watch.compare(&settings("memory = \"0 B\""), other), None);
    }
}
