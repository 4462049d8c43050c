//! The initial windows that a connection may begin with.

/// The window that every connection may begin with, in segments (RFC 6928).
pub const LEAST_WINDOW: u32 = 10;
/// The largest window that a route is given, in segments.
pub const MOST_WINDOW: u32 = 1000;

/// The largest window, in segments, that is chosen for a known client unless the configuration sets
/// another: 464 KB, half of what 20 Mbit/s carry in 370 ms.
pub const DEFAULT_WINDOW_LIMIT: u32 = 320;

/// The initial windows, in segments, that routes can give: twice [`LEAST_WINDOW`], and each further
/// one twice the one before, up to `most`. Any other start has [`LEAST_WINDOW`].
#[must_use]
pub fn windows(most: u32) -> Vec<u32> {
    std::iter::successors(Some(2 * LEAST_WINDOW), |window| window.checked_mul(2))
        .take_while(|window| *window <= most.min(MOST_WINDOW))
        .collect()
}
