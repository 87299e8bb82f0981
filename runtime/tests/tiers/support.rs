//! A session whose events are kept, and waiting for what happens in the background.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{Event, Jit, JitBuilder};

/// Longest wait for something that happens in the background.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub type Log = Arc<Mutex<Vec<Event>>>;

pub fn logged(builder: JitBuilder) -> (Jit, Log) {
    let log = Log::default();
    let sink = Arc::clone(&log);
    let jit = builder
        .on_event(move |event| {
            sink.lock().unwrap().push(event.clone());
        })
        .build()
        .unwrap();
    (jit, log)
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
    }
}
