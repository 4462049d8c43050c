//! `est_cwnd`: the data packets that arrive in one round trip of the receiver (Tam §3.2, 1–2).

use midspan_units::{Time, TimeSpan};

/// Counts arrivals, one `rcv_RTT` after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowEstimate {
    /// The largest count since the last reset.
    counted: u32,
    /// When the present count began, and its value.
    count: Option<(Time, u32)>,
}

impl WindowEstimate {
    /// The estimate, at least 1.
    pub const fn segments(&self) -> u32 {
        if self.counted == 0 { 1 } else { self.counted }
    }

    /// `segments` packets arrived. A finished count becomes the estimate only if it is larger: “in
    /// this case, we use the old value of est_cwnd instead” (§3.2, 2).
    pub fn handle_arrival(&mut self, now: Time, segments: u32, rcv_rtt: TimeSpan) {
        match &mut self.count {
            Some((start, count)) if now.since(*start) < rcv_rtt => {
                *count = count.saturating_add(segments);
            }
            finished => {
                if let Some((_, count)) = finished.replace((now, segments)) {
                    self.counted = self.counted.max(count);
                }
            }
        }
    }

    /// The sender has halved its window; a new count begins with the next packet.
    pub const fn halve(&mut self) {
        *self = Self {
            counted: self.counted / 2,
            count: None,
        };
    }

    /// Sets the estimate to 1; a new count begins with the next packet (§3.2, 4; §5.1).
    pub const fn reset(&mut self) {
        *self = Self {
            counted: 0,
            count: None,
        };
    }
}
