//! Which head of another body goes on with what lives across a head of this one.
//!
//! A function that is replaced while it loops has a frame that holds values of the old body. The
//! new body can go on with them at a head where all that it needs is there:
//!
//! | what the new head needs | is, at the old head |
//! |---|---|
//! | a parameter | the parameter of that place, of the same type, and of the same name if both have one |
//! | a value, or an `alloca`, with a name | the one of that name and type |
//! | one without a name | the one at the same place, of the same type, if both bodies do the same operations in the same order |
//!
//! The head itself is the one of the same name; where heads have no names, the one at the same
//! place in a body of the same operations, or else the only one of the same depth where all that
//! is needed is there. What the old head has besides is left where it is.
//!
//! That is what can be known of two bodies. That a name means in the new one what it meant in the
//! old is the promise of whoever asks for it.
//!
//! # Why
//! - Parameters go by their place, as callers pass them by it.
//! - Two without names are never taken for each other by type alone: which of two integers is the
//!   sum would be a guess. A changed constant leaves all operations as they are, which is the
//!   commonest change of all, and then places are as good as names.
//! - An unused value is no reason to stay: a body that needs less is as common as one that adds.

use std::fmt;

use crate::anatomy::Simple;
use crate::frame::Kind;

/// Something that lives across a head, as it can be told to another body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Living {
    /// Its place among the variables of its body.
    pub place: u32,
    /// What it is called, if anything: by the IR, or by what debuggers are told.
    pub name: Option<Box<str>>,
    /// Which parameter it is, if it is one.
    pub parameter: Option<u32>,
    /// How it crosses.
    pub kind: Kind,
    /// Its type, with all that it is made of; of an `alloca` what it holds, how often, and how it is
    /// aligned.
    pub ty: Box<str>,
    /// The same of what is passed as it is.
    pub simple: Option<Simple>,
}

/// A head, and what lives across it.
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
    /// What the function returns.
    pub result: Box<str>,
    /// What lives across it, in the order in which it is passed.
    pub living: Vec<Living>,
}

/// What is passed from one head to another body.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Passed {
    /// How.
    pub kind: Kind,
    /// Its type, if it is passed as it is.
    pub simple: Option<Simple>,
    /// What it becomes, by its place among the variables there; `None`: it is not needed.
    pub into: Option<u32>,
}

/// Why no head of another body goes on with what lives across a head.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// There is no loop that could be the same.
    NoHead,
    /// There are several, or a name means several things, and nothing tells them apart.
    Several,
    /// The functions return values of different types.
    Result,
    /// Something that is needed there does not live here.
    Missing {
        /// What it is called there.
        name: Box<str>,
        /// Its type there.
        ty: Box<str>,
    },
    /// Something that is needed there has another type here.
    Type {
        /// What it is called.
        name: Box<str>,
        /// Its type here.
        old: Box<str>,
        /// Its type there.
        new: Box<str>,
    },
    /// Something that is needed there has no name, and the bodies differ.
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

/// The place among `new` of the head that goes on with what lives across `old`, and what becomes
/// of each that is passed.
///
/// # Errors
/// Why there is none.
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

/// What of `old` becomes what of `new`.
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
            // By debuggers' names, which need not be unique.
            return Err(Mismatch::Several);
        }
    }
    Ok(all)
}

/// What of `old` is what is needed, by its place.
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

    /// `name:type`, or `:type` of what has no name, or `#n:type` of a parameter.
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

    /// A head: `name depth fingerprint`, and what lives across it.
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
        // What is not needed stays behind.
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
        // Names of debuggers are names.
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
