//! Linking a tiny object: from bytes to a function that can be called, and the
//! memory each leaves behind. ORC does the same in the same run (JITLink).

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use uruk::Jit;
use uruk_heap::{Draft, Heap, HeapConfig, Pool};
use uruk_link::{Graph, Hint, LayoutOptions, Object, Placement, Resolved, Segment};
use uruk_stubs::{EntryAddress, FunctionId, SlotAddress, StubAddress, StubTable};
use uruk_unwind::{RegionHandle, Row as UnwindRow};

use crate::bench::Bench;
use crate::clock;
use crate::orc::Orc;
use crate::row::{Figure, Row, Target, Unit};
use crate::tiny_object::{CALLEE, DATA, tiny_object};

/// Objects that are timed together.
const BATCH: usize = 200;
/// An address for what the objects refer to; nothing is ever called.
const ELSEWHERE: u64 = 0x1000;

/// Time and memory of a tiny object.
///
/// # Errors
/// What the parts or ORC report.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let rounds = bench.rounds(60);
    let [parts, facade, orc] = Way::ALL.map(|way| way.measure(rounds));
    let (parts, facade, orc) = (parts?.us, facade?.us, orc?.us);
    let alone = alone(rounds)?;
    let [parts_bytes, facade_bytes, orc_bytes] = Way::ALL.map(|way| bytes_in_child(bench, way));
    let (parts_bytes, facade_bytes, orc_bytes) = (parts_bytes?, facade_bytes?, orc_bytes?);
    Ok(vec![
        Row::new("link a tiny object to callable code", Unit::Us, parts)
            .peer("ORC (JITLink)", orc.clone())
            .target(Target::AtMost(10.0))
            .note(
                "processor time, hot: parse, lay out, allocate, fix up, write, seal, unwind rows, \
                 publish; ORC: add the object and look its function up",
            ),
        Row::new("  of which bytes to fixed-up bytes", Unit::Us, alone),
        Row::new("  the same by Dylib::add_object", Unit::Us, facade).peer("ORC (JITLink)", orc),
        Row::new(
            "memory beside a tiny object's bytes",
            Unit::Bytes,
            parts_bytes,
        )
        .peer("ORC (JITLink)", orc_bytes.clone())
        .target(Target::AtMost(1024.0))
        .note("growth of a fresh process's resident memory for each object, less its linked bytes"),
        Row::new("  the same by Dylib::add_object", Unit::Bytes, facade_bytes)
            .peer("ORC (JITLink)", orc_bytes),
    ])
}

/// The linker that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// The runtime's parts, put together as it does.
    Parts,
    /// `Dylib::add_object`.
    Facade,
    /// ORC.
    Orc,
}

/// The cost of linking many objects, for each of them.
pub struct Measured {
    /// Processor time of each batch, in microseconds.
    pub us: Figure,
    /// Growth of resident memory, in bytes, less what the object itself has.
    pub bytes: f64,
}

impl Way {
    const ALL: [Way; 3] = [Way::Parts, Way::Facade, Way::Orc];

    /// Links `rounds` batches.
    ///
    /// # Errors
    /// What the linker reports.
    pub fn measure(self, rounds: usize) -> Result<Measured> {
        match self {
            Way::Parts => by_parts(rounds),
            Way::Facade => by_facade(rounds),
            Way::Orc => by_orc(rounds),
        }
    }
}

/// Memory is measured in processes of their own: what other experiments have given
/// back to the allocator would be used first and hide the growth.
fn bytes_in_child(bench: &Bench, way: Way) -> Result<Figure> {
    let value = way.to_possible_value().context("every way has a name")?;
    let executable = std::env::current_exe().context("finding this executable")?;
    let arguments = ["--memory-of", value.get_name()].map(OsString::from);
    let command: Vec<OsString> = [executable.into()].into_iter().chain(arguments).collect();
    let once = || {
        let run = bench.runner.run(&command, Duration::from_secs(60))?;
        let text = String::from_utf8_lossy(&run.stdout);
        text.trim()
            .parse::<f64>()
            .with_context(|| format!("measuring memory: {:?}", run.ending))
    };
    let figures: Result<Vec<f64>> = (0..bench.rounds(4)).map(|_| once()).collect();
    Ok(Figure::of(figures?))
}

/// Links `rounds` batches, after two that warm up; `link` gives the bytes that
/// an object has itself.
fn batches(rounds: usize, mut link: impl FnMut(usize) -> Result<usize>) -> Result<Measured> {
    const WARM: usize = 2;
    let mut us = Vec::new();
    let (mut resident, mut own) = (0.0, 0);
    for round in 0..WARM + rounds {
        if round == WARM {
            (resident, own) = (clock::resident_bytes(), 0);
        }
        let start = clock::thread_ns();
        for n in 0..BATCH {
            own += link(round * BATCH + n)?;
        }
        us.push((clock::thread_ns() - start) / 1e3 / BATCH as f64);
    }
    let growth = clock::resident_bytes() - resident - own as f64;
    let each = growth / (rounds * BATCH) as f64;
    Ok(Measured {
        us: Figure::of(us.split_off(WARM)),
        bytes: each,
    })
}

/// The parts of the runtime, put together as it does for a function's body.
struct Parts {
    heap: Heap,
    table: std::sync::Arc<StubTable>,
    region: RegionHandle,
    callee: FunctionId,
}

fn by_parts(rounds: usize) -> Result<Measured> {
    let heap = Heap::new(HeapConfig::default())?;
    let table = StubTable::new(&heap)?;
    let region = uruk_unwind::register_region(heap.base(), heap.size())?;
    let callee = table.allocate()?;
    let parts = Parts {
        heap,
        table,
        region,
        callee,
    };
    let bytes = tiny_object("f")?;
    batches(rounds, |_| parts.link(&bytes))
}

impl Parts {
    fn link(&self, bytes: &[u8]) -> Result<usize> {
        let graph = Graph::new(vec![Object::parse("tiny.o", bytes)?])?;
        let laid = graph.layout(&LayoutOptions {
            merge_read_only: true,
            ..Default::default()
        })?;
        let mut code = self.draft(Pool::Code, laid.segment(Segment::Code).size)?;
        let mut words = self.draft(Pool::ReadWrite, laid.segment(Segment::ReadWrite).size)?;
        let address = |draft: &Option<Draft>| draft.as_ref().map(Draft::address);
        let start = address(&code).context("a function has code")?;
        let read_write = address(&words).unwrap_or(start);
        let place = Placement {
            code: start,
            read_only: start,
            read_write,
            tls: None,
        };
        let placed = laid.place(place)?;
        let entry = placed
            .definitions()
            .find(|(d, _)| d.name == "f")
            .map(|(_, at)| at);
        let (stub, slot) = (
            self.table.stub_address(self.callee),
            self.table.slot_address(self.callee),
        );
        let linked = placed.fix_up(|name, _| match name {
            DATA => Some(Resolved::at(self.heap.base())),
            _ => Some(Resolved::stub(stub, slot)),
        })?;
        for (draft, bytes) in [(&mut code, &linked.code), (&mut words, &linked.read_write)] {
            if let Some(draft) = draft {
                draft.write(0, bytes)?;
            }
        }
        // Sealed memory stays allocated when its handle is dropped.
        code.map(Draft::seal).transpose()?;
        words.map(Draft::seal).transpose()?;
        let rows = linked.fdes.iter();
        let rows = rows.map(|row| UnwindRow {
            start: row.start,
            end: row.end,
            fde: row.fde,
        });
        let rows: Vec<UnwindRow> = rows.collect();
        // SAFETY: the records lie in sealed memory that is never given back.
        unsafe { self.region.insert(&rows, &vec!["f"; rows.len()])? };
        let function = self.table.allocate()?;
        self.table.publish(
            function,
            EntryAddress(entry.context("the object defines f")?),
        );
        Ok(linked.code.len() + linked.read_write.len())
    }

    fn draft(&self, pool: Pool, size: usize) -> Result<Option<Draft>> {
        Ok((size != 0)
            .then(|| self.heap.allocate(pool, size, 16))
            .transpose()?)
    }
}

/// The linker alone: bytes in, bytes out.
fn alone(rounds: usize) -> Result<Figure> {
    let bytes = tiny_object("f")?;
    let measured = batches(rounds, |_| {
        let graph = Graph::new(vec![Object::parse("tiny.o", &bytes)?])?;
        let options = LayoutOptions {
            merge_read_only: true,
            ..Default::default()
        };
        let laid = graph.layout_with(&options, |_| Hint::Near)?;
        let code = 0x7000_0000_0000;
        let place = Placement {
            code,
            read_write: code + 0x3000_0000,
            ..Placement::default()
        };
        let stub = Resolved::stub(
            StubAddress(code + 0x1000_0000),
            SlotAddress(code + 0x2000_0000),
        );
        Ok(laid.place(place)?.fix_up(|_, _| Some(stub))?.code.len())
    });
    Ok(measured?.us)
}

/// The way of an embedder; each object defines a name of its own.
fn by_facade(rounds: usize) -> Result<Measured> {
    let jit = Jit::builder().jobs(1).build()?;
    for name in [DATA, CALLEE] {
        // SAFETY: nothing of the objects is ever called, so nothing is read there.
        unsafe { jit.main().define_address(name, ELSEWHERE as *const ())? };
    }
    let objects = numbered_objects(rounds)?;
    let own = code_bytes(&objects[0])?;
    batches(rounds, |n| {
        jit.main().add_object("tiny.o", &objects[n][..])?;
        Ok(own)
    })
}

fn by_orc(rounds: usize) -> Result<Measured> {
    let orc = Orc::new()?;
    for name in [DATA, CALLEE] {
        orc.define_address(name, ELSEWHERE)?;
    }
    let objects = numbered_objects(rounds)?;
    let own = code_bytes(&objects[0])?;
    batches(rounds, |n| {
        orc.add_object(&objects[n])?;
        orc.lookup(&format!("f{n}"))?;
        Ok(own)
    })
}

/// Objects for `rounds` batches and those that warm up.
fn numbered_objects(rounds: usize) -> Result<Vec<Vec<u8>>> {
    let count = (rounds + 2) * BATCH;
    let objects: Result<Vec<_>, _> = (0..count).map(|n| tiny_object(&format!("f{n}"))).collect();
    Ok(objects?)
}

/// How many bytes the object has once linked.
fn code_bytes(object: &[u8]) -> Result<usize> {
    let graph = Graph::new(vec![Object::parse("tiny.o", object)?])?;
    let laid = graph.layout(&LayoutOptions {
        merge_read_only: true,
        ..Default::default()
    })?;
    Ok(laid.segment(Segment::Code).size + laid.segment(Segment::ReadWrite).size)
}
