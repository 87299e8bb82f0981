//! Where the time of a session went, as figures, a table and JSON.

use std::time::Duration;

use uruk_base::Part;
use uruk_base::parts::Spent;

use crate::host::clock::process_time;
use crate::session::Session;

/// Where the processor time of a process went since it began, and wall-clock time with it: see
/// [`JitBuilder::time_parts`](crate::JitBuilder::time_parts).
///
/// Parts do not overlap on one thread; wall-clock times of several threads add up. Work that is
/// under way is not in them yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartStats {
    /// Processor time of the process before the session was made: in `uruk run`, the loading of
    /// libraries, LLVM above all where that is linked.
    pub before: Duration,
    /// The time of each part.
    pub parts: Vec<(Part, Spent)>,
    /// Calls that waited for code, and for how long, by the clock on the wall.
    pub waiting: (u64, Duration),
    /// Processor time of the process, all of it.
    pub process: Duration,
}

impl PartStats {
    /// The time of one part.
    #[must_use]
    pub fn of(&self, part: Part) -> Spent {
        let found = self.parts.iter().find(|(known, _)| *known == part);
        found.map_or(Spent::default(), |(_, spent)| *spent)
    }

    /// Processor time that no part has: the program's own, and that of policy, samples, reclaim and
    /// the ends of threads.
    #[must_use]
    pub fn rest(&self) -> Duration {
        let known: Duration = self.parts.iter().map(|(_, spent)| spent.cpu).sum();
        self.process.saturating_sub(self.before + known)
    }

    /// A member of an object, followed by a comma.
    pub(crate) fn json(&self) -> String {
        let parts: String = self
            .parts
            .iter()
            .map(|(part, spent)| {
                let (cpu, wall) = (ms(spent.cpu), ms(spent.wall));
                format!(
                    "\"{}\":{{\"cpu_ms\":{cpu:.3},\"wall_ms\":{wall:.3}}},",
                    part.name()
                )
            })
            .collect();
        let (calls, waited) = self.waiting;
        format!(
            "\"parts\":{{\"before\":{{\"cpu_ms\":{:.3}}},{parts}\"rest\":{{\"cpu_ms\":{:.3}}},\
             \"process\":{{\"cpu_ms\":{:.3}}},\"waiting\":{{\"calls\":{calls},\"wall_ms\":{:.3}}}}},",
            ms(self.before),
            ms(self.rest()),
            ms(self.process),
            ms(waited),
        )
    }

    /// Lines of the table, each with its newline.
    pub(crate) fn table(&self) -> String {
        let cpu = |name: &str, cpu: Duration| format!("{name:<25}{:>10.1} ms cpu\n", ms(cpu));
        let mut text = cpu("processor time", self.process);
        text += &cpu("  before the session", self.before);
        for (part, spent) in &self.parts {
            let name = format!("  {}", part.name());
            let (cpu, wall) = (ms(spent.cpu), ms(spent.wall));
            text += &format!("{name:<25}{cpu:>10.1} ms cpu {wall:>10.1} ms wall\n");
        }
        text += &cpu("  rest", self.rest());
        let (calls, waited) = self.waiting;
        text + &format!(
            "calls waited             {:>10.1} ms wall, {calls} calls\n",
            ms(waited)
        )
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Session {
    /// Measures where time goes from now on; the process used `before` so far.
    pub(crate) fn time_parts(&self, before: Duration) {
        if self.counters.before.set(before).is_ok() {
            self.counters.parts.turn_on();
            self.stubs.time_waits();
        }
    }

    /// Where time went, if that is measured.
    pub(super) fn part_stats(&self) -> Option<PartStats> {
        let before = *self.counters.before.get()?;
        let parts = &self.counters.parts;
        let parts = Part::ALL.map(|part| (part, parts.spent(part))).to_vec();
        Some(PartStats {
            before,
            parts,
            waiting: self.stubs.waits(),
            // Last, so that it includes the time of all parts.
            process: process_time(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_what_no_part_has() {
        let spent = |cpu_ms, wall_ms| Spent {
            cpu: Duration::from_millis(cpu_ms),
            wall: Duration::from_millis(wall_ms),
        };
        let stats = PartStats {
            before: Duration::from_millis(10),
            parts: vec![(Part::Reading, spent(2, 3)), (Part::Emitting, spent(5, 9))],
            waiting: (4, Duration::from_millis(8)),
            process: Duration::from_millis(40),
        };
        assert_eq!(stats.rest(), Duration::from_millis(23));
        assert_eq!(stats.of(Part::Emitting), spent(5, 9));
        assert_eq!(stats.of(Part::Data), Spent::default());
        let json = stats.json();
        assert!(
            json.starts_with("\"parts\":{\"before\":{\"cpu_ms\":10.000},\"reading\":")
                && json.ends_with("\"waiting\":{\"calls\":4,\"wall_ms\":8.000}},"),
            "{json}"
        );
        let table = stats.table();
        for line in [
            "processor time                 40.0 ms cpu\n",
            "  emitting                      5.0 ms cpu        9.0 ms wall\n",
            "  rest                         23.0 ms cpu\n",
        ] {
            assert!(table.contains(line), "{table}");
        }
    }
}
