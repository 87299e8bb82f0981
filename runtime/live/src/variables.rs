//! Chooses the meaning of each variable of a module in the program, and the functions reachable by it.
//!
//! Pure, like [`crate::choose`], of which it is the first half.
//!
//! # Rules
//! | a variable | becomes |
//! |---|---|
//! | with a symbol: of its size, if it is local | the definition there |
//! | private, and its bytes are those of one string of the program whose address the program mentions | the string there |
//! | private, and of several such strings, of which native code of its users mentions one | that string |
//! | private, and of several such strings | the module's own; if an address of it may be compared, users that keep one are refused |
//! | a thread-local of the executable, or of a library that the program began with | its distance from the thread pointer |
//! | defined by another file | the definition with its name |
//! | a constant without a symbol, of an object file that is known | the module's own: no code can tell |
//! | local, without a symbol, never written to | the module's own, and a constant: its first value is its value for ever |
//! | local, without a symbol, never read | the module's own: no code can tell |
//! | local, without a symbol, of which the program has the parts | these: see below |
//! | any other | refused: the program keeps its value elsewhere, or nowhere |
//!
//! Users of a refused variable are refused. So are users of a variable whose value the optimizer reads
//! and which leads to a refused one.
//!
//! # Parts
//! LLVM's `GlobalOpt` (`SRAGlobal`) replaces a local variable that is only accessed by plain loads and
//! stores at fixed places. It makes a variable of each accessed place, names them `NAME.0`, `NAME.1` and
//! so on in the order of their places, and removes `NAME`. The program's symbols do not give the place
//! of a part. It follows from the module's accesses. Let these be `K` places, none of which overlaps
//! another one, with the sizes `s(0)`, .., `s(K - 1)` in their order; and let the program have parts `0`
//! to `K - 1` of exactly these sizes.
//!
//! - Optimizers remove accesses, merge them and split them, but access no byte that the module does
//!   not. So all parts lie within the module's places. They overlap nowhere, and have as many bytes as
//!   the places have: together they are the same bytes, and no other part was ever made.
//! - Part `0` has the lowest of these bytes, so it begins where the first place does, and ends there,
//!   as it has its size. The same holds for the next part and what is left; and so on.
//!
//! A part of the right size may still hold another value, if it is a byte: the optimizer may have made a
//! flag of it, which tells which of two values is meant. Such a byte is not trusted, nor is such a
//! variable. Any other change of a part's value changes its name or its size.

use std::collections::{HashMap, HashSet};

use uruk::live::rebound::{
    FunctionInfo, Part, Survey, Uses, VariableAccess, VariableChoice, VariableInfo,
};

use crate::choose::{Known, Outcome, Reason, Text};
use crate::program::symbols::{Place, PlaceKind};

/// Reasons against users of variables.
#[derive(Default)]
pub(crate) struct Refused {
    /// Reasons why users of variables are refused, by the variables' numbers.
    pub(crate) reasons: HashMap<u32, Reason>,
    /// Strings with several copies, by the numbers of their variables: users that keep or compare an
    /// address of one are refused.
    pub(crate) texts: HashMap<u32, String>,
}

/// Largest alignment that is assumed for a part's address.
const LARGEST_ALIGN: u32 = 64;

/// Chooses for all variables of a module.
pub(crate) fn choose(survey: &Survey, known: &dyn Known, outcome: &mut Outcome) -> Refused {
    let names = Names::of(survey);
    let mut refused = Refused::default();
    for (number, info) in survey.variables.iter().enumerate() {
        let found = text(info).map(|bytes| string(survey, number as u32, bytes, known));
        let choice = variable(info, found, known, &names, outcome);
        let choice = choice.unwrap_or_else(|reason| {
            outcome.missing.push(info.name.clone());
            refused.reasons.insert(number as u32, reason);
            VariableChoice::Own
        });
        if let Some(bytes) = text(info).filter(|_| info.compared)
            && found == Some(Text::Several)
        {
            let shown = String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes));
            refused.texts.insert(number as u32, shown.into_owned());
        }
        outcome.choices.variables.push(choice);
    }
    hide(survey, &mut outcome.choices.variables, &refused);
    spread(survey, &outcome.choices.variables, &mut refused.reasons);
    refused
}

/// The functions of a module, with the functions reachable through values of the module's own variables:
/// the optimizer may read these values, and natively has.
pub(crate) fn users(survey: &Survey, choices: &[VariableChoice]) -> Vec<FunctionInfo> {
    let by_variable = behind(survey, choices);
    let extend = |info: &FunctionInfo| {
        let mut info = info.clone();
        let used = info.variables.iter();
        let more: HashSet<u32> = used
            .flat_map(|&it| &by_variable[it as usize])
            .copied()
            .collect();
        info.given.retain(|function| !more.contains(function));
        info.functions.extend(more);
        info.functions.sort_unstable();
        info.functions.dedup();
        info
    };
    survey.functions.iter().map(extend).collect()
}

/// The names of a module.
struct Names<'s>(HashSet<&'s str>);

impl Names<'_> {
    fn of(survey: &Survey) -> Names<'_> {
        let functions = survey.functions.iter().map(|info| &info.name);
        let variables = survey.variables.iter().map(|info| &info.name);
        let all = functions.chain(variables).chain(&survey.aliases);
        Names(all.map(String::as_str).collect())
    }
}

/// The bytes of a string without a name of its own.
pub(crate) fn text(info: &VariableInfo) -> Option<&[u8]> {
    let is_text = info.private && info.constant && info.unnamed && !info.of_compiler;
    info.bytes.as_deref().filter(|_| is_text)
}

/// Place of a string that functions of a module mention. Of several places the module's is the one that
/// native code of all these functions mentions, if it mentions any: an object file has each string once,
/// as far as the optimizer left it.
fn string(survey: &Survey, number: u32, bytes: &[u8], known: &dyn Known) -> Text {
    let found = known.string(bytes);
    if found != Text::Several {
        return found;
    }
    let users = survey.functions.iter();
    let users = users.filter(|it| it.defined && it.variables.contains(&number));
    let mut common: Option<Vec<u64>> = None;
    for user in users {
        let place = known.place(&user.name, user.local);
        let place = place.filter(|place| place.kind == PlaceKind::Function);
        let mentioned = place.map(|place| known.mentioned(place, bytes));
        let Some(mentioned) = mentioned.filter(|it| !it.is_empty()) else {
            continue;
        };
        common = Some(match common {
            None => mentioned,
            Some(mut common) => {
                common.retain(|place| mentioned.contains(place));
                common
            }
        });
    }
    match common.as_deref() {
        Some(&[place]) => Text::At(place),
        _ => Text::Several,
    }
}

/// Hides constants of the program from the optimizer if they have addresses of strings with several
/// copies: the program's are in its memory.
fn hide(survey: &Survey, choices: &mut [VariableChoice], refused: &Refused) {
    for (info, choice) in survey.variables.iter().zip(choices) {
        let several = info
            .variables
            .iter()
            .any(|it| refused.texts.contains_key(it));
        if let (true, VariableChoice::Named(name)) = (several, &*choice) {
            *choice = VariableChoice::Hidden(name.clone());
        }
    }
}

/// The meaning of a variable, or the reason why its users are refused.
fn variable(
    info: &VariableInfo,
    text: Option<Text>,
    known: &dyn Known,
    names: &Names<'_>,
    outcome: &mut Outcome,
) -> Result<VariableChoice, Reason> {
    // Labels belong to one version of their function.
    if info.of_compiler || info.labels {
        return Ok(VariableChoice::Own);
    }
    let name = known.name(&info.name, info.local);
    if info.private {
        return Ok(match text {
            Some(Text::At(address)) => {
                outcome.addresses.push((name.clone(), address));
                VariableChoice::Named(name)
            }
            _ => VariableChoice::Own,
        });
    }
    let found = known.place(&info.name, info.local);
    if info.thread_local {
        let place = found.filter(|place| place.kind == PlaceKind::ThreadLocal);
        let distance = place.and_then(|place| known.distance(place));
        return match distance {
            Some(distance) if !info.odd_thread_local => Ok(VariableChoice::ThreadLocal(distance)),
            _ => Err(Reason::ThreadLocal(info.name.clone())),
        };
    }
    // The optimizer's replacement of a variable may have its name, but not its size; a local byte may
    // have become a flag of the same size.
    let is_changed = |place: &Place| {
        info.defined && info.local && (place.size != info.size || (info.flag && info.size == 1))
    };
    let place = found.filter(|place| place.kind == PlaceKind::Data && !is_changed(place));
    match place {
        Some(place) => {
            outcome.addresses.push((name.clone(), place.address));
            Ok(VariableChoice::Named(name))
        }
        None if !info.defined => {
            let at = known.address(&info.name).filter(|_| !info.local);
            outcome.wanted.push((name.clone(), at));
            Ok(VariableChoice::Named(name))
        }
        // If the object file is unknown, so is whether it has the variable.
        None if info.constant && (!info.local || known.has_object()) => Ok(VariableChoice::Own),
        None => {
            let gone = info.local && found.is_none();
            let choice = gone.then(|| removed(info, known, names, outcome)).flatten();
            choice.ok_or_else(|| Reason::Variable(info.name.clone()))
        }
    }
}

/// The meaning of a local variable without a symbol that is no constant, if its uses decide it. An
/// exchanged file may use it in other ways: for that file it stays missing.
fn removed(
    info: &VariableInfo,
    known: &dyn Known,
    names: &Names<'_>,
    outcome: &mut Outcome,
) -> Option<VariableChoice> {
    let choice = match &info.uses {
        Uses::Any => return None,
        Uses::Read => VariableChoice::Constant,
        Uses::Written => VariableChoice::Own,
        Uses::Accessed(accesses) => {
            let places = parts(info, accesses, known, names)?;
            let name = |number| known.name(&part_name(&info.name, number), true);
            let part = |(number, (access, place)): (usize, (&VariableAccess, Place))| {
                outcome.addresses.push((name(number), place.address));
                Part {
                    offset: access.offset,
                    size: access.size,
                    align: 1 << place.address.trailing_zeros().min(LARGEST_ALIGN.ilog2()),
                    name: name(number),
                }
            };
            let parts = accesses.iter().zip(places).enumerate().map(part);
            VariableChoice::Parts(parts.collect())
        }
    };
    outcome.missing.push(info.name.clone());
    Some(choice)
}

fn part_name(name: &str, number: usize) -> String {
    format!("{name}.{number}")
}

/// Places of a variable's parts in the program, one for each access, if these are certainly its parts.
fn parts(
    info: &VariableInfo,
    accesses: &[VariableAccess],
    known: &dyn Known,
    names: &Names<'_>,
) -> Option<Vec<Place>> {
    let mut end = 0;
    for access in accesses {
        if access.offset < end || access.size == 0 || (access.flag && access.size == 1) {
            return None;
        }
        end = access.offset.checked_add(access.size)?;
    }
    let name = |number| part_name(&info.name, number);
    let next = known.place(&name(accesses.len()), true);
    let taken = (0..accesses.len()).any(|number| names.0.contains(name(number).as_str()));
    if end > info.size || next.is_some() || taken {
        return None;
    }
    let place = |(number, access): (usize, &VariableAccess)| {
        let place = known.place(&name(number), true)?;
        (place.kind == PlaceKind::Data && place.size == access.size).then_some(place)
    };
    accesses.iter().enumerate().map(place).collect()
}

/// Whether the optimizer reads a variable's initial value.
fn is_looked_at(info: &VariableInfo, choice: &VariableChoice) -> bool {
    !info.of_compiler
        && match choice {
            VariableChoice::Own | VariableChoice::Constant => true,
            VariableChoice::Named(_) => info.constant,
            _ => false,
        }
}

/// Refuses variables whose values lead to refused ones, until none are left.
fn spread(survey: &Survey, choices: &[VariableChoice], refused: &mut HashMap<u32, Reason>) {
    let mut again = true;
    while again {
        again = false;
        for (number, (info, choice)) in survey.variables.iter().zip(choices).enumerate() {
            let number = number as u32;
            if refused.contains_key(&number) || !is_looked_at(info, choice) {
                continue;
            }
            let reason = info.variables.iter().find_map(|it| refused.get(it));
            if let Some(reason) = reason.cloned() {
                refused.insert(number, reason);
                again = true;
            }
        }
    }
}

/// The functions that the value of each variable leads to, if it is the module's own.
fn behind(survey: &Survey, choices: &[VariableChoice]) -> Vec<Vec<u32>> {
    let is_own = |number: u32| {
        let number = number as usize;
        let own = matches!(
            choices[number],
            VariableChoice::Own | VariableChoice::Constant
        );
        own && !survey.variables[number].of_compiler
    };
    let found = |number| {
        let mut seen = HashSet::from([number]);
        let mut left = vec![number];
        let mut functions = Vec::new();
        while let Some(number) = left.pop() {
            if is_own(number) {
                let info = &survey.variables[number as usize];
                functions.extend(&info.functions);
                left.extend(info.variables.iter().filter(|&&it| seen.insert(it)));
            }
        }
        functions
    };
    (0..survey.variables.len() as u32).map(found).collect()
}
