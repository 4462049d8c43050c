//! A leg's `TCP_INFO` as the policy's [`LegSample`].

use std::io;
use std::os::fd::AsFd;

use midspan_linux::tcp;
use midspan_policy::{LegSample, LimitedTimes};

/// Reads a leg. About a microsecond; takes the socket's lock.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn sample(socket: impl AsFd) -> io::Result<LegSample> {
    let information = tcp::information(socket)?;
    Ok(LegSample {
        round_trip_time: information.round_trip_time(),
        minimum_round_trip_time: information.minimum_round_trip_time(),
        delivery_rate: information.delivery_rate(),
        is_application_limited: information.is_application_limited(),
        pacing_rate: information.pacing_rate(),
        segment_size: information.segment_size(),
        congestion_window: information.congestion_window(),
        slow_start_threshold: information.slow_start_threshold(),
        peer_window: u64::from(information.peer_window()),
        advertised_window: u64::from(information.advertised_window()),
        unacknowledged: information.unacknowledged(),
        selectively_acknowledged: information.selectively_acknowledged(),
        is_recovering: information.is_recovering(),
        not_sent: information.not_sent(),
        bytes_acknowledged: information.bytes_acknowledged(),
        bytes_received: information.bytes_received(),
        bytes_retransmitted: information.bytes_retransmitted(),
        segments_retransmitted: information.segments_retransmitted(),
        timeouts: information.timeouts(),
        segments_sent: information.segments_sent(),
        segments_received: information.segments_received(),
        data_segments_received: information.data_segments_received(),
        timeouts_pending: u32::from(information.timeouts_pending()),
        limited: LimitedTimes {
            busy: information.busy_time(),
            receive_window: information.receive_window_limited_time(),
            send_buffer: information.send_buffer_limited_time(),
        },
    })
}
