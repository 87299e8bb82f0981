//! Functions that share their native code with others of another name.
//!
//! The linker (`--icf`) gives equal functions one address. LLVM (`-fmerge-functions`) keeps the body of
//! one of them, redirects direct calls of the other one to it, and leaves a jump in place of the other
//! one. Native code no longer shows which of them a call means: an exchange of one would affect calls of
//! the other, or miss its own.

use std::collections::HashMap;

use uruk::live::rebound::Survey;

use crate::choose::Known;
use crate::program::symbols::PlaceKind;
use crate::reach::Reach;

/// By function: the name of another function of the module with the same code.
pub(crate) fn merged(survey: &Survey, known: &dyn Known, reach: &Reach) -> Vec<Option<String>> {
    let places = survey.functions.iter().map(|info| {
        let place = known.place(&info.name, info.local);
        place.filter(|place| info.defined && place.kind == PlaceKind::Function)
    });
    let places: Vec<_> = places.collect();
    let mut by_entry: HashMap<u64, usize> = HashMap::new();
    let mut merged = vec![None; places.len()];
    let mut note = |one: usize, other: usize| {
        for (it, same) in [(one, other), (other, one)] {
            merged[it] = Some(survey.functions[same].name.clone());
        }
    };
    for (number, place) in places.iter().enumerate() {
        let Some(place) = place else { continue };
        match by_entry.get(&place.address) {
            Some(&other) => note(number, other),
            None => drop(by_entry.insert(place.address, number)),
        }
    }
    for (number, place) in places.iter().enumerate() {
        let target = place.and_then(|place| known.jump(place));
        let other = target.and_then(|target| by_entry.get(&target).copied());
        let Some(other) = other.filter(|&other| other != number) else {
            continue;
        };
        // A function that only calls the other one is natively a jump to it as well.
        let given = &survey.functions[number].functions;
        // By a weak alias of it, which is listed as a declaration.
        let is_alias = |&callee: &u32| {
            let callee = &survey.functions[callee as usize];
            let place = known.place(&callee.name, callee.local);
            !callee.defined && place.map(|place| place.address) == target
        };
        let is_given = given.contains(&(other as u32)) || given.iter().any(is_alias);
        if !reach.reaches(number, other) && !is_given {
            note(number, other);
        }
    }
    merged
}
