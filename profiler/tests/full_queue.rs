//! The timers' queue without a thread that drains it. Alone in its process, because the queue is
//! made once, with the size of the first request.

mod common;

use common::{burn, source, until};
use uruk_profiler::{Choice, Rates, Sizes};

#[test]
fn a_full_queue_loses_samples_and_says_so() {
    let sizes = Sizes {
        queue_samples: 16,
        ..Sizes::default()
    };
    let Some(mut source) = source(Choice::Timers, sizes, &Default::default()) else {
        return;
    };
    source
        .start(Rates {
            burst_hz: 997,
            steady_hz: 97,
        })
        .unwrap();
    // On a busy machine few ticks come while the thread is on a processor: then try for longer.
    let first = (0..8).find_map(|round| {
        burn(500 << round);
        let first = source.drain(&mut |_| ());
        eprintln!("{first:?}");
        assert!(first.samples <= 16, "{first:?}");
        (first.samples == 16 && first.lost >= 20).then_some(first)
    });
    assert!(first.is_some(), "nothing is lost");
    let mut second = 0;
    until("it goes on", || {
        burn(50);
        second += source.drain(&mut |_| ()).samples;
        second >= 3
    });
}
