//! A plan as records.

use midspan_records::{By, Record};
use midspan_units::number;

use crate::answer::{Answer, limit_name};
use crate::plan::{DataPathPlan, Plan};
use crate::proxy_advice::ProxyAdvice;

/// Names of the completion times of [`crate::SIZES`].
pub const COMPLETION: [&str; 3] = [
    "completion time of 100 KB",
    "completion time of 1 MB",
    "completion time of 10 MB",
];

impl Plan {
    /// All numbers of the plan.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.data_paths
            .iter()
            .flat_map(|data_path| data_path.records(&self.name))
            .collect()
    }
}

impl DataPathPlan {
    /// The analyses, by their names: direct, split, recommended.
    #[must_use]
    pub fn cases(&self) -> Vec<(&'static str, &Answer)> {
        let mut cases = vec![("direct", &self.direct)];
        cases.extend(self.split.as_ref().map(|answer| ("split", answer)));
        cases.extend(self.advised.as_ref().map(|answer| ("recommended", answer)));
        cases
    }

    /// All numbers on this unidirectional path of the path called `item`.
    #[must_use]
    pub fn records(&self, item: &str) -> Vec<Record> {
        let name = self.data_path.name();
        let mut records = Vec::new();
        for (case, answer) in self.cases() {
            records.extend(answer.records(item, &format!("{name} {case}")));
        }
        for (case, answer) in self.cases() {
            let split = answer.legs.len() > 1;
            records.extend(answer.leg_records(item, case).into_iter().filter(|_| split));
        }
        for advice in &self.advice {
            records.extend(advice.records(item, &name));
        }
        records
    }
}

fn analysed(item: &str, case: &str, quantity: &str, unit: &str, value: f64) -> Record {
    Record::new(item, case, quantity, unit, By::Analysis, value)
}

impl Answer {
    /// The end-to-end numbers.
    #[must_use]
    pub fn records(&self, item: &str, case: &str) -> Vec<Record> {
        let bound = format!("{} on {}", self.limit(), self.slowest_leg());
        let mut records = vec![
            analysed(item, case, "throughput", "bit/s", self.throughput())
                .with_note(format!("bound by {bound}")),
            analysed(
                item,
                case,
                "coupling loss",
                "share",
                self.outcome.coupling_loss(),
            ),
        ];
        for (quantity, time) in COMPLETION.iter().zip(self.completion) {
            records.extend(time.map(|time| analysed(item, case, quantity, "s", time)));
        }
        records
    }

    fn leg_records(&self, item: &str, case: &str) -> Vec<Record> {
        let mut records = Vec::new();
        for ((name, chained), outcome) in self
            .leg_names
            .iter()
            .zip(&self.legs)
            .zip(&self.outcome.legs)
        {
            let case = format!("{name} {case}");
            let section = &chained.leg.section;
            let by_itself = outcome.isolated.throughput.bits_per_second();
            records.extend([
                analysed(item, &case, "rate of the leg", "bit/s", section.rate()),
                analysed(item, &case, "round-trip time", "s", section.round_trip()),
                analysed(item, &case, "loss", "share", section.loss()),
                analysed(item, &case, "throughput by itself", "bit/s", by_itself)
                    .with_note(format!("bound by {}", limit_name(outcome.isolated.limit))),
                analysed(item, &case, "stall", "s", outcome.stall),
            ]);
        }
        records
    }
}

impl ProxyAdvice {
    fn records(&self, item: &str, data_path: &str) -> Vec<Record> {
        let case = format!("{} for {data_path}", self.node);
        let bytes = |quantity, size: midspan_units::ByteSize| {
            analysed(item, &case, quantity, "bytes", number(size.bytes()))
        };
        let mut records = vec![
            bytes("receive buffer needed", self.receive_buffer),
            bytes("send buffer needed", self.send_buffer),
        ];
        if let Some(pacing) = self.pacing {
            let rate = number(pacing.rate.bits_per_second());
            records.push(analysed(item, &case, "pacing rate", "bit/s", rate));
            let burst = number(pacing.burst);
            records.push(analysed(item, &case, "burst", "packets", burst));
        }
        let acks = &self.acks;
        let per_ack = f64::from(acks.packets_per_ack);
        let segment = f64::from(acks.segment.segment);
        records.extend([
            analysed(item, &case, "normalised bandwidth ratio", "", acks.k),
            analysed(item, &case, "packets per ACK", "packets", per_ack),
            analysed(item, &case, "segment size", "bytes", segment),
        ]);
        records
    }
}
