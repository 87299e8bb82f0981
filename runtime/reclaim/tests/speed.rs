//! The cost of the engine's own work: cycles over 2,000 blocks in an environment that does nothing.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

use std::time::{Duration, Instant};

use uruk_reclaim::{
    Affinity, Block, BlockId, Config, Copied, CopyError, Dead, Edge, Engine, Environment,
    EnvironmentError, FunctionId, Kind, Memory, Nanos, Note, ScanAnswer, Space, Span, Step, Swing,
    VersionId,
};

const BLOCKS: u32 = 2_000;
const CALLS: u32 = 10_000;
const CYCLES: u32 = 10;

struct Nothing {
    space: Space,
    numbers: u64,
}

impl Environment for Nothing {
    fn fork_generation(&self) -> u64 {
        0
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn affinity(&mut self) -> Affinity {
        let heat = (0..u64::from(BLOCKS)).map(|id| (VersionId(id), id * 7919 % 100));
        let call = |id: u32| Edge {
            from: FunctionId(id % BLOCKS),
            to: FunctionId(id.wrapping_mul(7919) % BLOCKS),
            weight: u64::from(id % 97),
        };
        Affinity {
            heat: heat.collect(),
            calls: (0..CALLS).map(call).collect(),
        }
    }

    fn flip(&mut self) -> Result<Space, EnvironmentError> {
        self.space = self.space.other();
        Ok(self.space)
    }

    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError> {
        self.numbers += 1;
        let start = self.numbers * 512;
        Ok(Copied {
            id: BlockId(self.numbers),
            span: Span {
                start,
                end: start + block.span.len(),
            },
            space: self.space,
        })
    }

    fn swing(&mut self, _old: &Block, _new: &Block) -> Swing {
        Swing::Done
    }

    fn fence(&mut self) -> Result<(), EnvironmentError> {
        Ok(())
    }

    fn scan(&mut self, _ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError> {
        Ok(ScanAnswer::default())
    }

    fn drain_samples(&mut self) {}

    fn unregister(&mut self, _block: &Block) {}

    fn free(&mut self, _batch: Vec<Dead>) {}
}

/// Time the thread was on a processor, to about a tick of the kernel: others may have it for long.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable");
    let first = text.split(' ').next().expect("a number");
    Duration::from_nanos(first.parse().expect("nanoseconds"))
}

/// The engine's share of the 5 ms that evacuating 2,000 functions may take: under 2 ms in
/// release builds; the bound here is for a slow machine's debug build.
#[test]
fn the_engine_is_a_small_part_of_a_cycle() {
    let mut engine = Engine::new(&Config::default(), 0);
    let mut env = Nothing {
        space: Space::A,
        numbers: 1 << 20,
    };
    for id in 0..BLOCKS {
        let start = u64::from(id) * 512;
        let block = Block {
            id: BlockId(u64::from(id)),
            span: Span {
                start,
                end: start + 512,
            },
            space: Space::A,
            function: FunctionId(id),
            version: VersionId(u64::from(id)),
            fixed: None,
        };
        engine.apply(Note::Born(block), Nanos(0)).unwrap();
    }
    let mut cycle = |ticket| {
        let mut longest = Duration::ZERO;
        let kind = Kind::Evacuate;
        engine
            .apply(Note::Request { kind, ticket }, Nanos(0))
            .unwrap();
        loop {
            let before = Instant::now();
            let step = engine.step(&mut env, Nanos(0));
            longest = longest.max(before.elapsed());
            if let Step::Finished(summary) = step {
                assert_eq!(summary.moved.blocks, u64::from(BLOCKS));
                assert_eq!(summary.freed.blocks, u64::from(BLOCKS));
                return longest.as_micros();
            }
        }
    };
    let start = on_processor();
    let step = (1..=u64::from(CYCLES)).map(&mut cycle).min().unwrap();
    let whole = ((on_processor() - start) / CYCLES).as_micros();
    println!("evacuating {BLOCKS} blocks, {CALLS} calls: {whole} us, longest step {step} us");
    assert!(whole < 50_000, "{whole} us");
}
