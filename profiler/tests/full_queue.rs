//! The timers' queue when nobody drains it. Alone in its process, because the queue is
//! made once, with the size that is asked for first.

mod common;

use common::{burn, source};
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
    burn(500);
    let first = source.drain(&mut |_| ());
    burn(50);
    let second = source.drain(&mut |_| ());
    eprintln!("{first:?} {second:?}");
    assert_eq!(first.samples, 16);
    assert!(first.lost >= 20, "{first:?}");
    assert!(second.samples >= 3, "it goes on: {second:?}");
}
