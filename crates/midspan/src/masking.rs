//! Addresses in a text, replaced by names that are the same wherever the address is the same.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Replaces addresses.
#[derive(Debug, Default)]
pub struct Mask {
    names: BTreeMap<IpAddr, String>,
}

impl Mask {
    /// The text with `ipv4-1`, `ipv6-2` and so on instead of addresses. Prefix lengths and ports stay,
    /// and so do addresses that name no host: loopback and unspecified ones.
    pub fn text(&mut self, text: &str) -> String {
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at(start);
            masked.push_str(before);
            let end = from.find(|letter| !is_part(letter)).unwrap_or(from.len());
            let (word, behind) = from.split_at(end);
            masked.push_str(&self.word(word));
            rest = behind;
        }
        masked.push_str(rest);
        masked
    }

    /// A word that consists of digits, points and colons.
    fn word(&mut self, word: &str) -> String {
        // The end of a sentence, or of a key, is not part of an address.
        let plain = word.trim_end_matches('.');
        let plain = match plain.strip_suffix("::") {
            Some(_) => plain,
            None => plain.trim_end_matches(':'),
        };
        let end = word.get(plain.len()..).unwrap_or_default();
        if let Ok(address) = plain.parse::<IpAddr>() {
            return format!("{}{end}", self.name(address));
        }
        // An IPv4 address and a port.
        if let Some((address, port)) = plain.rsplit_once(':')
            && let Ok(address) = address.parse::<IpAddr>()
            && port.parse::<u16>().is_ok()
        {
            return format!("{}:{port}{end}", self.name(address));
        }
        word.to_owned()
    }

    fn name(&mut self, address: IpAddr) -> String {
        if address.is_loopback() || address.is_unspecified() {
            return address.to_string();
        }
        let next = self.names.len() + 1;
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        let name = self.names.entry(address);
        name.or_insert_with(|| format!("{family}-{next}")).clone()
    }
}

const fn is_part(letter: char) -> bool {
    letter.is_ascii_hexdigit() || letter == '.' || letter == ':'
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
    fn what_is_no_address_stays() {
        for text in [
            "version 0.1.0, kernel 6.12.94-generic, eth0, dead:line, 14:02:31, 3.5 Mbit/s",
            "127.0.0.1:9464 and [::1]:80 and 0.0.0.0:8080 and ::",
            "face, cafe, add. a:b and 1.2.3 and 300.1.1.1",
            "",
            ":::::.....",
            "é192.0",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
