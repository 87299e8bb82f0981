//! The lines a scenario prints: writing them, for our side, and reading them back.
//!
//! ```text
//! phase NAME COUNT CPU_NS WALL_NS   COUNT operations took this, all threads together
//! race NAME COUNT WALL_NS DISTURBED COUNT operations from the first thread's start to the
//!                                   last one's end; in that part of it others had a processor
//! value NAME NUMBER
//! reached NAME COUNT WHY            it was stopped there
//! failed TEXT                       the last line
//! ```
//!
//! Invariant: phases leave no time out, from the start of the process to the last of them.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::clock;

/// Prints what has passed since the last look at the clock as a phase of its own.
pub struct Meter {
    cpu_ns: f64,
    wall_ns: f64,
}

impl Meter {
    /// Begins with the process: what it has used so far is in the first phase.
    pub fn new() -> Meter {
        Meter {
            cpu_ns: 0.0,
            wall_ns: clock::wall_ns(),
        }
    }

    /// Ends a phase of `count` operations.
    pub fn phase(&mut self, name: &str, count: usize) {
        let (cpu_ns, wall_ns) = (clock::process_ns(), clock::wall_ns());
        let (cpu, wall) = (cpu_ns - self.cpu_ns, wall_ns - self.wall_ns);
        println!("phase {name} {count} {cpu:.0} {wall:.0}");
        (self.cpu_ns, self.wall_ns) = (cpu_ns, wall_ns);
    }

    /// A value that was read.
    pub fn value(&self, name: &str, value: f64) {
        println!("value {name} {value:.6}");
    }

    /// Threads that raced.
    pub fn race(&self, name: &str, count: usize, wall_ns: f64, disturbed: f64) {
        println!("race {name} {count} {wall_ns:.0} {disturbed:.6}");
    }

    /// Where something was stopped.
    pub fn reached(&self, name: &str, count: usize, why: &str) {
        println!("reached {name} {count} {why}");
    }
}

/// Some operations and what they took.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The name of the operations.
    pub name: String,
    /// How many.
    pub count: f64,
    /// Processor time of all threads.
    pub cpu_ns: f64,
    /// Wall-clock time.
    pub wall_ns: f64,
}

/// Threads that started together.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    /// The name of the threads' operations.
    pub name: String,
    /// How often, all together.
    pub count: f64,
    /// From the first start to the last end.
    pub wall_ns: f64,
    /// The part of it in which others had a processor one of them wanted.
    pub disturbed: f64,
}

/// All that a scenario printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// In the order of the run.
    pub phases: Vec<Phase>,
    /// The same.
    pub races: Vec<Race>,
    /// Names and values.
    pub values: Vec<(String, f64)>,
    /// The phases that were stopped: each with its name, the count it reached, and the reason.
    pub reached: Vec<(String, f64, String)>,
}

impl Readings {
    /// Reads the lines.
    ///
    /// # Errors
    /// A line that is none of them; the text of a `failed` line.
    pub fn parse(text: &str) -> Result<Readings> {
        let mut readings = Readings::default();
        for line in text.lines() {
            readings
                .line(line)
                .with_context(|| format!("reading {line:?}"))?;
        }
        Ok(readings)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let (kind, rest) = line.split_once(' ').context("one word")?;
        if kind == "failed" {
            bail!("{rest}");
        }
        let mut words = rest.splitn(if kind == "reached" { 3 } else { 4 }, ' ');
        let name = words.next().unwrap_or_default().to_owned();
        let mut number = || -> Result<f64> {
            let word = words.next().context("a number is missing")?;
            Ok(word.parse()?)
        };
        match kind {
            "phase" => self.phases.push(Phase {
                name,
                count: number()?,
                cpu_ns: number()?,
                wall_ns: number()?,
            }),
            "race" => self.races.push(Race {
                name,
                count: number()?,
                wall_ns: number()?,
                disturbed: number()?,
            }),
            "value" => self.values.push((name, number()?)),
            "reached" => {
                let count = number()?;
                let why = words.next().unwrap_or_default().to_owned();
                self.reached.push((name, count, why));
            }
            _ => bail!("unknown kind"),
        }
        Ok(())
    }

    /// Nanoseconds of processor time of each operation, one figure per phase of that name.
    pub fn each_ns(&self, name: &str) -> Vec<f64> {
        let phases = self.phases.iter().filter(|phase| phase.name == name);
        phases.map(|phase| phase.cpu_ns / phase.count).collect()
    }

    /// A value.
    pub fn value(&self, name: &str) -> Option<f64> {
        let mut values = self.values.iter();
        values
            .find(|(known, _)| known == name)
            .map(|(_, value)| *value)
    }

    /// Whether counts times costs are the run: the kernel's figure for the whole process is
    /// that of all phases together, and races fill the phase they are in, but for the start of
    /// their threads.
    ///
    /// # Errors
    /// They differ by more than what the end of a process takes; says by how much.
    pub fn verify(&self, process_cpu: Duration) -> Result<()> {
        /// Output, and giving memory back, happen after the last phase.
        const END_NS: f64 = 60e6;
        let phases: f64 = self.phases.iter().map(|phase| phase.cpu_ns).sum();
        let process = process_cpu.as_nanos() as f64;
        if phases > process * 1.02 + 10e6 || phases < process * 0.85 - END_NS {
            bail!(
                "the phases are {:.0} ms of processor time, the process {:.0} ms",
                phases / 1e6,
                process / 1e6
            );
        }
        let races: f64 = self.races.iter().map(|race| race.wall_ns).sum();
        let around = self.phases.iter().find(|phase| phase.name == "races");
        if let Some(around) = around
            && !(0.2..=1.01).contains(&(races / around.wall_ns))
        {
            bail!(
                "the races are {:.0} ms, all of them {:.0} ms",
                races / 1e6,
                around.wall_ns / 1e6
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Readings;

    const TEXT: &str = "phase setup 1 100000000 1000\nphase add 1000 300000000 1000\n\
                        race by_name 10 50 0.25\nvalue bytes 12.5\nreached live 7 no more memory";

    #[test]
    fn lines_are_read_back() {
        let readings = Readings::parse(TEXT).expect("lines");
        assert_eq!(readings.each_ns("add"), [300_000.0]);
        assert_eq!(readings.value("bytes"), Some(12.5));
        assert_eq!(readings.races[0].disturbed, 0.25);
        assert_eq!(readings.reached[0].2, "no more memory");
    }

    #[test]
    fn what_failed_is_told_and_nonsense_is_an_error() {
        for (text, what) in [
            ("failed it broke", "it broke"),
            ("phase x", "phase x"),
            ("y z", "y z"),
        ] {
            let error = Readings::parse(text).expect_err("not a reading");
            assert!(format!("{error:#}").contains(what), "{error:#}");
        }
    }

    #[test]
    fn phases_that_are_not_the_run_are_an_error() {
        let readings = Readings::parse(TEXT).expect("lines");
        let verify = |ms| readings.verify(Duration::from_millis(ms));
        assert!(verify(402).is_ok());
        assert!(verify(300).is_err());
        assert!(verify(700).is_err());
    }
}
