//! Limits of a recording, and counts of omitted items.
//!
//! With the defaults a full recording takes about 50 MB if names are of usual length, and under 150
//! MB if all names and reasons have their greatest length. Sums over the run ([`crate::Totals`])
//! have no limit and stay exact.

use serde::{Deserialize, Serialize};

/// Limits of each kind of data. Items after a list is full are counted in [`Omitted`] and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Compiles, lookups, links: of each kind.
    pub spans: usize,
    /// Events of all kinds.
    pub events: usize,
    /// Functions in the table, and versions of all of them together.
    pub functions: usize,
    /// Variants of one function.
    pub variants: usize,
    /// Names of each kind in one exchange of functions.
    pub exchanged: usize,
    /// Versions distinguished within one period. Samples in others count as not settled, so that
    /// the reported time to peak is never too early.
    pub versions_in_period: usize,
    /// Bytes of a name; longer ones lose their middle.
    pub name_bytes: usize,
    /// Bytes of a reason or of a decision; longer ones lose their end.
    pub text_bytes: usize,
    /// Bytes of the disassembly of one version; longer ones lose their end.
    pub listing_bytes: usize,
    /// Bytes of all disassembly together.
    pub listings_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            spans: 1 << 16,
            events: 1 << 16,
            functions: 1 << 16,
            variants: 128,
            exchanged: 64,
            versions_in_period: 64,
            name_bytes: 256,
            text_bytes: 512,
            listing_bytes: 128 << 10,
            listings_bytes: 4 << 20,
        }
    }
}

/// Counts of items that did not fit into a [`crate::Recording`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Omitted {
    /// Lookups.
    pub lookups: u64,
    /// Compiles (in the timeline; their sums are kept).
    pub compiles: u64,
    /// Links.
    pub links: u64,
    /// Events.
    pub events: u64,
    /// Variants.
    #[serde(default)]
    pub variants: u64,
    /// Versions missing in the table of functions.
    pub versions: u64,
    /// Disassemblies that were cut or omitted.
    pub listings: u64,
}

impl Omitted {
    /// The counts that are not zero, with their names.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("lookups", self.lookups),
            ("compiles", self.compiles),
            ("links", self.links),
            ("events", self.events),
            ("variants", self.variants),
            ("versions", self.versions),
            ("disassemblies", self.listings),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// `text` without its middle, so that it fits `bytes` (never split inside a character). The ends of
/// a mangled or generic name are more informative than its middle.
pub(crate) fn without_middle(text: &str, bytes: usize) -> String {
    const GAP: &str = "…";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let half = bytes.saturating_sub(GAP.len()) / 2;
    let head = text.floor_char_boundary_at(half);
    let tail = text.ceil_char_boundary_at(text.len() - half);
    format!("{}{GAP}{}", &text[..head], &text[tail..])
}

/// `text` without its end, so that it fits `bytes`; whether it was cut.
pub(crate) fn without_end(text: &str, bytes: usize) -> (&str, bool) {
    (
        &text[..text.floor_char_boundary_at(bytes)],
        text.len() > bytes,
    )
}

/// Nearest character boundaries.
trait Boundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
    fn ceil_char_boundary_at(&self, at: usize) -> usize;
}

impl Boundary for str {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        let at = at.min(self.len());
        (0..=at)
            .rev()
            .find(|at| self.is_char_boundary(*at))
            .unwrap_or(0)
    }

    fn ceil_char_boundary_at(&self, at: usize) -> usize {
        let len = self.len();
        (at..=len)
            .find(|at| self.is_char_boundary(*at))
            .unwrap_or(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle_and_stay_text() {
        assert_eq!(without_middle("short", 8), "short");
        assert_eq!(without_middle("abcdefghijkl", 9), "abc…jkl");
        for bytes in 0..20 {
            let cut = without_middle("ünïcödé→names", bytes);
            assert!(cut.len() <= bytes.max("…".len()), "{bytes}: {cut}");
        }
    }

    #[test]
    fn long_texts_lose_their_end() {
        assert_eq!(without_end("abc", 3), ("abc", false));
        assert_eq!(without_end("abü", 3), ("ab", true));
    }
}
