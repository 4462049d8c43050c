//! A policy with fixed decisions, for tests.

use std::sync::{Arc, Mutex};

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{
    Admission, Decision, Handshake, KnowledgeParts, Policy, Request, SessionId, SessionSample,
    Start,
};
use midspan_units::{Time, TimeSpan};

/// Admits and starts as given, returns the same decision for each sample, and keeps the samples.
#[derive(Debug, Clone)]
pub struct Says {
    pub admission: Admission,
    pub start: Start,
    pub decision: Decision,
    pub samples: Arc<Mutex<Vec<(Time, SessionSample)>>>,
}

impl Default for Says {
    fn default() -> Self {
        Self {
            admission: Admission::Intercept {
                handshake: Handshake::Early,
                connect_timeout: None,
            },
            start: Start::default(),
            decision: Decision::default(),
            samples: Arc::default(),
        }
    }
}

impl Policy for Says {
    fn admit(&mut self, _: Time, _: &Request) -> Admission {
        self.admission
    }

    fn start(
        &mut self,
        _: Time,
        _: &Request,
        _: Option<LearnedStart>,
        _: &mut dyn KnowledgeParts,
    ) -> Start {
        self.start.clone()
    }

    fn sample(
        &mut self,
        now: Time,
        sample: &SessionSample,
        _: &mut dyn KnowledgeParts,
    ) -> Decision {
        self.samples.lock().unwrap().push((now, *sample));
        self.decision
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        Some(TimeSpan::from_milliseconds(100))
    }
}
