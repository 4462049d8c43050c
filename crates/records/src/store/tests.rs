//! What a store keeps, whatever happens to its file.

use std::fs;
use std::thread;

use super::*;

const KIND: RunKind = RunKind {
    name: "test",
    version: 3,
    before: Some("# old"),
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    value: f64,
}

fn key(seed: u64) -> RunKey {
    RunKey::new().with("path", "seed = 1\n").with("seed", seed)
}

fn row(value: f64) -> Row {
    Row { value }
}

fn open(name: &Path) -> Store<Row> {
    Store::open(name, KIND).unwrap()
}

#[test]
fn what_was_written_is_found_again_and_the_later_of_two_counts() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    let mut first = open(&name);
    assert!(first.is_empty());
    // A number whose shortest text is long.
    let value = 0.1 + 0.2;
    first.put(&key(1), row(1.0)).unwrap();
    first.put(&key(1), row(value)).unwrap();
    first.put(&key(2), row(2.0)).unwrap();
    let second = open(&name);
    assert_eq!((second.len(), second.note()), (2, None));
    assert_eq!(second.get(&key(1)), Some(&row(value)));
    assert_eq!(second.get(&key(3)), None);
}

#[test]
fn a_stored_line_of_an_earlier_build_is_found() {
    // Written once and kept: the names of the key and of the row are those of the file, not those
    // of the program. The order in which the key was put together is of no importance.
    let line = "{\"run\":\"test 3\",\"key\":\
        \"13dc2aed9eb585d5d6c83f6c5827826e5f3cfb5e012411a7eaef15808ad8c706\",\
        \"row\":{\"value\":1.5}}\n";
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    fs::write(&name, line).unwrap();
    let found = RunKey::new().with("seed", 7).with("path", "seed = 1\n");
    assert_eq!(
        open(&name).get(&found),
        Some(&row(1.5)),
        "{}",
        found.digest()
    );
}

#[test]
fn a_file_cut_at_any_byte_keeps_its_whole_lines_and_takes_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    let mut store = open(&name);
    store.put(&key(1), row(1.0)).unwrap();
    let one = fs::metadata(&name).unwrap().len();
    store.put(&key(2), row(2.0)).unwrap();
    let whole = fs::read(&name).unwrap();
    for length in 0..whole.len() {
        fs::write(&name, &whole[..length]).unwrap();
        let mut store = open(&name);
        // A last line that lacks only its end is whole.
        let kept = match length as u64 {
            length if length + 1 < one => 0,
            length if length + 1 < whole.len() as u64 => 1,
            _ => 2,
        };
        assert_eq!(store.len(), kept, "{length}");
        store.put(&key(3), row(3.0)).unwrap();
        let again = open(&name);
        assert_eq!(again.get(&key(3)), Some(&row(3.0)), "{length}");
        assert_eq!(again.get(&key(1)).is_some(), length as u64 + 1 >= one);
    }
}

#[test]
fn zeros_instead_of_a_line_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    fs::write(&name, [0; 100]).unwrap();
    open(&name).put(&key(1), row(1.0)).unwrap();
    let store = open(&name);
    assert_eq!(store.get(&key(1)), Some(&row(1.0)));
    let note = store.note().unwrap();
    assert!(
        note.ends_with("runs: ignored line: 1 incomplete or damaged; these runs are made again"),
        "{note}"
    );
}

#[test]
fn rows_of_other_kinds_stay_and_those_of_other_versions_are_ignored_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    let later = RunKind { version: 4, ..KIND };
    let other = RunKind {
        name: "other",
        ..KIND
    };
    open(&name).put(&key(1), row(1.0)).unwrap();
    let mut others: Store<Vec<u32>> = Store::open(&name, other).unwrap();
    assert_eq!((others.len(), others.note()), (0, None));
    others.put(&key(1), vec![1]).unwrap();
    let later: Store<Row> = Store::open(&name, later).unwrap();
    assert_eq!(later.get(&key(1)), None);
    let note = later.note().unwrap();
    assert!(
        note.contains("1 of an earlier version of Midspan"),
        "{note}"
    );
    assert_eq!(open(&name).get(&key(1)), Some(&row(1.0)));
    assert_eq!(open(&name).note(), None);
}

#[test]
fn a_file_from_before_is_ignored_and_a_foreign_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old");
    fs::write(&old, "# old file\n1 2.5\n").unwrap();
    let mut store = open(&old);
    assert!(store.is_empty());
    let note = store.note().unwrap();
    assert!(
        note.contains("2 of an earlier version of Midspan"),
        "{note}"
    );
    store.put(&key(1), row(1.0)).unwrap();
    assert_eq!(open(&old).len(), 1);

    for text in ["root:x:0:0\n", "{\n  \"a\": 1\n}\n", "[1]"] {
        let foreign = folder.path().join("foreign");
        fs::write(&foreign, text).unwrap();
        let error = Store::<Row>::open(&foreign, KIND).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert_eq!(fs::read_to_string(&foreign).unwrap(), text);
    }
}

#[test]
fn several_writers_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("runs");
    // Each has opened the file itself, as another process would.
    thread::scope(|scope| {
        for writer in 0..8 {
            let name = &name;
            scope.spawn(move || {
                let mut store = open(name);
                for seed in 0..50 {
                    store
                        .put(&key(writer * 50 + seed), row(seed as f64))
                        .unwrap();
                }
            });
        }
    });
    let store = open(&name);
    assert_eq!((store.len(), store.note()), (400, None));
}

#[test]
fn a_folder_keeps_each_row_in_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path();
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                let mut store = open(name);
                // All writers have some runs in common.
                for seed in writer * 5..writer * 5 + 10 {
                    store.put(&key(seed), row(seed as f64)).unwrap();
                }
            });
        }
    });
    // A file of a writer that was killed, and a file of somebody else.
    fs::write(name.join(".run-1"), "{\"run\":").unwrap();
    fs::write(name.join("notes.txt"), "mine").unwrap();
    let store = open(name);
    assert_eq!((store.len(), store.note()), (25, None));
    assert_eq!(store.get(&key(24)), Some(&row(24.0)));
    fs::write(name.join("test-3-damaged.json"), "{\"run\":").unwrap();
    let note = open(name).note().unwrap();
    assert!(note.contains("1 incomplete or damaged"), "{note}");
}

#[test]
fn some_rows_of_a_folder_are_opened_without_reading_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path();
    let mut all = open(name);
    for seed in 0..5 {
        all.put(&key(seed), row(seed as f64)).unwrap();
    }
    // This row would be counted as damaged if it was read.
    fs::write(name.join(format!("test-3-{}.json", key(0).digest())), "{").unwrap();
    let mut some: Store<Row> = Store::open_some(name, KIND, &[key(3), key(7)]).unwrap();
    assert_eq!((some.len(), some.note()), (1, None));
    assert_eq!(some.get(&key(3)), Some(&row(3.0)));
    some.put(&key(7), row(7.0)).unwrap();
    assert_eq!(open(name).get(&key(7)), Some(&row(7.0)));
    for wrong in [name.join("missing"), name.join("notes.txt")] {
        let error = Store::<Row>::open_some(&wrong, KIND, &[]).unwrap_err();
        assert!(matches!(error, StoreError::File { .. }), "{error}");
    }
}

#[test]
fn rows_pass_from_one_store_to_another_as_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut elsewhere = Store::in_memory(KIND);
    elsewhere.put(&key(1), row(0.1 + 0.2)).unwrap();
    elsewhere.put(&key(2), row(2.0)).unwrap();
    let lines = elsewhere.lines().unwrap();
    let mut here = open(&folder.path().join("runs"));
    for line in &lines {
        here.add_line(line).unwrap();
    }
    let again = open(&folder.path().join("runs"));
    assert_eq!(again.get(&key(1)), Some(&row(0.1 + 0.2)));
    assert_eq!(again.lines().unwrap(), lines);
    let other = lines[0].replace("test 3", "test 4");
    for wrong in [other.as_str(), "", "{}", "[1]"] {
        assert!(here.add_line(wrong).is_err(), "{wrong}");
    }
    assert_eq!(here.len(), 2);
}

#[test]
fn merged_stores_are_the_same_whoever_made_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name);
    fs::create_dir(name("folder")).unwrap();
    let other = RunKind {
        name: "other",
        ..KIND
    };
    let fill = |to: &str, seeds: &mut dyn Iterator<Item = u64>| {
        let mut store = open(&name(to));
        for seed in seeds {
            store.put(&key(seed), row(seed as f64)).unwrap();
        }
    };
    fill("serial", &mut (0..20));
    fill("odd", &mut (0..20).filter(|seed| seed % 2 == 1).rev());
    fill(
        "folder",
        &mut (0..20).filter(|seed| seed % 2 == 0 || *seed == 3),
    );
    for to in ["serial", "odd"] {
        let mut others: Store<u32> = Store::open(&name(to), other).unwrap();
        others.put(&key(0), 7).unwrap();
    }
    let one = merge(&[name("serial")], &name("one")).unwrap();
    let parts = [name("folder"), name("odd")];
    let two = merge(&parts, &name("two")).unwrap();
    assert_eq!((one.rows, one.equal, one.different), (21, 0, 0));
    assert_eq!((two.rows, two.equal, two.different), (21, 1, 0));
    assert_eq!(
        fs::read_to_string(name("one")).unwrap(),
        fs::read_to_string(name("two")).unwrap()
    );
    assert_eq!(open(&name("two")).get(&key(3)), Some(&row(3.0)));

    // A run with two results: the later store counts. A file is never replaced.
    open(&name("odd")).put(&key(3), row(0.5)).unwrap();
    let three = merge(&[name("serial"), name("odd")], &name("three")).unwrap();
    // Of the two rows in "odd" itself, the first one is equal to that of "serial".
    assert_eq!(three.different, 1);
    assert_eq!(open(&name("three")).get(&key(3)), Some(&row(0.5)));
    let refused = merge(&parts, &name("three")).unwrap_err();
    assert!(matches!(refused, StoreError::Exists { .. }), "{refused}");
    let missing = merge(&[name("nothing")], &name("four")).unwrap_err();
    assert!(matches!(missing, StoreError::File { .. }), "{missing}");
    assert!(!name("four").exists());
}
