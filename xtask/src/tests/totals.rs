//! Sums of the results of test processes.

/// Sums over the `test result:` lines of several test processes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Totals {
    processes: u64,
    failed_processes: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Totals {
    /// Adds the output of a process.
    pub fn add(&mut self, output: &str, passed: bool) {
        self.processes += 1;
        self.failed_processes += u64::from(!passed);
        let results = output.lines();
        let results = results.filter_map(|line| line.strip_prefix("test result: "));
        for part in results.flat_map(|line| line.split([';', '.'])) {
            // The first part names the result before its count.
            let mut words = part.split_whitespace().rev();
            let (Some(word), Some(count)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(count) = count.parse::<u64>() else {
                continue;
            };
            match word {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    /// The sums as a line of text.
    pub fn line(&self) -> String {
        format!(
            "total: {} passed, {} failed, {} ignored in {} test processes{}",
            self.passed,
            self.failed,
            self.ignored,
            self.processes,
            match self.failed_processes {
                0 => String::new(),
                count => format!(", {count} of which failed"),
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn results_add_up() {
        let mut totals = Totals::default();
        for (line, passed) in [
            (
                "running 3 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
                true,
            ),
            (
                "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s",
                false,
            ),
        ] {
            totals.add(line, passed);
        }
        let expected = Totals {
            processes: 2,
            failed_processes: 1,
            passed: 7,
            failed: 2,
            ignored: 1,
        };
        assert_eq!(totals, expected);
    }
}
