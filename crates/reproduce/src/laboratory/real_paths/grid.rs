//! HAProxy's best hand-set values: measured once for each value of the grid, then chosen.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use midspan_lab::{Case, CaseKind};
use midspan_records::{By, Record};

use super::super::point::Extent;
use super::by_hand::{ByHand, GRID, Value};
use super::paths::RealPath;
use super::{LabEffort, LaboratoryError, Metric, Point, Transfer, with_flow};
use crate::laboratory::laboratory;

/// Repetitions of each value. Six paired runs are made afterwards with the best one, because the best of a grid is also
/// the luckiest.
const REPETITIONS: u32 = 3;
/// A value whose first run takes more than this multiple of the shortest first run is not measured again. With a smaller
/// one, an unlucky run would dismiss a good value; with a larger one, slow values would take hours.
const DISMISSED_BEYOND: f64 = 1.5;
/// Bytes of data in a segment.
const SEGMENT: u64 = 1448;

/// The grid of a transfer on a path.
pub(super) fn point(path: &RealPath, transfer: &Transfer) -> Point {
    let seconds = path.seconds(transfer);
    let of = |value: Value| {
        let path = path.by_hand(&ByHand::of(value, transfer));
        let path = with_flow(path, transfer);
        Case::new(value.0, path, CaseKind::Haproxy, seconds)
    };
    Point {
        item: path.name,
        name: super::name_of(path, transfer),
        cases: different(transfer).map(of).collect(),
        repetitions: REPETITIONS,
        dismissed_beyond: Some(DISMISSED_BEYOND),
        shown: &[Metric::Completion],
        beside: false,
        ..Point::default()
    }
}

/// The values that differ for this transfer: the least initial window that holds the largest object, and all smaller ones.
/// With a larger window, the same segments leave at the same time.
fn different(transfer: &Transfer) -> impl Iterator<Item = Value> {
    let segments = transfer.largest_object().div_ceil(SEGMENT);
    let holds_all = |window: u32| u64::from(window) >= segments;
    let least = (GRID.iter().map(|(_, _, window)| *window))
        .filter(|window| holds_all(*window))
        .min();
    GRID.into_iter()
        .filter(move |(_, _, window)| least.is_none_or(|least| *window <= least))
}

/// The best values, by the names of the points.
#[derive(Debug, Clone, Default)]
pub struct Chosen(BTreeMap<String, ByHand>);

impl Chosen {
    /// Reads the stored runs of the grid.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: &FilePath) -> Result<Self, LaboratoryError> {
        let effort = LabEffort {
            extent: Extent::Full,
            state: Some(file.to_owned()),
            only_finished: true,
            ..LabEffort::default()
        };
        let measured = laboratory(super::grid(&effort)?, &effort, &mut |_| ())?;
        let records = &measured.figures.records;
        let transfer_of = |point: &Point| {
            let (_, transfer) = point.name.split_once(", ")?;
            super::TRANSFERS.iter().find(|one| one.name == transfer)
        };
        let chosen = measured.points.iter().filter_map(|point| {
            let (best, _) = *ranked(point, records).first()?;
            let value = GRID.into_iter().find(|value| value.0 == best)?;
            let by_hand = ByHand::of(value, transfer_of(point)?);
            Some((point.name.clone(), by_hand))
        });
        Ok(Self(chosen.collect()))
    }

    /// The best values for this point, if the grid was measured there.
    pub(super) fn of(&self, point: &str) -> Option<ByHand> {
        self.0.get(point).copied()
    }
}

/// The cases of a point with their completion times, the shortest first.
pub(super) fn ranked(point: &Point, records: &[Record]) -> Vec<(&'static str, f64)> {
    let time_of = |case: &Case| Some((case.name, completion(point, case, records)?.value));
    let mut ranked: Vec<_> = point.cases.iter().filter_map(time_of).collect();
    ranked.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    ranked
}

/// The measured completion time of a case.
pub(super) fn completion<'a>(
    point: &Point,
    case: &Case,
    records: &'a [Record],
) -> Option<&'a Record> {
    let (name, quantity) = (point.name_of(case), Metric::Completion.quantity().name);
    records
        .iter()
        .find(|record| record.by == By::Lab && record.case == name && record.quantity == quantity)
}
