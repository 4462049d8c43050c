//! Maki: Tables I and II.

use midspan_model::ModelError;
use midspan_model::papers::maki::{expected_throughput, table_1, table_2};
use midspan_records::{By, Record};

/// Throughput that §IV prints for the homogeneous path, unsplit.
const SECTION_4_PRINTED: f64 = 800e3;

pub(crate) fn records() -> Result<Vec<Record>, ModelError> {
    let mut records = Vec::new();
    for row in table_1() {
        let case = format!("{} legs", row.legs);
        let gain = |value, precision: &str| {
            let record = Record::new("table 1", &case, "gain", "", By::Analysis, value);
            with_paper(record, row.paper).with_note(precision)
        };
        records.push(gain(
            f64::from(row.single),
            "single precision, as the paper computed",
        ));
        records.push(gain(row.double, "double precision"));
    }
    for cell in table_2()? {
        let case = format!("{:?} networks, split at R{}", cell.network, cell.router).to_lowercase();
        let throughput = |value, reading: &str| {
            let record = Record::new("table 2", &case, "throughput", "bit/s", By::Analysis, value);
            with_paper(record, cell.paper * 1e6).with_note(reading)
        };
        records.push(throughput(
            cell.expected.bits_per_second(),
            "Eq. (1): the slower of the two legs",
        ));
        records.push(throughput(
            cell.printed.throughput.bits_per_second(),
            "with the coupling of §III as printed, send buffer of 64 packets",
        ));
        records.push(throughput(
            cell.conserving.throughput.bits_per_second(),
            "with the coupling of §III, stalls counted once, send buffer of 64 packets",
        ));
    }
    let expected = expected_throughput().bits_per_second();
    let record = Record::new(
        "section 4",
        "homogeneous path",
        "expected throughput",
        "bit/s",
        By::Analysis,
        expected,
    );
    records.push(with_paper(record, SECTION_4_PRINTED).with_note("the paper says \"about\""));
    Ok(records)
}

fn with_paper(mut record: Record, paper: f64) -> Record {
    record.paper = Some(paper);
    record
}
