//! Counters of a run and their output.

use std::time::Duration;

use uruk_base::Tier;
use uruk_report::Recording;

use crate::code::counters::{Counters, SessionCounts};
use crate::events::baseline::BaselineStats;
use crate::events::evictions::EvictionStats;
use crate::events::memory::MemoryReport;
use crate::events::staying::StayingStats;
use crate::events::tier_stats::TierStats;
use crate::loops::ContinuationStats;
use crate::session::Session;
use crate::speculation::SpeculationStats;
use crate::told::parts::PartStats;
use crate::tuning::views::TuningStats;

/// Functions in the list of the hottest.
const HOTTEST: usize = 12;

/// Pinned functions that the table names.
const PINS: usize = 8;

/// How `--stats` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsFormat {
    /// A table for people.
    Table,
    /// One JSON object on one line.
    Json,
}

/// Statistics by the counters alone.
pub(crate) fn snapshot(counters: &Counters) -> Stats {
    let SessionCounts {
        functions,
        compiled,
        failed,
        cancelled,
        load_time,
        data_time,
        emit_time,
        link_time,
        code_bytes,
    } = counters.counts();
    Stats {
        functions,
        compiled,
        failed,
        cancelled,
        load_time,
        data_time,
        emit_time,
        link_time,
        code_bytes,
        tiers: [TierStats::default(); 3],
        native: TierStats::default(),
        retired: 0,
        retired_bytes: 0,
        baseline: BaselineStats::default(),
        queued: 0,
        samples: (0, 0),
        ahead: SpeculationStats::default(),
        continuations: ContinuationStats::default(),
        staying: StayingStats::default(),
        memory: MemoryStats::default(),
        evictions: EvictionStats::default(),
        tuning: TuningStats::default(),
        parts: None,
        wall_time: counters.started.elapsed(),
    }
}

/// Statistics of a session so far. Times of several workers add up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Functions defined by the program.
    pub functions: u64,
    /// Functions whose body was compiled; their continuations are counted
    /// [elsewhere](Stats::continuations).
    pub compiled: u64,
    /// Functions whose body failed to compile.
    pub failed: u64,
    /// Compiles that were ended early: see [`Event::Cancelled`](crate::Event::Cancelled).
    pub cancelled: u64,
    /// Time to read symbol tables and bind them.
    pub load_time: Duration,
    /// Time to compile and link data.
    pub data_time: Duration,
    /// Time to extract and compile functions.
    pub emit_time: Duration,
    /// Time to link functions and publish them.
    pub link_time: Duration,
    /// Bytes of function versions.
    pub code_bytes: u64,
    /// Statistics by tier, from 1 to 3.
    pub tiers: [TierStats; 3],
    /// Native code, not compiled by the session: tier 0.
    pub native: TierStats,
    /// Compiles at tier 1 without LLVM, and constructs that are not covered there.
    pub baseline: BaselineStats,
    /// Versions that no call reaches any more, freed or not; see [`Stats::memory`].
    pub retired: u64,
    /// Bytes of code of these versions.
    pub retired_bytes: u64,
    /// Functions waiting for a better version, and compiles under way.
    pub queued: u64,
    /// Samples taken, and samples lost.
    pub samples: (u64, u64),
    /// Functions compiled before they were called.
    pub ahead: SpeculationStats,
    /// Loops that were left for better code.
    pub continuations: ContinuationStats,
    /// Functions that stay at a version for ever, and why.
    pub staying: StayingStats,
    /// The memory of code.
    pub memory: MemoryStats,
    /// Evictions of unused code.
    pub evictions: EvictionStats,
    /// Results of the tuner, if [enabled](crate::JitBuilder::tune).
    pub tuning: TuningStats,
    /// Where time went, if [enabled](crate::JitBuilder::time_parts).
    pub parts: Option<PartStats>,
    /// Time since the session was made.
    pub wall_time: Duration,
}

/// The memory of code, and the work of reclaim. Bytes are as allocated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes of code that can be started.
    pub live: u64,
    /// Bytes of code that cannot be started any more and is not proved dead yet.
    pub retired: u64,
    /// Bytes of retired code that a thread may return into.
    pub pinned: u64,
    /// Bytes that code and data take in all, gaps included.
    pub held: u64,
    /// Cycles that freed code, and cycles that moved code as well.
    pub cycles: (u64, u64),
    /// Versions moved, and their bytes.
    pub moved: (u64, u64),
    /// Versions freed.
    pub freed: u64,
    /// Bytes of these versions.
    pub freed_bytes: u64,
    /// The longest time for which reclaim stopped a thread of the program.
    pub longest_handshake: Duration,
    /// Processor time of reclaim.
    pub time: Duration,
    /// Functions with retired code that a thread may still return into, and that thread.
    pub pins: Vec<(String, i32)>,
    /// Versions of functions whose instructions were searched for a switch of stacks: of those
    /// compiled by the session, only versions with assembly or the like.
    pub decoded: u64,
    /// Threads that the last scan could not examine, and why.
    pub silent: Vec<(i32, String)>,
    /// Why unused code is not freed, if so. Finally: the program shares its memory with another
    /// process, or has unregistered stacks. Or the last cycle was refused a system call or file
    /// (`process_vm_readv`, `/proc/self`).
    pub stays: Option<String>,
}

impl Stats {
    /// The statistics as text, ending with a newline.
    pub(crate) fn render(
        &self,
        format: StatsFormat,
        recording: &Recording,
        memory: &MemoryReport,
    ) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let compile = ms(self.data_time + self.emit_time + self.link_time);
        match format {
            StatsFormat::Json => format!(
                "{{\"functions\":{},\"compiled\":{},\"failed\":{},\"cancelled\":{},\"compile_ms\":{compile:.3},\
                 \"load_ms\":{:.3},\"data_ms\":{:.3},\"emit_ms\":{:.3},\"link_ms\":{:.3},\
                 \"code_bytes\":{},\"wall_ms\":{:.3},\"baseline\":{},\"ahead\":{},\"continuations\":{},\"staying\":{},\"memory\":{},\"uses\":{},\"evicted\":{},\"evicted_bytes\":{},\"returned\":{},\"tuning\":{},{}\
                 \"run\":{}}}\n",
                self.functions,
                self.compiled,
                self.failed,
                self.cancelled,
                ms(self.load_time),
                ms(self.data_time),
                ms(self.emit_time),
                ms(self.link_time),
                self.code_bytes,
                ms(self.wall_time),
                self.baseline.json(),
                self.ahead.json(),
                self.continuations.json(),
                self.staying.json(),
                self.memory.json(),
                memory.json(),
                self.evictions.evicted,
                self.evictions.evicted_bytes,
                self.evictions.returned,
                self.tuning.json(),
                self.parts.as_ref().map_or(String::new(), PartStats::json),
                uruk_report::text::json(recording, HOTTEST).trim_end(),
            ),
            StatsFormat::Table => format!(
                "functions in the program {:>10}\n\
                 \x20 compiled              {:>10}\n\
                 \x20 never needed          {:>10}\n\
                 \x20 failed                {:>10}\n\
                 compiles cancelled       {:>10}\n\
                 compile time             {compile:>10.1} ms\n\
                 \x20 data                  {:>10.1} ms\n\
                 \x20 functions             {:>10.1} ms\n\
                 \x20 linking               {:>10.1} ms\n\
                 load time                {:>10.1} ms\n\
                 code                     {:>10} bytes\n{}{}{}{}{}{}\n{}",
                self.functions,
                self.compiled,
                (self.functions + self.ahead.wasted()).saturating_sub(self.compiled + self.failed),
                self.failed,
                self.cancelled,
                ms(self.data_time),
                ms(self.emit_time),
                ms(self.link_time),
                ms(self.load_time),
                self.code_bytes,
                self.parts.as_ref().map_or(String::new(), PartStats::table),
                self.baseline.table(),
                self.ahead.table(),
                self.continuations.table() + &self.staying.table(),
                self.tuning.table() + &self.memory.table() + &self.evictions.table(),
                memory.table(),
                uruk_report::text::run(recording, HOTTEST),
            ),
        }
    }
}

impl Session {
    /// The counters, with data of the tables of versions and the profiler.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = snapshot(&self.counters);
        for record in self.versions.lock().values() {
            for (tier, past) in stats.tiers.iter_mut().zip(&record.past.tiers) {
                tier.versions += past.versions;
                tier.time += past.time;
                tier.bytes += past.bytes;
                stats.retired += past.versions;
                stats.retired_bytes += past.bytes;
            }
            let published = record.versions.snapshot().published;
            for version in &record.built {
                if version.tier == Tier::Native {
                    let runs = published.is_some_and(|view| view.id == version.id);
                    stats.native.versions += 1;
                    stats.native.functions += u64::from(runs);
                    stats.native.bytes += version.bytes;
                    continue;
                }
                let tier = &mut stats.tiers[version.tier.index()];
                tier.versions += 1;
                tier.time += version.time;
                tier.bytes += version.bytes;
                if published.is_some_and(|view| view.id == version.id) {
                    tier.functions += 1;
                } else {
                    stats.retired += 1;
                    stats.retired_bytes += version.bytes;
                }
            }
        }
        self.see_called();
        stats.baseline = self.baseline.stats();
        stats.ahead = self.speculation.stats();
        stats.continuations = self.continuations.stats();
        stats.staying = self.staying();
        stats.memory = self.memory_stats();
        stats.evictions = self.eviction.stats();
        stats.tuning = self.tuning_stats();
        stats.parts = self.part_stats();
        stats.queued = self.tiers.queue_length() as u64;
        if let Some(summary) = self.tiers.sampling.summary() {
            stats.samples = (summary.drained.samples, summary.drained.lost);
        }
        stats
    }
}

impl MemoryStats {
    fn json(&self) -> String {
        format!(
            "{{\"live\":{},\"retired\":{},\"pinned\":{},\"held\":{},\"sweeps\":{},\
             \"evacuations\":{},\"moved\":{},\"moved_bytes\":{},\"freed\":{},\
             \"freed_bytes\":{},\"longest_handshake_us\":{:.1},\"stays\":{}}}",
            self.live,
            self.retired,
            self.pinned,
            self.held,
            self.cycles.0,
            self.cycles.1,
            self.moved.0,
            self.moved.1,
            self.freed,
            self.freed_bytes,
            self.longest_handshake.as_secs_f64() * 1e6,
            serde_json::json!(self.stays),
        )
    }

    /// Lines of the table, each with its newline.
    fn table(&self) -> String {
        let mut text = format!(
            "memory held              {:>10} bytes\n\
             \x20 live code             {:>10} bytes\n\
             \x20 retired code          {:>10} bytes\n",
            self.held, self.live, self.retired,
        );
        let (sweeps, evacuations) = self.cycles;
        if sweeps + evacuations > 0 {
            text += &format!(
                "  freed                 {:>10} bytes in {} versions\n\
                 \x20 moved                 {:>10} bytes in {} versions\n\
                 \x20 cycles                {:>10} sweeps, {evacuations} evacuations, {:.1} ms\n\
                 \x20 longest handshake     {:>10.1} us\n",
                self.freed_bytes,
                self.freed,
                self.moved.1,
                self.moved.0,
                sweeps,
                self.time.as_secs_f64() * 1e3,
                self.longest_handshake.as_secs_f64() * 1e6,
            );
        }
        for (function, thread) in self.pins.iter().take(PINS) {
            text += &format!("  pinned                {function} by thread {thread}\n");
        }
        if let Some(more @ 1..) = self.pins.len().checked_sub(PINS) {
            text += &format!("  pinned                {more} more\n");
        }
        for (thread, why) in &self.silent {
            text += &format!("  not looked at         thread {thread}: {why}\n");
        }
        if let Some(cause) = &self.stays {
            text += &format!("  not freed             {cause}\n");
        }
        text
    }
}

impl Session {
    fn memory_stats(&self) -> MemoryStats {
        let code = self.reclaim_stats();
        let heap = self.heap.stats();
        let code_memory = heap.code.sum();
        let pools = [heap.read_only, heap.read_write];
        let name = |function: uruk_base::FunctionId| {
            let id = self.stubs.function(function.0);
            id.map_or("?", |id| self.name_of(id)).to_owned()
        };
        let pins = code.pins.iter().flat_map(|pin| {
            let threads = pin.by.iter();
            threads.map(|thread| (name(pin.function), thread.0))
        });
        let silent = code.missing.iter();
        MemoryStats {
            live: code.live.bytes,
            retired: code.retired.bytes + code.pinned.bytes + code.dead.bytes,
            pinned: code.pinned.bytes,
            held: (code_memory.used + code_memory.retired + code_memory.fragmented) as u64
                + pools
                    .iter()
                    .map(|pool| (pool.used + pool.retired + pool.wasted) as u64)
                    .sum::<u64>(),
            cycles: (code.sweeps, code.evacuations),
            moved: (code.moved.blocks, code.moved.bytes),
            freed: code.freed.blocks,
            freed_bytes: code.freed.bytes,
            longest_handshake: Duration::from_nanos(code.longest_handshake.0),
            time: Duration::from_nanos(code.spent.0),
            pins: pins.collect(),
            decoded: self.stacks.decoded(),
            silent: silent
                .map(|missing| (missing.thread.0, missing.why.to_string()))
                .collect(),
            stays: self.why_code_stays(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_show_the_same_counts() {
        let counters = Counters::default();
        counters.defined(6, uruk_base::Mode::Lazy);
        counters.defined(4, uruk_base::Mode::Eager);
        let stats = snapshot(&counters);
        let memory = MemoryReport::default();
        let json = stats.render(StatsFormat::Json, &Recording::default(), &memory);
        assert!(
            json.starts_with("{\"functions\":10,\"compiled\":4,"),
            "{json}"
        );
        let table = stats.render(StatsFormat::Table, &Recording::default(), &memory);
        assert!(
            table.contains("never needed                   6"),
            "{table}"
        );
    }
}
