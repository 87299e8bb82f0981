//! Sampling that is paused before it begins. The only test of its process: sampling begins
//! after some processor time of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uruk::{Event, Jit};
use uruk_testing::in_own_process;

fn busy(ms: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(ms) {
        std::hint::spin_loop();
    }
}

#[test]
fn a_session_paused_from_the_start_opens_nothing() {
    if !in_own_process(
        module_path!(),
        "a_session_paused_from_the_start_opens_nothing",
    ) {
        return;
    }
    let opened = Arc::new(AtomicU32::new(0));
    let listener = {
        let opened = opened.clone();
        move |event: &Event| {
            if let Event::Sampling { .. } = event {
                opened.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let jit = Jit::builder().on_event(listener).build().unwrap();
    jit.pause_sampling();
    busy(600);
    assert_eq!(opened.load(Ordering::Relaxed), 0);
    jit.resume_sampling();
    let start = Instant::now();
    while opened.load(Ordering::Relaxed) == 0 && start.elapsed() < Duration::from_secs(120) {
        busy(20);
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}
