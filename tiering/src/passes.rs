//! Passes of a loop's head, measured by those that it was asked to count.
//!
//! A head is asked to count some passes, and notes the time of the last. If they took a third of the
//! time until the next reading, the head was passed about three times as often. A loop that is asked
//! while it does not run counts when it runs next, so that the time before it belongs to the measure.
//! Few passes are counted exactly: as long as not all that were asked for have come, there were no
//! others.
//!
//! The first measure begins when the code is made, long before it runs perhaps. So a loop that has
//! counted for the first time is asked again, and read a moment later: that measure holds for all the
//! time since.
//!
//! Where heads may not note the time, they are asked for ever more passes, so that they count nearly all.
//!
//! The thread that reads may have taken the loop's processor. So it asks when it is about to sleep,
//! and the passes that are asked for take longer than a change of threads.

/// Passes that a head is asked to count at first: so many are known without another reading.
pub const FIRST: u32 = 4096;

/// Passes that it is asked for then.
const SECOND: u32 = 256;

/// Largest number of passes that a head is asked to count, and the smallest later on.
const MOST: u32 = 2048;
const LEAST: u32 = 16;

/// Largest number of passes that a head is asked to count where it does not note the time.
const UNTIMED: u32 = 1 << 24;

/// Cycles below which more passes are counted the next time, and above which fewer are: a change of
/// threads takes some ten thousand, and a slow loop should not count for long.
const SHORT: u64 = 200_000;
const LONG: u64 = 2_000_000;

/// The measure of one loop. Times are of the processor's cycle counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// Passes that it was asked for at the last reading and are not known to have come.
    asked: u32,
    /// When it was asked.
    since: u64,
    /// When the time began whose passes are not known.
    from: u64,
    /// Passes to ask for the next time.
    next: u32,
    /// Whether it has counted before.
    known: bool,
}

/// The words of a loop at a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// The passes that are left to count.
    pub left: u32,
    /// When the last one was counted.
    pub ended_at: u64,
}

/// The outcome of a reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Passes since the last reading, about.
    pub passes: u64,
    /// The passes are a part of those that were: another reading in a moment will tell.
    pub soon: bool,
}

impl Measure {
    /// The measure of a loop that is asked for so many passes.
    pub fn begin(asked: u32, now: u64) -> Measure {
        Measure {
            asked,
            since: now,
            from: now,
            next: SECOND,
            known: false,
        }
    }

    /// Notes that it was asked for so many passes, whatever it was asked for before.
    pub fn asked(&mut self, passes: u32, now: u64) {
        self.asked = passes;
        self.since = now;
    }

    /// It is asked now: the number of passes to ask for, if it does not count already.
    pub fn ask(&mut self, left: u32, now: u64) -> Option<u32> {
        let counts = left != 0;
        if !counts || left == self.asked {
            self.since = now;
        }
        if counts {
            return None;
        }
        self.asked = self.next;
        Some(self.next)
    }

    /// Passes that it was asked for, and that had not come by the last reading.
    pub fn expected(&self) -> u32 {
        self.asked
    }

    /// Passes since the last reading that are known.
    pub fn counted(&self, left: u32) -> u32 {
        self.asked.saturating_sub(left)
    }

    /// Takes the words at a reading.
    pub fn read(&mut self, words: Words, now: u64) -> Reading {
        let counted = self.counted(words.left);
        let ended = words.left == 0 && self.asked != 0;
        // Another processor's cycle counter may be behind.
        let timed = words.ended_at > self.since;
        let until = match ended && timed {
            true => words.ended_at.min(now),
            false => now,
        };
        let took = until.saturating_sub(self.since).max(1);
        let first = ended && !self.known;
        let passes = match first {
            true => u64::from(counted),
            false => scaled(counted, now.saturating_sub(self.from), took),
        };
        self.known |= ended;
        self.asked = words.left;
        self.since = now;
        self.from = if first { until } else { now };
        if ended && !first {
            self.next = match took {
                _ if !timed => (self.next * 4).min(UNTIMED),
                ..SHORT => (self.next * 4).min(MOST),
                LONG.. => (self.next / 4).clamp(LEAST, MOST),
                _ => self.next.min(MOST),
            };
        }
        Reading {
            passes,
            soon: first,
        }
    }
}

/// `counted` passes in `took` cycles, for `time`.
fn scaled(counted: u32, time: u64, took: u64) -> u64 {
    let all = u128::from(counted) * u128::from(time.max(took)) / u128::from(took);
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A loop of which a pass takes `pass` cycles, at each time that `runs` says.
    struct Simulated {
        pass: u64,
        runs: fn(u64) -> bool,
        now: u64,
        passes: u64,
        left: u32,
        ended_at: u64,
    }

    impl Simulated {
        fn new(pass: u64, runs: fn(u64) -> bool) -> Simulated {
            Simulated {
                pass,
                runs,
                now: 1,
                passes: 0,
                left: FIRST,
                ended_at: 0,
            }
        }

        fn until(&mut self, end: u64) {
            while self.now < end {
                self.now += self.pass;
                if !(self.runs)(self.now) {
                    continue;
                }
                self.passes += 1;
                if self.left != 0 {
                    self.left -= 1;
                    if self.left == 0 {
                        self.ended_at = self.now;
                    }
                }
            }
        }

        fn read(&mut self, measure: &mut Measure) -> u64 {
            let words = |it: &Simulated| Words {
                left: it.left,
                ended_at: it.ended_at,
            };
            let reading = measure.read(words(self), self.now);
            let mut passes = reading.passes;
            if reading.soon {
                self.ask(measure);
                self.until(self.now + 5000);
                passes += measure.read(words(self), self.now).passes;
            }
            self.ask(measure);
            passes
        }

        fn ask(&mut self, measure: &mut Measure) {
            let asked = measure.ask(self.left, self.now);
            self.left = asked.unwrap_or(self.left);
        }

        /// Passes by the measure over those that were, in so many readings every million cycles.
        fn ratio(&mut self, measure: &mut Measure, readings: u64) -> f64 {
            let before = self.passes;
            let mut told = 0;
            for _ in 0..readings {
                self.until(self.now + 1_000_000);
                told += self.read(measure);
            }
            told as f64 / (self.passes - before) as f64
        }
    }

    #[test]
    fn a_loop_that_runs_all_the_time_is_measured_well_from_the_first_reading_on() {
        for pass in [5, 25, 125, 200] {
            let mut it = Simulated::new(pass, |_| true);
            let mut measure = Measure::begin(FIRST, 0);
            let first = it.ratio(&mut measure, 1);
            assert!((0.9..1.1).contains(&first), "{pass}: {first}");
            let later = it.ratio(&mut measure, 50);
            assert!((0.95..1.05).contains(&later), "{pass}: {later}");
        }
        for pass in [1_000, 20_000, 400_000] {
            let mut it = Simulated::new(pass, |_| true);
            let mut measure = Measure::begin(FIRST, 0);
            let ratio = it.ratio(&mut measure, 50);
            assert!((0.95..1.05).contains(&ratio), "{pass}: {ratio}");
        }
    }

    /// Fewer passes between two readings than it is asked to count.
    #[test]
    fn slow_loops_are_counted_exactly() {
        for pass in [400_000, 1_100_000, 7_000_000] {
            let mut measure = Measure::begin(FIRST, 0);
            let (mut passes, mut told, mut left) = (0, 0, FIRST);
            for reading in 1..100 {
                let now = reading * 1_000_000;
                let new = (now / pass - passes) as u32;
                passes = now / pass;
                left = left.saturating_sub(new);
                let ended_at = now - now % pass;
                let reading = measure.read(Words { left, ended_at }, now);
                told += reading.passes;
                left = measure.ask(left, now).unwrap_or(left);
            }
            assert_eq!(told, passes, "{pass}");
        }
    }

    /// The code was made long before it runs.
    #[test]
    fn time_before_the_first_pass_is_no_time_of_the_loop() {
        let mut it = Simulated::new(10, |now| now > 900_000);
        let mut measure = Measure::begin(FIRST, 0);
        let ratio = it.ratio(&mut measure, 1);
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    /// A loop that runs for a short time now and then is not taken for one that runs all the time.
    #[test]
    fn short_runs_are_measured_in_the_mean() {
        // Runs of 2,000 passes, a twentieth of the time, out of step with the readings.
        let mut it = Simulated::new(10, |now| now % 397_000 < 20_000);
        let mut measure = Measure::begin(FIRST, 0);
        it.ratio(&mut measure, 1);
        let ratio = it.ratio(&mut measure, 400);
        assert!((0.5..2.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_loop_that_is_not_passed_has_no_passes() {
        let mut it = Simulated::new(10, |now| now < 500_000);
        let mut measure = Measure::begin(FIRST, 0);
        it.ratio(&mut measure, 2);
        for _ in 0..10 {
            it.until(it.now + 1_000_000);
            assert_eq!(it.read(&mut measure), 0);
        }
    }

    /// Heads that do not note the time count a good part of the passes after some readings.
    #[test]
    fn without_the_time_passes_are_counted() {
        let mut measure = Measure::begin(FIRST, 0);
        let (mut left, mut told) = (FIRST, 0);
        for reading in 1..=40 {
            let now = reading * 1_000_000;
            left = left.saturating_sub(100_000);
            let passes = measure.read(Words { left, ended_at: 0 }, now).passes;
            told += if reading > 20 { passes } else { 0 };
            left = measure.ask(left, now).unwrap_or(left);
        }
        assert!((1_900_000..=2_000_000).contains(&told), "{told}");
    }

    #[test]
    fn a_cycle_counter_that_is_behind_does_not_matter() {
        let mut measure = Measure::begin(FIRST, 1_000);
        let words = Words {
            left: 0,
            ended_at: 10,
        };
        assert_eq!(measure.read(words, 2_000).passes, u64::from(FIRST));
        assert_eq!(measure.ask(0, 2_000), Some(SECOND));
        assert_eq!(measure.read(words, 1_000).passes, u64::from(SECOND));
    }
}
