//! The results of an experiment: rows of the table, and the times of single iterations if it
//! measured them.

use crate::row::Row;
use crate::tiers::Curve;

/// Rows and curves.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// For the table.
    pub rows: Vec<Row>,
    /// For the warm-up lines and the file of iterations.
    pub curves: Vec<Curve>,
}

impl Findings {
    /// Adds another experiment's.
    pub fn extend(&mut self, other: Findings) {
        self.rows.extend(other.rows);
        self.curves.extend(other.curves);
    }
}

impl From<Vec<Row>> for Findings {
    fn from(rows: Vec<Row>) -> Findings {
        let curves = Vec::new();
        Findings { rows, curves }
    }
}
