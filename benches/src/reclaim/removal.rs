//! Adding, looking up and removing objects, each under a tracker of its own; ORC does the
//! same in the same run. Each in processes of its own, so that neither uses memory the
//! other gave back.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use uruk::{Jit, JitBuilder, ReclaimKind, Tracker};

use super::memory::held_bytes;
use crate::bench::{Bench, progress};
use crate::clock;
use crate::orc::{Orc, Tracked};
use crate::row::{Figure, Row, Target, Unit};
use crate::tiny_object::{CALLEE, DATA, tiny_object};

/// Objects of a cycle, and cycles of a process.
const OBJECTS: usize = 10_000;
const CYCLES: usize = 4;
/// An address for what the objects refer to; nothing is ever called.
const ELSEWHERE: u64 = 0x1000;
/// The longest wait for a cycle.
const PATIENCE: Duration = Duration::from_secs(30);

/// The library that adds and removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Who {
    /// `Tracker::add_object` and `Tracker::remove`.
    Uruk,
    /// `LLVMOrcLLJITAddObjectFileWithRT` and `LLVMOrcResourceTrackerRemove`.
    Orc,
}

/// The operations of a library that adds and removes objects.
trait Remover {
    type Added;
    fn add(&self, object: &[u8]) -> Result<Self::Added>;
    fn find(&self, name: &str) -> Result<u64>;
    fn remove(&self, added: Self::Added) -> Result<()>;
    /// Waits until the memory of what was removed is given back.
    fn settle(&self) -> Result<()>;
}

impl Remover for Jit {
    type Added = Tracker;

    fn add(&self, object: &[u8]) -> Result<Tracker> {
        let tracker = self.main().create_tracker()?;
        tracker.add_object("tiny.o", object)?;
        Ok(tracker)
    }

    fn find(&self, name: &str) -> Result<u64> {
        Ok(self.lookup(name)?)
    }

    fn remove(&self, added: Tracker) -> Result<()> {
        // SAFETY: nothing of it was ever called.
        unsafe { added.remove()? };
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        ensure!(
            self.reclaim(ReclaimKind::Sweep, PATIENCE),
            "a sweep did not end"
        );
        Ok(())
    }
}

impl Remover for Orc {
    type Added = Tracked;

    fn add(&self, object: &[u8]) -> Result<Tracked> {
        self.add_tracked(object)
    }

    fn find(&self, name: &str) -> Result<u64> {
        self.lookup(name)
    }

    fn remove(&self, added: Tracked) -> Result<()> {
        added.remove()
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

impl Who {
    /// A line for each cycle: microseconds of processor time of all threads to add, look
    /// up and remove an object; bytes an object takes; bytes the process has grown by
    /// since before the first cycle.
    ///
    /// # Errors
    /// What the session or ORC reports.
    pub fn measure(self) -> Result<String> {
        match self {
            Who::Uruk => cycles(&session(Jit::builder())?),
            Who::Orc => {
                let orc = Orc::new()?;
                for name in [DATA, CALLEE] {
                    orc.define_address(name, ELSEWHERE)?;
                }
                cycles(&orc)
            }
        }
    }
}

fn session(builder: JitBuilder) -> Result<Jit> {
    let jit = builder.jobs(1).build()?;
    for name in [DATA, CALLEE] {
        // SAFETY: nothing of the objects is ever called, so nothing is read there.
        unsafe { jit.main().define_address(name, ELSEWHERE as *const ())? };
    }
    Ok(jit)
}

fn cycles<R: Remover>(remover: &R) -> Result<String> {
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("f{n}")).collect();
    let objects: Result<Vec<_>, _> = names.iter().map(|name| tiny_object(name)).collect();
    let objects = objects?;
    // One-time setup and the first touch of the allocator do not count as part of a cycle.
    remover.remove(remover.add(&objects[0])?)?;
    remover.settle()?;
    let mut added: Vec<R::Added> = Vec::with_capacity(OBJECTS);
    let begun = held_bytes();
    let mut text = String::new();
    for _ in 0..CYCLES {
        let before = held_bytes();
        let mut times = Vec::new();
        let mut time = |work: &mut dyn FnMut() -> Result<()>| {
            let start = clock::process_ns();
            work()?;
            times.push((clock::process_ns() - start) / 1e3 / OBJECTS as f64);
            anyhow::Ok(())
        };
        time(&mut || {
            for object in &objects {
                added.push(remover.add(object)?);
            }
            Ok(())
        })?;
        time(&mut || {
            names.iter().try_for_each(|name| {
                std::hint::black_box(remover.find(name)?);
                Ok(())
            })
        })?;
        let each = (held_bytes() - before) / OBJECTS as f64;
        time(&mut || {
            added.drain(..).try_for_each(|one| remover.remove(one))?;
            remover.settle()
        })?;
        times.extend([each, held_bytes() - begun]);
        let line: Vec<String> = times.iter().map(f64::to_string).collect();
        text += &(line.join(" ") + "\n");
    }
    Ok(text)
}

/// Cycles of processes of its own: the figures of [`Who::measure`].
fn in_child(bench: &Bench, who: Who) -> Result<Vec<Vec<f64>>> {
    let value = who.to_possible_value().context("all have a name")?;
    let executable = std::env::current_exe().context("finding this executable")?;
    let arguments = ["--removal-by", value.get_name()].map(OsString::from);
    let command: Vec<OsString> = [executable.into()].into_iter().chain(arguments).collect();
    let run = bench.runner.run(&command, Duration::from_secs(90))?;
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let numbers = |line: &str| {
        let numbers = line.split(' ').map(str::parse::<f64>);
        numbers.collect::<Result<Vec<f64>, _>>()
    };
    let lines: Vec<Vec<f64>> = text.lines().map(numbers).collect::<Result<_, _>>()?;
    let whole = lines.len() == CYCLES && lines.iter().all(|line| line.len() == 5);
    ensure!(whole, "{who:?} printed {text:?}: {:?}", run.ending);
    Ok(lines)
}

/// Add, look up, remove; beside ORC.
///
/// # Errors
/// What the session or ORC reports.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds(2) {
        progress(&format!("adding and removing objects, round {}", round + 1));
        ours.extend(in_child(bench, Who::Uruk)?);
        peer.extend(in_child(bench, Who::Orc)?);
    }
    let row = |name: &str, unit, at: &dyn Fn(&Vec<f64>) -> f64| {
        Row::new(name, unit, Figure::of(ours.iter().map(at)))
            .peer("ORC (JITLink)", Figure::of(peer.iter().map(at)))
    };
    // The first cycle's remainder is one-time setup; the last cycle's shows growth.
    let stays = |cycles: &[Vec<f64>], last: bool| {
        let at = if last { CYCLES - 1 } else { 0 };
        let each = cycles.chunks(CYCLES).map(|process| process[at][4]);
        Figure::of(each)
    };
    let resident = |name: &str, last| {
        Row::new(name, Unit::Bytes, stays(&ours, last)).peer("ORC (JITLink)", stays(&peer, last))
    };
    let no_more = Target::RatioAtMost(1.0);
    let note = format!(
        "{OBJECTS} objects, a tracker each: processor time of all threads for each object; ours includes \
         the sweep that frees them all"
    );
    Ok(vec![
        row("add, look up and remove an object", Unit::Us, &|line| {
            line[..3].iter().sum()
        })
        .target(no_more)
        .note(note),
        row("  of which add", Unit::Us, &|line| line[0]),
        row("  of which look up", Unit::Us, &|line| line[1]),
        row("  of which remove", Unit::Us, &|line| line[2]),
        row(
            "  memory of an object while it is there",
            Unit::Bytes,
            &|line| line[3],
        )
        .note("growth of what the process holds, each page once"),
        resident("  what stays after one cycle", false),
        resident(&format!("  what stays after {CYCLES} cycles"), true)
            .target(no_more)
            .note(
                "growth since before the first cycle; what the allocator keeps is given back first",
            ),
    ])
}
