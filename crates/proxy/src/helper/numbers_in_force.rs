//! The names and numbers in force, for the next program of this process (an upgrade).
//!
//! The text of the configuration may have other ones, because a reload and an upgrade keep some of them.

use midspan_gateway::initial_window::{MarkField, MarkFieldError};
use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;

/// The values in force of keys that a reload or an upgrade may keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NumbersInForce {
    /// `relay.threads`.
    pub threads: usize,
    /// `marks.mask`.
    pub mask: u32,
    /// `marks.table`.
    pub window_table: u32,
    /// `marks.priority`.
    pub window_priority: u32,
    /// `interception.table`.
    pub table: String,
    /// `interception.routing_table`.
    pub routing_table: u32,
    /// `interception.rule_priority`.
    pub rule_priority: u32,
    /// `interception.forward_priority`.
    pub forward_priority: i32,
    /// `interception.zone`.
    pub zone: u16,
    /// `interception.queue`.
    pub queue: u16,
}

impl From<&Configuration> for NumbersInForce {
    fn from(configuration: &Configuration) -> Self {
        let (marks, numbers) = (configuration.marks, &configuration.interception.numbers);
        Self {
            threads: configuration.relay.threads,
            mask: marks.marks.mask(),
            window_table: marks.table,
            window_priority: marks.priority,
            table: numbers.table.clone(),
            routing_table: numbers.routing_table,
            rule_priority: numbers.rule_priority,
            forward_priority: numbers.forward_priority,
            zone: numbers.zone,
            queue: numbers.queue,
        }
    }
}

impl NumbersInForce {
    /// Puts them into a configuration.
    ///
    /// # Errors
    /// The mask is no field of a mark.
    pub fn apply(&self, configuration: &mut Configuration) -> Result<(), MarkFieldError> {
        let mask = MarkField::new(self.mask)?;
        configuration.relay.threads = self.threads;
        configuration.marks.marks = mask;
        configuration.marks.table = self.window_table;
        configuration.marks.priority = self.window_priority;
        let numbers = &mut configuration.interception.numbers;
        numbers.marks = mask;
        numbers.table.clone_from(&self.table);
        numbers.routing_table = self.routing_table;
        numbers.rule_priority = self.rule_priority;
        numbers.forward_priority = self.forward_priority;
        numbers.zone = self.zone;
        numbers.queue = self.queue;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_document::Source;

    #[test]
    fn a_configuration_gets_the_numbers_in_force() {
        let read = |text: &str| {
            let listener =
                "[[listener]]\nname = \"a\"\nlisten = \"127.0.0.1:1\"\nto = \"127.0.0.1:2\"\n";
            Configuration::read(&Source::new("file", format!("{text}{listener}"))).unwrap()
        };
        let in_force = NumbersInForce::from(&read(
            "[relay]\nthreads = 7\n[marks]\nmask = 0xf0\ntable = 311\npriority = 12\n[interception]\n\
             table = \"t\"\nrouting_table = 313\nrule_priority = 14\nforward_priority = 15\nzone = 16\nqueue = 17\n",
        ));
        let mut other = read("");
        assert_ne!(NumbersInForce::from(&other), in_force);
        in_force.apply(&mut other).unwrap();
        assert_eq!(NumbersInForce::from(&other), in_force);
        assert_eq!(other.interception.numbers.marks, other.marks.marks);
        let wrong = NumbersInForce {
            mask: 0xf0f,
            ..in_force
        };
        assert!(wrong.apply(&mut other).is_err());
    }
}
