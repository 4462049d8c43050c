//! A loss cycle of the inbound leg, from one lost packet to the next (Maki §III B, Figs 5 and 6).
//!
//! It has two parts: T_f, until the retransmission arrives, in which no data is passed on and the
//! outbound leg sends the N_f packets of its send buffer; and T_l, in which the N_l = 1/p packets
//! of the cycle pass. The amount that the outbound leg sends in a cycle is Eq. (6), in the module
//! of each reading.

/// T_f, the mean time from a loss until the retransmission arrives, in seconds.
///
/// T_f = (1 − q)·RTT + q·(T_o + RTT/2), with q = min(1, 3/w) for Reno: the probability that the
/// loss is noticed only by a time-out. `time_out` is at least a round trip (see
/// [`crate::response::TimeOut`]), so a stall never shrinks as loss grows.
pub fn stall(round_trip: f64, time_out: f64, time_out_probability: f64) -> f64 {
    let q = time_out_probability;
    (1.0 - q) * round_trip + q * (time_out + round_trip / 2.0)
}

/// Mean duration of a time-out, and mean bytes between two time-outs. The leg's mean stall is
/// `stall`, with a time-out of probability `q` in it, and it has `bytes` between two losses; `None`
/// without time-outs.
pub fn time_outs(round_trip: f64, stall: f64, q: f64, bytes: f64) -> Option<(f64, f64)> {
    if q <= 0.0 {
        return None;
    }
    let lasting = (stall - (1.0 - q) * round_trip) / q;
    (lasting > 0.0).then(|| (lasting, bytes / q))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_a_round_trip_or_a_time_out() {
        assert_eq!(stall(0.1, 1.0, 0.0), 0.1);
        assert_eq!(stall(0.1, 1.0, 1.0), 1.05);
    }
}
