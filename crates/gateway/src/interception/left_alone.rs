//! Pairs of networks whose new connections pass untouched for a while, as sets and rules. Without I/O and
//! without a clock: the caller passes the time.
//!
//! The kernel removes each pair from its set when the pair's time is over. If the rules are replaced as a
//! whole, the new rules contain the pairs with the rest of their times. A single new pair is added to its set
//! instead, because replacing the rules would lose the sets of connections that are being opened.

use std::fmt::Write;
use std::time::{Duration, Instant};

use ipnet::IpNet;

/// The largest number of pairs. New pairs replace the oldest.
pub const LEFT_ALONE_LIMIT: usize = 1024;
/// The sets, the headers of their families, and the type of their addresses.
pub(super) const SETS: [(&str, &str, &str); 2] = [
    ("left_alone_ipv4", "ip", "ipv4_addr"),
    ("left_alone_ipv6", "ip6", "ipv6_addr"),
];

/// Connections from one network to another, of the same family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Where clients are.
    pub client: IpNet,
    /// Where servers are.
    pub server: IpNet,
}

/// Pairs that are left alone, each until an instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftAlone(Vec<(Pair, Instant)>);

impl LeftAlone {
    /// Adds `pairs`, which are left alone for `time` from `now`. A pair of two families is ignored.
    pub fn add(&mut self, pairs: &[Pair], now: Instant, time: Duration) {
        self.0.retain(|(_, until)| *until > now);
        for pair in pairs {
            let Some(until) = now.checked_add(time) else {
                continue;
            };
            if pair.client.addr().is_ipv4() != pair.server.addr().is_ipv4() {
                continue;
            }
            self.0.retain(|(other, _)| other != pair);
            if self.0.len() >= LEFT_ALONE_LIMIT {
                self.0.remove(0);
            }
            self.0.push((*pair, until));
        }
    }

    /// The number of pairs.
    #[must_use]
    pub fn count(&self, now: Instant) -> usize {
        self.0.iter().filter(|(_, until)| *until > now).count()
    }

    /// The pairs, each with the rest of its time, in the order in which they were added.
    pub fn pairs(&self, now: Instant) -> impl Iterator<Item = (Pair, Duration)> {
        let left = move |until: &Instant| until.saturating_duration_since(now);
        (self.0.iter())
            .map(move |(pair, until)| (*pair, left(until)))
            .filter(|(_, left)| *left > Duration::ZERO)
    }

    /// Removes these pairs.
    pub fn remove(&mut self, pairs: &[Pair]) {
        self.0.retain(|(pair, _)| !pairs.contains(pair));
    }

    /// The text for `nft -f` that removes `pairs` from the sets of a table in force.
    pub(super) fn removals(pairs: &[Pair], table: &str) -> String {
        let mut text = String::new();
        for pair in pairs {
            // As below: an element that is no longer in the set must not be an error.
            let (set, pair) = (set_of(pair), text_of(pair));
            let _ = write!(
                text,
                "add element inet {table} {set} {{ {pair} }}\n\
                 delete element inet {table} {set} {{ {pair} }}\n"
            );
        }
        text
    }

    /// The text for `nft -f` that adds those of `pairs` that are left alone to the sets of a table
    /// in force. A pair that is already in a set is replaced, so that its time begins again.
    pub(super) fn additions(&self, pairs: &[Pair], table: &str, now: Instant) -> String {
        let mut text = String::new();
        for (pair, until) in self.0.iter().filter(|(pair, _)| pairs.contains(pair)) {
            let (set, pair) = (set_of(pair), text_of(pair));
            let left = until.saturating_duration_since(now).as_millis().max(1);
            // Deleting a missing element is an error, and adding an existing element is not.
            // Therefore the element is added, deleted and added again.
            let _ = write!(
                text,
                "add element inet {table} {set} {{ {pair} }}\n\
                 delete element inet {table} {set} {{ {pair} }}\n\
                 add element inet {table} {set} {{ {pair} timeout {left}ms }}\n"
            );
        }
        text
    }

    /// The sets that [`rules`] read.
    pub(super) fn sets(&self, now: Instant) -> String {
        let mut text = String::new();
        for (set, header, address) in SETS {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "\tset {set} {{\n\t\ttype {address} . {address}\n\t\tsize {LEFT_ALONE_LIMIT}; \
                 flags interval,timeout"
            );
            let elements: Vec<String> = self
                .0
                .iter()
                .filter(|(pair, _)| pair.client.addr().is_ipv4() == (header == "ip"))
                .filter_map(|(pair, until)| {
                    let left = until.saturating_duration_since(now).as_millis();
                    (left > 0).then(|| format!("{} timeout {left}ms", text_of(pair)))
                })
                .collect();
            if !elements.is_empty() {
                let _ = writeln!(text, "\t\telements = {{ {} }}", elements.join(", "));
            }
            text.push_str("\t}\n");
        }
        text
    }
}

/// Rules of the chain that intercepts connections, in front of the rules that intercept.
pub(super) fn rules(syn: &str) -> impl Iterator<Item = String> {
    SETS.into_iter()
        .map(move |(set, ip, _)| format!("{syn} {ip} saddr . {ip} daddr @{set} return"))
}

/// The set of a pair's family.
fn set_of(pair: &Pair) -> &'static str {
    let [four, six] = SETS.map(|(set, ..)| set);
    match pair.client.addr().is_ipv4() {
        true => four,
        false => six,
    }
}

fn text_of(pair: &Pair) -> String {
    format!("{} . {}", pair.client, pair.server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(client: &str, server: &str) -> Pair {
        Pair {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        }
    }

    #[test]
    fn each_pair_has_what_is_left_of_its_time() {
        let now = Instant::now();
        let mut left_alone = LeftAlone::default();
        let four = pair("192.0.2.1/32", "198.51.100.0/24");
        let six = pair("2001:db8::/64", "2001:db8:1::/48");
        let mixed = pair("192.0.2.1/32", "2001:db8:1::/48");
        left_alone.add(&[four, mixed], now, Duration::from_secs(10));
        let later = now + Duration::from_secs(4);
        left_alone.add(&[six], later, Duration::from_secs(10));
        let sets = left_alone.sets(later);
        assert!(
            sets.contains("{ 192.0.2.1/32 . 198.51.100.0/24 timeout 6000ms }"),
            "{sets}"
        );
        assert!(
            sets.contains("{ 2001:db8::/64 . 2001:db8:1::/48 timeout 10000ms }"),
            "{sets}"
        );
        assert_eq!(left_alone.count(later), 2);
        let end = now + Duration::from_secs(10);
        assert!(!left_alone.sets(end).contains("192.0.2.1"));
        // A pair that is added twice is there once.
        left_alone.add(&[four, four], end, Duration::from_secs(1));
        assert_eq!(left_alone.0.len(), 2);
    }

    #[test]
    fn a_new_pair_is_added_and_the_others_stay() {
        let now = Instant::now();
        let mut left_alone = LeftAlone::default();
        let [one, other] =
            ["198.51.100.0/24", "203.0.113.0/24"].map(|net| pair("192.0.2.1/32", net));
        left_alone.add(&[one], now, Duration::from_secs(3));
        left_alone.add(&[other], now, Duration::from_secs(3));
        let text = left_alone.additions(&[other], "midspan", now);
        assert_eq!(
            text.lines().last(),
            Some(
                "add element inet midspan left_alone_ipv4 \
                 { 192.0.2.1/32 . 203.0.113.0/24 timeout 3000ms }"
            )
        );
        assert!(!text.contains("198.51.100.0"));
    }

    #[test]
    fn a_pair_can_be_removed_before_its_time() {
        let now = Instant::now();
        let mut left_alone = LeftAlone::default();
        let four = pair("192.0.2.1/32", "198.51.100.0/24");
        let six = pair("2001:db8::/64", "2001:db8:1::/48");
        left_alone.add(&[four, six], now, Duration::from_secs(3));
        let later = now + Duration::from_secs(1);
        let left = Duration::from_secs(2);
        let pairs: Vec<_> = left_alone.pairs(later).collect();
        assert_eq!(pairs, [(four, left), (six, left)]);
        assert_eq!(left_alone.pairs(now + Duration::from_secs(3)).count(), 0);
        left_alone.remove(&[six]);
        assert_eq!(left_alone.pairs(later).collect::<Vec<_>>(), [(four, left)]);
        let text = LeftAlone::removals(&[six], "midspan");
        assert_eq!(
            text,
            "add element inet midspan left_alone_ipv6 { 2001:db8::/64 . 2001:db8:1::/48 }\n\
             delete element inet midspan left_alone_ipv6 { 2001:db8::/64 . 2001:db8:1::/48 }\n"
        );
    }

    #[test]
    fn there_are_so_many_at_most() {
        let now = Instant::now();
        let mut left_alone = LeftAlone::default();
        for number in 0..2000_u16 {
            let [high, low] = number.to_be_bytes();
            let server = format!("10.{high}.{low}.0/24");
            left_alone.add(
                &[pair("192.0.2.1/32", &server)],
                now,
                Duration::from_secs(9),
            );
        }
        assert_eq!(left_alone.0.len(), LEFT_ALONE_LIMIT);
        assert!(!left_alone.sets(now).contains("10.0.0.0/24"));
    }
}
