//! Evacuations where scans prove nothing.

use super::Bench;
use crate::config::Config;
use crate::engine::Step;
use crate::env::MayHold;
use crate::ids::Nanos;
use crate::policy::{Kind, Reason};

/// While nothing can be proved, every copy would stay beside its original.
#[test]
fn nothing_is_copied_while_nothing_can_be_proved() {
    for silent in [None, Some(MayHold::All)] {
        let mut bench = Bench::new(&Config::default());
        bench.env.no_scan = silent.is_none();
        bench.env.silent = silent;
        bench.born(1..=10);
        bench.retire(1..=1);
        bench.request(Kind::Sweep, 1);
        assert_eq!(bench.cycle().0.freed.blocks, 0);
        bench.env.fragmented = 1 << 20;
        for ticket in 2..10 {
            bench.request(Kind::Evacuate, ticket);
            let (summary, log) = bench.cycle();
            assert_eq!(log, "fence scan 1");
            assert_eq!((summary.moved.blocks, summary.answered), (0, ticket));
        }
        // Fragmentation does not start it repeatedly either.
        bench.now = Nanos::from_ms(60_000);
        let (summary, log) = bench.cycle();
        assert_eq!(
            (summary.reason, log.as_str()),
            (Reason::Retry, "fence scan 1")
        );
        assert!(matches!(bench.step(), Step::Idle { until: Some(_) }));
        // The first proof brings it back.
        bench.env.no_scan = false;
        bench.env.silent = None;
        bench.now = Nanos::from_ms(120_000);
        let (summary, _) = bench.cycle();
        assert_eq!((summary.reason, summary.freed.blocks), (Reason::Retry, 1));
        bench.now = Nanos::from_ms(121_000);
        let (summary, log) = bench.cycle();
        assert_eq!(
            (summary.reason, summary.moved.blocks),
            (Reason::Fragmented, 9)
        );
        assert!(log.starts_with("flip copy b2 "), "{log}");
    }
}
