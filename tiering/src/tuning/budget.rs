//! The budget of trials: a part of the program's processor time, as an account.
//!
//! It earns [`Budget::share`] of the time the program takes, on top of a first credit. A trial that
//! wins costs nothing: its gain pays for it. Any other trial costs the compile of its candidate,
//! the extra time of the slower version while it was in the slot, and the time of the thread that
//! switches. A trial may begin if the credit covers the expected cost of trials of its kind. It is
//! given up when it has spent twice that and more than the credit.

use crate::ids::Nanos;

/// The allowed cost of trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Part of the program's processor time.
    pub share: f64,
    /// Time that may be spent before any was earned.
    pub credit: Nanos,
}

impl Default for Budget {
    /// Two percent of the time, and a quarter of a second of credit.
    fn default() -> Budget {
        Budget {
            share: 0.02,
            credit: Nanos::from_ms(250),
        }
    }
}

/// The account of a session.
///
/// ```
/// use uruk_tiering::{Nanos, tuning::{Account, Budget}};
///
/// let mut account = Account::new(Budget { share: 0.02, credit: Nanos::from_ms(10) });
/// assert!(account.affords(Nanos::from_ms(10)));
/// account.lost(Nanos::from_ms(10));
/// assert!(!account.affords(Nanos::from_ms(1)));
/// account.ran(Nanos::from_ms(500));
/// assert!(account.affords(Nanos::from_ms(10)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
    budget: Budget,
    ran: f64,
    lost: f64,
}

impl Account {
    /// An account without costs yet.
    pub fn new(budget: Budget) -> Account {
        Account {
            budget,
            ran: 0.0,
            lost: 0.0,
        }
    }

    /// Removes the first credit: an earlier run has found the most valuable changes already.
    ///
    /// ```
    /// use uruk_tiering::{Nanos, tuning::Account};
    ///
    /// let mut account = Account::default();
    /// account.forgo_credit();
    /// assert!(!account.affords(Nanos::from_ms(1)));
    /// account.ran(Nanos::from_ms(50));
    /// assert!(account.affords(Nanos::from_ms(1)));
    /// ```
    pub fn forgo_credit(&mut self) {
        self.budget.credit = Nanos::ZERO;
    }

    /// Adds processor time that the program ran.
    pub fn ran(&mut self, time: Nanos) {
        self.ran += time.as_f64();
    }

    /// Adds the cost of a trial that did not win.
    pub fn lost(&mut self, time: Nanos) {
        self.lost += time.as_f64();
    }

    /// Whether a trial may begin that is expected to cost `time`.
    pub fn affords(&self, time: Nanos) -> bool {
        self.left() >= time.as_f64()
    }

    /// Whether a trial that was to cost `expected` and has cost `spent` may go on.
    pub fn endures(&self, expected: Nanos, spent: Nanos) -> bool {
        spent.as_f64() <= 2.0 * expected.as_f64() || self.affords(spent)
    }

    /// Processor time of the program so far.
    pub fn time(&self) -> Nanos {
        Nanos(self.ran as u64)
    }

    /// Time that trials took which did not win, so far.
    pub fn spent(&self) -> Nanos {
        Nanos(self.lost as u64)
    }

    fn left(&self) -> f64 {
        self.budget.credit.as_f64() + self.budget.share * self.ran - self.lost
    }
}
