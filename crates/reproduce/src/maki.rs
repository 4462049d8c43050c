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
        let network = format!("{:?}", cell.network).to_lowercase();
        let throughput = |value, reading: &str| {
            let case = format!("{network}, R{}, {reading}", cell.router);
            let record = Record::new("table 2", &case, "throughput", "bit/s", By::Analysis, value);
            with_paper(record, cell.paper * 1e6)
        };
        // The slower of the two legs; then with a send buffer of 64 packets the coupling of §III
        // as it is printed, and with stalls counted once.
        let readings = [
            (cell.expected, "Eq. (1)"),
            (cell.printed.throughput, "coupling as printed"),
            (cell.conserving.throughput, "coupling conserving"),
        ];
        records.extend(readings.map(|(value, name)| throughput(value.bits_per_second(), name)));
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
