//! Infers facts bottom-up over the call graph, within a budget.
//!
//! From the callees of the function to be compiled the graph is walked depth first, so that
//! functions come after those they call. Functions in the store end the walk. When the budget is
//! used up, functions with unread callees are left for a later compile, which then gets further. If
//! that leaves nothing (a cycle larger than the budget), all bodies read are taken, and unread
//! callees permanently count as unknown.
//!
//! The bodies are copied into one module, and LLVM infers. `mem2reg` shows arguments where they are
//! used; then `function-attrs` runs over strongly connected components. No other pass runs: passes
//! that remove unused instructions would make facts hold for better versions only. `mem2reg`
//! removes reads and writes of local variables, and no operand of them.
//!
//! Cost: 1.4 to 10 us an instruction, measured as the difference of whole compiles on a
//! busy machine; a unit's own instruction costs 30 to 40.

use inkwell::llvm_sys::core::{
    LLVMCountParams, LLVMGetAttributeCountAtIndex, LLVMGetAttributesAtIndex,
    LLVMGetEnumAttributeAtIndex, LLVMGetEnumAttributeKind, LLVMGetEnumAttributeValue,
    LLVMGetFirstUse, LLVMGetParam, LLVMIsStringAttribute,
};
use inkwell::llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode};
use rustc_hash::{FxHashMap, FxHashSet};

use uruk_base::Tier;

use super::{Fact, FactStore, Summary, kinds};
use crate::compile::{Compile, Knowledge};
use crate::copy::UnitCopy;
use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef};
use crate::plan::ModulePlan;
use crate::planning::Planning;
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::{Kind, Placement, SymbolId};
use crate::unit::Unit;

const PASSES: &str = "inferattrs,function(mem2reg),cgscc(function-attrs)";

/// Instructions read for one compile: a multiple of the function's, within bounds.
const FACTOR: u32 = 4;
const LEAST: u32 = 1_000;
const MOST: u32 = 20_000;
/// Instructions beyond which a function gets no inference, nor do its callees for its sake.
const LARGE: u32 = 4_000;

/// One body in the walk.
struct Node<'r> {
    old: FunctionRef<'r>,
    callees: Vec<SymbolId>,
}

/// The part of the call graph that one inference covers.
#[derive(Default)]
struct Graph<'r> {
    /// Functions in the order of the walk: callees first, except in cycles.
    order: Vec<SymbolId>,
    nodes: FxHashMap<SymbolId, Node<'r>>,
    /// Functions not read, as the budget was spent.
    cut: FxHashSet<SymbolId>,
    used: u32,
}

/// Adds facts about the callees of `root`, and their callees, to the store, within the budget.
/// Errors leave the store as it is: the compile of the function at fault reports them.
pub(crate) fn infer(reader: &Reader, plan: &ModulePlan, root: SymbolId, how: &Compile) {
    let Knowledge::Inferred(store) = &how.facts else {
        return;
    };
    let generation = store.generation();
    let mut how_facts = Compile::at(Tier::Optimized).contracting(how.contract);
    how_facts.facts = Knowledge::Known(store.clone());
    let source = Source { reader, plan };
    let mut planning = Planning::new(source, &how_facts);
    let Ok(old) = reader.function(root) else {
        return;
    };
    if planning.read_bodies(old).is_err() {
        return;
    }
    let (instructions, callees) = survey(source, old);
    let mut walk = CallGraphWalk {
        planning,
        budget: instructions.saturating_mul(FACTOR).clamp(LEAST, MOST),
        store,
        graph: Graph::default(),
    };
    for callee in callees {
        walk.from(callee);
    }
    let graph = walk.graph;
    let chosen = graph.complete();
    if chosen.is_empty() {
        return;
    }
    let found = infer_chosen(source, &how_facts, &graph, &chosen).unwrap_or_else(|_| {
        // Not tried again.
        let nothing = |&id: &SymbolId| (id, Summary::default());
        chosen.iter().map(nothing).collect()
    });
    if reader.is_cancelled() {
        return;
    }
    // LLVM's messages about these bodies are no errors of the function to be compiled.
    reader.context().take_errors();
    store.keep(generation, graph.used, found);
}

impl Graph<'_> {
    /// Functions of which all callees are known or in sight; all functions, if there is none.
    fn complete(&self) -> Vec<SymbolId> {
        let mut lacking = self.cut.clone();
        loop {
            let before = lacking.len();
            for id in &self.order {
                let mut callees = self.nodes[id].callees.iter();
                if callees.any(|callee| lacking.contains(callee)) {
                    lacking.insert(*id);
                }
            }
            if lacking.len() == before {
                break;
            }
        }
        let complete = self.order.iter().filter(|id| !lacking.contains(id));
        let complete: Vec<SymbolId> = complete.copied().collect();
        match complete.is_empty() {
            true => self.order.clone(),
            false => complete,
        }
    }
}

/// A walk over the call graph that reads bodies within a budget.
struct CallGraphWalk<'w, 'r> {
    planning: Planning<'r>,
    budget: u32,
    store: &'w FactStore,
    graph: Graph<'r>,
}

impl CallGraphWalk<'_, '_> {
    /// Reads the bodies that `start` reaches, depth first.
    fn from(&mut self, start: SymbolId) {
        let mut path = Vec::new();
        path.extend(self.enter(start));
        while let Some((id, next)) = path.last_mut() {
            let callee = self.graph.nodes[id].callees.get(*next).copied();
            *next += 1;
            match callee {
                Some(callee) => path.extend(self.enter(callee)),
                None => {
                    self.graph.order.push(*id);
                    path.pop();
                }
            }
        }
    }

    /// Reads a body to analyse, if there is budget for it.
    fn enter(&mut self, id: SymbolId) -> Option<(SymbolId, usize)> {
        let (source, graph) = (self.planning.source, &mut self.graph);
        if graph.nodes.contains_key(&id)
            || graph.cut.contains(&id)
            || !has_exact_body(source, id)
            || self.store.is_known(id)
        {
            return None;
        }
        if graph.used >= self.budget {
            graph.cut.insert(id);
            return None;
        }
        let old = source.reader.table().function(id)?;
        self.planning.read_bodies(old).ok()?;
        let (instructions, callees) = survey(source, old);
        graph.used = graph.used.saturating_add(instructions.min(LARGE));
        if instructions > LARGE {
            return None;
        }
        graph.nodes.insert(id, Node { old, callees });
        Some((id, 0))
    }
}

/// True if calls of `id` reach the body that this module has, and LLVM may infer
/// from it.
fn has_exact_body(source: Source<'_>, id: SymbolId) -> bool {
    let info = source.info(id);
    let kinds = source.reader.kinds();
    let is_plain = |old: FunctionRef<'_>| {
        !old.has(kinds.naked) && !old.has(kinds.returns_twice) && !old.has(kinds.presplit_coroutine)
    };
    info.kind == Kind::Function
        && info.placement == Placement::Own
        && source.plan.import(id).defined
        && source.reader.table().function(id).is_some_and(is_plain)
}

/// Counts instructions of a body that was read, and lists the functions it calls by name, each
/// once. Aliases are followed. Copies of `alwaysinline` bodies that are not bound are counted
/// too, with their callees.
fn survey<'r>(source: Source<'r>, function: FunctionRef<'r>) -> (u32, Vec<SymbolId>) {
    let mut instructions = 0u32;
    let mut callees = Vec::new();
    let mut bodies = vec![function];
    let mut seen = FxHashSet::default();
    while let Some(body) = bodies.pop() {
        if !seen.insert(body) {
            continue;
        }
        for instruction in body.instructions() {
            instructions = instructions.saturating_add(1);
            let opcode = instruction.opcode();
            if opcode == LLVMOpcode::LLVMIndirectBr || opcode == LLVMOpcode::LLVMCallBr {
                instructions = instructions.saturating_add(LARGE);
            }
            if let Some(callee) = instruction.callee() {
                bodies.extend(note_callee(source, callee, &mut callees));
            }
        }
    }
    (instructions, callees)
}

/// Notes the function that a call names; returns its body if the call copies it along.
fn note_callee<'r>(
    source: Source<'r>,
    callee: ValueRef<'r>,
    callees: &mut Vec<SymbolId>,
) -> Option<FunctionRef<'r>> {
    let (named, id) = (source.id(callee)?, source.resolve(callee)?);
    for id in [named, id] {
        if source.plan.import(id).defined && !callees.contains(&id) {
            callees.push(id);
        }
    }
    let comes_along = source.info(id).always_inline && !source.plan.import(id).defined;
    let target = source.reader.table().function(id).filter(|_| comes_along)?;
    if target.is_declaration() {
        return None;
    }
    callees.push(id);
    Some(target)
}

/// Copies the chosen bodies, runs LLVM's inference, and reads the results.
fn infer_chosen(
    source: Source<'_>,
    how: &Compile,
    graph: &Graph<'_>,
    chosen: &[SymbolId],
) -> Result<Vec<(SymbolId, Summary)>, CodegenError> {
    let module = source.fresh("facts");
    let mut copy = UnitCopy::new(source, how, "facts", &module);
    let functions = chosen.iter().map(|id| {
        let name = &*source.plan.import(*id).name;
        (graph.nodes[id].old, name)
    });
    copy.for_analysis(&functions.collect::<Vec<_>>())?;
    let contents = copy.finish()?;
    let mut unit = Unit { module, contents };
    source.reader.run_passes(&mut unit, PASSES)?;
    let summarize = |id: &SymbolId| {
        // These passes remove no function.
        let new = unit.module.function(&source.plan.import(*id).name);
        let summary = new.map_or_else(Summary::default, |new| summarize(&graph.nodes[id], new));
        (*id, summary)
    };
    Ok(chosen.iter().map(summarize).collect())
}

/// The attributes of `new` that its original lacks.
fn summarize(node: &Node<'_>, new: FunctionRef<'_>) -> Summary {
    let (old, new) = (node.old.raw(), new.raw());
    let kinds = kinds();
    let mut summary = Summary {
        rests_on: node.callees.clone(),
        ..Summary::default()
    };
    let mut buffer = Vec::new();
    // SAFETY: live functions of one type; the buffer has room for the count, and kinds
    // and values are asked of attributes that have them.
    unsafe {
        let parameters = LLVMCountParams(new);
        for place in std::iter::once(LLVMAttributeFunctionIndex).chain(0..=parameters) {
            let count = LLVMGetAttributeCountAtIndex(new, place) as usize;
            buffer.clear();
            buffer.resize(count, std::ptr::null_mut());
            if count != 0 {
                LLVMGetAttributesAtIndex(new, place, buffer.as_mut_ptr());
            }
            for &attribute in &buffer {
                if LLVMIsStringAttribute(attribute) != 0 {
                    continue;
                }
                let kind = LLVMGetEnumAttributeKind(attribute);
                if kinds.inferred.contains(&kind)
                    && LLVMGetEnumAttributeAtIndex(old, place, kind) != attribute
                {
                    let value = LLVMGetEnumAttributeValue(attribute);
                    summary.facts.push(Fact { place, kind, value });
                }
            }
        }
        for parameter in 0..parameters {
            let has =
                |&kind: &u32| !LLVMGetEnumAttributeAtIndex(new, parameter + 1, kind).is_null();
            if LLVMGetFirstUse(LLVMGetParam(new, parameter)).is_null()
                && !kinds.used_by_calls.iter().any(has)
            {
                summary.dead.push(parameter);
            }
        }
    }
    summary
}
