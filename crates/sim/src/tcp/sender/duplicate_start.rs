//! Hasegawa's duplicate start (§6.2): what is sent before the first acknowledgement of data is
//! sent twice, oversized and cut to the peer's own size.

use midspan_policy::oversized_segments::size_after_duplicate_start;

use super::Sender;
use crate::packet::{Acknowledgement, Data, DataKind};

impl Sender {
    /// An oversized segment has been made: if this is a duplicate start, its cut twin follows.
    pub(super) fn begin_cut(&mut self, sequence: u64, length: u64) {
        let cut = self.configuration.duplicate_start;
        self.cut = cut.filter(|cut| length > u64::from(*cut)).map(|_| sequence);
        self.doubled = self.doubled.or(self.cut);
    }

    /// The cut twin of the oversized segment that was sent last. It counts as sent again.
    pub(super) fn take_cut(&mut self) -> Option<Data> {
        let sequence = self.cut.take()?;
        let length = self.configuration.duplicate_start?;
        self.counters.segments += 1;
        self.counters.retransmissions += 1;
        self.counters.bytes_retransmitted += u64::from(length);
        Some(Data {
            kind: DataKind::Payload,
            sequence,
            length,
        })
    }

    /// All before `number` is acknowledged: if that is of the first data that went out twice, it
    /// decides. Where the peer took only cut segments, all that was sent
    /// counts for lost, as after a go-back, and cwnd is again the initial window.
    pub(super) fn end_duplicate_start(&mut self, number: u64) {
        let Some(doubled) = self.doubled.filter(|doubled| number > *doubled) else {
            return;
        };
        let Some(cut) = self.configuration.duplicate_start.take() else {
            return;
        };
        let acknowledged = number - doubled;
        self.cut = None;
        let oversized = self.configuration.segment_size;
        let kept = size_after_duplicate_start(oversized, cut, acknowledged);
        if kept == oversized {
            return;
        }
        self.configuration.segment_size = kept;
        self.configuration.segment_ceiling = Some(kept);
        self.cwnd = u64::from(kept) * u64::from(self.configuration.initial_window);
        self.next = self.unacknowledged;
        self.resend = None;
        self.recovering = false;
        // What the cut segments beyond it cause is no new loss.
        self.recover = Some(self.highest);
        self.round_trip.cancel();
    }

    /// An ACK with the window that the peer is taken to have; `None` for what it says.
    #[inline]
    pub(super) fn with_assumed_window(&self, ack: &Acknowledgement) -> Option<Acknowledgement> {
        let window = self.configuration.assumed_window?;
        Some(Acknowledgement {
            window_edge: ack.number.saturating_add(window),
            ..*ack
        })
    }
}
