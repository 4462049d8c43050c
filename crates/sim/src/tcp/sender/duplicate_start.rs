//! Hasegawa's duplicate start (§6.2): all data before the first acknowledgement is sent twice,
//! oversized and cut to the peer's own size.

use midspan_policy::oversized_segments::size_after_duplicate_start;

use super::Sender;
use crate::packet::{Acknowledgement, Data, DataKind};

impl Sender {
    /// An oversized segment was made: in a duplicate start, its cut copy follows.
    pub(super) fn begin_cut(&mut self, sequence: u64, length: u64) {
        let cut = self.configuration.duplicate_start;
        self.cut = cut.filter(|cut| length > u64::from(*cut)).map(|_| sequence);
        self.doubled = self.doubled.or(self.cut);
    }

    /// The cut copy of the oversized segment that was sent last. It counts as a retransmission.
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

    /// Everything before `number` is acknowledged. If that includes the first data that was sent
    /// twice, it decides which size is kept. If the peer accepted only cut segments, everything
    /// that was sent counts as lost, as after a go-back, and cwnd is the initial window again.
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
        if self.uses_rack {
            self.lose_everything();
            return;
        }
        self.next = self.unacknowledged;
        self.resend = None;
        self.recovering = false;
        // Duplicate ACKs for the cut segments beyond it are no new loss.
        self.recover = Some(self.highest);
        self.round_trip.cancel();
    }

    /// An ACK with the assumed window of the peer; `None`: the ACK is used unchanged.
    #[inline]
    pub(super) fn with_assumed_window(&self, ack: &Acknowledgement) -> Option<Acknowledgement> {
        let window = self.configuration.assumed_window?;
        Some(Acknowledgement {
            window_edge: ack.number.saturating_add(window),
            ..*ack
        })
    }
}
