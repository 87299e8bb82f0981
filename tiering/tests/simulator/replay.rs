//! A recorded stream as a workload.
//!
//! Measurements are passed on at their recorded times; the decisions are made anew. Ends of
//! compiles are not passed on; they only give the compile time of a function at a tier. So a replay
//! shows the decisions of other settings, but not the behaviour of the program that would follow:
//! counts and samples remain those of the code that ran during the recording, and are attributed to
//! the code that runs in the replay.

use std::collections::BTreeMap;
use std::vec;

use uruk_testing::Random;
use uruk_tiering::stream::Input;
use uruk_tiering::{FirstCode, FunctionId, Nanos, Outcome, Tier};

use super::{Guest, Workload};

/// A workload from a recording; see the module.
#[derive(Clone, Debug)]
pub struct Replay {
    inputs: std::iter::Peekable<vec::IntoIter<(Nanos, Input)>>,
    times: BTreeMap<(FunctionId, Tier), Nanos>,
}

impl Replay {
    /// A replay of the inputs that [`parse`](super::parse) read.
    pub fn new(inputs: Vec<(Nanos, Input)>) -> Replay {
        let ends = inputs.iter().filter_map(|(_, input)| match *input {
            Input::Finished(function, _, tier, outcome) => match outcome {
                Outcome::Published { compile, .. }
                | Outcome::Late { compile }
                | Outcome::Failed { compile } => Some(((function, tier), compile)),
                Outcome::Cancelled | Outcome::NoMemory => None,
            },
            _ => None,
        });
        Replay {
            times: ends.collect(),
            inputs: inputs.into_iter().peekable(),
        }
    }
}

impl Workload for Replay {
    fn run(&mut self, _from: Nanos, to: Nanos, guest: &mut Guest, _random: &mut Random) {
        while let Some((at, input)) = self.inputs.next_if(|&(at, _)| at <= to) {
            match input {
                Input::Compiled(function, first) => {
                    let version = guest.next_version();
                    guest.install(at, function, FirstCode { version, ..first });
                }
                Input::Counters(function, entries, loops) => guest.count(function, entries, loops),
                Input::Samples(function, _, samples, time) => guest.sample(function, samples, time),
                Input::Finished(..) | Input::Reverted(..) => {}
                other => guest.tell(at, other),
            }
        }
    }

    fn is_done(&self) -> bool {
        self.inputs.len() == 0
    }

    fn compile_time(&self, function: FunctionId, tier: Tier) -> Option<Nanos> {
        self.times.get(&(function, tier)).copied()
    }
}
