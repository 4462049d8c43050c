//! One flow of data.

use midspan_units::TimeSpan;

use super::{NodeId, Source};
use crate::proxy::RelayConfiguration;
use crate::tcp::{ReceiverConfiguration, SenderConfiguration};

/// Data from one node to another over TCP, optionally split at proxies on the path.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Its name; also selects its random numbers.
    pub name: String,
    /// The node that sends the data.
    pub from: NodeId,
    /// The node that receives it.
    pub to: NodeId,
    /// The sender at `from`.
    pub sender: SenderConfiguration,
    /// The receiver at `to`.
    pub receiver: ReceiverConfiguration,
    /// Where the connection is split, in order from `from` to `to`.
    pub splits: Vec<Split>,
    /// The data that is sent.
    pub source: Source,
    /// Which of its ends opened the connection: this decides which leg is a proxy's client leg for
    /// its policy.
    pub client: Client,
    /// Before the last leg's sender, each ACK becomes several, one for this many segments (ACK
    /// regeneration, Tam §2.5). `None`: ACKs stay unchanged.
    pub regenerate_acks: Option<u32>,
    /// When the connection is opened.
    pub start: TimeSpan,
    /// How long after its start the flow ends, so that nothing more is written; `None`: never.
    pub stop: Option<TimeSpan>,
}

/// The end of a flow that is the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Client {
    /// It sends the data: an upload.
    #[default]
    Sender,
    /// It receives the data: a download.
    Receiver,
}

/// A proxy that splits a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// The node of the proxy.
    pub node: NodeId,
    /// The receiver of its inbound leg.
    pub inbound: ReceiverConfiguration,
    /// The sender of its outbound leg.
    pub outbound: SenderConfiguration,
    /// The relay that joins the two legs.
    pub relay: RelayConfiguration,
}

impl Flow {
    /// A bulk flow of the default TCP that begins at the start and is not split.
    #[must_use]
    pub fn bulk(name: &str, from: NodeId, to: NodeId) -> Self {
        Self {
            name: name.to_owned(),
            from,
            to,
            sender: SenderConfiguration::default(),
            receiver: ReceiverConfiguration::default(),
            splits: Vec::new(),
            source: Source::Bulk,
            client: Client::Sender,
            regenerate_acks: None,
            start: TimeSpan::ZERO,
            stop: None,
        }
    }

    /// The same flow with these sender settings on all legs.
    #[must_use]
    pub fn with_sender(mut self, sender: SenderConfiguration) -> Self {
        self.sender = sender;
        for split in &mut self.splits {
            split.outbound = sender;
        }
        self
    }

    /// The same flow with these receiver settings on all legs.
    #[must_use]
    pub fn with_receiver(mut self, receiver: ReceiverConfiguration) -> Self {
        self.receiver = receiver;
        for split in &mut self.splits {
            split.inbound = receiver;
        }
        self
    }

    /// Splits the flow at a further node, after the existing ones. The new legs get the sender's
    /// and the receiver's settings of the flow.
    #[must_use]
    pub fn split_at(mut self, node: NodeId, relay: RelayConfiguration) -> Self {
        self.splits.push(Split {
            node,
            inbound: self.receiver,
            outbound: self.sender,
            relay,
        });
        self
    }
}
