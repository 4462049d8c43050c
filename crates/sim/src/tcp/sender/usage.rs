//! Whether cwnd limits sending: only then it grows (Linux: `tcp_cwnd_validate`, `tcp_is_cwnd_limited`).

/// How far cwnd was used. The strongest sign of a window counts until everything that was sent by then is
/// acknowledged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    is_limited: bool,
    /// The most segments that were unacknowledged (Linux: `max_packets_out`).
    most: u64,
    /// The end of the data that was sent when this was last noted (Linux: `cwnd_usage_seq`).
    end: u64,
    /// The end of the data that was sent when nothing more could be sent the last time.
    sent: u64,
}

impl Usage {
    /// Nothing more can be sent. `is_limited`: cwnd is full; `count` segments are not acknowledged, and what is sent
    /// and not acknowledged lies between the two numbers.
    pub(super) fn note(
        &mut self,
        is_limited: bool,
        count: u64,
        (unacknowledged, next): (u64, u64),
    ) {
        let has_sent = std::mem::replace(&mut self.sent, next) != next;
        if !is_limited && !has_sent {
            return;
        }
        let is_over = unacknowledged >= self.end;
        if is_over || is_limited || (!self.is_limited && count > self.most) {
            (self.is_limited, self.most, self.end) = (is_limited, count, next);
        }
    }

    /// Whether cwnd, in segments, limits sending. In slow start, half of it is enough.
    pub(super) const fn is_cwnd_limited(&self, window: u64, in_slow_start: bool) -> bool {
        self.is_limited || (in_slow_start && window < 2 * self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_counts_until_it_is_acknowledged() {
        let mut usage = Usage::default();
        usage.note(true, 10, (0, 10));
        assert!(usage.is_cwnd_limited(30, false));
        usage.note(false, 9, (2, 11));
        assert!(usage.is_cwnd_limited(30, false));
        // Nothing new was sent, so this is no sign.
        usage.note(false, 0, (11, 11));
        assert!(usage.is_cwnd_limited(30, false));
        usage.note(false, 4, (11, 15));
        assert!(!usage.is_cwnd_limited(8, true) && usage.is_cwnd_limited(7, true));
        assert!(!usage.is_cwnd_limited(7, false));
        usage.note(false, 6, (11, 17));
        assert!(usage.is_cwnd_limited(11, true));
    }
}
