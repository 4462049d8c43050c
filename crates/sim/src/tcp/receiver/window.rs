//! How much of the buffer the receiver advertises: fixed, as in Linux 2.4, or autotuned.

use midspan_units::{Time, TimeSpan};

use crate::tcp::configuration::{ReceiverConfiguration, WindowGrowth};

/// Data segments smaller than this many bytes do not make the window grow (Linux:
/// `tcp_event_data_recv`).
const COUNTED: u32 = 128;

/// The assumed size of segments before any has arrived, in bytes (Linux: `TCP_MIN_RCVMSS`).
const FIRST_ARRIVING: u64 = 536;

/// The advertised part of the buffer.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// The largest window that may be advertised now; at most the buffer.
    limit: u64,
    buffer: u64,
    segment: u64,
    growth: Growth,
}

#[derive(Debug, Clone)]
enum Growth {
    Fixed,
    Linux24 {
        /// The largest segment that has arrived.
        arriving: u64,
        /// The window that was last advertised.
        advertised: u64,
    },
    // Boxed: most receivers have a fixed window, and there are many receivers.
    Autotuned(Box<RightSizing>),
}

/// Dynamic right-sizing (Fisk, Feng 2001), as in Linux's `tcp_rcv_space_adjust`.
#[derive(Debug, Clone, Default)]
struct RightSizing {
    /// When the SYN was answered; `None` after data has arrived.
    opened: Option<Time>,
    /// The shortest time in which a window of data has arrived.
    round_trip: Option<TimeSpan>,
    /// The present measurement ends when this number has arrived.
    measured_up_to: u64,
    measured_since: Time,
    /// Bytes read in the previous round trip.
    space: u64,
    /// When this round trip began, and the total that had been read by then.
    since: Time,
    read: u64,
}

impl Window {
    pub(super) fn new(configuration: &ReceiverConfiguration) -> Self {
        let buffer = configuration.buffer;
        let segment = u64::from(configuration.segment_size).max(1);
        let (limit, growth) = match configuration.window_growth {
            WindowGrowth::Fixed => (buffer, Growth::Fixed),
            WindowGrowth::Linux24 => {
                let growth = Growth::Linux24 {
                    // `tcp_initialize_rcv_mss`.
                    arriving: segment.min(FIRST_ARRIVING).min(buffer),
                    advertised: (4 * segment).min(buffer),
                };
                (4 * segment, growth)
            }
            WindowGrowth::Autotuned { initial } => {
                let sizing = RightSizing {
                    // Linux: reading up to ten segments in a round trip does not make the window
                    // grow.
                    space: initial.min(10 * segment),
                    ..RightSizing::default()
                };
                (initial.max(segment), Growth::Autotuned(Box::new(sizing)))
            }
        };
        Self {
            limit: limit.min(buffer),
            buffer,
            segment,
            growth,
        }
    }

    /// The window that is advertised before any data has arrived.
    pub(super) const fn initial(&self) -> u64 {
        self.limit
    }

    /// A SYN arrived.
    #[inline]
    pub(super) fn handle_open(&mut self, now: Time) {
        if let Growth::Autotuned(sizing) = &mut self.growth {
            sizing.opened.get_or_insert(now);
            sizing.since = now;
        }
    }

    /// Data arrived in order: everything before `next` is there; `edge` was the end of the window.
    #[inline]
    pub(super) fn handle_data(&mut self, now: Time, length: u32, next: u64, edge: u64) {
        match &mut self.growth {
            Growth::Fixed => {}
            Growth::Linux24 { arriving, .. } => {
                *arriving = (*arriving).max(u64::from(length)).min(self.buffer);
                if length >= COUNTED {
                    self.limit = (self.limit + 2 * self.segment).min(self.buffer);
                }
            }
            Growth::Autotuned(sizing) => sizing.measure(now, next, edge),
        }
    }

    /// Everything before `read` has been read by now.
    #[inline]
    pub(super) fn handle_read(&mut self, now: Time, read: u64) {
        if let Growth::Autotuned(sizing) = &mut self.growth
            && let Some(wanted) = sizing.adjust(now, read, self.segment)
        {
            self.limit = self.limit.max(wanted).min(self.buffer);
        }
    }

    /// The smallest step by which the end of the window moves, in bytes (RFC 9293 §3.8.6.2.2).
    /// Linux 2.4 advertises whole segments.
    #[inline]
    pub(super) fn step(&self) -> u64 {
        match self.growth {
            Growth::Linux24 { .. } => 1,
            Growth::Fixed | Growth::Autotuned(_) => self.segment.min(self.limit / 2).max(1),
        }
    }

    /// An ACK advertises `window` bytes.
    #[inline]
    pub(super) fn handle_advertised(&mut self, window: u64) {
        if let Growth::Linux24 { advertised, .. } = &mut self.growth {
            *advertised = window;
        }
    }

    /// The end of the window, computed from the end of the free room, the end of the data that has
    /// arrived and the end that was advertised last; never before the last one.
    #[inline]
    pub(super) fn edge(&self, free: u64, next: u64, edge: u64) -> u64 {
        let offered = match &self.growth {
            Growth::Fixed => return free,
            Growth::Autotuned(_) => next + self.limit,
            Growth::Linux24 {
                arriving,
                advertised,
            } => {
                // `__tcp_select_window` without scaling: the window stays as it is while it is
                // within one segment of the room; otherwise it is a multiple of a segment.
                let room = self.limit.min(free.saturating_sub(next));
                if advertised + arriving <= room || *advertised > room {
                    next + room / arriving * arriving
                } else {
                    next + advertised
                }
            }
        };
        offered.min(free).max(edge)
    }
}

impl RightSizing {
    /// `tcp_rcv_rtt_measure`: the time in which a window of data arrives is a round trip if the
    /// sender fills the window; the shortest such time is kept. The first measurement is the time
    /// from the answer to the SYN until the first data.
    fn measure(&mut self, now: Time, next: u64, edge: u64) {
        if let Some(opened) = self.opened.take() {
            self.keep(now.since(opened));
            self.restart(now, edge);
            // Data that is read from here on counts.
            self.since = now;
        } else if next >= self.measured_up_to {
            if self.measured_up_to > 0 {
                self.keep(now.since(self.measured_since));
            }
            self.restart(now, edge);
        }
    }

    const fn restart(&mut self, now: Time, edge: u64) {
        self.measured_up_to = edge;
        self.measured_since = now;
    }

    fn keep(&mut self, sample: TimeSpan) {
        let least = self.round_trip.map_or(sample, |known| known.min(sample));
        self.round_trip = Some(least);
    }

    /// `tcp_rcv_space_adjust`: once in a round trip, computes the window that the reading rate
    /// requires.
    fn adjust(&mut self, now: Time, read: u64, segment: u64) -> Option<u64> {
        let round_trip = self.round_trip?;
        if now.since(self.since) < round_trip || round_trip == TimeSpan::ZERO {
            return None;
        }
        let copied = read - self.read;
        let wanted = (copied > self.space).then(|| {
            // Twice the data that was read, room for the data that arrives meanwhile, and more in
            // proportion to the sender's growth (slow start doubles in a round trip).
            let window = 2 * copied + 16 * segment;
            let share = u128::from(copied - self.space) * 2;
            let more = u128::from(window) * share / u128::from(self.space.max(1));
            window.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
        });
        self.space = self.space.max(copied);
        self.since = now;
        self.read = read;
        wanted
    }
}
