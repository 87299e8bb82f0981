//! The results of a run, as text for the next one.
//!
//! ```text
//! uruk tuning 1
//! cpu znver3 +avx2,...                                                    #d3a8c1f0
//! settled 6f0c... 1.204 1.181 1.228 inline=none no-unroll                #5b1e7a90
//! tried 5b1e... no-slp                                                    #20c1ae01
//! doubtful 5b1e... packed                                                #7ab20c99
//! native 6f0c... 312 slower                                              #77a0c1d2
//! tier 6f0c... 3                                                         #5a3c90ee
//! lesson 1 0 0 3 12 0.31 no-unroll                                        #0ac0ffee
//! ```
//!
//! A function is identified by a fingerprint of its module's bytes and its place there. So a file
//! that is older than the program has no entry for a changed function, and no wrong one. `tried`
//! and `doubtful` are of functions that are not settled: the next run continues where this one
//! ended. `compared` marks one whose codes of tiers 2 and 3 were compared, and `fine` one with only
//! doubtful variants left. A line that begins with `native` has the result of a comparison of a
//! function's native code with compiled code, and the bytes of that native code: the same bitcode
//! may be made into other code. `tier` is the tier at which a function without native code ran when
//! the run ended, if that was above 1. Each line ends with a checksum of its text (FNV-1a). A line
//! that was cut or changed is skipped, and counted, by itself, as is one of a kind that only a
//! later version has. A file of another format, or another CPU, is [`Stale`] and not used.

use std::collections::BTreeMap;
use std::fmt;
use std::str::SplitWhitespace;

use uruk_base::{Tier, Variant};

use super::advice::{Advice, Lesson, Shape};
use super::trial::Interval;

/// The first line.
const HEAD: &str = "uruk tuning 1";

/// The best variant of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The variant.
    pub variant: Variant,
    /// Its speed relative to the default.
    pub ratio: Interval,
    /// Whether nothing is left to try.
    pub settled: bool,
}

/// Progress of the trials of a function that is not settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Variants that need not be tried again.
    pub tried: Vec<Variant>,
    /// Variants of `tried` that may have a small gain: they are tried for it when nothing else is
    /// left.
    pub doubtful: Vec<Variant>,
    /// Whether its codes of tiers 2 and 3 were compared; the better one is the tier it [ended
    /// at](Memory::tiers).
    pub compared: bool,
    /// Whether variants are now tried for small gains; those still to be tried are not in `tried`.
    pub fine: bool,
}

/// Result of the comparison of native code with code compiled for the same function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownNative {
    /// Bytes of the native code.
    pub bytes: u64,
    /// Whether it is not slower, and stays in use.
    pub stays: bool,
}

impl KnownNative {
    /// The word for the result.
    fn word(self) -> &'static str {
        match self.stays {
            true => STAYS,
            false => SLOWER,
        }
    }
}

/// The native code stays in use.
const STAYS: &str = "stays";

/// The compiled code is in use.
const SLOWER: &str = "slower";

/// The results for functions and changes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Best variants, by fingerprint.
    pub functions: BTreeMap<[u8; 16], Known>,
    /// By fingerprint, of functions that are not settled.
    pub progress: BTreeMap<[u8; 16], Progress>,
    /// By fingerprint, of functions of native programs.
    pub natives: BTreeMap<[u8; 16], KnownNative>,
    /// By fingerprint, the tiers above 1 that functions ended at.
    pub tiers: BTreeMap<[u8; 16], Tier>,
    /// The results of changes.
    pub advice: Advice,
    /// Lines that could not be read.
    pub skipped: u32,
}

/// The reason why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stale {
    /// It is another file, or of another version.
    Format {
        /// Its first line.
        found: String,
    },
    /// Code of another processor was measured.
    Cpu {
        /// The name of that processor.
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
            let name = name_of(fingerprint);
            let Interval { low, point, high } = ratio;
            line(format!(
                "{kind} {name} {low:.4} {point:.4} {high:.4} {variant}"
            ));
        }
        for (fingerprint, progress) in &self.progress {
            let name = name_of(fingerprint);
            for variant in &progress.tried {
                let doubtful = progress.doubtful.contains(variant);
                let kind = if doubtful { "doubtful" } else { "tried" };
                line(format!("{kind} {name} {variant}"));
            }
            let flags = [("compared", progress.compared), ("fine", progress.fine)];
            for (kind, _) in flags.iter().filter(|(_, holds)| *holds) {
                line(format!("{kind} {name}"));
            }
        }
        for (fingerprint, native) in &self.natives {
            let (name, bytes) = (name_of(fingerprint), native.bytes);
            line(format!("native {name} {bytes} {}", native.word()));
        }
        for (fingerprint, tier) in &self.tiers {
            line(format!("tier {} {}", name_of(fingerprint), tier.number()));
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

    /// Reads the text that [`write`](Memory::write) wrote on a machine with this `cpu`.
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
                "tried" | "doubtful" | "compared" | "fine" if known_cpu => {
                    memory.progress(kind, rest.split_whitespace())
                }
                "native" if known_cpu => memory.native(rest.split_whitespace()),
                "tier" if known_cpu => memory.tier(rest.split_whitespace()),
                "lesson" if known_cpu => memory.lesson(rest.split_whitespace()),
                _ => None,
            };
            memory.skipped += u32::from(taken.is_none());
        }
        Ok(memory)
    }

    fn function(&mut self, settled: bool, mut words: SplitWhitespace<'_>) -> Option<()> {
        let fingerprint = fingerprint(&mut words)?;
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

    fn progress(&mut self, kind: &str, mut words: SplitWhitespace<'_>) -> Option<()> {
        let fingerprint = fingerprint(&mut words)?;
        let variant = words.collect::<Vec<_>>().join(" ").parse();
        let progress = self.progress.entry(fingerprint).or_default();
        match kind {
            "fine" => progress.fine = true,
            "compared" => progress.compared = true,
            kind => {
                let variant = variant.ok()?;
                progress.tried.push(variant);
                progress
                    .doubtful
                    .extend((kind == "doubtful").then_some(variant));
            }
        }
        Some(())
    }

    fn native(&mut self, mut words: SplitWhitespace<'_>) -> Option<()> {
        let fingerprint = fingerprint(&mut words)?;
        let bytes = words.next()?.parse().ok()?;
        let stays = match words.next()? {
            STAYS => true,
            SLOWER => false,
            _ => return None,
        };
        let native = KnownNative { bytes, stays };
        self.natives.insert(fingerprint, native);
        Some(())
    }

    fn tier(&mut self, mut words: SplitWhitespace<'_>) -> Option<()> {
        let fingerprint = fingerprint(&mut words)?;
        let number: u8 = words.next()?.parse().ok()?;
        let tier = Tier::try_from(number)
            .ok()
            .filter(|&it| it > Tier::Baseline)?;
        self.tiers.insert(fingerprint, tier);
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

/// The text form of a function's fingerprint.
fn name_of(fingerprint: &[u8; 16]) -> String {
    fingerprint.iter().map(|b| format!("{b:02x}")).collect()
}

/// Parses the text form of a fingerprint.
fn fingerprint(words: &mut SplitWhitespace<'_>) -> Option<[u8; 16]> {
    let name = words
        .next()
        .filter(|name| name.len() == 32 && name.is_ascii())?;
    let mut fingerprint = [0; 16];
    for (at, byte) in fingerprint.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&name[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(fingerprint)
}

/// Parses a number that may be a ratio or a sum.
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
            if !settled {
                let tried = [Change::Slp, Change::Loops].map(|it| variant.with(it));
                let progress = Progress {
                    tried: tried.to_vec(),
                    doubtful: vec![tried[1]],
                    compared: byte == 3,
                    fine: byte == 1,
                };
                memory.progress.insert([byte; 16], progress);
            }
            let native = KnownNative {
                bytes: 100 + u64::from(byte),
                stays: settled,
            };
            memory.natives.insert([byte + 3; 16], native);
            let tier = [Tier::Optimized, Tier::Guided][byte as usize % 2];
            memory.tiers.insert([byte + 7; 16], tier);
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
        assert_eq!(read.progress, memory.progress);
        assert_eq!(
            (&read.natives, &read.tiers),
            (&memory.natives, &memory.tiers)
        );
        assert_eq!(read.write("made-up"), text);
        let other = Memory::read(&text, "other").expect_err("another processor");
        assert_eq!(
            other.to_string(),
            "was measured on another processor, made-up"
        );
        let other = Memory::read("#!/bin/sh\n", "made-up").expect_err("something else");
        assert!(matches!(other, Stale::Format { .. }));
    }

    /// A file of a version without native code is read as before; unknown lines of a later version
    /// are skipped, one by one.
    #[test]
    fn files_of_other_versions_are_read() {
        let old = "uruk tuning 1\n\
            cpu made-up #82e0efc4\n\
            settled 00010203040506070809101112131415 1.1000 1.2000 1.3000 no-unroll #abe688ad\n";
        let read = Memory::read(old, "made-up").expect("it is fresh");
        assert_eq!((read.skipped, read.functions.len()), (0, 1));
        assert!(read.natives.is_empty());
        let mut text = example().write("made-up");
        for words in [
            "native 00010203040506070809101112131415 12 perhaps",
            "native 000102 12 stays",
            "tier 00010203040506070809101112131415 4",
            "later 00010203040506070809101112131415",
        ] {
            text += &format!("{words} #{:08x}\n", checksum(words));
        }
        let read = Memory::read(&text, "made-up").expect("it is fresh");
        assert_eq!((read.skipped, read.natives.len()), (4, 5));
    }

    /// With any damage to a file, a line is right or skipped.
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
            for (fingerprint, progress) in &read.progress {
                let all = &memory.progress[fingerprint];
                assert!(progress.tried.iter().all(|it| all.tried.contains(it)));
            }
            for (fingerprint, native) in &read.natives {
                assert_eq!(memory.natives.get(fingerprint), Some(native), "{damaged}");
            }
            for (fingerprint, tier) in &read.tiers {
                assert_eq!(memory.tiers.get(fingerprint), Some(tier), "{damaged}");
            }
        }
    }
}
