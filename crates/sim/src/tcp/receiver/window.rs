//! How much of the buffer the receiver advertises: fixed, as Linux 2.4, or autotuned.

use midspan_units::{Time, TimeSpan};

use crate::tcp::configuration::{ReceiverConfiguration, WindowGrowth};

/// Data segments below this size do not make the window grow (Linux: `tcp_event_data_recv`).
const COUNTED: u32 = 128;

/// What segments are taken to have before any has come (Linux: `TCP_MIN_RCVMSS`).
const FIRST_ARRIVING: u64 = 536;

/// The part of the buffer that is offered.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Most that is offered now; at most the buffer.
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

/// Dynamic right-sizing (Fisk, Feng 2001), as Linux' `tcp_rcv_space_adjust` does it.
#[derive(Debug, Clone, Default)]
struct RightSizing {
    /// When the SYN was answered, until data has come.
    opened: Option<Time>,
    /// The least time in which a window of data arrived.
    round_trip: Option<TimeSpan>,
    /// The measurement that is going on: it ends when this number has arrived.
    measured_up_to: u64,
    measured_since: Time,
    /// Read in the round trip before this one.
    space: u64,
    /// When this round trip began, and what had been read then.
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
                    // Linux: ten segments are no news.
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

    /// What is offered before any data has come.
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

    /// Data arrived in order: all before `next` is there, `edge` was the end of the window.
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

    /// All before `read` has been read by now.
    #[inline]
    pub(super) fn handle_read(&mut self, now: Time, read: u64) {
        if let Growth::Autotuned(sizing) = &mut self.growth
            && let Some(wanted) = sizing.adjust(now, read, self.segment)
        {
            self.limit = self.limit.max(wanted).min(self.buffer);
        }
    }

    /// The least by which the end moves (RFC 9293 §3.8.6.2.2). Linux 2.4 has whole segments.
    #[inline]
    pub(super) fn step(&self) -> u64 {
        match self.growth {
            Growth::Linux24 { .. } => 1,
            Growth::Fixed | Growth::Autotuned(_) => self.segment.min(self.limit / 2).max(1),
        }
    }

    /// An ACK advertises so much.
    #[inline]
    pub(super) fn handle_advertised(&mut self, window: u64) {
        if let Growth::Linux24 { advertised, .. } = &mut self.growth {
            *advertised = window;
        }
    }

    /// The end of the window, given where the free room ends, what has arrived and the end that
    /// was advertised last; never before that.
    #[inline]
    pub(super) fn edge(&self, free: u64, next: u64, edge: u64) -> u64 {
        let offered = match &self.growth {
            Growth::Fixed => return free,
            Growth::Autotuned(_) => next + self.limit,
            Growth::Linux24 {
                arriving,
                advertised,
            } => {
                // `__tcp_select_window` without scaling: the window stays as it is within a
                // segment of the room, and else is a multiple of a segment.
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
    /// `tcp_rcv_rtt_measure`: the time in which a window of data comes is a round trip, if the
    /// sender fills the window; the least of such times is kept. The first is that from the
    /// answer to the SYN to the first data.
    fn measure(&mut self, now: Time, next: u64, edge: u64) {
        if let Some(opened) = self.opened.take() {
            self.keep(now.since(opened));
            self.restart(now, edge);
            // What is read from here on counts.
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

    /// `tcp_rcv_space_adjust`: once in a round trip, what window the reading asks for.
    fn adjust(&mut self, now: Time, read: u64, segment: u64) -> Option<u64> {
        let round_trip = self.round_trip?;
        if now.since(self.since) < round_trip || round_trip == TimeSpan::ZERO {
            return None;
        }
        let copied = read - self.read;
        let wanted = (copied > self.space).then(|| {
            // Twice what was read, room for what arrives meanwhile, and as much more as the
            // sender is speeding up (slow start doubles in a round trip).
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
