//! The receive buffer that makes a kernel advertise what a path asks for.
//!
//! A path file means by a receive buffer what kernels did for long: half of what the kernel counts
//! is advertised. Since Linux 6.6 the share is what packets were seen to carry of the memory that
//! they take (`scaling_ratio`): 1,448 bytes of 2,304 for a full packet of an emulated link, in
//! 256ths 160, which is five eighths.

use std::fs;

use midspan_path::ProxySettings;
use midspan_policy::{Buffer, LegSettings};
use midspan_units::ByteSize;

/// The first kernel that goes by what it sees.
const MEASURES: (u32, u32) = (6, 6);
/// Half over five eighths.
const SHARE: (u64, u64) = (4, 5);

/// What to set on this machine's kernel where the path asks for `size`.
pub fn to_set(size: ByteSize) -> ByteSize {
    of_kernel(size, kernel())
}

/// The same of all that a proxy is set to.
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
    // Rounded up: a window of whole segments is not to lose one. No buffer is below 4 KiB.
    let bytes = size.bytes().saturating_mul(numerator).div_ceil(denominator);
    ByteSize::from_bytes(bytes.max(size.bytes().min(4096)))
}

/// The first two numbers of its release.
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
        // The kernel advertises 160 of 256 bytes.
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
