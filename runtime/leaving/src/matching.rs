//! Matches a head of one body with the head of another that can continue with its variables.
//!
//! A function that is replaced while it loops has a frame with values of the old body. The new body
//! can continue with them at a head where all variables that it needs exist:
//!
//! | needed by the new head | must be, at the old head |
//! |---|---|
//! | a parameter | the parameter of that place, of the same type, and of the same name if both have one |
//! | a value, or an `alloca`, with a name | the one of that name and type |
//! | one without a name | the one at the same place, of the same type, if both bodies have the same operations in the same order |
//!
//! The head itself is the one of the same name. Where heads have no names, it is the one at the
//! same place in a body of the same operations, or else the only one of the same depth with all
//! needed variables. Other variables of the old head are dropped.
//!
//! Two bodies tell no more than that. The caller promises that a name means the same in both.
//!
//! # Why
//! - Parameters match by index, as callers pass them by index.
//! - Two variables without names never match by type alone: which of two integers is the sum would
//!   be a guess. A changed constant, the commonest change, leaves all operations unchanged; then
//!   indexes are as good as names.
//! - Unused variables do not prevent a match: a body that needs less is as common as one that adds.

use std::fmt;

use crate::anatomy::Simple;
use crate::frame::Kind;

/// A description of a variable that lives across a head, comparable between bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Living {
    /// Its index among the variables of its body.
    pub place: u32,
    /// Its name, if it has one: from the IR, or from debug records.
    pub name: Option<Box<str>>,
    /// The index of the parameter, if it is one.
    pub parameter: Option<u32>,
    /// How it crosses.
    pub kind: Kind,
    /// Its type, fully spelled out; of an `alloca` the type, count and alignment of its contents.
    pub ty: Box<str>,
    /// The simple type of a variable that crosses as a scalar.
    pub simple: Option<Simple>,
}

/// A head, and the variables that live across it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The number of its block.
    pub block: u32,
    /// The name of its block.
    pub name: Option<Box<str>>,
    /// Loops around it.
    pub depth: u32,
    /// Equal for equal bodies, heads and variables; see [`crate::Crossing`].
    pub fingerprint: u64,
    /// The result type of the function.
    pub result: Box<str>,
    /// The variables that live across it, in the order in which they are passed.
    pub living: Vec<Living>,
}

/// A variable passed from one head to another body.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Passed {
    /// How it crosses.
    pub kind: Kind,
    /// Its type, if it crosses as a scalar.
    pub simple: Option<Simple>,
    /// The index of the new body's variable; `None` if it is not needed.
    pub into: Option<u32>,
}

/// The reason why no head of another body can continue from a head.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// No loop is a candidate.
    NoHead,
    /// Several loops match, or a name is ambiguous.
    Several,
    /// The functions return values of different types.
    Result,
    /// A needed variable does not live here.
    Missing {
        /// Its name there.
        name: Box<str>,
        /// Its type there.
        ty: Box<str>,
    },
    /// A needed variable has another type here.
    Type {
        /// Its name.
        name: Box<str>,
        /// Its type here.
        old: Box<str>,
        /// Its type there.
        new: Box<str>,
    },
    /// A needed variable has no name, and the bodies differ.
    Unnamed {
        /// Its type.
        ty: Box<str>,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::NoHead => write!(f, "the new body has no such loop"),
            Mismatch::Several => write!(f, "several loops or values could be meant"),
            Mismatch::Result => write!(f, "the new body returns another type"),
            Mismatch::Missing { name, ty } => {
                write!(f, "the new body needs `{name}` ({ty}), which is not there")
            }
            Mismatch::Type { name, old, new } => {
                write!(f, "`{name}` is {old} and the new body has {new}")
            }
            Mismatch::Unnamed { ty } => {
                write!(f, "the new body needs a value without a name ({ty})")
            }
        }
    }
}

/// Finds the head among `new`, by index, that can continue from `old`, and the target of each
/// passed variable.
///
/// # Errors
/// The reason why there is none.
pub fn matching(old: &Described, new: &[Described]) -> Result<(usize, Vec<Passed>), Mismatch> {
    let like = |it: &Described| it.depth == old.depth && it.name == old.name;
    let same = |it: &Described| old.name.is_none() && it.fingerprint == old.fingerprint;
    let mut candidates: Vec<usize> = (0..new.len()).filter(|&it| same(&new[it])).collect();
    if candidates.is_empty() {
        candidates.extend((0..new.len()).filter(|&it| like(&new[it])));
    }
    let mut found = None;
    let mut why = Mismatch::NoHead;
    for at in candidates {
        match pair(old, &new[at]) {
            Ok(_) if found.is_some() => return Err(Mismatch::Several),
            Ok(passed) => found = Some((at, passed)),
            Err(cause) => why = cause,
        }
    }
    found.ok_or(why)
}

/// Pairs the variables of `old` with those of `new`.
fn pair(old: &Described, new: &Described) -> Result<Vec<Passed>, Mismatch> {
    if old.result != new.result {
        return Err(Mismatch::Result);
    }
    let same = old.fingerprint == new.fingerprint;
    let passed = |it: &Living| Passed {
        kind: it.kind,
        simple: it.simple,
        into: None,
    };
    let mut all: Vec<Passed> = old.living.iter().map(passed).collect();
    for needed in &new.living {
        let at = find(&old.living, needed, same)?;
        let ours = &old.living[at];
        if ours.ty != needed.ty {
            return Err(Mismatch::Type {
                name: called(needed),
                old: ours.ty.clone(),
                new: needed.ty.clone(),
            });
        }
        if all[at].into.replace(needed.place).is_some() {
            // Names from debug records need not be unique.
            return Err(Mismatch::Several);
        }
    }
    Ok(all)
}

/// The index of the variable of `old` that is needed.
fn find(old: &[Living], needed: &Living, same: bool) -> Result<usize, Mismatch> {
    let missing = || Mismatch::Missing {
        name: called(needed),
        ty: needed.ty.clone(),
    };
    if needed.parameter.is_some() {
        let at = old.iter().position(|it| it.parameter == needed.parameter);
        let at = at.ok_or_else(missing)?;
        let differ = old[at].name.is_some() && needed.name.is_some() && old[at].name != needed.name;
        return if differ { Err(missing()) } else { Ok(at) };
    }
    let mut named = (0..old.len()).filter(|&at| {
        let it = &old[at];
        it.parameter.is_none() && it.name.is_some() && it.name == needed.name
    });
    match (named.next(), named.next()) {
        (Some(_), Some(_)) => Err(Mismatch::Several),
        (Some(at), None) => Ok(at),
        (None, _) if needed.name.is_some() => Err(missing()),
        (None, _) => {
            let there = |it: &Living| it.place == needed.place && it.name.is_none();
            let at = old.iter().position(there).filter(|_| same);
            at.ok_or_else(|| Mismatch::Unnamed {
                ty: needed.ty.clone(),
            })
        }
    }
}

fn called(it: &Living) -> Box<str> {
    match (&it.name, it.parameter) {
        (Some(name), _) => name.clone(),
        (None, Some(at)) => format!("parameter {}", at + 1).into(),
        (None, None) => "?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name:type`, or `:type` without a name, or `#n:type` of a parameter.
    fn living(text: &str) -> Vec<Living> {
        let one = |(place, it): (u32, &str)| {
            let (name, ty) = it.split_once(':').expect("name and type");
            let parameter = name.strip_prefix('#').map(|it| it.parse().expect("which"));
            Living {
                place,
                name: (parameter.is_none() && !name.is_empty()).then(|| name.into()),
                parameter,
                kind: Kind::Value,
                ty: ty.into(),
                simple: Simple::integer(64),
            }
        };
        (0..).zip(text.split_whitespace()).map(one).collect()
    }

    /// A head: `name depth fingerprint`, and the variables across it.
    fn head(head: &str, across: &str) -> Described {
        let parts: Vec<&str> = head.split(' ').collect();
        Described {
            block: 1,
            name: (parts[0] != "-").then(|| parts[0].into()),
            depth: parts[1].parse().expect("a depth"),
            fingerprint: parts[2].parse().expect("a number"),
            result: "i64".into(),
            living: living(across),
        }
    }

    fn check(old: &Described, new: &[Described], expected: Result<(usize, &str), &str>) {
        let found = matching(old, new).map(|(at, passed)| {
            let into = |it: &Passed| it.into.map_or("-".to_owned(), |it| it.to_string());
            (at, passed.iter().map(into).collect::<Vec<_>>().join(" "))
        });
        let found = found.map_err(|it| it.to_string());
        let found = found.as_ref().map(|(at, it)| (*at, it.as_str()));
        assert_eq!(found.map_err(String::as_str), expected, "{old:?} {new:?}");
    }

    #[test]
    fn names_and_types_say_what_goes_on() {
        let old = head("loop 0 1", "i:i64 sum:i64 #0:ptr");
        let new = [
            head("other 0 2", ""),
            head("loop 0 2", "#0:ptr sum:i64 i:i64"),
        ];
        check(&old, &new, Ok((1, "2 1 0")));
        // Variables that are not needed are dropped.
        check(&old, &[head("loop 0 2", "i:i64")], Ok((0, "0 - -")));
        let missing = Err("the new body needs `n` (i64), which is not there");
        check(&old, &[head("loop 0 2", "i:i64 n:i64")], missing);
        let other = Err("`i` is i64 and the new body has i32");
        check(&old, &[head("loop 0 2", "i:i32")], other);
        check(
            &old,
            &[head("loop 1 2", "i:i64")],
            Err("the new body has no such loop"),
        );
        let mut returns = head("loop 0 2", "i:i64");
        returns.result = "void".into();
        check(&old, &[returns], Err("the new body returns another type"));
    }

    #[test]
    fn without_names_only_a_body_of_the_same_operations_goes_on() {
        let old = head("- 0 1", ":i64 :i64 #0:ptr");
        check(&old, &[head("- 0 1", ":i64 :i64 #0:ptr")], Ok((0, "0 1 2")));
        let unnamed = Err("the new body needs a value without a name (i64)");
        check(&old, &[head("- 0 2", ":i64 :i64 #0:ptr")], unnamed);
        // Names from debug records count as names.
        let old = head("- 0 1", "i:i64");
        check(&old, &[head("- 0 2", "i:i64")], Ok((0, "0")));
        let twice = [head("- 0 2", "i:i64"), head("- 0 3", "i:i64")];
        check(&old, &twice, Err("several loops or values could be meant"));
        let inner = [head("- 0 2", "i:i64"), head("- 1 3", "i:i64")];
        check(&old, &inner, Ok((0, "0")));
    }

    #[test]
    fn what_has_one_name_twice_is_neither() {
        let old = head("loop 0 1", "i:i64 i:i64");
        let several = Err("several loops or values could be meant");
        check(&old, &[head("loop 0 2", "i:i64")], several);
        let old = head("loop 0 1", "i:i64");
        check(&old, &[head("loop 0 2", "i:i64 i:i64")], several);
    }
}
