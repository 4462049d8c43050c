//! What is measured: a name, a unit, and which of two values is the better one.

use std::borrow::Cow;

/// Which of two values of a quantity is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The greater one, as of a rate.
    Greater,
    /// The smaller one, as of a time.
    Less,
    /// Neither: the quantity describes and does not judge.
    Neither,
}

/// A quantity that programs and simulations measure.
///
/// Quantities that more than one crate measures are here, so that their records have the same
/// names and units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    /// The name, as in [`Record::quantity`](crate::Record::quantity).
    pub name: Cow<'static, str>,
    /// The unit, as in [`Record::unit`](crate::Record::unit).
    pub unit: &'static str,
    /// Which values are better.
    pub better: Better,
}

impl Quantity {
    /// A quantity whose name is fixed.
    #[must_use]
    pub const fn new(name: &'static str, unit: &'static str, better: Better) -> Self {
        Self {
            name: Cow::Borrowed(name),
            unit,
            better,
        }
    }

    /// The best of `values`: the least or the greatest one. Without values, an infinity that is
    /// worse than every value. For a quantity that does not judge, the greatest one.
    #[must_use]
    pub fn best(&self, values: impl Iterator<Item = f64>) -> f64 {
        match self.better {
            Better::Less => values.fold(f64::INFINITY, f64::min),
            Better::Greater | Better::Neither => values.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// From the start to the last byte.
pub static COMPLETION_TIME: Quantity = Quantity::new("completion time", "s", Better::Less);
/// From the start to the first byte of the answer.
pub static TIME_TO_FIRST_BYTE: Quantity = Quantity::new("time to first byte", "s", Better::Less);
/// Rate of user data at the receiver.
pub static GOODPUT: Quantity = Quantity::new("goodput", "bit/s", Better::Greater);
/// Goodput as a share of the lowest rate of the links that the data crosses.
pub static SHARE_OF_LINK: Quantity = Quantity::new("share of the link", "share", Better::Greater);
/// Segments sent again.
pub static RETRANSMISSIONS: Quantity = Quantity::new("retransmissions", "segments", Better::Less);
/// Pure ACKs that the receiver of the data sent into the narrowest link.
pub static ACKS_UPSTREAM: Quantity = Quantity::new("ACKs sent upstream", "segments", Better::Less);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_time_is_the_least_and_the_best_rate_the_greatest() {
        let values = [2.0, 1.0, 3.0];
        assert_eq!(COMPLETION_TIME.best(values.into_iter()), 1.0);
        assert_eq!(GOODPUT.best(values.into_iter()), 3.0);
        assert_eq!(COMPLETION_TIME.best(std::iter::empty()), f64::INFINITY);
        assert_eq!(GOODPUT.best(std::iter::empty()), f64::NEG_INFINITY);
    }
}
