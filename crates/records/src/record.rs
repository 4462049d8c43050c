//! One number with its meaning.

use serde::{Deserialize, Serialize};

use crate::{Quantity, Spread};

/// How a number was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Computed from equations.
    Analysis,
    /// From the packet-level simulator.
    Simulation,
    /// From real kernels over emulated links.
    Lab,
    /// From a measurement of another program; its name is in the case.
    Measurement,
}

impl By {
    /// The name, as in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Analysis => "analysis",
            Self::Simulation => "simulation",
            Self::Lab => "lab",
            Self::Measurement => "measurement",
        }
    }
}

/// One number with its meaning.
///
/// Names are in lower case with spaces; unit symbols and names of protocols are written as usual.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The subject, such as "geo" or "table 1".
    pub item: String,
    /// The variant, such as "1 MB through midspan".
    pub case: String,
    /// The quantity that was measured, such as "completion time".
    pub quantity: String,
    /// SI base unit, "bit/s" or "bytes"; for counts, the counted things, such as "segments";
    /// "share" for a part of a whole, from 0 to 1; empty for any other ratio.
    pub unit: String,
    /// How the number was obtained.
    pub by: By,
    /// The number.
    pub value: f64,
    /// The figure printed in the paper.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paper: Option<f64>,
    /// Lower end of the spread.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub low: Option<f64>,
    /// Upper end of the spread.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub high: Option<f64>,
    /// Whether a stated bound held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ok: Option<bool>,
    /// A remark that a reader needs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

impl Record {
    /// A record with a value and no optional fields.
    #[must_use]
    pub fn new(item: &str, case: &str, quantity: &str, unit: &str, by: By, value: f64) -> Self {
        Self {
            item: item.to_owned(),
            case: case.to_owned(),
            quantity: quantity.to_owned(),
            unit: unit.to_owned(),
            by,
            value,
            paper: None,
            low: None,
            high: None,
            ok: None,
            note: None,
        }
    }

    /// A record of a quantity, with a value and no optional fields.
    #[must_use]
    pub fn of(item: &str, case: &str, quantity: &Quantity, by: By, value: f64) -> Self {
        Self::new(item, case, &quantity.name, quantity.unit, by, value)
    }

    /// The same record with the interval of the median as its spread, if there is more than one
    /// value.
    #[must_use]
    pub fn with_interval(self, spread: &Spread) -> Self {
        if spread.count > 1 {
            self.with_spread(spread.low, spread.high)
        } else {
            self
        }
    }

    /// The same record with the least and the greatest value as its spread, if there is more than
    /// one value.
    #[must_use]
    pub fn with_range(self, spread: &Spread) -> Self {
        if spread.count > 1 {
            self.with_spread(spread.least, spread.greatest)
        } else {
            self
        }
    }

    /// The same record with a spread.
    #[must_use]
    pub fn with_spread(mut self, low: f64, high: f64) -> Self {
        self.low = Some(low);
        self.high = Some(high);
        self
    }

    /// The same record with the verdict on a stated bound.
    #[must_use]
    pub fn with_ok(mut self, ok: bool) -> Self {
        self.ok = Some(ok);
        self
    }

    /// The same record with a note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// The object that `--json` prints.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Records {
    /// All records, in the order of the table.
    pub records: Vec<Record>,
}

impl Records {
    /// Adds a record.
    pub fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// The JSON text, indented.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and booleans only: this cannot fail. A value that is not finite becomes
        // null.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Whether every stated bound held.
    #[must_use]
    pub fn all_ok(&self) -> bool {
        self.records.iter().all(|record| record.ok != Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_documented_shape() {
        let mut records = Records::default();
        records.push(
            Record::new("geo", "1 MB direct", "completion time", "s", By::Lab, 6.0)
                .with_spread(5.5, 6.5),
        );
        let json: serde_json::Value = serde_json::from_str(&records.to_json()).unwrap();
        let expected = serde_json::json!({"records": [{
            "item": "geo", "case": "1 MB direct", "quantity": "completion time", "unit": "s",
            "by": "lab", "value": 6.0, "low": 5.5, "high": 6.5,
        }]});
        assert_eq!(json, expected);
    }

    #[test]
    fn one_missed_bound_is_enough() {
        let mut records = Records::default();
        records.push(Record::new("a", "", "", "", By::Lab, 1.0).with_ok(true));
        assert!(records.all_ok());
        records.push(Record::new("b", "", "", "", By::Lab, 1.0).with_ok(false));
        assert!(!records.all_ok());
    }
}
