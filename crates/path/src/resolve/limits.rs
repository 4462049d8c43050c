//! Bounds of names, numbers and quantities.

use std::fmt::Display;
use std::ops::RangeInclusive;

use midspan_document::{Located, Spanned};
use midspan_units::{BitRate, ByteSize, TimeSpan};

use super::Check;
use crate::Given;

/// Largest number of hosts, routers and proxies together.
pub const NODE_LIMIT: usize = 64;
/// Largest number of links.
pub const LINK_LIMIT: usize = 64;
/// Largest number of flows.
pub const FLOW_LIMIT: usize = 256;
/// Largest number of steps in one schedule.
pub const SCHEDULE_LIMIT: usize = 1000;
/// Longest one-way delay of a link.
pub const DELAY_LIMIT: TimeSpan = TimeSpan::from_seconds(60);
/// Latest time in a run that a file may contain, and longest duration of a flow.
pub const DURATION_LIMIT: TimeSpan = TimeSpan::from_seconds(24 * 3600);
/// Largest amount of data that one flow may transfer.
pub const SIZE_LIMIT: ByteSize = ByteSize::from_bytes(100_000_000_000);

/// Longest name of a node or a link, in characters.
const NAME_LENGTH: usize = 32;
/// Longest description, in characters.
const DESCRIPTION_LENGTH: usize = 200;
/// Longest name of a flow, in characters.
const TITLE_LENGTH: usize = 64;

impl Check<'_> {
    /// Refuses a value outside `range`; the error contains the range.
    pub fn within<T: PartialOrd + Display + Copy>(
        &self,
        what: &str,
        given: &Spanned<T>,
        range: RangeInclusive<T>,
    ) -> Result<T, Located> {
        let value = *given.get_ref();
        let complaint = if value < *range.start() {
            format!(
                "{value} is too small for {what}: at least {}",
                range.start()
            )
        } else if value > *range.end() {
            format!("{value} is too large for {what}: at most {}", range.end())
        } else {
            return Ok(value);
        };
        Err(self.error(given, complaint))
    }

    /// Refuses a name that cannot be that of a file or a network namespace.
    pub fn name<'a>(&self, given: &'a Spanned<String>) -> Result<&'a str, Located> {
        let name = given.get_ref();
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let starts_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if plain && starts_well && name.len() <= NAME_LENGTH {
            return Ok(name);
        }
        Err(self.error(
            given,
            format_args!(
                "\"{name}\" is not a name: write at most {NAME_LENGTH} letters (a to z), digits, \
                 `-`, `_` and `.`, the first a letter or a digit"
            ),
        ))
    }

    /// Refuses a flow's name that cannot be printed in a table.
    pub fn title<'a>(&self, given: &'a Spanned<String>) -> Result<&'a str, Located> {
        let title = given.get_ref();
        let printable = !title.chars().any(char::is_control);
        let trimmed = !title.is_empty() && title.trim() == title;
        if printable && trimmed && title.chars().count() <= TITLE_LENGTH {
            return Ok(title);
        }
        Err(self.error(
            given,
            format_args!(
                "\"{title}\" is not a name: write 1 to {TITLE_LENGTH} printable characters, no \
                 space at either end"
            ),
        ))
    }

    /// Refuses a description that cannot be printed in a list of paths.
    pub fn description(&self, given: &Given<String>) -> Result<String, Located> {
        let Some(given) = given else {
            return Ok(String::new());
        };
        let text = given.get_ref();
        if text.chars().count() > DESCRIPTION_LENGTH || text.chars().any(char::is_control) {
            let message =
                format!("a description is one line of at most {DESCRIPTION_LENGTH} characters");
            return Err(self.error(given, message));
        }
        Ok(text.clone())
    }

    /// Refuses a name that cannot be the kernel's name of a congestion control.
    pub fn congestion_control(&self, given: &Spanned<String>) -> Result<String, Located> {
        let name = given.get_ref();
        let plain = name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)
        });
        // TCP_CA_NAME_MAX is 16, including the final zero.
        if plain && (1..16).contains(&name.len()) {
            return Ok(name.clone());
        }
        let message = format!(
            "\"{name}\" is no name of a congestion control: write it as the kernel does, in \
             lower case, such as \"cubic\", \"reno\" or \"bbr\""
        );
        Err(self.error(given, message))
    }

    pub fn rate(&self, given: &Spanned<BitRate>) -> Result<BitRate, Located> {
        let bound = |rate| BitRate::from_bits_per_second(rate).unwrap_or(*given.get_ref());
        self.within("a rate", given, bound(100)..=bound(100_000_000_000))
    }

    pub fn delay(&self, given: &Spanned<TimeSpan>) -> Result<TimeSpan, Located> {
        self.within("a delay", given, TimeSpan::ZERO..=DELAY_LIMIT)
    }

    /// A time in a run.
    pub fn point(&self, what: &str, given: &Spanned<TimeSpan>) -> Result<TimeSpan, Located> {
        self.within(what, given, TimeSpan::ZERO..=DURATION_LIMIT)
    }
}
