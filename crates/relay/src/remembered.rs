//! Verdicts about clients, for all threads, and as the text of a file.
//!
//! ```text
//! midspan-verdicts 1
//! 198.51.100.7 takes 1795300000
//! ```
//!
//! After the heading, the file has one line for each client: its address, the verdict (`takes`, `doubted` or
//! `refuses`), and the time of the verdict in seconds of the real-time clock. A line that cannot be parsed,
//! is too old or is from the future is ignored, and so is a whole file with another heading.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use midspan_policy::hosts::Hosts;
use midspan_policy::oversized_segments::{Verdict, Verdicts};
use midspan_units::{Time, TimeSpan};

/// Most clients with a stored verdict.
pub const VERDICT_LIMIT: usize = 65_536;

/// Largest file in bytes: more than this number of clients needs.
pub const FILE_LIMIT: usize = 8 << 20;

const HEADING: &str = "midspan-verdicts 1";

/// Verdicts about clients, for all threads. Times are those of the real-time clock, so they remain
/// valid across restarts.
#[derive(Debug, Clone)]
pub struct Remembered(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    verdicts: Verdicts,
    /// Incremented with each new verdict, and when verdicts are forgotten.
    revision: u64,
}

/// The result of reading a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recalled {
    /// Clients with a verdict from the file.
    pub clients: usize,
    /// Lines that were ignored.
    pub ignored: usize,
}

impl Default for Remembered {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            verdicts: Verdicts::new(VERDICT_LIMIT),
            revision: 0,
        })))
    }
}

impl Remembered {
    /// The verdict about a client.
    #[must_use]
    pub fn of(&self, client: IpAddr) -> Option<Verdict> {
        self.state().verdicts.of(client.to_canonical(), real_time())
    }

    /// Stores a verdict.
    pub fn note(&self, client: IpAddr, verdict: Verdict) {
        let mut state = self.state();
        state
            .verdicts
            .note(client.to_canonical(), verdict, real_time());
        state.revision = state.revision.wrapping_add(1);
    }

    /// Number of clients that take oversized segments, and of clients that do not.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state();
        let mut counts = (0, 0);
        for (_, verdict, _) in state.verdicts.iter(real_time()) {
            match verdict {
                Verdict::Accepts => counts.0 += 1,
                Verdict::Doubted => {}
                Verdict::Refuses => counts.1 += 1,
            }
        }
        counts
    }

    /// At most `most` verdicts on these hosts, in the order of the clients, after the client `after`,
    /// each with the time since it was found. Verdicts that are too old are included.
    #[must_use]
    pub fn known(
        &self,
        hosts: &Hosts,
        after: Option<IpAddr>,
        most: usize,
    ) -> Vec<(IpAddr, Verdict, TimeSpan)> {
        let now = real_time();
        let state = self.state();
        let known = state.verdicts.of_hosts(hosts, after, most);
        known
            .map(|(client, verdict, at)| (client, verdict, now.since(at)))
            .collect()
    }

    /// Forgets at most `most` verdicts on these hosts; returns how many.
    pub fn forget(&self, hosts: &Hosts, most: usize) -> usize {
        let mut state = self.state();
        let forgotten = state.verdicts.forget(hosts, most);
        state.revision = state.revision.wrapping_add(u64::from(forgotten > 0));
        forgotten
    }

    /// A number that changes with each new verdict, and when verdicts are forgotten.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// All verdicts, as a file.
    #[must_use]
    pub fn text(&self) -> String {
        // Copied first, because the relay's threads may need the lock.
        let known: Vec<_> = self.state().verdicts.iter(real_time()).collect();
        let mut text = format!("{HEADING}\n");
        for (client, verdict, at) in known {
            let seconds = at.since(Time::ZERO).nanoseconds() / NANOSECONDS;
            // Writing to a string does not fail.
            let _ = writeln!(text, "{client} {} {seconds}", verdict_name(verdict));
        }
        text
    }

    /// Reads a file with any content.
    pub fn recall(&self, file: &[u8]) -> Recalled {
        self.recall_at(file, real_time())
    }

    /// Reads a file; `now` is the time since 1970.
    pub fn recall_at(&self, file: &[u8], now: Time) -> Recalled {
        let file = file.get(..FILE_LIMIT).unwrap_or(file);
        // The last line may be incomplete.
        let mut lines = file.split(|byte| *byte == b'\n');
        let cut = lines.next_back().is_some_and(|last| !last.is_empty());
        if lines.next() != Some(HEADING.as_bytes()) {
            return Recalled {
                ignored: lines.count() + usize::from(!file.is_empty()),
                ..Recalled::default()
            };
        }
        let mut recalled = Recalled {
            ignored: usize::from(cut),
            ..Recalled::default()
        };
        let mut state = self.state();
        for line in lines {
            match read(line, now).filter(|_| recalled.clients < VERDICT_LIMIT) {
                Some((client, verdict, at)) => {
                    state.verdicts.note(client, verdict, at);
                    recalled.clients += 1;
                }
                None => recalled.ignored += 1,
            }
        }
        recalled
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

/// The name of a verdict, as in the file.
#[must_use]
pub const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accepts => "takes",
        Verdict::Doubted => "doubted",
        Verdict::Refuses => "refuses",
    }
}

fn read(line: &[u8], now: Time) -> Option<(IpAddr, Verdict, Time)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let client: IpAddr = words.next()?.parse().ok()?;
    let verdict = match words.next()? {
        "takes" => Verdict::Accepts,
        "doubted" => Verdict::Doubted,
        "refuses" => Verdict::Refuses,
        _ => return None,
    };
    let at = Time::ZERO + TimeSpan::from_seconds(words.next()?.parse().ok()?);
    let holds = at <= now && now.since(at) < verdict.lifetime();
    (holds && words.next().is_none()).then_some((client.to_canonical(), verdict, at))
}

fn real_time() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = since.map_or(0, |since| since.as_nanos());
    Time::from_nanoseconds(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds() -> u64 {
        real_time().since(Time::ZERO).nanoseconds() / NANOSECONDS
    }

    #[test]
    fn what_is_not_understood_too_old_or_from_the_future_is_left_out() {
        let now = seconds();
        let text = format!(
            "{HEADING}\n192.0.2.1 takes {}\n192.0.2.2 refuses {}\n192.0.2.3 refuses {}\n\
             192.0.2.4 takes {}\n192.0.2.5 perhaps {now}\n192.0.2.6 takes {now} more\n\
             192.0.2.7 takes -1\n192.0.2.8 takes 99999999999999999999\n\n::1 takes {now}\n\
             192.0.2.9 takes {}",
            now - 60,
            now - 3600,
            now - 7 * 3600,
            now + 3600,
            now - 1,
        );
        let remembered = Remembered::default();
        let recalled = remembered.recall(text.as_bytes());
        assert_eq!((recalled.clients, recalled.ignored), (3, 8));
        let of = |client: &str| remembered.of(client.parse().unwrap());
        assert_eq!(of("192.0.2.1"), Some(Verdict::Accepts));
        assert_eq!(of("::ffff:192.0.2.1"), Some(Verdict::Accepts));
        assert_eq!(of("192.0.2.2"), Some(Verdict::Refuses));
        assert_eq!(of("::1"), Some(Verdict::Accepts));
        assert_eq!(remembered.counts(), (2, 1));
        // Reading a file adds no new verdict.
        assert_eq!(remembered.revision(), 0);
    }

    #[test]
    fn another_version_is_nothing() {
        let remembered = Remembered::default();
        let text = format!("midspan-verdicts 2\n192.0.2.1 takes {}\n", seconds());
        assert_eq!(remembered.recall(text.as_bytes()).clients, 0);
        assert_eq!(remembered.recall(b""), Recalled::default());
    }

    #[test]
    fn a_file_of_all_clients_fits() {
        let longest = "2001:0db8:1111:2222:3333:4444:5555:6666 refuses 18446744073\n";
        assert!(HEADING.len() + 1 + VERDICT_LIMIT * longest.len() <= FILE_LIMIT);
    }

    #[test]
    fn what_is_forgotten_is_not_in_the_next_file() {
        let remembered = Remembered::default();
        let of = |client: &str| client.parse::<IpAddr>().unwrap();
        for client in ["192.0.2.1", "192.0.2.2", "2001:db8::1"] {
            remembered.note(of(client), Verdict::Accepts);
        }
        let hosts = Hosts::with_prefix("192.0.2.0/24".parse().unwrap());
        let known = remembered.known(&hosts, Some(of("192.0.2.1")), 9);
        assert_eq!((known.len(), known[0].0), (1, of("192.0.2.2")));
        let revision = remembered.revision();
        assert_eq!(remembered.forget(&hosts, 9), 2);
        assert_ne!(remembered.revision(), revision);
        assert_eq!(remembered.of(of("192.0.2.1")), None);
        let text = remembered.text();
        assert!(text.contains("2001:db8::1") && !text.contains("192.0.2."));
        let revision = remembered.revision();
        assert_eq!(remembered.forget(&hosts, 9), 0);
        assert_eq!(remembered.revision(), revision);
    }

    proptest! {
        #[test]
        fn no_content_is_too_much(
            lines in prop::collection::vec("[0-9.:a-f]{0,12} (takes|doubted|refuses|\\PC{0,4}) [0-9]{0,24}\\PC{0,2}", 0..40),
            rest in prop::collection::vec(any::<u8>(), 0..200),
            is_headed in any::<bool>(),
        ) {
            let mut file = if is_headed { format!("{HEADING}\n") } else { String::new() };
            file.push_str(&lines.join("\n"));
            let mut file = file.into_bytes();
            file.extend(rest);
            let remembered = Remembered::default();
            let recalled = remembered.recall(&file);
            let (takes, refuses) = remembered.counts();
            prop_assert!(takes + refuses <= recalled.clients as u64);
        }

        #[test]
        fn what_is_written_is_read(
            clients in prop::collection::btree_map(any::<IpAddr>(), any::<bool>(), 0..60),
        ) {
            let first = Remembered::default();
            for (client, takes) in &clients {
                first.note(*client, if *takes { Verdict::Accepts } else { Verdict::Refuses });
            }
            let second = Remembered::default();
            let recalled = second.recall(first.text().as_bytes());
            prop_assert_eq!(recalled.ignored, 0);
            prop_assert_eq!(second.text(), first.text());
            for client in clients.keys() {
                prop_assert_eq!(second.of(*client), first.of(*client));
            }
        }
    }
}
