//! Counts of probes, and the profile read from them: plain data, without LLVM.
//!
//! Probes are placed at the *sites* of the module's body, before any pass: conditional branches,
//! switches, indirect calls. The list of sites, in layout order, is the key of a profile. It is the
//! same whenever the function is extracted again, and a function whose list differs refuses the
//! profile.
//!
//! Words are `u64`. Word 0 counts entries. Then, in the order of the sites:
//!
//! | site | words |
//! |---|---|
//! | branch | executed, taken (the first successor) |
//! | switch, computed goto | times left to each distinct successor, in their order |
//! | indirect call | last target, times it was the one before, calls |
//!
//! and, for each argument that is a number, its leading value and the votes it leads by. An entry
//! with that value adds one, an entry with another removes one, and at zero votes the new value
//! takes the lead (Boyer and Moore).
//!
//! Threads increment without atomics and may lose counts, so a part may exceed its whole by a
//! little: reads of a profile clamp it.
//!
//! # Why
//! Weights are set on switches of up to four ways only. With more, LLVM takes a jump table apart: a
//! bytecode loop took 114 us an iteration with weights and 70 without.

use std::sync::Arc;

use uruk_base::Nanos;

use crate::summary::SymbolId;

/// Name of the words that probes count in. Units refer to it as a hidden symbol they do
/// not define: [`Probes::words`] words of 8 bytes, aligned to 8, zero at first.
pub const PROBES: &str = "uruk.probes";

/// Words beyond which a body is not probed: half a megabyte.
const MOST_WORDS: u32 = 1 << 16;

/// Calls below which an indirect call is not judged.
const LEAST_CALLS: u64 = 64;

/// Entries below which no argument is judged. Few are enough: the code made for it is compared with
/// the plain code before it stays.
const LEAST_ENTRIES: u64 = 16;

/// A counted place of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Site {
    /// A conditional branch.
    Branch,
    /// A switch or computed goto.
    Switch {
        /// Distinct successors.
        ways: u32,
    },
    /// An indirect call.
    Call,
}

impl Site {
    /// Words it counts in.
    pub fn words(self) -> u32 {
        match self {
            Site::Branch => 2,
            Site::Switch { ways } => ways,
            Site::Call => 3,
        }
    }
}

/// The probes of one version: the meaning of each word of [`PROBES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probes {
    words: u32,
    sites: Arc<[Site]>,
    /// Arguments that are watched.
    arguments: Arc<[u32]>,
}

impl Probes {
    /// The probes for a list of sites, and of arguments; `None` if they would need too many words.
    pub(crate) fn of(sites: Vec<Site>, arguments: Vec<u32>) -> Option<Probes> {
        let words = sites
            .iter()
            .try_fold(1u32, |sum, site| sum.checked_add(site.words()))
            .and_then(|sum| sum.checked_add(2 * arguments.len() as u32))
            .filter(|&words| words <= MOST_WORDS)?;
        Some(Probes {
            words,
            sites: sites.into(),
            arguments: arguments.into(),
        })
    }

    /// Number of words; at least one.
    pub fn words(&self) -> u32 {
        self.words
    }

    /// The sites in layout order.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The arguments that are watched, each with the index of its first word.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (u32, u32)> {
        let first = self.words - 2 * self.arguments.len() as u32;
        let arguments = self.arguments.iter().copied();
        arguments.zip((first..).step_by(2))
    }

    /// The sites, each with the index of its first word.
    pub fn places(&self) -> impl Iterator<Item = (Site, u32)> {
        self.sites.iter().scan(1, |next, &site| {
            let first = *next;
            *next += site.words();
            Some((site, first))
        })
    }
}

/// The reason why a profile is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The number of words differs from the probes'.
    #[error("a profile of {expected} words cannot be read from {found}")]
    Length {
        /// Words of the probes.
        expected: u32,
        /// Words given.
        found: usize,
    },
    /// The profile is of a body with other branches or calls.
    #[error(
        "the profile is of another body: {expected} sites, the function has {found}; \
         the first that differs is number {first}"
    )]
    Misfit {
        /// Sites of the profile.
        expected: usize,
        /// Sites of the function.
        found: usize,
        /// Index of the first site that differs.
        first: usize,
    },
}

/// The counts of one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Count<'a> {
    /// Counts of a conditional branch.
    Branch {
        /// Times it was reached.
        executed: u64,
        /// Times it went to its first successor; at most `executed`.
        taken: u64,
    },
    /// Counts of a switch or computed goto, by distinct successor.
    Switch(&'a [u64]),
    /// Counts of an indirect call.
    Call(Target),
}

/// The target an indirect call was last seen to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// The pointer that was called.
    pub address: u64,
    /// Calls whose target was that of the call before; at most `calls`.
    pub same: u64,
    /// Calls.
    pub calls: u64,
}

impl Target {
    /// True if nearly every call reaches one target: `same >= 0.9 calls`, of at least
    /// 64 calls.
    pub fn is_dominant(&self) -> bool {
        self.calls >= LEAST_CALLS && self.same >= self.calls - self.calls / 10
    }
}

/// The counts of one function's probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    probes: Probes,
    words: Arc<[u64]>,
    /// The time of counting; zero if it is not known.
    took: Nanos,
}

impl Profile {
    /// Reads the words that `probes` counted in.
    ///
    /// # Errors
    /// [`ProfileError::Length`].
    pub fn new(probes: &Probes, words: &[u64]) -> Result<Profile, ProfileError> {
        if words.len() != probes.words as usize {
            return Err(ProfileError::Length {
                expected: probes.words,
                found: words.len(),
            });
        }
        let probes = probes.clone();
        let words = words.into();
        let took = Nanos::ZERO;
        Ok(Profile {
            probes,
            words,
            took,
        })
    }

    /// Sets the time of counting.
    #[must_use]
    pub fn counted_for(self, took: Nanos) -> Profile {
        Profile { took, ..self }
    }

    /// The executions a second of a site with that count; `None` if the time of counting is not
    /// known.
    pub(crate) fn per_second(&self, count: u64) -> Option<f64> {
        let took = self.took.as_f64();
        (took > 0.0).then(|| count as f64 * 1e9 / took)
    }

    /// Times the function was entered. A function that was entered before it had
    /// probes may have counted no entry, but branches.
    pub fn entries(&self) -> u64 {
        self.words[0]
    }

    /// True if nothing was counted: such a profile is not applied.
    pub fn is_empty(&self) -> bool {
        self.most() == 0
    }

    /// The largest count, entries included: how much the profile has seen. (A word of the probes
    /// may hold an address, so words are not compared.)
    pub fn most(&self) -> u64 {
        let sites = self.counts().map(|count| match count {
            Count::Branch { executed, .. } => executed,
            Count::Switch(ways) => ways.iter().copied().max().unwrap_or(0),
            Count::Call(target) => target.calls,
        });
        sites.fold(self.entries(), u64::max)
    }

    /// The counts of the sites, in layout order.
    pub fn counts(&self) -> impl Iterator<Item = Count<'_>> {
        self.probes.places().map(|(site, first)| {
            let first = first as usize;
            let words = &self.words[first..first + site.words() as usize];
            match site {
                Site::Branch => Count::Branch {
                    executed: words[0],
                    taken: words[1].min(words[0]),
                },
                Site::Switch { .. } => Count::Switch(words),
                Site::Call => Count::Call(Target {
                    address: words[0],
                    same: words[1].min(words[2]),
                    calls: words[2],
                }),
            }
        })
    }

    /// The dominant targets of the indirect calls, as addresses seen at run time, each once. The
    /// caller of a compile maps them to functions, see
    /// [`Compile::targets`](crate::Compile::targets).
    pub fn observed_targets(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self
            .counts()
            .filter_map(|count| match count {
                Count::Call(target) if target.is_dominant() => Some(target.address),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The arguments that had one value at nineteen of twenty entries, by the vote described above:
    /// a value with a part `p` of the entries leads by `2 p - 1` of them.
    pub fn steady_arguments(&self) -> Vec<Steady> {
        let entries = self.entries();
        let word = |index: u32| self.words[index as usize];
        let steady = |&(_, first): &(u32, u32)| {
            entries >= LEAST_ENTRIES && word(first + 1) >= entries - entries / 10
        };
        let all = self.probes.watched().filter(steady);
        let all = all.map(|(argument, first)| Steady {
            argument,
            bits: word(first),
        });
        all.collect()
    }

    /// Checks that the profile is of a body with these sites.
    pub(crate) fn fits(&self, sites: &[Site]) -> Result<(), ProfileError> {
        let own = self.probes.sites();
        let same = own.iter().zip(sites).take_while(|(a, b)| a == b).count();
        if own.len() == sites.len() && same == own.len() {
            return Ok(());
        }
        Err(ProfileError::Misfit {
            expected: own.len(),
            found: sites.len(),
            first: same,
        })
    }
}

/// A value that an argument nearly always had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Steady {
    /// The argument's place.
    pub argument: u32,
    /// The value: a number's bits, without a sign.
    pub bits: u64,
}

/// A profile that was given with a compile, and not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The function it was given for.
    pub function: SymbolId,
    /// The reason.
    pub error: ProfileError,
}

/// Weights LLVM takes, in the proportion of `counts`; `None` if all are zero.
pub(crate) fn weights(counts: &[u64]) -> Option<Vec<u32>> {
    let most = counts.iter().copied().max().filter(|&most| most != 0)?;
    // LLVM adds weights up in 64 bits, so each may use all of its 32.
    let scale = most / u64::from(u32::MAX) + 1;
    let scaled = counts.iter().map(|&count| {
        // A nonzero count keeps a nonzero weight.
        ((count / scale) as u32).max(u32::from(count != 0))
    });
    Some(scaled.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes() -> Probes {
        let sites = vec![Site::Branch, Site::Switch { ways: 2 }, Site::Call];
        Probes::of(sites, Vec::new()).expect("few words")
    }

    #[test]
    fn arguments_are_steady_by_their_vote() {
        let probes = Probes::of(vec![Site::Branch], vec![0, 2]).expect("few words");
        let steady = |words: [u64; 7]| {
            let profile = Profile::new(&probes, &words).expect("as long");
            profile.steady_arguments()
        };
        let (argument, bits) = (2, 10);
        let found = steady([100, 0, 0, 7, 80, 10, 92]);
        assert_eq!(found, [Steady { argument, bits }]);
        assert_eq!(steady([12, 0, 0, 7, 12, 10, 12]), []);
    }

    #[test]
    fn words_are_laid_out_in_the_order_of_the_sites() {
        let words = [7, 10, 12, 3, 4, 0x4000, 98, 100];
        let profile = Profile::new(&probes(), &words).expect("as long");
        // The address is no count.
        assert_eq!((profile.entries(), profile.most()), (7, 100));
        let target = Target {
            address: 0x4000,
            same: 98,
            calls: 100,
        };
        // More taken than executed: lost counts, clamped.
        let expected = [
            Count::Branch {
                executed: 10,
                taken: 10,
            },
            Count::Switch(&[3, 4]),
            Count::Call(target),
        ];
        assert!(profile.counts().eq(expected));
        assert_eq!(profile.observed_targets(), [0x4000]);
    }

    #[test]
    fn a_profile_of_another_length_or_body_is_refused() {
        let error = Profile::new(&probes(), &[0; 7]).expect_err("too short");
        let (expected, found) = (8, 7);
        assert_eq!(error, ProfileError::Length { expected, found });
        let profile = Profile::new(&probes(), &[0; 8]).expect("as long");
        assert!(profile.is_empty());
        let other = [Site::Branch, Site::Switch { ways: 3 }, Site::Call];
        let error = profile.fits(&other).expect_err("another switch");
        let misfit = |found, first| ProfileError::Misfit {
            expected: 3,
            found,
            first,
        };
        assert_eq!(error, misfit(3, 1));
        assert_eq!(profile.fits(&[Site::Branch]), Err(misfit(1, 1)));
        assert_eq!(profile.fits(probes().sites()), Ok(()));
    }

    #[test]
    fn targets_must_dominate() {
        let target = |same, calls| Target {
            address: 1,
            same,
            calls,
        };
        assert!(target(90, 100).is_dominant() && target(63, 64).is_dominant());
        assert!(!target(80, 100).is_dominant() && !target(63, 63).is_dominant());
    }

    #[test]
    fn weights_keep_proportions_and_what_happened() {
        assert_eq!(weights(&[0, 0]), None);
        assert_eq!(weights(&[3, 0]), Some(vec![3, 0]));
        let scaled = weights(&[1 << 40, 1 << 39, 1]).expect("counted");
        assert_eq!(scaled[0] / scaled[1], 2);
        assert_eq!(scaled[2], 1);
    }

    #[test]
    fn too_many_words_are_no_probes() {
        let sites = vec![Site::Switch { ways: MOST_WORDS }];
        assert_eq!(Probes::of(sites, Vec::new()), None);
    }
}
