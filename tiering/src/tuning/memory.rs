//! What a run learned, as text for the next one.
//!
//! ```text
//! uruk tuning 1
//! cpu znver3 +avx2,...                                                    #d3a8c1f0
//! settled 6f0c... 1.204 1.181 1.228 inline=none no-unroll                #5b1e7a90
//! lesson 1 0 0 3 12 0.31 no-unroll                                        #0ac0ffee
//! ```
//!
//! A function is named by a fingerprint of its module's bytes and its place there: a file that is
//! older than the program knows nothing of what changed, and says nothing wrong about it. Each
//! line ends with a checksum of its text (FNV-1a), so that one that was cut or changed is
//! skipped, and counted, by itself. Another format, or another CPU, is [`Stale`]: nothing of it
//! is used.

use std::collections::BTreeMap;
use std::fmt;
use std::str::SplitWhitespace;

use uruk_base::Variant;

use super::advice::{Advice, Lesson, Shape};
use super::trial::Interval;

/// The first line.
const HEAD: &str = "uruk tuning 1";

/// The best variant of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Which.
    pub variant: Variant,
    /// How many times as fast as the default it was.
    pub ratio: Interval,
    /// Nothing was left to try.
    pub settled: bool,
}

/// What is known of functions and changes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By fingerprint.
    pub functions: BTreeMap<[u8; 16], Known>,
    /// What helped.
    pub advice: Advice,
    /// Lines that could not be read.
    pub skipped: u32,
}

/// Why a file is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stale {
    /// It is something else, or of another version.
    Format {
        /// Its first line.
        found: String,
    },
    /// Another processor's code was measured.
    Cpu {
        /// Whose.
        found: String,
    },
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stale::Format { found } => write!(f, "begins with {found:?}, not with {HEAD:?}"),
            Stale::Cpu { found } => write!(f, "was measured on another processor, {found}"),
        }
    }
}

impl std::error::Error for Stale {}

impl Memory {
    /// The text, for a machine with this `cpu`.
    pub fn write(&self, cpu: &str) -> String {
        let mut text = format!("{HEAD}\n");
        let mut line = |words: String| {
            let sum = checksum(&words);
            text.push_str(&format!("{words} #{sum:08x}\n"));
        };
        line(format!("cpu {}", cpu.replace(['\n', '#'], " ")));
        for (fingerprint, known) in &self.functions {
            let Known {
                variant,
                ratio,
                settled,
            } = known;
            let kind = if *settled { "settled" } else { "open" };
            let name: String = fingerprint.iter().map(|b| format!("{b:02x}")).collect();
            let Interval { low, point, high } = ratio;
            line(format!(
                "{kind} {name} {low:.4} {point:.4} {high:.4} {variant}"
            ));
        }
        for (shape, change, lesson) in self.advice.lessons() {
            let Shape {
                loops,
                nested,
                calls,
                size,
            } = shape;
            let Lesson { count, gains } = lesson;
            let nested = u8::from(nested);
            line(format!(
                "lesson {loops} {nested} {calls} {size} {count} {gains:.5} {change}"
            ));
        }
        text
    }

    /// Reads what [`write`](Memory::write) wrote on a machine with this `cpu`.
    ///
    /// # Errors
    /// [`Stale`].
    pub fn read(text: &str, cpu: &str) -> Result<Memory, Stale> {
        let mut lines = text.lines();
        let found = lines.next().unwrap_or_default();
        if found != HEAD {
            let found = found.chars().take(40).collect();
            return Err(Stale::Format { found });
        }
        let mut memory = Memory::default();
        let mut known_cpu = false;
        for line in lines {
            let Some(words) = checked(line) else {
                memory.skipped += 1;
                continue;
            };
            let (kind, rest) = words.split_once(' ').unwrap_or((words, ""));
            let taken = match kind {
                "cpu" if rest == cpu.replace(['\n', '#'], " ") => {
                    known_cpu = true;
                    Some(())
                }
                "cpu" => {
                    let found = rest.chars().take(40).collect();
                    return Err(Stale::Cpu { found });
                }
                "settled" | "open" if known_cpu => {
                    memory.function(kind == "settled", rest.split_whitespace())
                }
                "lesson" if known_cpu => memory.lesson(rest.split_whitespace()),
                _ => None,
            };
            memory.skipped += u32::from(taken.is_none());
        }
        Ok(memory)
    }

    fn function(&mut self, settled: bool, mut words: SplitWhitespace<'_>) -> Option<()> {
        let name = words
            .next()
            .filter(|name| name.len() == 32 && name.is_ascii())?;
        let mut fingerprint = [0; 16];
        for (at, byte) in fingerprint.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&name[2 * at..2 * at + 2], 16).ok()?;
        }
        let [low, point, high] = [
            number(&mut words)?,
            number(&mut words)?,
            number(&mut words)?,
        ];
        let variant = words.collect::<Vec<_>>().join(" ").parse().ok()?;
        let ratio = Interval { low, point, high };
        let known = Known {
            variant,
            ratio,
            settled,
        };
        self.functions.insert(fingerprint, known);
        Some(())
    }

    fn lesson(&mut self, mut words: SplitWhitespace<'_>) -> Option<()> {
        let mut small = || words.next()?.parse::<u8>().ok();
        let shape = Shape {
            loops: small()?,
            nested: small()? != 0,
            calls: small()?,
            size: small()?,
        };
        let lesson = Lesson {
            count: number(&mut words)?,
            gains: number(&mut words)?,
        };
        let change = words.next()?.parse().ok()?;
        self.advice.add(shape, change, lesson);
        Some(())
    }
}

/// A number that a ratio or a sum can be.
fn number(words: &mut SplitWhitespace<'_>) -> Option<f64> {
    let number: f64 = words.next()?.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// A line without its checksum, if that is right.
fn checked(line: &str) -> Option<&str> {
    let (words, sum) = line.rsplit_once(" #")?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == checksum(words)).then_some(words)
}

fn checksum(text: &str) -> u32 {
    let mix = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, mix)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tuning::trial::draw;
    use uruk_base::Change;

    fn example() -> Memory {
        let mut memory = Memory::default();
        for byte in 0..5 {
            let ratio = Interval {
                low: 1.1,
                point: 1.2,
                high: 1.3,
            };
            let variant = Variant::default().with(Change::ALL[byte as usize]);
            let settled = byte % 2 == 0;
            let known = Known {
                variant,
                ratio,
                settled,
            };
            memory.functions.insert([byte; 16], known);
        }
        let shape = Shape {
            loops: 1,
            nested: true,
            calls: 2,
            size: 3,
        };
        memory.advice.learn(shape, Change::Slp, 1.25);
        memory
    }

    #[test]
    fn what_is_written_is_read() {
        let memory = example();
        let text = memory.write("made-up");
        let read = Memory::read(&text, "made-up").expect("it is fresh");
        assert_eq!((read.skipped, &read.functions), (0, &memory.functions));
        assert_eq!(read.write("made-up"), text);
        let other = Memory::read(&text, "other").expect_err("another processor");
        assert_eq!(
            other.to_string(),
            "was measured on another processor, made-up"
        );
        let other = Memory::read("#!/bin/sh\n", "made-up").expect_err("something else");
        assert!(matches!(other, Stale::Format { .. }));
    }

    /// Whatever happens to a file, a line is right or skipped.
    #[test]
    fn damage_is_skipped() {
        let memory = example();
        let text = memory.write("made-up");
        let mut random = 4;
        for _ in 0..2000 {
            let mut bytes = text.clone().into_bytes();
            let at = draw(&mut random) as usize % bytes.len();
            match draw(&mut random) % 3 {
                0 => bytes.truncate(at),
                1 => bytes[at] = draw(&mut random) as u8,
                _ => drop(bytes.drain(at..(at + 9).min(text.len()))),
            }
            let damaged = String::from_utf8_lossy(&bytes);
            let Ok(read) = Memory::read(&damaged, "made-up") else {
                continue;
            };
            for (fingerprint, known) in &read.functions {
                assert_eq!(memory.functions.get(fingerprint), Some(known), "{damaged}");
            }
        }
    }
}
