//! Finds the functions of a module that the session may not compile, and why.

use uruk::live::rebound::{FunctionInfo, Survey};

use crate::choose::{Known, Reason};
use crate::program::symbols::Place;
use crate::variables::Refused;

/// Functions of the dynamic loader whose result depends on their caller.
const ASKING: [&str; 5] = ["dlsym", "dlvsym", "dlopen", "dlmopen", "dl_iterate_phdr"];

/// The input for refusals of functions.
pub(crate) struct Refusals<'s> {
    pub(crate) survey: &'s Survey,
    pub(crate) known: &'s dyn Known,
    pub(crate) variables: &'s Refused,
}

impl<'s> Refusals<'s> {
    /// Why each function is refused, if it is.
    pub(crate) fn all(&self, natives: &[Option<Place>]) -> Vec<Option<Reason>> {
        let functions = self.survey.functions.iter().zip(natives);
        let of = |(info, native): (&FunctionInfo, &Option<Place>)| match info.defined {
            true => self.of_defined(info, native.is_some()),
            // The variables that it reads are not those of the native code.
            false if info.copy => self
                .variable(info)
                .or_else(|| self.text(info).map(Reason::Text)),
            false => None,
        };
        let mut refused: Vec<Option<Reason>> = functions.map(of).collect();
        spread(self.survey, natives, &mut refused);
        refused
    }

    fn of_defined(&self, info: &FunctionInfo, is_native: bool) -> Option<Reason> {
        match info {
            _ if info.coroutine => Some(Reason::Coroutine),
            _ if info.instrumented => Some(Reason::Instrumented),
            _ if info.assembly => Some(Reason::Assembly),
            _ if info.labels && !is_native => Some(Reason::Labels),
            _ => (self.text(info).map(Reason::Text))
                .or_else(|| self.unknown(info).map(Reason::Variable))
                .or_else(|| self.missing(info).map(Reason::Missing))
                .or_else(|| self.asks(info).map(Reason::Asks))
                .or_else(|| self.interposed(info).map(Reason::Interposed))
                .or_else(|| self.variable(info)),
        }
    }

    fn callees(&self, info: &'s FunctionInfo) -> impl Iterator<Item = &'s FunctionInfo> {
        let callees = info.functions.iter();
        callees.map(|&callee| &self.survey.functions[callee as usize])
    }

    /// A callee that looks for its caller.
    fn asks(&self, info: &FunctionInfo) -> Option<String> {
        let mut names = self.callees(info).map(|callee| &callee.name);
        names.find(|name| ASKING.contains(&name.as_str())).cloned()
    }

    /// A callee that has no definition.
    fn missing(&self, info: &FunctionInfo) -> Option<String> {
        let is_missing = |info: &&FunctionInfo| {
            let found = info.defined || info.optional || (info.copy && info.always_inlined);
            !(found || self.known.is_there(&info.name))
        };
        let found = self.callees(info).find(is_missing);
        found.map(|info| info.name.clone())
    }

    /// The function or a callee, if another file's definition is used for its own.
    fn interposed(&self, info: &FunctionInfo) -> Option<String> {
        let is_interposed = |info: &&FunctionInfo| {
            let plain = info.defined && !info.local && !info.weak && !info.copy;
            plain && self.known.is_elsewhere(&info.name)
        };
        let mut all = std::iter::once(info).chain(self.callees(info));
        all.find(is_interposed).map(|info| info.name.clone())
    }

    /// A text that it keeps, whose address is compared.
    fn text(&self, info: &FunctionInfo) -> Option<String> {
        let mut kept = info.kept.iter();
        kept.find_map(|number| self.variables.texts.get(number))
            .cloned()
    }

    /// A callee with several addresses, of which the native one is not known.
    fn unknown(&self, info: &FunctionInfo) -> Option<String> {
        let is_local = |it: &&FunctionInfo| it.local && it.address_taken && it.defined;
        let found = self.callees(info).find(is_local);
        found
            .filter(|_| !self.known.has_object())
            .map(|it| it.name.clone())
    }

    /// Why one of its variables is refused.
    fn variable(&self, info: &FunctionInfo) -> Option<Reason> {
        let mut variables = info.variables.iter();
        variables
            .find_map(|number| self.variables.reasons.get(number))
            .cloned()
    }
}

/// Refuses callers of functions that cannot be called, until none are left.
fn spread(survey: &Survey, natives: &[Option<Place>], refused: &mut [Option<Reason>]) {
    let mut again = true;
    while again {
        again = false;
        for (number, info) in survey.functions.iter().enumerate() {
            if refused[number].is_some() || !info.defined {
                continue;
            }
            let lost = info.functions.iter().find(|&&callee| {
                refused[callee as usize].is_some() && natives[callee as usize].is_none()
            });
            if let Some(&callee) = lost {
                let name = survey.functions[callee as usize].name.clone();
                refused[number] = Some(Reason::Calls(name));
                again = true;
            }
        }
    }
}
