//! The receive buffer with which a kernel advertises the window that a path file expects.
//!
//! A receive buffer in a path file has its traditional meaning: the kernel advertises half of the
//! bytes that it charges to the buffer. Since Linux 6.6, the share follows the ratio of data to
//! memory in received packets (`scaling_ratio`). A full packet of an emulated link has 1,448 bytes
//! of data in 2,304 bytes of memory; in units of 1/256 the ratio is 160, which is five eighths.

use std::fs;

use midspan_path::ProxySettings;
use midspan_policy::{Buffer, LegSettings};
use midspan_units::ByteSize;

/// The first kernel that measures this ratio.
const MEASURES: (u32, u32) = (6, 6);
/// One half divided by five eighths.
const SHARE: (u64, u64) = (4, 5);

/// The receive buffer to set on this machine's kernel for a path file's `size`.
pub fn to_set(size: ByteSize) -> ByteSize {
    of_kernel(size, kernel())
}

/// The settings of a proxy, with each receive buffer replaced in the same way.
pub fn of_proxy(settings: &ProxySettings) -> ProxySettings {
    let of_leg = |leg: &LegSettings| LegSettings {
        receive_buffer: match leg.receive_buffer {
            Buffer::Fixed(size) => Buffer::Fixed(to_set(size)),
            other => other,
        },
        ..leg.clone()
    };
    ProxySettings {
        client_leg: of_leg(&settings.client_leg),
        server_leg: of_leg(&settings.server_leg),
        ..settings.clone()
    }
}

fn of_kernel(size: ByteSize, kernel: Option<(u32, u32)>) -> ByteSize {
    if kernel.is_none_or(|kernel| kernel < MEASURES) {
        return size;
    }
    let (numerator, denominator) = SHARE;
    // Rounded up, so that a window of whole segments does not lose one. No buffer is below 4 KiB.
    let bytes = size.bytes().saturating_mul(numerator).div_ceil(denominator);
    ByteSize::from_bytes(bytes.max(size.bytes().min(4096)))
}

/// The first two numbers of the kernel's release.
fn kernel() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    release(&text)
}

fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_half_of_what_the_path_says_on_any_kernel() {
        let set = |size, kernel| of_kernel(ByteSize::from_bytes(size), kernel).bytes();
        // The kernel advertises 160/256 of the buffer.
        assert_eq!(set(57_920, Some((6, 18))) * 160 / 256, 28_960);
        assert_eq!(set(57_920, Some((6, 5))), 57_920);
        assert_eq!(set(57_920, None), 57_920);
        assert_eq!(set(4096, Some((6, 6))), 4096);
    }

    #[test]
    fn releases_are_read_up_to_what_is_no_number() {
        assert_eq!(release("6.18.44-generic\n"), Some((6, 18)));
        assert_eq!(release("5.4\n"), Some((5, 4)));
        assert_eq!(release("Linux"), None);
        assert_eq!(release("6"), None);
    }
}
