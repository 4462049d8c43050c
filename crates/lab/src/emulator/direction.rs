//! One direction of an emulated link: stages, counters, lateness.

use hdrhistogram::Histogram;
use midspan_link::{
    Configuration, Counters, Direction as LinkDirection, DropReason, LinkError, Output,
    Packet as _, Pipeline, Stage as _, Streams,
};
use midspan_units::{Time, TimeSpan};
use serde::{Deserialize, Serialize};

use super::frame::{Frame, Kind};
use super::seconds::{Second, Seconds};
use super::series::{DirectionSeries, Series};
use super::{SeriesIntervals, Setup};

/// Width of the bins of [`DirectionReport::delivered`].
pub const BIN: TimeSpan = TimeSpan::from_milliseconds(100);
/// Share of the frames that [`Lateness::tail`] leaves out; a single short pause of the emulator is
/// not a fault of the run.
const TAIL_SHARE: f64 = 0.002;
/// Number of frames that [`Lateness::tail`] leaves out, however large their share.
const TAIL_FRAMES: u64 = 5;
/// Bins kept: two hours of them.
const BIN_LIMIT: usize = 72_000;

/// The traffic of one direction since the last reset.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Counters of the link.
    pub counters: Counters,
    /// Pure ACKs that arrived at the link.
    pub pure_acks: u64,
    /// TCP segments with data that arrived at the link.
    pub data_segments: u64,
    /// Bytes of TCP data delivered at the receiving end in each tenth of a second, retransmissions
    /// included.
    pub delivered: Vec<u64>,
    /// Arrivals of data in each second.
    pub seconds: Vec<Second>,
    /// How late frames were sent to the next node, compared with their due times.
    pub lateness: Lateness,
}

/// How late frames were sent to the next node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// Frames sent to the next node.
    pub frames: u64,
    /// Half of them were at most this late.
    pub p50: TimeSpan,
    /// The mean.
    pub mean: TimeSpan,
    /// 99 % of them were at most this late.
    pub p99: TimeSpan,
    /// All of them except 0.2 %, or except five if that is more, were at most this late.
    pub tail: TimeSpan,
    /// The latest.
    pub max: TimeSpan,
}

/// The state of one direction.
pub(super) struct Direction {
    link: Pipeline<Frame>,
    pure_acks: u64,
    data_segments: u64,
    delivered: Vec<u64>,
    seconds: Seconds,
    /// `None`: no series are recorded.
    series: Option<Series>,
    /// Lateness in nanoseconds.
    lateness: Histogram<u64>,
    /// The due time of the frame that was handed out last.
    due: Time,
}

/// A frame that has left the link.
pub(super) enum Departed {
    /// The frame is due at the receiving end.
    Delivered(Vec<u8>),
    /// The frame was lost; its buffer can be reused.
    Dropped(Vec<u8>),
}

impl Direction {
    /// Both directions of a link.
    pub(super) fn pair(setup: &Setup) -> Result<Box<(Self, Self)>, LinkError> {
        let make = |configuration: &Configuration, direction| -> Result<Self, LinkError> {
            let streams = Streams {
                seed: setup.seed,
                link: &setup.name,
                direction,
            };
            Ok(Self {
                link: Pipeline::new(configuration, streams)?,
                pure_acks: 0,
                data_segments: 0,
                delivered: Vec::new(),
                seconds: Seconds::new(configuration),
                series: None,
                lateness: lateness_histogram(),
                due: Time::ZERO,
            })
        };
        Ok(Box::new((
            make(&setup.up, LinkDirection::Up)?,
            make(&setup.down, LinkDirection::Down)?,
        )))
    }

    /// From now on, records series.
    pub(super) fn record(&mut self, intervals: SeriesIntervals) {
        self.series = Some(Series::new(intervals.queue, intervals.rate));
    }

    /// Ends the recording of series; empty if there is none.
    pub(super) fn recorded(&mut self) -> DirectionSeries {
        self.series.take().map(Series::finish).unwrap_or_default()
    }

    /// A frame arrives at the link.
    pub(super) fn arrive(&mut self, at: Time, kind: Kind, bytes: Vec<u8>) {
        match kind {
            Kind::PureAck => self.pure_acks += 1,
            Kind::Data(_) => {
                self.data_segments += 1;
                self.seconds.data(at);
            }
            Kind::Rest(_) => self.seconds.data(at),
            Kind::Other | Kind::NotCarried => {}
        }
        self.link.handle(at, Frame { bytes, kind });
        if let Some(series) = &mut self.series {
            series.arrived(at, self.link.waiting());
        }
    }

    /// The next frame that has left the link by `now`, delivered or dropped.
    pub(super) fn depart(&mut self, now: Time) -> Option<Departed> {
        match self.link.poll(now)? {
            Output::Delivered { due, packet } => {
                self.due = due;
                if let Some(series) = &mut self.series {
                    series.delivered(due, packet.size());
                }
                if let Kind::Data(length) | Kind::Rest(length) = packet.kind {
                    self.count_delivered(due, length);
                }
                Some(Departed::Delivered(packet.bytes))
            }
            Output::Dropped {
                due,
                packet,
                reason,
            } => {
                if reason == DropReason::QueueFull {
                    self.seconds.queue_full(due);
                }
                Some(Departed::Dropped(packet.bytes))
            }
        }
    }

    fn count_delivered(&mut self, due: Time, length: u32) {
        let bin = due.nanoseconds() / BIN.nanoseconds();
        let bin = usize::try_from(bin).unwrap_or(BIN_LIMIT).min(BIN_LIMIT - 1);
        if self.delivered.len() <= bin {
            self.delivered.resize(bin + 1, 0);
        }
        self.delivered[bin] += u64::from(length);
    }

    /// Records that the frame handed out last was sent at `now`.
    pub(super) fn sent(&mut self, now: Time) {
        let late = now.since(self.due);
        self.lateness.saturating_record(late.nanoseconds());
    }

    /// The time at which the next frame may be due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.link.poll_timeout()
    }

    /// The traffic so far.
    pub(super) fn report(&self) -> DirectionReport {
        DirectionReport {
            counters: self.link.counters(),
            pure_acks: self.pure_acks,
            data_segments: self.data_segments,
            delivered: self.delivered.clone(),
            seconds: self.seconds.report(),
            lateness: Lateness::of(&self.lateness),
        }
    }
}

impl Lateness {
    /// The summary of a histogram of nanoseconds.
    fn of(histogram: &Histogram<u64>) -> Self {
        let frames = histogram.len();
        let quantile = |share| TimeSpan::from_nanoseconds(histogram.value_at_quantile(share));
        let left_out = TAIL_FRAMES.max((frames as f64 * TAIL_SHARE) as u64);
        let tail = if frames > left_out {
            quantile((frames - left_out) as f64 / frames as f64)
        } else {
            TimeSpan::ZERO
        };
        Self {
            frames,
            p50: quantile(0.5),
            mean: TimeSpan::from_nanoseconds(histogram.mean() as u64),
            p99: quantile(0.99),
            tail,
            max: TimeSpan::from_nanoseconds(histogram.max()),
        }
    }
}

/// A histogram from one microsecond to ten seconds, with three digits.
fn lateness_histogram() -> Histogram<u64> {
    const LOW: u64 = 1_000;
    const HIGH: u64 = 10_000_000_000;
    Histogram::new_with_bounds(LOW, HIGH, 3)
        .unwrap_or_else(|_| unreachable!("constant bounds that the library accepts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lateness(milliseconds: &[(u64, u64)]) -> Lateness {
        let mut histogram = lateness_histogram();
        for (late, frames) in milliseconds {
            histogram.saturating_record_n(late * 1_000_000, *frames);
        }
        Lateness::of(&histogram)
    }

    /// Whether a time is the given number of milliseconds, as far as the histogram's digits go.
    fn is_about(time: TimeSpan, milliseconds: f64) -> bool {
        (time.as_milliseconds() - milliseconds).abs() <= 0.002 * milliseconds
    }

    #[test]
    fn the_tail_leaves_out_five_frames_or_a_share() {
        assert_eq!(lateness(&[]), Lateness::default());
        assert_eq!(lateness(&[(50, 5)]).tail, TimeSpan::ZERO);
        assert!(is_about(lateness(&[(1, 100), (50, 5)]).tail, 1.0));
        assert!(is_about(lateness(&[(1, 100), (50, 6)]).tail, 50.0));
        assert!(is_about(lateness(&[(1, 9_980), (50, 20)]).tail, 1.0));
        assert!(is_about(lateness(&[(1, 9_979), (50, 21)]).tail, 50.0));
        assert!(is_about(lateness(&[(1, 50), (3, 50)]).mean, 2.0));
    }
}
