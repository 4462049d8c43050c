//! Legs that time-outs interrupt: how much of this the buffers between legs can bridge.
//!
//! A leg with time-outs is fast in between, because its mean rate includes the time-outs. If its
//! neighbour is slower than that, the buffers between the two must hold the data that the neighbour
//! handles during a time-out; if they hold less, the chain loses the difference. This is the
//! two-machine transfer line with a finite buffer (J. A. Buzacott, "Automatic transfer lines with
//! buffer stocks", International Journal of Production Research 5 (3), 1967; S. B. Gershwin,
//! "Manufacturing Systems Engineering", 1994, chapter 3), in which one machine is interrupted and
//! the other is steady.
//!
//! An outbound leg that returns from a time-out finds the buffers full and empties them at c − v,
//! where c is its rate between time-outs and v that of the inbound leg; after that, its rate is
//! only v. With N bytes between two time-outs, exponentially distributed, and a duration of T for
//! each, a byte takes 1/ρ = T/N + 1/c + (1/v − 1/c)·e^(−B·c/((c − v)·N)), but never less than 1/v.
//! With B → ∞ that is the leg alone. The time falls as c, v or B grows, and rises with T and 1/N.
//! An interrupted inbound leg is treated in the same way, with free room instead of data.

use super::Numbers;

/// The largest possible throughput of a chain of `legs`; no bound if there are no time-outs.
pub fn bound(legs: &[Numbers]) -> f64 {
    let pairs = legs.windows(2).map(|pair| {
        let (inbound, outbound) = (&pair[0], &pair[1]);
        let room = inbound.receive_buffer + outbound.waiting;
        let blocked = interrupted(outbound, inbound.isolated, room);
        let starved = interrupted(inbound, outbound.isolated, room);
        blocked.min(starved)
    });
    pairs.fold(f64::MAX, f64::min)
}

/// The throughput of `leg` with its time-outs, if its neighbour has a steady `rate` and there is
/// `room` between them.
fn interrupted(leg: &Numbers, rate: f64, room: f64) -> f64 {
    let Some((time_out, bytes)) = leg.time_outs else {
        return f64::MAX;
    };
    if leg.isolated <= 0.0 || rate <= 0.0 {
        return 0.0;
    }
    // 1/c; negative if the time-outs alone would take more than all the time.
    let between = (1.0 / leg.isolated - time_out / bytes).max(0.0);
    let slower = 1.0 / rate - between;
    if slower <= 0.0 {
        return f64::MAX;
    }
    let emptied = room / (rate * slower);
    let time = 1.0 / leg.isolated + slower * libm::exp(-emptied / bytes);
    1.0 / time.max(1.0 / rate)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::numbers;
    use super::*;

    /// A time-out of 1 s for each 1,000 bytes, 100 bytes/s alone: 1,000 bytes in 9 s of 10 s.
    fn leg() -> Numbers {
        Numbers {
            time_outs: Some((1.0, 1000.0)),
            ..numbers(100.0, 1.0)
        }
    }

    #[test]
    fn room_bridges_a_time_out() {
        let found = |room| interrupted(&leg(), 100.0, room);
        // No room: data passes only while the leg is not interrupted, and no faster than the
        // neighbour.
        assert!((found(0.0) - 90.0).abs() < 2.0, "{}", found(0.0));
        assert!(found(10.0) < found(100.0) && found(100.0) < found(1000.0));
        assert!((found(1e6) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn without_time_outs_and_behind_a_fast_neighbour_there_is_no_bound() {
        assert_eq!(interrupted(&numbers(100.0, 1.0), 100.0, 0.0), f64::MAX);
        // A neighbour slower than the leg between its time-outs gives a bound; one as fast gives
        // none.
        assert!(interrupted(&leg(), 111.0, 0.0) < 100.5);
        assert_eq!(interrupted(&leg(), 112.0, 0.0), f64::MAX);
    }
}
