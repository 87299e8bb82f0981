//! The check of the order of locks ends a child process when a lock is taken too late, names both
//! locks, and passes everything else. The child is this test's binary again, with a variable that
//! names the case.

use uruk_base::locks::{Condvar, Leaf, Mutex, Ordered, Rank, RwLock};
use uruk_testing::Child;

const WHAT: &str = "URUK_ORDER_WHAT";

#[derive(Debug)]
enum Outer {}

impl Rank for Outer {
    const NUMBER: u8 = 10;
    const NAME: &'static str = "the outer lock";
}

#[derive(Debug)]
enum Inner {}

impl Rank for Inner {
    const NUMBER: u8 = 20;
    const NAME: &'static str = "the inner lock";
}

/// The value of a lock without a rank.
#[derive(Debug, Default)]
struct Value(u32);

static OUTER: Mutex<u32, Outer> = Mutex::new(0);
static SECOND: Mutex<u32, Outer> = Mutex::new(0);
static INNER: Mutex<u32, Inner> = Mutex::new(0);
static SHARED: RwLock<u32, Outer> = RwLock::new(0);
static LEAF: Mutex<Value> = Mutex::new(Value(0));
static CHANGED: Condvar = Condvar::new();

/// Cases in the order of ranks.
fn pass(what: &str) {
    match what {
        "ascending" => {
            let _outer = OUTER.lock();
            let _inner = INNER.lock();
            LEAF.lock().0 += 1;
            drop(LEAF.lock());
        }
        "attempted" => {
            let _inner = INNER.lock();
            assert!(SHARED.try_read().is_some());
        }
        "refused" => {
            let writing = SHARED.write();
            let refused = SHARED.try_read();
            assert!(refused.is_none());
            drop(writing);
            drop(OUTER.lock());
        }
        "crossed" => {
            let outer = OUTER.lock();
            let inner = INNER.lock();
            drop(outer);
            let leaf = LEAF.lock();
            drop(inner);
            drop(leaf);
            drop(OUTER.lock());
            drop(INNER.lock());
        }
        "of its own thread" => {
            let _inner = INNER.lock();
            let other = std::thread::spawn(|| drop(OUTER.lock()));
            other.join().expect("the other thread holds no lock");
        }
        "waited" => {
            let waiting = std::thread::spawn(|| {
                let _outer = OUTER.lock();
                let mut inner = INNER.lock();
                while *inner == 0 {
                    inner = CHANGED.wait(inner);
                }
                drop(LEAF.lock());
            });
            *INNER.lock() += 1;
            CHANGED.notify_all();
            waiting.join().expect("no check ends it");
            drop(OUTER.lock());
        }
        _ => unreachable!("{what}"),
    }
}

/// Cases against the order of ranks.
fn violate(what: &str) {
    match what {
        "inverted" => {
            let _inner = INNER.lock();
            drop(OUTER.lock());
        }
        "equal" => {
            let _outer = OUTER.lock();
            drop(SECOND.lock());
        }
        "read" => {
            let _inner = INNER.lock();
            drop(SHARED.read());
        }
        "written" => {
            let _inner = INNER.lock();
            drop(SHARED.write());
        }
        "under a reader" => {
            let _reading = SHARED.read();
            drop(OUTER.lock());
        }
        "under an attempt" => {
            let _reading = SHARED.try_read();
            drop(OUTER.lock());
        }
        "under a leaf" => {
            let _leaf = LEAF.lock();
            drop(INNER.lock());
        }
        "two leaves" => {
            let _leaf = LEAF.lock();
            let other: Mutex<u32> = Mutex::default();
            drop(other.lock());
        }
        "of another kind" => {
            let _other = Ordered::wait::<str, Leaf>();
            drop(OUTER.lock());
        }
        "crossed" => {
            let outer = OUTER.lock();
            let _inner = INNER.lock();
            drop(outer);
            drop(OUTER.lock());
        }
        "waited" => {
            let outer = OUTER.lock();
            let _inner = INNER.lock();
            drop(CHANGED.wait(outer));
        }
        _ => unreachable!("{what}"),
    }
}

#[test]
fn a_lock_against_the_order_ends_the_process() {
    if let Ok(what) = std::env::var(WHAT) {
        return match what.split_once(": ") {
            Some(("pass", what)) => pass(what),
            Some((_, what)) => violate(what),
            None => unreachable!("{what}"),
        };
    }
    let run = |what: &str| {
        let child = Child::of(module_path!(), "a_lock_against_the_order_ends_the_process");
        let output = child.env(WHAT, what).output();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    for what in [
        "ascending",
        "attempted",
        "refused",
        "crossed",
        "of its own thread",
        "waited",
    ] {
        let (good, said) = run(&format!("pass: {what}"));
        assert!(good, "{what}: {said}");
    }
    if !cfg!(debug_assertions) {
        return;
    }
    let outer = "`the outer lock` (rank 10)";
    let inner = "`the inner lock` (rank 20)";
    let leaf = "the leaf of `order::Value`";
    for (what, taken, held) in [
        ("inverted", outer, inner),
        ("equal", outer, outer),
        ("read", outer, inner),
        ("written", outer, inner),
        ("under a reader", outer, outer),
        ("under an attempt", outer, outer),
        ("under a leaf", inner, leaf),
        ("two leaves", "the leaf of `u32`", leaf),
        ("of another kind", outer, "the leaf of `str`"),
        ("crossed", outer, inner),
        ("waited", outer, inner),
    ] {
        let (good, said) = run(&format!("violate: {what}"));
        assert!(!good, "{what} passes");
        let expected = format!("uruk: {taken} is locked under {held} (thread ");
        assert!(said.contains(&expected), "{what}: {said}");
    }
}

/// The rank takes no space in a lock.
#[test]
fn a_rank_needs_no_memory() {
    assert_eq!(
        size_of::<Mutex<u32, Outer>>(),
        size_of::<std::sync::Mutex<u32>>()
    );
    if !cfg!(debug_assertions) {
        assert_eq!(size_of::<Ordered>(), 0);
    }
}
