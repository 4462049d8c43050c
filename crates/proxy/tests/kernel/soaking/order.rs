//! In which order faults happen.

/// All faults in an order that the seed decides, and then in another one.
pub struct Order<F: 'static> {
    all: &'static [F],
    seed: u64,
    left: Vec<F>,
    /// How often all of them have happened.
    pub round: usize,
}

impl<F: Copy> Order<F> {
    /// These faults; there is at least one.
    pub const fn new(all: &'static [F], seed: u64) -> Self {
        Self {
            all,
            seed,
            left: Vec::new(),
            round: 0,
        }
    }

    pub fn next(&mut self) -> F {
        if self.left.is_empty() {
            self.left = self.all.to_vec();
        }
        // Knuth's linear congruential generator.
        self.seed = (self.seed.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        let place = (self.seed >> 33) as usize % self.left.len();
        let fault = self.left.swap_remove(place);
        self.round += usize::from(self.left.is_empty());
        fault
    }
}
