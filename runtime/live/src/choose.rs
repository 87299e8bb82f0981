//! Chooses for each name of a module its meaning in the program: which bodies may be compiled again, and
//! to what they refer.
//!
//! Pure: the input is a survey of a module and the program's symbols, the output choices and a table of
//! functions.
//!
//! # Rules
//! A *variable* is the program's if a symbol gives its place. Else its uses decide, or it is refused:
//! the module `variables` has the rules.
//!
//! A *function* has a native version if a symbol gives its place, the linker left room in front of it,
//! and callers keep to its type. A local function whose address is not taken *natively* may have lost
//! arguments, or its result. The compiler records those that lost none
//! ([`locals`](crate::program::locals)); new code passes the arguments that native code passes, so that it
//! may call their native code. Without a record, none was lost if its code takes all arguments, all are
//! numbers, and native code of the file uses its result. This is checked for local functions that stay
//! local because their address is taken or they are never inlined. The owner of a weak function whose bodies may differ is
//! unknown. It is compiled with its callers only: they call the new body, and its samples count for them.
//!
//! | a function | is | reason |
//! |---|---|---|
//! | that uses a refused variable, or one whose value leads to it | refused | [`Reason::Variable`] |
//! | that can be suspended, or uses a thread-local whose place is not known | refused | [`Reason::Coroutine`], [`Reason::ThreadLocal`] |
//! | with assembly that may name symbols, or that asks the dynamic loader | refused | [`Reason::Assembly`], [`Reason::Asks`] |
//! | that calls a function defined nowhere | refused | [`Reason::Missing`] |
//! | that passes its address to hooks | refused | [`Reason::Instrumented`] |
//! | whose labels are data, and that has no native version | refused | [`Reason::Labels`] |
//! | that keeps the address of a string with several copies | refused | [`Reason::Text`] |
//! | of a library, replaced by another file's function, or that calls such a function | refused | [`Reason::Interposed`] |
//! | that may call many functions without native code | compiled only for an exchange | [`Reason::Needs`] |
//! | that calls a refused function which cannot be called natively | refused | [`Reason::Calls`] |
//! | that another file's symbol replaces | a copy | |
//! | without a symbol, or a local one that may have lost something | compiled, never adopted | |

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use uruk::InlinedCopy;
use uruk::live::rebound::{
    Choices, FunctionChoice, FunctionInfo, Keep, PlainResult, PlainType, Survey,
};

use crate::arguments::{Results, results};
use crate::merged::merged;
use crate::names::{NameList, Table};
use crate::program::symbols::{Place, PlaceKind};
use crate::reach::Reach;
pub use crate::reason::Reason;
use crate::refusals::Refusals;
use crate::variables;

/// Bytes used in front of an entry: an indirect jump, and its target address.
pub const ROOM: u64 = 14;

/// Bytes in front of an entry that programs are built with: the fewest that suffice, a number that keeps
/// entries aligned, and one that keeps code at the same place within cache lines as without.
pub const ROOMS: [u64; 3] = [ROOM, 16, 62];

/// Bytes at an entry that are a jump into the room while it is redirected.
pub const HOP: u64 = 2;

/// Functions without native code that a version may need compiled before it. SQLite's `sqlite3VdbeExec`
/// needs 660: 1.3 s, with those not known to be hot at tier 1. The loop then is as fast as natively. But
/// an iteration took 28 ms at first and 22 ms after 25 s, natively 18.8 ms, because of many small
/// functions that are inlined natively.
const MOST_NEEDED: usize = 128;

/// Prefix of the name of a function's native address.
pub const ADDRESS: &str = "uruk.at.";

/// The treatment of a function of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its native code is a version, and its entry can be redirected.
    Adopted {
        /// Its first instruction.
        entry: u64,
        /// All of its code.
        code: Range<u64>,
        /// Native code of functions that is redirected only together with this one.
        beside: Vec<InlinedCopy>,
    },
    /// It is compiled with its callers.
    WithCallers,
    /// It stays as it is.
    Refused(Reason),
}

/// A function of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its name in the session.
    pub name: String,
    /// Its treatment.
    pub fate: Fate,
    /// Why it stays native unless an exchange concerns it.
    pub rests: Option<Reason>,
    /// Natively the compiler saw all its calls and may have used the values of their arguments: only
    /// code that passes the same values may call its native code.
    pub narrow: bool,
    /// Code that is not compiled again may call its native code, which cannot be redirected.
    pub called: bool,
    /// Functions whose bodies may be in its native code.
    pub holds: NameList,
    /// Other functions whose bodies the optimizer saw, so that facts about them may be in its native
    /// code.
    pub relies: NameList,
    /// Another function with the same native code.
    pub merged: Option<String>,
}

/// The choices for a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For the module.
    pub choices: Choices,
    /// Its functions that have a body.
    pub functions: Vec<Chosen>,
    /// Names that must be addresses: their native places, where those are known.
    pub addresses: Vec<(String, u64)>,
    /// Names that other code must define, with their native address where the name itself does not give
    /// it.
    pub wanted: Vec<(String, Option<u64>)>,
    /// Variables that have no address, and that may be written to.
    pub missing: Vec<String>,
}

/// Place of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// Its address is not used natively.
    Nowhere,
    /// At this address.
    At(u64),
    /// At one of several places.
    Several,
}

/// Knowledge of the program.
pub trait Known {
    /// The name that a name of the module has in the session.
    fn name(&self, name: &str, local: bool) -> String;
    /// The native address of a name that other modules see, where its name in the session does not give
    /// it.
    fn address(&self, name: &str) -> Option<u64>;
    /// Whether another file of the process defines a name that other modules see.
    fn is_elsewhere(&self, name: &str) -> bool;
    /// The place of a name: of the module's object file first, if it is `local`.
    fn place(&self, name: &str, local: bool) -> Option<Place>;
    /// Offset of a thread-local of the program from the thread pointer.
    fn distance(&self, place: Place) -> Option<i64>;
    /// Place of a string's bytes in read-only data without a name.
    fn string(&self, bytes: &[u8]) -> Text;
    /// The places of a string that native code of a function mentions.
    fn mentioned(&self, place: Place, bytes: &[u8]) -> Vec<u64>;
    /// Whether the program's code or data mention an address.
    fn mentions(&self, address: u64) -> bool;
    /// Whether the compiler recorded of a local function that native calls are by its type.
    fn keeps_type(&self, name: &str) -> bool;
    /// Whether native code takes all of these arguments.
    fn takes(&self, place: Place, plain: PlainType) -> bool;
    /// The addresses that native code calls, and whose result it uses.
    fn uses_results(&self, place: Place) -> Vec<(u64, PlainResult)>;
    /// Whether the module's object file, and so its local names, are known.
    fn has_object(&self) -> bool;
    /// Whether native code may have a copy of a function of the module besides its own code and where it
    /// is inlined.
    fn may_be_copied(&self, name: &str) -> bool;
    /// The target of the jump that native code of a function consists of, if it is one.
    fn jump(&self, place: Place) -> Option<u64>;
    /// Native code of a function that the compiler put elsewhere, as it is hardly ever run.
    fn parts(&self, name: &str) -> Vec<Range<u64>>;
    /// Whether there is room in front of an entry.
    fn has_room(&self, entry: u64) -> bool;
    /// Whether code of that name exists: in the program, its libraries, or an earlier module.
    fn is_there(&self, name: &str) -> bool;
    /// Whether an earlier module has the body that is used.
    fn is_taken(&self, name: &str) -> bool;
}

/// Separates a local name and the number of its module. It differs from the session's own suffix of
/// local names, which the session strips from messages: the stripped name would be another function's.
pub(crate) const OF: &str = ".of.";

/// A name without the suffixes that make it unique.
pub(crate) fn stem(name: &str) -> &str {
    let name = name.split(".__uniq.").next().unwrap_or(name);
    name.rfind(OF).map_or(name, |at| &name[..at])
}

/// The name of a module's function or variable in the session: local names are made unique, others
/// stay.
pub fn session_name(name: &str, local: bool, module: usize) -> String {
    match local && !name.contains(".__uniq.") {
        true => format!("{name}{OF}{module}"),
        false => name.to_owned(),
    }
}

/// Chooses for a module.
pub fn choose(survey: &Survey, known: &dyn Known) -> Outcome {
    let mut outcome = Outcome::default();
    let refused_variables = variables::choose(survey, known, &mut outcome);
    let survey = &Survey {
        functions: variables::users(survey, &outcome.choices.variables),
        ..Survey::default()
    };
    let place = |info: &FunctionInfo| known.place(&info.name, info.local);
    let results = results(survey, |info| {
        place(info).map_or_else(Vec::new, |place| known.uses_results(place))
    });
    let natives = survey.functions.iter();
    let natives: Vec<_> = natives.map(|info| native(info, known, &results)).collect();
    let refusals = Refusals {
        survey,
        known,
        variables: &refused_variables,
    };
    let refused = refusals.all(&natives);
    let reach = Reach::of(survey, &natives, &refused, known);
    let names = survey.functions.iter();
    let names = names.map(|info| known.name(&info.name, info.local));
    let functions = FunctionChoices {
        known,
        names: Arc::new(Table::new(names.collect())),
        merged: merged(survey, known, &reach),
        reach,
        refused,
        natives,
    };
    for (number, info) in survey.functions.iter().enumerate() {
        functions.choose(number, info, &mut outcome);
    }
    give_samples(survey, known, &mut outcome);
    outcome
}

/// The input for the choice of each function.
struct FunctionChoices<'s> {
    known: &'s dyn Known,
    /// The names of all functions in the session.
    names: Arc<Table>,
    reach: Reach,
    /// The native code of each function, if it can be adopted.
    natives: Vec<Option<Place>>,
    /// Why each function is refused, if it is.
    refused: Vec<Option<Reason>>,
    /// The function that the linker merged each with.
    merged: Vec<Option<String>>,
}

impl FunctionChoices<'_> {
    /// Chooses the meaning of the function `number` and of its names.
    fn choose(&self, number: usize, info: &FunctionInfo, outcome: &mut Outcome) {
        let known = self.known;
        let name = self.names.names[number].clone();
        let (place, refused) = (self.natives[number], &self.refused[number]);
        let at = known.address(&info.name).filter(|_| !info.local);
        if let Some(place) = place {
            let address = format!("{ADDRESS}{name}");
            outcome
                .addresses
                .push((address, at.unwrap_or(place.address)));
        }
        let keep = keep(info, &name, known, refused.is_some());
        if keep != Keep::Body {
            outcome.wanted.push((name.clone(), at));
        }
        // Callers reach its native code; no other file knows a local name.
        if let (Some(_), Some(place), true) = (refused, place, info.local) {
            outcome.addresses.push((name.clone(), place.address));
        }
        outcome.choices.functions.push(FunctionChoice {
            address: place.map(|_| format!("{ADDRESS}{name}")),
            keep,
            name: name.clone(),
        });
        let counts = keep == Keep::Body || refused.is_some();
        if info.defined && counts {
            outcome.functions.push(self.chosen(number, info, name));
        }
    }

    /// The choice for a defined function of that name.
    fn chosen(&self, number: usize, info: &FunctionInfo, name: String) -> Chosen {
        let (known, place) = (self.known, self.natives[number]);
        let fate = match (&self.refused[number], place) {
            (Some(reason), _) => Fate::Refused(reason.clone()),
            (None, Some(place)) => Fate::Adopted {
                entry: place.address,
                code: place.address..place.address + place.size.max(1),
                beside: parts(known, &name, &info.name),
            },
            (None, None) => Fate::WithCallers,
        };
        let rests = match fate {
            Fate::Adopted { .. } => Some(self.reach.needed(number))
                .filter(|count| *count > MOST_NEEDED)
                .map(Reason::Needs),
            _ => None,
        };
        Chosen {
            name,
            fate,
            rests,
            narrow: place
                .is_some_and(|place| info.local && !info.aliased && !known.mentions(place.address)),
            called: place.is_none() && is_called(info, known),
            holds: NameList::new(&self.names, self.reach.holds(number)),
            relies: NameList::new(&self.names, self.reach.relies(number)),
            merged: self.merged[number].clone(),
        }
    }
}

/// The treatment of a function's body, of that name.
fn keep(info: &FunctionInfo, name: &str, known: &dyn Known, is_refused: bool) -> Keep {
    match is_refused {
        true if info.copy => Keep::Nothing,
        false if info.copy => Keep::Copy,
        _ if !info.defined => Keep::Nothing,
        true => Keep::Nothing,
        false if known.is_taken(name) || is_elsewhere(info, known) => match info.same {
            true => Keep::Copy,
            false => Keep::Nothing,
        },
        false => Keep::Body,
    }
}

/// Native code of a function that can be redirected, and that calls by its type reach.
fn native(info: &FunctionInfo, known: &dyn Known, results: &Results) -> Option<Place> {
    let place = known.place(&info.name, info.local)?;
    let gives =
        |result| result == PlainResult::Nothing || results.contains(&(place.address, result));
    // The bitcode may use its address where native code no longer has it.
    let takes = |plain: PlainType| known.takes(place, plain) && gives(plain.result);
    let takes_all = || info.plain.is_some_and(takes);
    let keeps_type = !info.local
        || info.aliased
        || known.keeps_type(&info.name)
        || (info.address_taken && (known.mentions(place.address) || takes_all()))
        || (info.never_inlined && takes_all());
    let fits = place.kind == PlaceKind::Function && keeps_type && known.has_room(place.address);
    fits.then_some(place)
}

/// Whether a function has native code that code of other files, or by a kept address, may call.
fn is_called(info: &FunctionInfo, known: &dyn Known) -> bool {
    let place = known.place(&info.name, info.local);
    let place = place.filter(|place| place.kind == PlaceKind::Function);
    let by_address = |place: Place| info.address_taken && known.mentions(place.address);
    place.is_some_and(|place| !info.local || info.aliased || by_address(place))
}

/// Whether a weak definition is replaced by a global one that is not weak, or any definition by another
/// file of the process.
fn is_elsewhere(info: &FunctionInfo, known: &dyn Known) -> bool {
    if !info.local && known.is_elsewhere(&info.name) {
        return true;
    }
    // Symbols do not tell which of several different bodies the linker took.
    if info.weak && !info.same && !info.local {
        return true;
    }
    let place = known.place(&info.name, info.local);
    info.weak && place.is_some_and(|place| !place.weak)
}

/// Parts of a function that lie elsewhere, with its `name` in the session.
fn parts(known: &dyn Known, name: &str, own_name: &str) -> Vec<InlinedCopy> {
    let parts = known.parts(own_name).into_iter();
    let named = |code| InlinedCopy {
        name: name.to_owned(),
        code,
    };
    parts.map(named).collect()
}

/// Assigns samples in functions that are compiled with their callers only to the nearest caller.
fn give_samples(survey: &Survey, known: &dyn Known, outcome: &mut Outcome) {
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); survey.functions.len()];
    for (number, info) in survey.functions.iter().enumerate() {
        for &callee in &info.functions {
            callers[callee as usize].push(number);
        }
    }
    let chosen: HashMap<String, usize> = outcome
        .functions
        .iter()
        .enumerate()
        .map(|(at, chosen)| (chosen.name.clone(), at))
        .collect();
    for (number, info) in survey.functions.iter().enumerate() {
        let name = known.name(&info.name, info.local);
        let inner = chosen
            .get(&name)
            .is_some_and(|&at| outcome.functions[at].fate == Fate::WithCallers);
        let Some(place) = known.place(&info.name, info.local).filter(|_| inner) else {
            continue;
        };
        let mut seen = HashSet::from([number]);
        let mut queue = VecDeque::from([(number, 0)]);
        let mut nearest = usize::MAX;
        while let Some((function, distance)) = queue.pop_front() {
            if distance > nearest {
                break;
            }
            let info = &survey.functions[function];
            let at = chosen.get(&known.name(&info.name, info.local));
            if let Some(Fate::Adopted { beside, .. }) =
                at.map(|&at| &mut outcome.functions[at].fate)
            {
                beside.push(InlinedCopy {
                    name: name.clone(),
                    code: place.address..place.address + place.size.max(1),
                });
                beside.extend(parts(known, &name, &info.name));
                nearest = distance;
                continue;
            }
            queue.extend(
                callers[function]
                    .iter()
                    .filter(|&&caller| seen.insert(caller))
                    .map(|&caller| (caller, distance + 1)),
            );
        }
    }
}
