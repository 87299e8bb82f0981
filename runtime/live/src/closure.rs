//! All functions that each function of a module reaches, computed together.
//!
//! The sets of callees are merged into those of their callers, callees first where the graph allows
//! it, until no set grows. Rounds are as many as cycles of the graph are nested, some five for sqlite.
//!
//! # Why
//! A walk from each function on its own took a tenth of a second for the 2,700 functions of sqlite.

/// Sets of the functions that functions reach, by number.
pub(crate) struct Closure {
    /// Words of a set.
    words: usize,
    /// The sets, one after the other.
    bits: Vec<u64>,
}

impl Closure {
    /// The closure of a graph, given the callees of each function.
    pub(crate) fn of(callees: &[Vec<u32>]) -> Closure {
        let words = callees.len().div_ceil(u64::BITS as usize);
        let mut closure = Closure {
            words,
            bits: vec![0; words * callees.len()],
        };
        for (number, callees) in callees.iter().enumerate() {
            for &callee in callees {
                let (word, bit) = place(callee as usize);
                closure.bits[number * words + word] |= bit;
            }
        }
        let order = callees_first(callees);
        let mut grows = true;
        while grows {
            grows = false;
            for &number in &order {
                for &callee in &callees[number] {
                    grows |= closure.merge(number, callee as usize);
                }
            }
        }
        closure
    }

    /// Adds what `callee` reaches to what `number` reaches; returns whether that is more.
    fn merge(&mut self, number: usize, callee: usize) -> bool {
        let mut grows = false;
        if number == callee {
            return grows;
        }
        for word in 0..self.words {
            let other = self.bits[callee * self.words + word];
            let own = &mut self.bits[number * self.words + word];
            grows |= other & !*own != 0;
            *own |= other;
        }
        grows
    }

    /// Whether a function reaches another one.
    pub(crate) fn reaches(&self, from: usize, other: usize) -> bool {
        let (word, bit) = place(other);
        self.bits[from * self.words + word] & bit != 0
    }

    /// The functions that one reaches, itself aside, in ascending order.
    pub(crate) fn reached(&self, from: usize) -> impl Iterator<Item = usize> {
        let words = &self.bits[from * self.words..(from + 1) * self.words];
        let numbers = words.iter().enumerate().flat_map(|(word, &bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(word * u64::BITS as usize + bit)
            })
        });
        numbers.filter(move |&number| number != from)
    }
}

/// The word and the bit of a number in a set.
fn place(number: usize) -> (usize, u64) {
    let bits = u64::BITS as usize;
    (number / bits, 1 << (number % bits))
}

/// All functions, each behind its callees but for those that lead back to it.
fn callees_first(callees: &[Vec<u32>]) -> Vec<usize> {
    let mut seen = vec![false; callees.len()];
    let mut order = Vec::with_capacity(callees.len());
    for root in 0..callees.len() {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        // The functions on the way, and how many of their callees were visited.
        let mut way = vec![(root, 0)];
        while let Some((number, next)) = way.last_mut() {
            let callee = callees[*number].get(*next).map(|&callee| callee as usize);
            *next += 1;
            match callee {
                Some(callee) if !std::mem::replace(&mut seen[callee], true) => {
                    way.push((callee, 0))
                }
                Some(_) => {}
                None => {
                    order.push(*number);
                    way.pop();
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Closure;

    /// A walk from one function.
    fn walked(callees: &[Vec<u32>], from: usize) -> BTreeSet<usize> {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(number) = left.pop() {
            let next = callees[number].iter().map(|&callee| callee as usize);
            left.extend(next.filter(|&callee| seen.insert(callee)));
        }
        seen
    }

    #[test]
    fn it_reaches_as_walks_do() {
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for size in [1, 2, 63, 64, 65, 200] {
            for edges in [0, size / 2, size, 3 * size] {
                let mut callees = vec![Vec::new(); size];
                for _ in 0..edges {
                    callees[random(size)].push(random(size) as u32);
                }
                let closure = Closure::of(&callees);
                for from in 0..size {
                    let expected = walked(&callees, from);
                    let mut without = expected.clone();
                    without.remove(&from);
                    assert!(closure.reached(from).eq(without), "{size} {edges} {from}");
                    for other in 0..size {
                        assert_eq!(closure.reaches(from, other), expected.contains(&other));
                    }
                }
            }
        }
        assert_eq!(Closure::of(&[]).words, 0);
    }
}
