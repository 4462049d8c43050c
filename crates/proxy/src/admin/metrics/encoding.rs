//! Values of metrics in the OpenMetrics text format.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{Kind, Metric, Sink, Snapshot, Value};

impl Sink<'_> {
    pub(super) fn put(&mut self, labels: &[&str], value: Value<'_>) -> fmt::Result {
        if labels.is_empty() {
            return encode_value(&mut self.encoder, self.kind, value);
        }
        let labels: Vec<(&str, &str)> = self
            .labels
            .iter()
            .copied()
            .zip(labels.iter().copied())
            .collect();
        let mut encoder = self.encoder.encode_family(&labels)?;
        encode_value(&mut encoder, self.kind, value)
    }
}

#[allow(clippy::cast_precision_loss)]
fn encode_value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: Value<'_>) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Number(count)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&count, None)
        }
        (Kind::Counter, Value::Seconds(sum)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&sum, None)
        }
        (_, Value::Number(count)) => {
            encoder.encode_gauge(&i64::try_from(count).unwrap_or(i64::MAX))
        }
        (_, Value::Seconds(time)) => encoder.encode_gauge(&time),
        (_, Value::Distribution(totals, bounds, divisor)) => {
            let bounds = bounds.iter().map(|bound| *bound as f64 / divisor);
            let bounds = bounds.chain(std::iter::once(f64::INFINITY));
            let counts = totals.counts.iter().copied();
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.chain(std::iter::repeat(0))).collect();
            let count = totals.counts.iter().sum();
            let sum = totals.sum as f64 / divisor;
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

impl Metric {
    pub(super) fn encode(
        &self,
        now: &Snapshot,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let unit = self.unit.map(|unit| match unit {
            "seconds" => Unit::Seconds,
            "bytes" => Unit::Bytes,
            other => Unit::Other(other.to_owned()),
        });
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let help = self.help.trim();
        let encoder = encoder.encode_descriptor(self.name, help, unit.as_ref(), kind)?;
        let mut sink = Sink {
            kind: self.kind,
            labels: self.labels,
            encoder,
        };
        (self.read)(now, &mut sink)
    }
}
