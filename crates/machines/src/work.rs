//! The jobs of a call, on all releases.

use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use midspan_records::{RunKey, Store};

use crate::batch;
use crate::error::Error;
use crate::image::Image;
use crate::job::{Job, LIMIT, Outcome, Row};
use crate::machine::{Broken, Machine, Parts};
use crate::programs::{Part, Programs, TestProgram};
use crate::record::Record;
use crate::report::{self, Results};
use crate::say;

/// Which jobs are done, and until when.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// No job is done.
    pub lists_only: bool,
    /// Jobs that have failed are done again.
    pub repeats_failed: bool,
    /// No job begins after this, and the running ones are stopped.
    pub until: Instant,
}

/// The jobs of a call. The releases run at the same time, because an emulated machine seldom uses more than one
/// processor.
pub struct Work<'a> {
    programs: &'a Programs,
    jobs: &'a [Job<'a>],
    store: Mutex<Store<Row>>,
    record: Option<Mutex<Record>>,
    limits: Limits,
}

/// How a batch of tests ended.
enum Batch {
    /// All tests have rows.
    Done(Vec<Row>),
    /// The time was over.
    Stopped,
    /// At least one test did not end, or stopped the machine: each test has to run alone.
    Broken,
}

impl<'a> Work<'a> {
    /// The jobs, the store of their results on this machine, and the record of those on all machines.
    pub fn new(
        programs: &'a Programs,
        jobs: &'a [Job<'a>],
        store: Store<Row>,
        record: Option<Record>,
        limits: Limits,
    ) -> Self {
        Self {
            programs,
            jobs,
            store: Mutex::new(store),
            record: record.map(Mutex::new),
            limits,
        }
    }

    /// Does the jobs of all releases.
    pub fn all(&self, images: &[Image]) -> Result<Results, Error> {
        let mut results = Results::default();
        thread::scope(|scope| {
            let releases: Vec<_> = images
                .iter()
                .map(|image| scope.spawn(|| self.one(image)))
                .collect();
            for (image, release) in images.iter().zip(releases) {
                let rows = release
                    .join()
                    .unwrap_or_else(|panic| resume_unwind(panic))?;
                for (job, row) in self.jobs.iter().zip(rows) {
                    results.add(image.release, job.name(), row);
                }
            }
            Ok(results)
        })
    }

    /// Does the jobs of one release that have no valid result. A job has no row if the time was over before.
    fn one(&self, image: &Image) -> Result<Vec<Option<Row>>, Error> {
        let recorded = |job: &Job<'_>| self.record()?.get(image.release, &job.name());
        let mut rows = Vec::new();
        for job in self.jobs {
            let stored = self.store().get(&self.key(image, job)).cloned();
            let known = recorded(job);
            // A result that the record has keeps its commit.
            if let (Some(row), None, false) = (&stored, &known, self.limits.lists_only) {
                self.note(image, job, row)?;
            }
            rows.push(stored.or(known));
        }
        let is_wanted = |row: &Option<Row>| {
            row.as_ref()
                .is_none_or(|row| self.limits.repeats_failed && row.outcome == Outcome::Failed)
        };
        let mut wanted: Vec<usize> = (0..rows.len())
            .filter(|&place| !self.limits.lists_only && is_wanted(&rows[place]))
            .rev()
            .collect();
        let parts = Parts::of(image, self.programs);
        let mut machine = None;
        while let Some(&first) = wanted.last() {
            if self.left().is_zero() {
                break;
            }
            let tests: Vec<_> = wanted
                .iter()
                .rev()
                .map_while(|&place| self.jobs[place].test())
                .take(batch::SIZE)
                .collect();
            let mut alone = vec![first];
            if tests.len() > 1 {
                let places = wanted.split_off(wanted.len() - tests.len());
                let places = places.into_iter().rev();
                match self.batch(&mut machine, &parts, &tests)? {
                    Batch::Done(done) => {
                        for (place, row) in places.zip(done) {
                            self.keep(image, place, &row)?;
                            rows[place] = Some(row);
                        }
                        continue;
                    }
                    Batch::Stopped => break,
                    Batch::Broken => alone = places.collect(),
                }
            } else {
                wanted.pop();
            }
            for place in alone {
                let job = &self.jobs[place];
                let left = self.left();
                if left.is_zero() {
                    break;
                }
                let row = job.run(&mut machine, &parts, self.programs, left)?;
                if let Some(row) = row {
                    self.keep(image, place, &row)?;
                    rows[place] = Some(row);
                }
            }
        }
        Ok(rows)
    }

    /// Runs tests at the same time, in `machine` if one is there.
    fn batch(
        &self,
        machine: &mut Option<Machine>,
        parts: &Parts<'_>,
        tests: &[(&TestProgram, &Part)],
    ) -> Result<Batch, Error> {
        let limit = LIMIT.min(self.left());
        let mut running = match machine.take() {
            Some(running) => running,
            None => Machine::new(parts, limit)?,
        };
        let limit = LIMIT.min(self.left());
        Ok(match batch::run(&mut running, tests, limit) {
            Ok(rows) => {
                *machine = Some(running);
                Batch::Done(rows)
            }
            Err(Broken::TooLong) if limit < LIMIT => Batch::Stopped,
            Err(_) => Batch::Broken,
        })
    }

    /// Stores a row, and prints it.
    fn keep(&self, image: &Image, place: usize, row: &Row) -> Result<(), Error> {
        let job = &self.jobs[place];
        self.store().put(&self.key(image, job), row.clone())?;
        self.note(image, job, row)?;
        say(&report::line(image.release, &job.name(), row));
        Ok(())
    }

    /// Adds a row to the record, if there is one.
    fn note(&self, image: &Image, job: &Job<'_>, row: &Row) -> Result<(), Error> {
        match self.record() {
            Some(mut record) => record.note(image.release, &job.name(), row),
            None => Ok(()),
        }
    }

    fn left(&self) -> Duration {
        self.limits.until.saturating_duration_since(Instant::now())
    }

    /// A result belongs to a job, to the state of all files that the job uses, and to an image.
    fn key(&self, image: &Image, job: &Job<'_>) -> RunKey {
        RunKey::new()
            .with("release", image.release.name())
            .with("image", &image.recipe)
            .with("state", job.state(self.programs))
            .with("job", job.name())
    }

    fn record(&self) -> Option<MutexGuard<'_, Record>> {
        let record = self.record.as_ref()?.lock();
        Some(record.unwrap_or_else(PoisonError::into_inner))
    }

    fn store(&self) -> MutexGuard<'_, Store<Row>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
