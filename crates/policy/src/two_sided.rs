//! Settings for two proxies at both ends of one bad link, from the rates and the round trip that the operator
//! has written.
//!
//! No protocol runs between the two. The *terminal*, at the clients' end, opens the connections over the link,
//! and the *hub*, at the servers' end, accepts them. Three settings together remove slow start from downloads
//! over the link: the terminal has its whole receive window open from the first ACK on, the hub has a large
//! initial window, and pacing keeps the hub's first flight at the rate of the link. None of them gains anything
//! alone. Uploads have the same initial window and pacing at the terminal, and the kernel's receive window at
//! the hub. Both ends use BBR.
//!
//! A fixed receive buffer bounds what the hub takes from a server ahead of the link. Otherwise the slow start of a
//! fast server continues until a queue near the server overflows, although the link has had more than enough data
//! for long.

use midspan_units::{BitRate, ByteSize, TimeSpan};

use crate::congestion::BBR;
use crate::learned_start::{LEAST_WINDOW, MOST_WINDOW, SEGMENT};
use crate::{AheadBy, Buffer, LegSettings, ReceiveWindow, server_windows};

/// Data is paced at this many hundredths of the link's rate, so that headers (36 bytes of 1,000) and
/// retransmissions fit as well.
const PACED: u64 = 95;
/// The terminal's receive window holds this many round trips of the downlink's rate.
const WINDOW_ROUND_TRIPS: u64 = 2;
/// The hub's receive buffer holds this many of the same. With two, a server with 1 Gbit/s and a round trip of 40 ms still
/// overruns a queue of 1,000 packets.
const BUFFER_ROUND_TRIPS: u64 = 1;
/// The least of both, in bytes: twice the kernel's first window.
const LEAST_RECEIVE_WINDOW: u64 = 128 << 10;

/// A link between a terminal and a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwoSidedLink {
    /// Rate from the terminal to the hub, headers included.
    pub up: BitRate,
    /// Rate from the hub to the terminal, headers included.
    pub down: BitRate,
    /// Round trip without queues.
    pub round_trip: TimeSpan,
}

impl TwoSidedLink {
    /// The terminal's legs towards servers: over the link.
    #[must_use]
    pub fn terminal(&self) -> LegSettings {
        LegSettings {
            receive_window: Some(ReceiveWindow::Fixed(self.downlink(WINDOW_ROUND_TRIPS))),
            ..self.sender(self.up)
        }
    }

    /// The hub's legs towards servers.
    #[must_use]
    pub fn hub_to_servers(&self) -> LegSettings {
        LegSettings {
            receive_buffer: Buffer::Fixed(self.downlink(BUFFER_ROUND_TRIPS)),
            ..LegSettings::default()
        }
    }

    /// What the downlink carries in this number of round trips.
    fn downlink(&self, round_trips: u64) -> ByteSize {
        let bytes = self.down.bytes_in(self.round_trip);
        let bytes = bytes.saturating_mul(round_trips);
        ByteSize::from_bytes(bytes.clamp(LEAST_RECEIVE_WINDOW, server_windows::MOST.bytes()))
    }

    /// The hub's legs towards clients: over the link.
    #[must_use]
    pub fn hub(&self) -> LegSettings {
        LegSettings {
            // The terminal's window is open.
            sending_ahead: Some(AheadBy::Off),
            ..self.sender(self.down)
        }
    }

    /// An end that sends at this rate: a whole round trip at once, paced.
    fn sender(&self, rate: BitRate) -> LegSettings {
        let segments = rate.bytes_in(self.round_trip) / u64::from(SEGMENT);
        let segments = u32::try_from(segments).unwrap_or(MOST_WINDOW);
        let paced = rate.bits_per_second() / 100 * PACED;
        LegSettings {
            congestion_control: Some(BBR.to_owned()),
            initial_window: Some(segments.clamp(LEAST_WINDOW, MOST_WINDOW)),
            // A rate below 100 bit/s has no such part.
            pacing_rate: Some(BitRate::from_bits_per_second(paced).unwrap_or(rate)),
            ..LegSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(up: &str, down: &str, milliseconds: u64) -> TwoSidedLink {
        TwoSidedLink {
            up: up.parse().unwrap(),
            down: down.parse().unwrap(),
            round_trip: TimeSpan::from_milliseconds(milliseconds),
        }
    }

    #[test]
    fn a_satellite_link_is_filled_from_the_first_flight_on() {
        let link = link("2 Mbit/s", "20 Mbit/s", 600);
        let terminal = link.terminal();
        assert_eq!(terminal.initial_window, Some(103));
        assert_eq!(terminal.pacing_rate, "1.9 Mbit/s".parse().ok());
        let window = ReceiveWindow::Fixed(ByteSize::from_bytes(3_000_000));
        assert_eq!(terminal.receive_window, Some(window));
        let hub = link.hub();
        assert_eq!(hub.initial_window, Some(1000));
        assert_eq!(hub.pacing_rate, "19 Mbit/s".parse().ok());
        assert_eq!(hub.receive_window, None);
        let buffer = Buffer::Fixed(ByteSize::from_bytes(1_500_000));
        assert_eq!(link.hub_to_servers().receive_buffer, buffer);
    }

    proptest! {
        #[test]
        fn every_link_has_settings_that_a_configuration_takes(
            up in 1_u64..u64::MAX, down in 1_u64..u64::MAX, round_trip in 0_u64..u64::MAX,
        ) {
            let link = TwoSidedLink {
                up: BitRate::from_bits_per_second(up).unwrap(),
                down: BitRate::from_bits_per_second(down).unwrap(),
                round_trip: TimeSpan::from_nanoseconds(round_trip),
            };
            prop_assert!(link.hub_to_servers().check_receive_window().is_ok());
            for leg in [link.terminal(), link.hub()] {
                prop_assert!(leg.check_receive_window().is_ok());
                let window = leg.initial_window.unwrap();
                prop_assert!((LEAST_WINDOW..=MOST_WINDOW).contains(&window));
            }
        }
    }
}
