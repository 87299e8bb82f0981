//! The map alone, and read by threads while another writes it.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::*;

const BASE: u64 = 0x7000_0000_0123;

/// Longest wait for a thread to get a processor.
const PATIENCE: Duration = Duration::from_secs(60);

fn map(limit: usize) -> AddressMap {
    AddressMap::new(BASE, 1 << 20, limit)
}

#[test]
fn time_decides_between_uses_of_one_range() {
    let map = map(16);
    map.insert(BASE..BASE + 64, 1, 100).unwrap();
    assert_eq!(map.find(BASE, 99), Found::Stale);
    assert_eq!(map.find(BASE, 100), Found::Tag(1));
    assert_eq!(map.find(BASE + 64, 100), Found::Unknown);
    map.retire(BASE..BASE + 64, 200);
    map.insert(BASE + 32..BASE + 96, 2, 300).unwrap();
    assert_eq!(map.find(BASE + 40, 199), Found::Tag(1));
    assert_eq!(map.find(BASE + 40, 250), Found::Stale);
    assert_eq!(map.find(BASE + 40, 300), Found::Tag(2));
    map.forget_before(200);
    assert_eq!(map.find(BASE + 40, 150), Found::Stale);
    assert_eq!(map.find(BASE, 150), Found::Unknown);
    assert_eq!(map.find(BASE - 1, 150), Found::Unknown);
}

#[test]
fn ranges_come_and_go_many_at_a_time() {
    let map = map(3);
    let range = |at: u64| BASE + at..BASE + at + 16;
    let some = [(range(0), 1), (range(16), 2), (range(48), 4)];
    map.insert_all(some, 100).unwrap();
    let full = map.insert_all([(range(64), 5)], 100);
    assert!(matches!(full, Err(MapError::Full { .. })), "{full:?}");
    map.retire_all(&[range(0), range(48), 0..1], 200);
    assert_eq!(map.find(BASE, 200), Found::Stale);
    assert_eq!(map.find(BASE + 16, 200), Found::Tag(2));
    assert_eq!(map.find(BASE + 48, 199), Found::Tag(4));
    assert_eq!(map.find(BASE + 48, 200), Found::Stale);
    let bad = [(range(0), 6), (0..1, 7), (range(80), 8)];
    assert!(matches!(
        map.insert_all(bad, 300),
        Err(MapError::Outside { .. })
    ));
    assert_eq!(map.find(BASE, 300), Found::Tag(6));
    assert_eq!(map.find(BASE + 80, 300), Found::Unknown);
}

#[test]
fn an_insert_ends_what_it_covers() {
    let map = map(16);
    map.insert(BASE..BASE + 64, 1, 100).unwrap();
    map.insert(BASE..BASE + 16, 2, 200).unwrap();
    assert_eq!(map.find(BASE, 150), Found::Tag(1));
    assert_eq!(map.find(BASE, 200), Found::Tag(2));
    assert_eq!(map.find(BASE + 20, 200), Found::Stale);
}

#[test]
fn ranges_may_span_pages() {
    let map = map(16);
    map.insert(BASE..BASE + 0x3000, 7, 1).unwrap();
    assert_eq!(map.size().live, 4);
    for offset in (0..0x3000).step_by(0x100) {
        assert_eq!(map.find(BASE + offset, 1), Found::Tag(7), "{offset:#x}");
    }
    map.retire(BASE + 0x2fff..BASE + 0x3000, 9);
    assert_eq!(map.find(BASE + 0x2fff, 9), Found::Stale);
}

#[test]
fn the_limit_holds_and_ended_pieces_make_room() {
    let map = map(2);
    map.insert(BASE..BASE + 16, 1, 0).unwrap();
    map.insert(BASE + 16..BASE + 32, 2, 0).unwrap();
    let full = MapError::Full {
        wanted: 1,
        live: 2,
        limit: 2,
    };
    assert_eq!(map.insert(BASE + 32..BASE + 48, 3, 0), Err(full));
    map.retire(BASE..BASE + 16, 5);
    map.insert(BASE + 32..BASE + 48, 3, 6).unwrap();
    assert_eq!(map.find(BASE, 1), Found::Unknown);
    assert_eq!(map.find(BASE + 40, 6), Found::Tag(3));
    for round in 0..10_000 {
        map.retire(BASE + 32..BASE + 48, 6 + round);
        map.insert(BASE + 32..BASE + 48, round, 6 + round).unwrap();
    }
    assert_eq!(map.find(BASE + 40, u64::MAX - 1), Found::Tag(9_999));
    assert_eq!(map.find(BASE + 16, 0), Found::Tag(2));
}

#[test]
fn readers_see_only_what_was_there() {
    // Tags count the uses of a range, and births are ten times the tag.
    const ROUNDS: u64 = 20_000;
    let map = map(64);
    let begin = Barrier::new(3);
    // How often a reader found the tag it expected while the writer was running.
    let seen = [const { AtomicU64::new(0) }; 2];
    let done = AtomicBool::new(false);
    map.insert(BASE..BASE + 0x1800, 0, 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            let started = Instant::now();
            let all = || seen.iter().all(|seen| seen.load(Ordering::Relaxed) > 0);
            // A reader that got no processor yet has seen nothing: the writer goes on.
            let late = || !all() && started.elapsed() < PATIENCE;
            let tags = (1..).take_while(|&tag| tag <= ROUNDS || late());
            for tag in tags {
                map.insert(BASE..BASE + 0x1800, tag, tag * 10).unwrap();
                map.forget_before((tag * 10).saturating_sub(100));
            }
            done.store(true, Ordering::Relaxed);
        });
        for (offset, seen) in [0, 0x1234].into_iter().zip(&seen) {
            let (map, begin, done) = (&map, &begin, &done);
            scope.spawn(move || {
                let mut last = 0;
                begin.wait();
                while !done.load(Ordering::Relaxed) {
                    let time = last * 10 + 5;
                    match map.find(BASE + offset, time) {
                        Found::Tag(tag) => {
                            assert!(tag <= last, "{tag} at {time}");
                            seen.fetch_add(u64::from(tag == last), Ordering::Relaxed);
                        }
                        Found::Stale => {}
                        Found::Unknown => panic!("something always covers it"),
                    }
                    if let Found::Tag(tag) = map.find(BASE + offset, u64::MAX - 1) {
                        assert!(tag >= last, "{tag} after {last}");
                        last = tag;
                    }
                }
            });
        }
    });
    assert!(seen.into_iter().all(|seen| seen.into_inner() > 0));
    assert!(map.size().live == 2 && map.size().ended <= 64);
}

#[test]
fn ranges_outside_are_errors() {
    let map = map(2);
    for range in [BASE - 1..BASE + 1, BASE..BASE, BASE..BASE + (1 << 20) + 1] {
        let error = map.insert(range, 1, 0);
        assert!(matches!(error, Err(MapError::Outside { .. })));
    }
    map.retire(0..u64::MAX, 1);
}
