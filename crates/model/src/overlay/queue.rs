//! The M/M/1/K queue: the number of packets in a buffer.

/// A queue with room for K packets under a load ρ = arrival rate / service rate.
///
/// P(n = j) = ρʲ(1 − ρ)/(1 − ρᴷ⁺¹), and 1/(K + 1) for ρ = 1 (Maki §III B). All results are in
/// closed form for any K, and continuous at ρ = 1.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    /// ln ρ; bounded to ±[`EXTREME`] for an idle or an overloaded server.
    log_load: f64,
    /// K, whole, at least 1.
    room: f64,
}

/// Beyond this |ln ρ| the queue is empty, or full, within the precision of a double.
const EXTREME: f64 = 700.0;

impl Queue {
    /// A queue with load `load` (zero or more) and room for `room` packets (rounded down to a whole
    /// number, at least one).
    pub fn new(load: f64, room: f64) -> Self {
        let log_load = if load > 0.0 {
            libm::log(load).clamp(-EXTREME, EXTREME)
        } else {
            -EXTREME
        };
        Self {
            log_load,
            room: room.floor().max(1.0),
        }
    }

    /// Mean number of packets.
    pub fn mean(&self) -> f64 {
        self.mean_up_to(self.room)
    }

    /// P(n ≥ j) for whole j from 0; zero above K.
    pub fn at_least(&self, packets: f64) -> f64 {
        if packets > self.room {
            return 0.0;
        }
        if packets <= 0.0 {
            return 1.0;
        }
        // (ρʲ − ρᴺ)/(1 − ρᴺ) with N = K + 1, in a form that cannot overflow.
        let (x, n) = (self.log_load, self.room + 1.0);
        let left = n - packets;
        let share = if self.is_even() {
            left / n * (1.0 + x * packets / 2.0)
        } else if x > 0.0 {
            libm::expm1(-left * x) / libm::expm1(-n * x)
        } else {
            libm::exp(packets * x) * libm::expm1(left * x) / libm::expm1(n * x)
        };
        share.clamp(0.0, 1.0)
    }

    /// E\[min(n, `most`)\]: the mean number of packets, counting at most `most`, which may be a
    /// fraction.
    pub fn mean_up_to(&self, most: f64) -> f64 {
        let most = most.clamp(0.0, self.room);
        let whole = most.floor();
        // E[min(n, m)] = Σ P(n ≥ i), i = 1…m, and the fraction of the next term.
        let sum = self.sum_at_least(whole);
        let part = (most - whole) * self.at_least(whole + 1.0);
        (sum + part).clamp(0.0, most)
    }

    /// Whether ρ is so close to 1 that the closed forms would lose precision.
    fn is_even(&self) -> bool {
        (self.log_load * (self.room + 1.0)).abs() < 1e-5
    }

    /// Σ P(n ≥ i) for i = 1…`last`, whole.
    fn sum_at_least(&self, last: f64) -> f64 {
        let (x, n, j) = (self.log_load, self.room + 1.0, last);
        if j <= 0.0 {
            return 0.0;
        }
        if self.is_even() {
            // First order in ln ρ; the second order is below the rounding error of a double.
            let ones = j - j * (j + 1.0) / (2.0 * n);
            let slope = j * (j + 1.0) / 4.0 - j * (j + 1.0) * (2.0 * j + 1.0) / (12.0 * n);
            return ones + x * slope;
        }
        if x > 0.0 {
            // Σ (1 − ρ^(i−N)) = J − ρ^(J−N)(1 − ρ^(−J))/(1 − ρ^(−1)).
            let tail = libm::exp(-(n - j) * x) * libm::expm1(-j * x) / libm::expm1(-x);
            return (j - tail) / -libm::expm1(-n * x);
        }
        let tail = libm::exp(x) * libm::expm1(j * x) / libm::expm1(x);
        (tail - j * libm::exp(n * x)) / -libm::expm1(n * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, term by term.
    fn by_terms(load: f64, room: usize, most: f64) -> f64 {
        let weight = |j: usize| {
            let j = i32::try_from(j).unwrap();
            let room = i32::try_from(room).unwrap();
            if load <= 1.0 {
                load.powi(j)
            } else {
                (1.0 / load).powi(room - j)
            }
        };
        let total: f64 = (0..=room).map(weight).sum();
        let sum: f64 = (0..=room).map(|j| weight(j) * (j as f64).min(most)).sum();
        sum / total
    }

    #[test]
    fn closed_forms_equal_the_definition() {
        for load in [
            0.0,
            0.1,
            0.5,
            0.99,
            0.999_999,
            1.0 - 1e-9,
            1.0,
            1.0 + 1e-9,
            1.000_001,
            1.01,
            2.0,
            50.0,
        ] {
            for room in [1usize, 2, 10, 64, 500] {
                let queue = Queue::new(load, room as f64);
                for most in [0.0, 0.4, 1.0, 3.7, 26.4, 64.0, 400.0, 500.0] {
                    let expected = by_terms(load, room, most);
                    let found = queue.mean_up_to(most);
                    assert!(
                        (found - expected).abs() < 1e-8 * (1.0 + expected),
                        "load {load}, room {room}, most {most}: {found}, not {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_mean_is_that_of_the_paper() {
        // ρ{1 − (K+1)ρᴷ + Kρᴷ⁺¹}/((1−ρ)(1−ρᴷ⁺¹)), Maki §III B.
        let (rho, k) = (0.9f64, 40);
        let power = rho.powi(k);
        let k = f64::from(k);
        let printed =
            rho * (1.0 - (k + 1.0) * power + k * power * rho) / ((1.0 - rho) * (1.0 - power * rho));
        assert!((Queue::new(rho, k).mean() - printed).abs() < 1e-10);
        assert!((Queue::new(1.0, k).mean() - k / 2.0).abs() < 1e-10);
    }

    #[test]
    fn extreme_loads_empty_or_fill_the_queue() {
        for room in [1.0, 64.0, 1e15] {
            assert!(Queue::new(0.0, room).mean() < 1e-300);
            assert!((Queue::new(1e300, room).mean() / room - 1.0).abs() < 1e-9);
            let at_one = Queue::new(1.0, room).mean();
            assert!((at_one / room - 0.5).abs() < 1e-9, "{at_one}");
        }
        assert_eq!(Queue::new(0.5, 4.0).at_least(5.0), 0.0);
        assert_eq!(Queue::new(0.5, 4.0).at_least(0.0), 1.0);
    }
}
