//! What has events: numbers for the event queue, in the order in which ties are handled.

use crate::scenario::ScenarioError;

/// The numbers: directions of links, then receivers, senders, relays, flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    receivers: u32,
    senders: u32,
    relays: u32,
    flows: u32,
    end: u32,
}

/// What a number stands for, with its place among its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Link(u32),
    Receiver(u32),
    Sender(u32),
    Relay(u32),
    Flow(u32),
}

impl Places {
    pub(super) fn new(
        directions: usize,
        legs: usize,
        relays: usize,
        flows: usize,
    ) -> Result<Self, ScenarioError> {
        let sum = |parts: &[usize]| {
            let count = parts
                .iter()
                .fold(0, |sum: usize, part| sum.saturating_add(*part));
            u32::try_from(count).map_err(|_| ScenarioError::TooMany { count })
        };
        Ok(Self {
            receivers: sum(&[directions])?,
            senders: sum(&[directions, legs])?,
            relays: sum(&[directions, legs, legs])?,
            flows: sum(&[directions, legs, legs, relays])?,
            end: sum(&[directions, legs, legs, relays, flows])?,
        })
    }

    pub(super) const fn count(&self) -> usize {
        self.end as usize
    }

    pub(super) const fn receiver(&self, leg: u32) -> u32 {
        self.receivers + leg
    }

    pub(super) const fn sender(&self, leg: u32) -> u32 {
        self.senders + leg
    }

    pub(super) const fn relay(&self, relay: u32) -> u32 {
        self.relays + relay
    }

    pub(super) const fn flow(&self, flow: u32) -> u32 {
        self.flows + flow
    }

    pub(super) const fn what(&self, place: u32) -> Place {
        if place < self.receivers {
            Place::Link(place)
        } else if place < self.senders {
            Place::Receiver(place - self.receivers)
        } else if place < self.relays {
            Place::Sender(place - self.senders)
        } else if place < self.flows {
            Place::Relay(place - self.relays)
        } else {
            Place::Flow(place - self.flows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_for_one_thing() {
        let places = Places::new(4, 3, 2, 1).unwrap();
        let all: Vec<Place> = (0..13).map(|place| places.what(place)).collect();
        assert_eq!(places.count(), 13);
        assert_eq!(all[3], Place::Link(3));
        assert_eq!(all[places.receiver(2) as usize], Place::Receiver(2));
        assert_eq!(all[places.sender(0) as usize], Place::Sender(0));
        assert_eq!(all[places.relay(1) as usize], Place::Relay(1));
        assert_eq!(all[places.flow(0) as usize], Place::Flow(0));
        assert!(Places::new(usize::MAX, 1, 0, 0).is_err());
    }
}
