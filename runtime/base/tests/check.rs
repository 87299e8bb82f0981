//! The check of locks fires where it must and nowhere else. It ends a child process: this test's
//! binary again, with a variable that names the case.

use uruk_base::locks::{Condvar, Cover, Mutex, RwLock, check, covers, demand};
use uruk_testing::Child;

const WHAT: &str = "URUK_LOCKS_WHAT";

static LOCK: Mutex<u32> = Mutex::new(0);
static SHARED: RwLock<u32> = RwLock::new(0);

fn touch() {
    *LOCK.lock() += 1;
}

fn act(what: &str) {
    match what {
        "before" => touch(),
        "mutex" => {
            demand(|| false);
            touch();
        }
        "read" => {
            demand(|| false);
            drop(SHARED.read());
        }
        "write" => {
            demand(|| false);
            drop(SHARED.write());
        }
        "other" => {
            demand(|| false);
            check();
        }
        "interruptible" => {
            demand(|| true);
            drop(Cover::new());
        }
        "outlived" => {
            demand(|| false);
            let cover = Cover::new();
            let held = LOCK.lock();
            drop(cover);
            drop(held);
        }
        "inherited" => {
            demand(|| false);
            let _cover = Cover::new();
            // A cover is for its thread only, so the lock ends the child.
            let _ = std::thread::spawn(touch).join();
        }
        "covered" => {
            demand(|| false);
            let outer = Cover::new();
            let inner = Cover::new();
            assert_eq!(covers(), 2);
            let held = LOCK.lock();
            assert_eq!(uruk_base::locks::held(), 1);
            drop(inner);
            drop(held);
            assert_eq!(uruk_base::locks::held(), 0);
            check();
            drop(SHARED.read());
            drop(SHARED.write());
            drop(outer);
            assert_eq!(covers(), 0);
        }
        "waited" => {
            demand(|| false);
            static CHANGED: Condvar = Condvar::new();
            let waiting = std::thread::spawn(|| {
                let _cover = Cover::new();
                let mut held = LOCK.lock();
                while *held == 0 {
                    held = CHANGED.wait(held);
                }
            });
            let cover = Cover::new();
            touch();
            drop(cover);
            CHANGED.notify_all();
            waiting.join().expect("no check fires");
        }
        _ => unreachable!("{what}"),
    }
}

#[test]
fn a_lock_outside_a_cover_ends_the_process() {
    if let Ok(what) = std::env::var(WHAT) {
        return act(&what);
    }
    let run = |what: &str| {
        let child = Child::of(module_path!(), "a_lock_outside_a_cover_ends_the_process");
        let output = child.env(WHAT, what).output();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let checked = cfg!(debug_assertions);
    for (what, fires) in [
        ("before", false),
        ("mutex", true),
        ("read", true),
        ("write", true),
        ("other", true),
        ("interruptible", true),
        ("outlived", true),
        ("inherited", true),
        ("covered", false),
        ("waited", false),
    ] {
        let (good, said) = run(what);
        assert_eq!(good, !(fires && checked), "{what}: {said}");
        assert_eq!(said.contains("a child of fork"), fires && checked, "{what}");
    }
}
