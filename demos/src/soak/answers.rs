//! Answers of `demos/live/soaked/server.c`, taken apart.

/// The results of each version of `single.c`.
fn weighted(version: u32, number: u64) -> u64 {
    let version = u64::from(version);
    let weights = [version + 1, 3, 5, 7, 11, 13, 17, version + 19];
    (0..200_u64)
        .zip(weights.into_iter().cycle())
        .fold(version, |sum, (at, weight)| {
            sum.wrapping_add((number ^ at).wrapping_mul(weight))
        })
}

/// The results of `inner` of each version of `pair.c`.
fn inner(version: u32, number: u64) -> u64 {
    let version = u64::from(version);
    (0..100).fold(version, |sum: u64, at| {
        sum.wrapping_add(number.wrapping_add(at).wrapping_mul(at + version % 7 + 1))
    })
}

/// The results of `outer`.
fn outer(version: u32, number: u64) -> u64 {
    let version = u64::from(version);
    (0..100).fold(version, |sum: u64, at| {
        sum.wrapping_add((number ^ at).wrapping_mul(at % 5 + version))
    })
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// By this version.
    By(u32),
    /// Right numbers of these versions.
    Mixed(Vec<u32>),
    /// Wrong numbers, or none.
    Wrong,
}

/// Versions and values of an answer, each checked.
fn parsed(numbers: &[(&str, Option<&str>)], value: &[fn(u32, u64) -> u64], of: u64) -> Parsed {
    let mut versions: Vec<u32> = Vec::new();
    for ((version, said), value) in numbers.iter().zip(value) {
        let Ok(version) = version.parse() else {
            return Parsed::Wrong;
        };
        if said.is_some_and(|said| said != value(version, of).to_string()) {
            return Parsed::Wrong;
        }
        versions.push(version);
    }
    match versions.as_slice() {
        [first, rest @ ..] if rest.iter().all(|it| it == first) => Parsed::By(*first),
        _ => Parsed::Mixed(versions),
    }
}

/// The answer to `single NUMBER`.
pub fn single(words: &[&str], number: u64) -> Parsed {
    match words {
        ["single", version, again, value] => {
            let numbers = [(*version, Some(*value)), (*again, None)];
            parsed(&numbers, &[weighted, weighted], number)
        }
        _ => Parsed::Wrong,
    }
}

/// The answer to `pair NUMBER`.
pub fn pair(words: &[&str], number: u64) -> Parsed {
    match words {
        ["pair", first, a, second, b, third, c] => {
            let numbers = [(*first, Some(*a)), (*second, Some(*b)), (*third, Some(*c))];
            parsed(&numbers, &[outer, inner, inner], number)
        }
        _ => Parsed::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::{Parsed, inner, outer, pair, single, weighted};

    fn words(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    #[test]
    fn an_answer_is_by_one_version_mixed_or_wrong() {
        let value = weighted(3, 9);
        let text = format!("single 3 3 {value}");
        assert_eq!(single(&words(&text), 9), Parsed::By(3));
        assert_eq!(single(&words(&text), 8), Parsed::Wrong);
        let text = format!("single 3 4 {value}");
        assert_eq!(single(&words(&text), 9), Parsed::Mixed(vec![3, 4]));
        let (a, b, c) = (outer(2, 5), inner(2, 5), inner(1, 5));
        let text = format!("pair 2 {a} 2 {b} 1 {c}");
        assert_eq!(pair(&words(&text), 5), Parsed::Mixed(vec![2, 2, 1]));
        let text = format!("pair 2 {a} 2 {b} 2 {c}");
        assert_eq!(pair(&words(&text), 5), Parsed::Wrong);
        assert_eq!(pair(&words("error child 11"), 5), Parsed::Wrong);
    }
}
