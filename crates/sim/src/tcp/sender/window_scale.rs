//! Sending ahead of the advertised window (Hasegawa §3: TGW): the peer's window is read with a
//! larger scale than the peer announced (RFC 7323 §2).
//!
//! A window that is read in this way may shrink: its end goes back when the peer's window gets
//! smaller. A zero window stays zero, whatever the scale.

use super::Sender;
use crate::packet::Acknowledgement;

/// Bits by which windows are read larger than advertised; negative for smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WindowStretch(i8);

impl WindowStretch {
    pub(super) const fn is_none(self) -> bool {
        self.0 == 0
    }

    fn apply(self, window: u64) -> u64 {
        let bits = u32::from(self.0.unsigned_abs());
        if self.0 < 0 {
            window >> bits
        } else {
            window.saturating_mul(1 << bits)
        }
    }
}

impl Sender {
    /// The peer announced this window scale, in bits (at most 14).
    #[must_use]
    pub fn with_peer_window_scale(mut self, announced: u8) -> Self {
        self.peer_window_scale = announced;
        self.read_windows_with(self.configuration.window_scale);
        self
    }

    /// The peer's windows are read with this scale in bits (at most 14), or with the one that it
    /// announced. Has an effect before anything is sent.
    pub fn read_windows_with(&mut self, scale: Option<u8>) {
        if self.highest > 0 {
            return;
        }
        let bits = |scale: u8| i8::try_from(scale.min(14)).unwrap_or(14);
        let announced = self.peer_window_scale;
        let stretch = scale.map_or(0, |read| bits(read) - bits(announced));
        self.window_stretch = WindowStretch(stretch);
        if !self.configuration.handshake {
            self.peer_edge = self.window_stretch.apply(self.largest_peer_window);
        }
    }

    /// Like `learn_window`, but the end of the window may also go back.
    #[cold]
    pub(super) fn learn_stretched_window(&mut self, ack: &Acknowledgement) -> bool {
        if ack.number < self.unacknowledged {
            return false;
        }
        let window = self.window_stretch.apply(ack.window_edge - ack.number);
        let edge = ack.number.saturating_add(window);
        let back = edge < self.peer_edge;
        if back {
            self.peer_edge = edge;
        }
        self.learn_window(ack.number, edge) || back
    }

    /// Whether the data that must be retransmitted first lies beyond the window, which has gone
    /// back.
    pub(super) fn window_went_back(&self) -> bool {
        !self.window_stretch.is_none()
            && self.peer_edge < self.highest.min(self.unacknowledged + self.segment_size())
    }
}
