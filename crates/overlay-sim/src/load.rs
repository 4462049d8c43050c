//! What transit nodes carry: sessions share the rate of a node.
//!
//! Each session would use its mean rate. If the sum at a node is above the node's rate, all its sessions take longer by
//! the same factor. So a node has a clock of its own, which advances by less than a second in each second while it is overloaded.

/// The load of one transit node.
#[derive(Debug, Clone, Copy)]
pub struct NodeShare {
    /// bit/s.
    capacity: f64,
    /// What its sessions would use, in bit/s.
    demand: f64,
    /// The node's own clock in seconds.
    clock: f64,
    /// Seconds of full load.
    carried: f64,
    updated: f64,
}

impl NodeShare {
    /// A node with this rate in bit/s.
    pub const fn new(capacity: f64) -> Self {
        Self {
            capacity,
            demand: 0.0,
            clock: 0.0,
            carried: 0.0,
            updated: 0.0,
        }
    }

    /// The share of its demand that each session gets, 0…1.
    fn factor(&self) -> f64 {
        if self.demand > self.capacity {
            self.capacity / self.demand
        } else {
            1.0
        }
    }

    /// Advances to this time in seconds.
    pub fn advance(&mut self, now: f64) {
        let elapsed = (now - self.updated).max(0.0);
        self.clock += elapsed * self.factor();
        let offered = self.demand / self.capacity;
        self.carried += elapsed * offered.min(1.0);
        self.updated = now;
    }

    /// The node's own clock in seconds.
    pub const fn clock(&self) -> f64 {
        self.clock
    }

    /// Seconds of full load since the start.
    pub const fn carried(&self) -> f64 {
        self.carried
    }

    /// A session begins (positive) or ends (negative), in bit/s.
    pub fn add(&mut self, demand: f64) {
        self.demand = (self.demand + demand).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overloaded_node_slows_its_sessions() {
        let mut node = NodeShare::new(100.0);
        node.add(50.0);
        node.advance(1.0);
        assert!((node.clock() - 1.0).abs() < 1e-12 && (node.carried() - 0.5).abs() < 1e-12);
        node.add(150.0);
        node.advance(2.0);
        assert!((node.clock() - 1.5).abs() < 1e-12 && (node.carried() - 1.5).abs() < 1e-12);
    }
}
