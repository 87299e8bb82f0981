//! Runs one compile: callees are scanned and simplified, the body is copied and given counters,
//! passes run on the copy, and it is emitted.

use rustc_hash::FxHashSet;
use uruk_base::Tier;
use uruk_base::parts::{self, Part};
use uruk_leaving::Reason;

use crate::candidates::Wanted;
use crate::compile::{Compile, Compiled, Counters, Dependence, DependenceKind};
use crate::context::OwnedModule;
use crate::continuation;
use crate::continuation::entrance::Entrance;
use crate::continuation::offer::{Heads, Inserted};
use crate::copying::{Contents, Copying, PlainLabels, Unit};
use crate::error::CodegenError;
use crate::facts;
use crate::handles::{FunctionRef, ValueRef, VariableRef};
use crate::jumps;
use crate::labels::{self, Labels};
use crate::mentions::Mentions;
use crate::plan::ModulePlan;
use crate::planning::Planning;
use crate::probe;
use crate::profile::Probes;
use crate::query::Measure;
use crate::reader::{Reader, Verify};
use crate::shape::{self, Shape};
use crate::source::Source;
use crate::stacks;
use crate::summary::{BODY_PREFIX, SymbolId};
use crate::values;
use crate::variant;

impl Reader {
    /// Compiles one function with the settings `how`.
    ///
    /// # Errors
    /// An unreadable or invalid body, a construct that cannot be extracted, an error reported by
    /// LLVM, or a cancellation, after which the reader is as good as before.
    pub fn compile(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<Compiled, CodegenError> {
        self.watched(how, |reader| {
            let (result, copied) = reader.try_compile(plan, function, how);
            match result {
                // The error may lie in a function that was copied along.
                Err(cause) if copied && !cause.is_cancelled() => {
                    let mut how = how.clone();
                    how.alone = true;
                    reader.try_compile(plan, function, &how).0
                }
                result => result,
            }
        })
    }

    /// The result, and whether callees were copied along.
    fn try_compile(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> (Result<Compiled, CodegenError>, bool) {
        let copies = how.tier > Tier::Baseline && !how.alone;
        if copies {
            let _optimizing = parts::enter(Part::Optimizing);
            facts::infer(self, plan, function, how);
            self.stock(plan, Wanted::CalleesOf(function), how);
            self.unpack(&how.offers);
        }
        let mut copied = copies;
        let result = self.proceed(&plan.import(function).name).and_then(|()| {
            let (unit, found) = self.copy(plan, function, how)?;
            copied &= !unit.contents.candidates.is_empty() || !unit.contents.kept.is_empty();
            self.finish(plan, function, how, unit, found)
        });
        (result, copied)
    }

    /// Copies one function with its planned callees, and inserts its counters.
    fn copy(
        &self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
    ) -> Result<(Unit, Found), CodegenError> {
        match self.copy_with(plan, function, how, true) {
            Err(CodegenError::NoContinuation {
                reason: Reason::Labels,
                ..
            }) => self.copy_with(plan, function, how, false),
            copied => copied,
        }
    }

    /// Like `copy`, in one attempt. With `plain`, labels that stay inside may be addresses of
    /// blocks in a continuation.
    fn copy_with(
        &self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
        plain: bool,
    ) -> Result<(Unit, Found), CodegenError> {
        let _copying = parts::enter(Part::Copying);
        let source = Source { reader: self, plan };
        let name = &*plan.import(function).name;
        let planned = Planning::new(source, how).function(function)?;
        let module = source.fresh(name);
        let callees = planned.callees;
        let mut copying = Copying::new(source, how, name, &module);
        let (labels, space) = self.choose_labels(&mut copying, function, planned.root, plain)?;
        let body = copying.function(planned)?;
        let shape = shape::measure(body);
        let countable = shape::is_countable(self, body);
        let counts = countable && how.counters == Counters::Entry && how.start.is_none();
        let entrance = self.entrance(&module, body, &shape, how, name)?;
        let mut inserted = Inserted::default();
        if countable && how.counters == Counters::Entry && (counts || entrance.is_some()) {
            inserted = self.open_loops(&module, body, &shape, how);
        }
        if counts {
            shape.count(self.context(), &module, body, &inserted.latches);
        }
        let probes = match how.counters {
            // SAFETY: the complete copy of a body that was verified, and found countable.
            Counters::Full if countable => unsafe { probe::insert(self.context(), &module, body) },
            _ => None,
        };
        copying.apply_profiles()?;
        copying.drop_dead_arguments();
        let mut contents = copying.finish()?;
        if how.tier > Tier::Baseline {
            contents.variant = how.variant;
            variant::apply(how, body, shape.measure.loops, &module, &contents);
        }
        let found = Found {
            measure: shape.measure,
            labels: match contents.foreign_labels {
                true => labels.max(Labels::Escape),
                false => labels,
            },
            counts,
            heads: inserted.heads,
            probes,
            callees,
        };
        debug_assert!(
            found.heads.counted.is_empty() || continuation::build::is_valid(body),
            "loops that are no valid IR"
        );
        let (context, kinds) = (self.context(), self.kinds());
        match (&how.start, entrance) {
            (_, Some(entrance)) => {
                entrance.replace(context, &module, kinds, body, &inserted.counting, name)
            }
            (Some(start), None) => {
                let shape = &shape;
                continuation::build::replace(
                    context, &module, kinds, body, shape, start, name, space,
                )
            }
            (None, None) => Ok(()),
        }
        .map_err(|reason| self.no_continuation(name, reason))?;
        jumps::complete(context, &module);
        Ok((Unit { module, contents }, found))
    }

    /// Finds where the continuation of another body's loop starts in a body, if one is requested.
    fn entrance<'m>(
        &self,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        shape: &Shape<'m>,
        how: &Compile,
        name: &str,
    ) -> Result<Option<Entrance<'m>>, CodegenError> {
        let Some((start, passed)) = how
            .start
            .as_ref()
            .and_then(|it| Some((it, it.passed.as_ref()?)))
        else {
            return Ok(None);
        };
        let found = Entrance::find(module, self.kinds(), body, shape, start, passed);
        found
            .map(Some)
            .map_err(|reason| self.no_continuation(name, reason))
    }

    fn no_continuation(&self, name: &str, reason: Reason) -> CodegenError {
        CodegenError::NoContinuation {
            module: self.name().to_owned(),
            unit: name.to_owned(),
            reason,
        }
    }

    /// Inserts OSR exits at the loops of a body of tier 1, if requested.
    fn open_loops<'m>(
        &self,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        shape: &Shape<'m>,
        how: &Compile,
    ) -> Inserted<'m> {
        match how.tier {
            Tier::Baseline if how.leaves => {
                continuation::offer::insert(self.context(), module, self.kinds(), body, shape)
            }
            Tier::Baseline => Inserted {
                latches: shape.latches().to_vec(),
                ..Inserted::default()
            },
            _ => Inserted::default(),
        }
    }

    /// Where the labels of a function, whose body was read, go; if they stay inside, the tables that
    /// it loads them from.
    fn labels<'r>(
        &self,
        id: SymbolId,
        function: FunctionRef<'r>,
    ) -> (Labels, FxHashSet<VariableRef<'r>>) {
        if function.has(self.kinds().presplit_coroutine) {
            // A coroutine's frame holds addresses of its parts.
            return (Labels::Fixed, FxHashSet::default());
        }
        if !labels::matter(function) {
            return (Labels::None, FxHashSet::default());
        }
        let is_own = |table: &VariableRef<'_>, mentions: &Mentions| {
            let table = self.table().id(**table);
            table.is_some_and(|it| mentions.is_only_in(it, id))
        };
        let inside = labels::tables(function).filter(|tables| {
            let mentions = self.bitcode().mentions();
            mentions.is_some_and(|mentions| {
                !mentions.is_exposed(id) && tables.iter().all(|it| is_own(it, mentions))
            })
        });
        match inside {
            Some(tables) => (Labels::Inside, tables.into_iter().collect()),
            None => (Labels::Escape, FxHashSet::default()),
        }
    }

    /// Decides how a copy of `root` represents the addresses of its labels. Returns where they go,
    /// and the label space if a continuation has them as addresses of its blocks.
    fn choose_labels<'r>(
        &self,
        copying: &mut Copying<'r>,
        function: SymbolId,
        root: FunctionRef<'r>,
        plain: bool,
    ) -> Result<(Labels, Option<ValueRef<'r>>), CodegenError> {
        let how = copying.how;
        let passed = how.start.as_ref().and_then(|it| it.passed.as_ref());
        if passed.is_some() && labels::matter(root) {
            // Another body has other numbers for them.
            return Err(self.no_continuation(copying.unit_name(), Reason::Labels));
        }
        let (labels, tables) = self.labels(function, root);
        let mut space = None;
        let starts = how.start.is_some();
        if labels == Labels::Inside && how.tier > Tier::Baseline && (plain || !starts) {
            if starts {
                space = Some(copying.label_space(root)?);
            }
            copying.plain_labels = PlainLabels::Of(root, tables);
        }
        Ok((labels, space))
    }

    /// Whether the addresses of a function's labels, or of its code, may be elsewhere, or are in
    /// variables.
    ///
    /// # Errors
    /// An unreadable body.
    pub(crate) fn keeps_labels(&self, function: SymbolId) -> Result<bool, CodegenError> {
        let root = self.function(function)?;
        self.materialize(root, Verify::No)?;
        let (labels, tables) = self.labels(function, root);
        Ok(labels >= Labels::Escape || tables.iter().any(|it| !it.is_constant()))
    }

    /// The number of blocks of a body.
    ///
    /// # Errors
    /// An unreadable body.
    pub(crate) fn blocks(&self, function: SymbolId) -> Result<usize, CodegenError> {
        let root = self.function(function)?;
        self.materialize(root, Verify::No)?;
        Ok(root.blocks().count())
    }

    /// Gives the function a second body for the usual values of its arguments, if it is to have
    /// one; how many of them.
    fn assume(&self, unit: &Unit, name: &str, how: &Compile) -> u32 {
        let Unit { module, contents } = unit;
        let body = module.function(&format!("{BODY_PREFIX}{name}"));
        match body {
            Some(body) if contents.variant.values && how.start.is_none() => {
                values::split(self.context(), module, self.kinds(), body, &how.values)
            }
            _ => 0,
        }
    }

    /// Runs the embedder's transform on a copied function, optimizes it, and emits it.
    fn finish(
        &mut self,
        plan: &ModulePlan,
        function: SymbolId,
        how: &Compile,
        mut unit: Unit,
        found: Found,
    ) -> Result<Compiled, CodegenError> {
        let name = &*plan.import(function).name;
        if let Some(transform) = &how.transform {
            self.transform(transform, &mut unit, name, how)?;
        }
        let Measure {
            instructions,
            loops,
            nested,
            calls,
        } = found.measure;
        let unit_instructions = instructions + unit.contents.candidate_instructions;
        self.context().gate().expect(unit_instructions);
        let assumed = self.assume(&unit, name, how);
        let keeps_stack = how.transform.is_none() && stacks::keeps_stack(&unit);
        let object = self.emit(&mut unit, name, how.tier, how.listing.as_deref())?;
        let contents = unit.contents;
        Ok(Compiled {
            object,
            instructions,
            unit_instructions,
            loops,
            nested,
            labels: found.labels,
            calls,
            callees: found.callees,
            assumed,
            keeps_stack,
            counts: found.counts,
            heads: found.heads,
            probes: found.probes,
            guided: contents.guided_functions,
            promoted: contents.promoted,
            depends: depends(&contents, function),
            refused: contents.refused,
            taken: contents.taken,
        })
    }
}

/// Properties of a function found while it is copied.
struct Found {
    measure: Measure,
    labels: Labels,
    counts: bool,
    heads: Heads,
    probes: Option<Probes>,
    callees: u32,
}

fn depends(contents: &Contents, function: SymbolId) -> Vec<Dependence> {
    let candidates = contents.candidates.iter().map(|(symbol, _)| *symbol);
    let bodies = candidates
        .chain(contents.inlined.iter().copied())
        .map(|symbol| Dependence {
            symbol,
            kind: DependenceKind::Body,
        });
    let facts = contents.facts.iter().map(|&symbol| Dependence {
        symbol,
        kind: DependenceKind::Fact,
    });
    let mut all: Vec<Dependence> = bodies
        .chain(facts)
        .filter(|dependence| dependence.symbol != function)
        .collect();
    all.sort_unstable();
    all.dedup_by_key(|dependence| dependence.symbol);
    all
}
