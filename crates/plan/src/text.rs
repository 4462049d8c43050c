//! A plan in sentences that a network engineer can act on.

use std::fmt::Write;

use midspan_model::leg::Limit;
use midspan_policy::Buffer;
use midspan_units::ByteSize;

use crate::answer::Answer;
use crate::data_path::ProxyOnPath;
use crate::plan::{DataPathPlan, Plan};
use crate::proxy_advice::ProxyAdvice;

/// With a smaller gain, a proxy is not worthwhile.
const HARDLY: f64 = 1.05;

impl Plan {
    /// The advice, one paragraph for each unidirectional path.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for data_path in &self.data_paths {
            for sentence in data_path.sentences() {
                text.push_str(&sentence);
                text.push('\n');
            }
            text.push('\n');
        }
        text
    }
}

impl DataPathPlan {
    /// The advice and its reasons, in single sentences.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![self.about_direct()];
        let congested = self.advice.iter().any(|advice| advice.acks.congested());
        match (&self.split, self.best()) {
            (Some(split), Some(best)) => {
                sentences.push(self.about_split(split));
                for (advice, before) in self.advice.iter().zip(&self.data_path.proxies) {
                    sentences.extend(changes(advice, before, best));
                }
                sentences.extend(self.about_gain(split, best, congested));
            }
            _ => sentences.push(
                "There is no proxy on this path: `midspan plan place` shows where one would help."
                    .to_owned(),
            ),
        }
        for assumption in &self.data_path.assumptions {
            sentences.push(format!("Assumed: {assumption}."));
        }
        sentences
    }

    fn about_direct(&self) -> String {
        format!(
            "From {}, one connection end to end reaches {}, bound by {}.",
            self.data_path.name(),
            self.direct.outcome.throughput,
            self.direct.limit(),
        )
    }

    fn about_split(&self, split: &Answer) -> String {
        let proxies: Vec<&str> = self
            .advice
            .iter()
            .map(|advice| advice.node.as_str())
            .collect();
        let mut text = format!(
            "Split at {} as configured, it reaches {}, bound by {} on the leg {}.",
            proxies.join(" and "),
            split.outcome.throughput,
            split.limit(),
            split.slowest_leg(),
        );
        let lost = split.outcome.coupling_loss();
        if lost >= 0.02 {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                " The interaction of the legs costs {:.0} %.",
                lost * 100.0
            );
        }
        text
    }

    fn about_gain(&self, split: &Answer, best: &Answer, congested: bool) -> Vec<String> {
        let mut sentences = Vec::new();
        if best.throughput() > split.throughput() * 1.01 {
            sentences.push(format!(
                "With these settings, it reaches {}.",
                best.outcome.throughput
            ));
        }
        let gain = best
            .outcome
            .throughput
            .ratio(self.direct.outcome.throughput)
            .unwrap_or(1.0);
        let faster = match (self.direct.completion[1], best.completion[1]) {
            (Some(direct), Some(split)) if split > 0.0 => direct / split,
            _ => 1.0,
        };
        sentences.push(if gain < HARDLY && faster < HARDLY && congested {
            "Splitting alone hardly helps here: the ACKs are the limit.".to_owned()
        } else if gain < HARDLY && faster < HARDLY {
            "A proxy hardly helps here: let this traffic pass untouched.".to_owned()
        } else {
            format!(
                "Compared with the direct connection, the throughput is {gain:.1} times as high, and \
                 1 MB arrives {faster:.1} times as fast."
            )
        });
        sentences
    }
}

/// The changes to a proxy, and the reasons.
fn changes(advice: &ProxyAdvice, before: &ProxyOnPath, best: &Answer) -> Vec<String> {
    let node = &advice.node;
    let (new, old) = (&advice.settings, before);
    let mut sentences = Vec::new();
    let to = best
        .leg_names
        .iter()
        .find(|name| name.starts_with(&format!("{node} to ")))
        .map_or("", |name| name.rsplit(" to ").next().unwrap_or(""));
    if new.outbound.congestion_control != old.outbound.congestion_control {
        let control = new
            .outbound
            .congestion_control
            .as_deref()
            .unwrap_or("cubic");
        sentences.push(format!(
            "Use {control} from {node} to {to}: losses there are no sign of congestion, and \
             {control} does not slow down for them."
        ));
    }
    if let (Some(window), None) = (new.outbound.initial_window, old.outbound.initial_window) {
        sentences.push(format!(
            "Set the initial window of {node} towards {to} to {window} segments: slow start from 10 \
             segments takes many round trips."
        ));
    }
    if let (Buffer::Fixed(size), true) = (
        new.outbound.send_buffer,
        new.outbound.send_buffer != old.outbound.send_buffer,
    ) {
        sentences.push(format!(
            "Set the send buffer of {node} towards {to} to {}: the data in flight, and the data that \
             bridges a loss before {node}, need {}.",
            readable(size),
            readable(advice.send_buffer)
        ));
    }
    if let (Buffer::Fixed(size), true) = (
        new.inbound.receive_buffer,
        new.inbound.receive_buffer != old.inbound.receive_buffer,
    ) {
        sentences.push(format!(
            "Set the receive buffer of {node} to {}: {} are in flight towards it.",
            readable(size),
            readable(advice.receive_buffer)
        ));
    }
    if let Some(pacing) = advice.pacing {
        sentences.push(format!(
            "Pace {node} towards {to} at {}: a loss before {node} releases {} packets at once, and \
             the queue after {node} has no room for {} of them.",
            pacing.rate, pacing.burst, pacing.lost
        ));
    }
    let acks = &advice.acks;
    if acks.congested() {
        let mut text = format!(
            "Thin ACKs from {to} to one for {} packets",
            acks.packets_per_ack
        );
        if acks.segment.fragments > 1 {
            let _ = write!(
                text,
                ", or send segments of {} bytes ({} fragments)",
                acks.segment.segment, acks.segment.fragments
            );
        }
        let _ = write!(
            text,
            ": {:.1} packets arrive in the time of one ACK, and every second packet is acknowledged.",
            acks.k
        );
        sentences.push(text);
    }
    let narrow = best
        .outcome
        .legs
        .iter()
        .any(|leg| leg.isolated.limit == Limit::ReceiveBuffer);
    if narrow && best.outcome.limit() == Limit::ReceiveBuffer && advice.pacing.is_none() {
        sentences.push(
            "The receiver's window is the limit: raise its `tcp_rmem` if you can.".to_owned(),
        );
    }
    sentences
}

/// A size with three digits.
fn readable(size: ByteSize) -> String {
    let bytes = size.bytes() as f64;
    match bytes {
        bytes if bytes >= 1e6 => format!("{:.2} MB", bytes / 1e6),
        bytes if bytes >= 1e3 => format!("{:.0} KB", bytes / 1e3),
        bytes => format!("{bytes:.0} B"),
    }
}
