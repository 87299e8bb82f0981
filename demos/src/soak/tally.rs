//! Counts of the exchanges of a program.

use std::collections::BTreeMap;

use super::program::{Answer, Figures};

/// Kinds of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An exchange at one instant.
    Immediate,
    /// An exchange when no thread runs old code.
    Quiescent,
    /// Back to before the latest.
    Rollback,
    /// Figures.
    Stats,
}

impl Kind {
    /// In the order of tables.
    pub const ALL: [Kind; 4] = [
        Kind::Immediate,
        Kind::Quiescent,
        Kind::Rollback,
        Kind::Stats,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Immediate => "immediate",
            Kind::Quiescent => "quiescent",
            Kind::Rollback => "rollback",
            Kind::Stats => "stats",
        }
    }

    fn is_exchange(self) -> bool {
        matches!(self, Kind::Immediate | Kind::Quiescent)
    }
}

/// Answers to questions of one kind.
#[derive(Debug, Default)]
pub struct Answers {
    /// Milliseconds of those that were done, with the number of the exchange in the whole run.
    pub done: Vec<(usize, f64)>,
    /// Milliseconds of those that were refused.
    pub refused: Vec<f64>,
    /// How often each reason was given.
    pub reasons: BTreeMap<String, usize>,
}

/// All that is counted.
#[derive(Debug, Default)]
pub struct Tally {
    answers: [Answers; 4],
    /// Exchanges that were done.
    pub exchanges: usize,
    /// The program at the hundredth exchange.
    pub hundredth: Option<Figures>,
    /// Requests or transactions.
    pub requests: u64,
    /// Wrong answers, and the first ten of these.
    pub wrong: u64,
    /// Described.
    pub examples: Vec<String>,
    /// Milliseconds of the longest answer before anything was exchanged.
    pub calm: f64,
    /// Answers that took longer than [`GAP`], and the longest otherwise: milliseconds, when, and
    /// what was asked last.
    pub gaps: Vec<(f64, f64, String)>,
    /// How many took longer than [`GAP`].
    pub long: u64,
    /// Children and new threads that answered, the longest with its milliseconds.
    pub forks: (u64, f64),
    /// Signals that were handled.
    pub signals: u64,
}

/// Milliseconds from which on an answer is late.
pub const GAP: f64 = 20.0;

/// As many of the longest gaps are kept.
const KEPT: usize = 12;

/// Exchanges on both sides of the hundredth, and at the end, whose times are compared.
const AROUND: usize = 50;

/// Refusals that a program's load, or its state, brings with it.
const EXPECTED: [&str; 4] = [
    "old code is still running",
    "was made for the old bodies of what it calls, and thread",
    "are as the program has them",
    "nothing to roll back",
];

impl Tally {
    /// Counts an answer.
    pub fn answer(&mut self, kind: Kind, answer: &Answer) {
        if answer.done && kind.is_exchange() {
            self.exchanges += 1;
        }
        let number = self.exchanges;
        let answers = &mut self.answers[kind as usize];
        if answer.done {
            answers.done.push((number, answer.ms));
            return;
        }
        answers.refused.push(answer.ms);
        let reason = reason(&answer.text);
        let is_expected = EXPECTED.iter().any(|it| reason.contains(it));
        *answers.reasons.entry(reason).or_default() += 1;
        if !is_expected {
            self.wrong(format!("{}: {}", kind.name(), answer.text.trim()));
        }
    }

    /// Counts a fault.
    pub fn wrong(&mut self, text: String) {
        self.wrong += 1;
        if self.examples.len() < 10 {
            self.examples.push(text);
        }
    }

    /// Counts the time of an answer; `what` is asked where it is kept.
    pub fn gap(&mut self, ms: f64, second: f64, what: impl FnOnce() -> String) {
        self.long += u64::from(ms > GAP);
        let least = self.gaps.last().map_or(0.0, |it| it.0);
        if self.gaps.len() < KEPT || ms > least {
            self.gaps.push((ms, second, what()));
            self.gaps.sort_by(|a, b| b.0.total_cmp(&a.0));
            self.gaps.truncate(KEPT);
        }
    }

    /// Answers of a kind.
    pub fn of(&self, kind: Kind) -> &Answers {
        &self.answers[kind as usize]
    }

    /// The median time of a kind around the hundredth exchange, and of the last ones.
    pub fn then_and_now(&self, kind: Kind) -> Option<(f64, f64)> {
        let done = &self.of(kind).done;
        let around = |it: &&(usize, f64)| it.0.abs_diff(100) <= AROUND;
        let then: Vec<f64> = done.iter().filter(around).map(|it| it.1).collect();
        let now = done.iter().rev().take(2 * AROUND).map(|it| it.1);
        Some((
            quantile(&then, 0.5)?,
            quantile(&now.collect::<Vec<_>>(), 0.5)?,
        ))
    }
}

/// The number below which this part of them is.
pub fn quantile(times: &[f64], part: f64) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let at = (times.len() as f64 * part) as usize;
    times.get(at.min(times.len().saturating_sub(1))).copied()
}

/// The mean; 0 of none.
pub fn mean(times: &[f64]) -> f64 {
    times.iter().fold(0.0, |sum, it| sum + it) / times.len().max(1) as f64
}

/// The first line of a refusal, with the first of the threads that it lists, and without what differs
/// from one to the next.
fn reason(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split_once("; thread ").map_or(line, |it| it.0);
    let line = line.strip_prefix("uruk swap: ").unwrap_or(line);
    let line = line.split_once(": ").map_or(line, |it| it.1);
    let words = line.split(' ').map(|word| match word.starts_with('/') {
        true => "FILE:".to_owned(),
        false => word.replace(|it: char| it.is_ascii_digit(), "#"),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Answer, Kind, Tally, quantile, reason};

    #[test]
    fn reasons_are_those_of_all_programs_and_threads() {
        let text =
            "uruk swap: 12: old code is still running: thread 345 is in f; thread 6 is in g\n";
        assert_eq!(
            reason(text),
            "old code is still running: thread ### is in f"
        );
        let text = "uruk swap: 12: /a/b.o: all its functions are as the program has them";
        assert_eq!(
            reason(text),
            "FILE: all its functions are as the program has them"
        );
    }

    #[test]
    fn refusals_that_have_no_cause_in_the_load_are_wrong() {
        let mut tally = Tally::default();
        let mut answer = Answer {
            done: false,
            text: "uruk swap: 1: no answer".to_owned(),
            ms: 1.0,
        };
        tally.answer(Kind::Immediate, &answer);
        assert_eq!((tally.wrong, tally.exchanges), (1, 0));
        answer.text = "uruk swap: 1: there is nothing to roll back".to_owned();
        tally.answer(Kind::Rollback, &answer);
        assert_eq!(tally.wrong, 1);
        answer.done = true;
        tally.answer(Kind::Quiescent, &answer);
        assert_eq!((tally.wrong, tally.exchanges), (1, 1));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.99), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
