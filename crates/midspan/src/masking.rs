//! Addresses and names of hosts in a text, replaced by names that are the same wherever the address is
//! the same.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Names that look like names of hosts and are none: the first label of sysctls and of keys of a
/// configuration, and the last label of files and units.
const FIRST_OF_OTHERS: [&str; 17] = [
    "access",
    "admin",
    "control",
    "dev",
    "fs",
    "interception",
    "kernel",
    "listener",
    "log",
    "memory",
    "net",
    "profile",
    "relay",
    "state",
    "user",
    "vm",
    "windows",
];
const LAST_OF_OTHERS: [&str; 19] = [
    "conf", "gz", "json", "jsonl", "local", "lock", "log", "md", "mount", "nft", "pcap", "pcapng",
    "rs", "scope", "service", "slice", "sock", "socket", "toml",
];
/// Names that this machine has on every machine, or that stand for Midspan.
const NO_SECRETS: [&str; 3] = ["localhost", "midspan", "(none)"];

/// Replaces addresses and names of hosts.
#[derive(Debug, Default)]
pub struct Mask {
    addresses: BTreeMap<IpAddr, String>,
    others: BTreeMap<String, String>,
    /// Names that are masked although they have no dot, in lower case.
    hosts: Vec<String>,
}

impl Mask {
    /// A mask that replaces this host's name also where it is written without its domain.
    pub fn with_host(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let first = name.split('.').next().unwrap_or_default().to_owned();
        let is_secret = |name: &String| !name.is_empty() && !NO_SECRETS.contains(&name.as_str());
        Self {
            hosts: [name, first].into_iter().filter(is_secret).collect(),
            ..Self::default()
        }
    }

    /// The text with `ipv4-1`, `ipv6-2`, `mac-3`, `host-4` and so on instead of addresses and names.
    /// Prefix lengths and ports stay, and so do addresses that name no host: loopback, unspecified
    /// and broadcast ones.
    pub fn text(&mut self, text: &str) -> String {
        let addresses = self.words(text, is_part_of_address, Self::address_word);
        self.words(&addresses, is_part_of_name, Self::name_word)
    }

    /// The text with `replace` applied to each word of letters that `is_part` selects, with what
    /// stands before and behind it.
    fn words(
        &mut self,
        text: &str,
        is_part: impl Fn(char) -> bool + Copy,
        replace: impl Fn(&mut Self, &str, &str, &str) -> String,
    ) -> String {
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at(start);
            masked.push_str(before);
            let end = from.find(|letter| !is_part(letter)).unwrap_or(from.len());
            let (word, behind) = from.split_at(end);
            let replaced = replace(self, &masked, word, behind);
            masked.push_str(&replaced);
            rest = behind;
        }
        masked.push_str(rest);
        masked
    }

    /// A word that consists of hexadecimal digits, points and colons.
    fn address_word(&mut self, _before: &str, word: &str, _behind: &str) -> String {
        // The end of a sentence, or of a key, is not part of an address.
        let plain = word.trim_end_matches('.');
        let plain = match plain.strip_suffix("::") {
            Some(_) => plain,
            None => plain.trim_end_matches(':'),
        };
        let end = word.get(plain.len()..).unwrap_or_default();
        if let Ok(address) = plain.parse::<IpAddr>() {
            return format!("{}{end}", self.address(address));
        }
        if is_link_address(plain) {
            return format!("{}{end}", self.other("mac", plain));
        }
        // An IPv4 address and a port.
        if let Some((address, port)) = plain.rsplit_once(':')
            && let Ok(address) = address.parse::<IpAddr>()
            && port.parse::<u16>().is_ok()
        {
            return format!("{}:{port}{end}", self.address(address));
        }
        word.to_owned()
    }

    /// A word that consists of letters, digits, dashes, underscores and points.
    fn name_word(&mut self, before: &str, word: &str, behind: &str) -> String {
        let plain = word.trim_end_matches(['.', '-', '_']);
        let end = word.get(plain.len()..).unwrap_or_default();
        let is_own = self.hosts.contains(&plain.to_ascii_lowercase());
        // A part of the name of a file; behind two slashes, a host of a URL.
        let is_in_path =
            (before.ends_with('/') && !before.ends_with("//")) || behind.starts_with('/');
        let is_of_url = before.ends_with("//");
        if is_own || (is_name_of_host(plain) && (is_of_url || !is_in_path)) {
            return format!("{}{end}", self.other("host", plain));
        }
        word.to_owned()
    }

    fn address(&mut self, address: IpAddr) -> String {
        if address.is_loopback() || address.is_unspecified() {
            return address.to_string();
        }
        let next = self.next_number();
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        let name = self.addresses.entry(address);
        name.or_insert_with(|| format!("{family}-{next}")).clone()
    }

    fn other(&mut self, kind: &str, text: &str) -> String {
        let next = self.next_number();
        let name = self.others.entry(text.to_ascii_lowercase());
        name.or_insert_with(|| format!("{kind}-{next}")).clone()
    }

    fn next_number(&self) -> usize {
        self.addresses.len() + self.others.len() + 1
    }
}

const fn is_part_of_address(letter: char) -> bool {
    letter.is_ascii_hexdigit() || letter == '.' || letter == ':'
}

const fn is_part_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.')
}

/// Whether a word is the address of a host's interface: six bytes, not all of them 0 or 255.
fn is_link_address(word: &str) -> bool {
    let bytes: Vec<Option<u8>> = word
        .split(':')
        .map(|byte| (byte.len() == 2).then(|| u8::from_str_radix(byte, 16).ok())?)
        .collect();
    let all = |value| bytes.iter().all(|byte| *byte == Some(value));
    bytes.len() == 6 && !bytes.contains(&None) && !all(0) && !all(u8::MAX)
}

/// Whether a word is the name of a host with its domain, rather than that of a sysctl, of a key of the
/// configuration, of a file, or a number.
fn is_name_of_host(word: &str) -> bool {
    let labels: Vec<&str> = word.split('.').collect();
    let [first, .., last] = labels.as_slice() else {
        return false;
    };
    let is_label = |label: &&str| {
        !label.is_empty()
            && !label.contains('_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_domain = last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_alphabetic());
    labels.iter().all(is_label)
        && is_domain
        && !FIRST_OF_OTHERS.contains(first)
        && !LAST_OF_OTHERS.contains(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        Mask::default().text(text)
    }

    #[test]
    fn the_same_address_has_the_same_name() {
        let text = "192.0.2.1:80 to [2001:db8::1]:443, then 192.0.2.1 and 198.51.100.0/24.";
        let expected = "ipv4-1:80 to [ipv6-2]:443, then ipv4-1 and ipv4-3/24.";
        assert_eq!(masked(text), expected);
        let mut mask = Mask::default();
        assert_eq!(mask.text("2001:db8::/32 192.0.2.9"), "ipv6-1/32 ipv4-2");
        assert_eq!(mask.text("\"192.0.2.9\""), "\"ipv4-2\"");
        assert_eq!(mask.text("at 192.0.2.9: refused"), "at ipv4-2: refused");
    }

    #[test]
    fn addresses_of_interfaces_are_masked() {
        let text = "eth0 02:4d:00:00:0A:01, eth1 02:4d:00:00:00:02: and 02:4d:00:00:0a:01.";
        assert_eq!(masked(text), "eth0 mac-1, eth1 mac-2: and mac-1.");
        for text in [
            "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff",
            "14:02:31, 02:4d:00:00:00, 02:4d:00:00:00:00:01, 2:4d:00:00:00:01",
        ] {
            assert_eq!(masked(text), text);
        }
    }

    #[test]
    fn names_of_hosts_are_masked() {
        let mut mask = Mask::with_host("Gate7.example.org");
        let text = "gate7 cannot look up www.example.com:443, https://www.example.com/x, \
                    gate7.example.org. GATE7's";
        let expected = "host-1 cannot look up host-2:443, https://host-2/x, host-3. host-1's";
        assert_eq!(mask.text(text), expected);
        // Midspan's own name is no secret.
        assert_eq!(
            Mask::with_host("midspan").text("midspan check"),
            "midspan check"
        );
        assert_eq!(Mask::with_host("").text("a b"), "a b");
    }

    #[test]
    fn what_is_no_address_and_no_name_stays() {
        for text in [
            "/etc/midspan/midspan.toml:3:5, midspan.service, net.ipv4.ip_forward, net.core.somaxconn",
            "relay.threads, listener.gateway.policy, vm.swappiness, 6.12.94-generic, e.g. this, 1.5x",
            "a file /run/midspan/control.sock, target/release/a.b.example/x",
            "version 0.1.0, kernel 6.12.94-generic, eth0, dead:line, 14:02:31, 3.5 Mbit/s",
            "127.0.0.1:9464 and [::1]:80 and 0.0.0.0:8080 and ::",
            "face, cafe, add. a:b and 1.2.3 and 300.1.1.1",
            "",
            ":::::.....",
            "é192.0",
            "-.-..--.",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
