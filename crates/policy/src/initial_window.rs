//! The initial windows that a connection may begin with.

/// The window that every connection may begin with, in segments (RFC 6928).
pub const LEAST_WINDOW: u32 = 10;
/// The largest window that a route is given, in segments.
pub const MOST_WINDOW: u32 = 1000;

/// The largest window, in segments, that is chosen for a known client unless the configuration sets
/// another: 927 KB, two thirds of what 20 Mbit/s carry in the 560 ms of a satellite link. A known client
/// gets less if its share is less, and after a [bounded start](crate::bounded_start) the second flight
/// may have this size.
pub const DEFAULT_WINDOW_LIMIT: u32 = 640;

/// The largest window of a cold start, in segments. Most clients offer 64 KB at first, so only about
/// half of this window leaves at once. The larger value still helps: a congestion window grows only
/// while flights fill half of it, and the second flight may be as large as the window that the
/// client offers by then. Among these starts, the handshake shows the long ones, so a start next to other sessions
/// of a network with long legs gets another window.
pub const COLD_WINDOW: u32 = 80;

/// Whether the handshake on a long leg raises this window, where `most` is the largest one that a start may be given: that of a cold
/// start, and that of a bounded start. The others are for starts next to other sessions, too.
#[must_use]
pub const fn may_be_raised(window: u32, most: u32) -> bool {
    window == COLD_WINDOW || window == most
}

/// The window, in segments, that the handshake on a long leg [raises](crate::bounded_start) to, where `most` is the largest one
/// that a start may be given: more than a route gives, because the relay limits what is in flight, unless the configuration has
/// set another `most`.
#[must_use]
pub const fn raised_window(most: u32) -> u32 {
    match most {
        DEFAULT_WINDOW_LIMIT => MOST_WINDOW,
        _ => most,
    }
}

/// The initial windows, in segments, from which one is chosen towards a known server: half of what
/// 2 Mbit/s and 20 Mbit/s carry in the round trip of a satellite link. There are only two, because each needs
/// a mark of its own, of which the windows towards clients leave few.
pub const SERVER_WINDOWS: [u32; 2] = [40, 320];

/// The initial windows, in segments, that routes can give: twice [`LEAST_WINDOW`], each further one
/// twice the one before, up to `most`, and `most` itself if it is notably larger than the last of
/// these. Any other start has [`LEAST_WINDOW`].
#[must_use]
pub fn windows(most: u32) -> Vec<u32> {
    let most = most.min(MOST_WINDOW);
    let doubled = std::iter::successors(Some(2 * LEAST_WINDOW), |window| window.checked_mul(2));
    let mut windows: Vec<u32> = doubled.take_while(|window| *window <= most).collect();
    let is_larger = windows.last().is_some_and(|last| most >= last + last / 4);
    windows.extend(is_larger.then_some(most));
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_and_the_last_is_the_limit() {
        assert_eq!(windows(DEFAULT_WINDOW_LIMIT), [20, 40, 80, 160, 320, 640]);
        assert_eq!(windows(440), [20, 40, 80, 160, 320, 440]);
        assert_eq!(windows(320), [20, 40, 80, 160, 320]);
        assert_eq!(windows(399), [20, 40, 80, 160, 320]);
        assert_eq!(windows(25), [20, 25]);
        assert_eq!(windows(u32::MAX), [20, 40, 80, 160, 320, 640, 1000]);
        assert!(windows(19).is_empty());
    }
}
