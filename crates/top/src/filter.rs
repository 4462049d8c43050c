//! The text of a filter while it is typed.

use std::net::IpAddr;

use ipnet::IpNet;
use ratatui::crossterm::event::KeyCode;

/// Longest text of a filter.
const LIMIT: usize = 50;

/// Why a text is no filter.
pub const NO_FILTER: &str =
    "not an address or prefix: 192.0.2.1, 192.0.2., 192.0.2.0/24 or 2001:db8::/32";

/// The text so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Typing(String);

/// What a key has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typed {
    /// The text is not complete.
    More,
    /// The filter stays as it was.
    Left,
    /// A filter, or none.
    Chosen(Option<IpNet>),
    /// The text is neither an address nor a prefix.
    Wrong,
}

impl Typing {
    /// Begins with the present filter.
    #[must_use]
    pub fn from_filter(filter: Option<IpNet>) -> Self {
        Self(filter.map_or_else(String::new, |filter| filter.to_string()))
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyCode) -> Typed {
        match key {
            KeyCode::Char(character)
                if self.0.len() < LIMIT
                    && (character.is_ascii_hexdigit() || "./:".contains(character)) =>
            {
                self.0.push(character);
            }
            KeyCode::Backspace => {
                self.0.pop();
            }
            KeyCode::Esc => return Typed::Left,
            KeyCode::Enter if self.0.is_empty() => return Typed::Chosen(None),
            KeyCode::Enter => {
                return match prefix(&self.0) {
                    None => Typed::Wrong,
                    filter => Typed::Chosen(filter),
                };
            }
            _ => {}
        }
        Typed::More
    }

    /// The line in which the text is typed.
    #[must_use]
    pub fn line(&self, of: &str) -> String {
        format!("only {of}: {}_   Enter: use it, Esc: leave it", self.0)
    }
}

/// A prefix as a person types it: `192.0.2.0/24`, `192.0.2.1`, or the first numbers, `192.0.2.`.
#[must_use]
pub fn prefix(text: &str) -> Option<IpNet> {
    if let Ok(prefix) = text.parse::<IpNet>() {
        return Some(prefix.trunc());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.into());
    }
    let start = text.strip_suffix('.')?;
    let numbers = start.split('.').count();
    let address = format!("{start}{}", ".0".repeat(4_usize.checked_sub(numbers)?));
    let length = u8::try_from(numbers * 8).ok()?;
    IpNet::new(address.parse().ok()?, length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_read_as_a_person_types_it() {
        assert_eq!(
            prefix("2001:db8::/32").unwrap().to_string(),
            "2001:db8::/32"
        );
        assert_eq!(prefix("10.").unwrap().to_string(), "10.0.0.0/8");
        for wrong in ["", ".", "1.2.3.4.5.", "256.", "a."] {
            assert_eq!(prefix(wrong), None, "{wrong}");
        }
    }
}
