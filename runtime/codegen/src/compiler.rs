//! Runs one compile: callees are scanned and simplified, the body is copied and given counters,
//! passes run on the copy, and it is emitted.

use uruk_base::Tier;
use uruk_base::parts::{self, Part};
use uruk_leaving::{Heads, Reason};

use crate::candidates::Wanted;
use crate::compile::{Compile, Compiled, Counters};
use crate::context::OwnedModule;
use crate::continuation;
use crate::continuation::entrance::Entrance;
use crate::continuation::offer::InsertedExits;
use crate::copy::UnitCopy;
use crate::copying::PlainLabels;
use crate::dependence::{Dependence, DependenceKind};
use crate::emission;
use crate::error::CodegenError;
use crate::facts::infer::infer;
use crate::handles::{FunctionRef, ValueRef};
use crate::jumps;
use crate::labels::{self, Labels, places};
use crate::library::stock::stock;
use crate::plan::ModulePlan;
use crate::planning::Planning;
use crate::probe;
use crate::profile::Probes;
use crate::reader::Reader;
use crate::shape::{self, BodyShape, Measure};
use crate::source::Source;
use crate::stacks;
use crate::summary::{BODY_PREFIX, SymbolId};
use crate::unit::{Unit, UnitContents};
use crate::values;
use crate::variant;
use crate::verifying;

/// Compiles one function.
pub(crate) fn compile(
    reader: &mut Reader,
    plan: &ModulePlan,
    function: SymbolId,
    how: &Compile,
) -> Result<Compiled, CodegenError> {
    reader.watched(how, |reader| {
        let mut compiler = Compiler {
            reader,
            plan,
            function,
            how,
            name: &plan.import(function).name,
        };
        let (result, copied) = compiler.run();
        match result {
            // The error may lie in a function that was copied along.
            Err(cause) if copied && !cause.is_cancelled() => {
                let mut how = how.clone();
                how.alone = true;
                let mut alone = Compiler {
                    how: &how,
                    ..compiler
                };
                alone.run().0
            }
            result => result,
        }
    })
}

/// One compile of a function.
struct Compiler<'c> {
    reader: &'c mut Reader,
    plan: &'c ModulePlan,
    function: SymbolId,
    how: &'c Compile,
    /// The link name of the function.
    name: &'c str,
}

/// Counters and OSR exits in a copied body.
struct CopiedCounters<'m> {
    /// True if it counts its entries.
    counts: bool,
    inserted: InsertedExits<'m>,
    probes: Option<Probes>,
}

/// Properties of a function found while it is copied.
struct CopiedFunction {
    measure: Measure,
    labels: Labels,
    counts: bool,
    heads: Heads,
    probes: Option<Probes>,
    callees: u32,
}

impl Compiler<'_> {
    /// The result, and whether callees were copied along.
    fn run(&mut self) -> (Result<Compiled, CodegenError>, bool) {
        let how = self.how;
        let copies = how.tier > Tier::Baseline && !how.alone;
        if copies {
            let _optimizing = parts::enter(Part::Optimizing);
            infer(self.reader, self.plan, self.function, how);
            let wanted = Wanted::CalleesOf(self.function);
            stock(self.reader, self.plan, wanted, how);
            self.reader.unpack(&how.offers);
        }
        let mut copied = copies;
        let result = self.reader.proceed(self.name).and_then(|()| {
            let (unit, found) = self.copy()?;
            copied &= !unit.contents.candidates.is_empty() || !unit.contents.kept.is_empty();
            self.finish(unit, found)
        });
        (result, copied)
    }

    /// Copies the function with its planned callees, and inserts its counters.
    fn copy(&self) -> Result<(Unit, CopiedFunction), CodegenError> {
        match self.copy_with(true) {
            Err(CodegenError::NoContinuation {
                reason: Reason::Labels,
                ..
            }) => self.copy_with(false),
            copied => copied,
        }
    }

    /// Like `copy`, in one attempt. With `plain`, labels that stay inside may be addresses of
    /// blocks in a continuation.
    fn copy_with(&self, plain: bool) -> Result<(Unit, CopiedFunction), CodegenError> {
        let _copying = parts::enter(Part::Copying);
        let (how, name) = (self.how, self.name);
        let source = Source {
            reader: self.reader,
            plan: self.plan,
        };
        let planned = Planning::new(source, how).function(self.function)?;
        let module = source.fresh(name);
        let callees = planned.callees;
        let mut copy = UnitCopy::new(source, how, name, &module);
        let (labels, space) = self.choose_labels(&mut copy, planned.root, plain)?;
        let body = copy.function(planned)?;
        let shape = shape::measure(body);
        let entrance = self.entrance(&module, body, &shape)?;
        let counting = self.count(&module, body, &shape, entrance.is_some());
        copy.apply_profiles()?;
        copy.drop_dead_arguments();
        let mut contents = copy.finish()?;
        if how.tier > Tier::Baseline {
            contents.variant = how.variant;
            variant::apply(how, body, shape.measure.loops, &module, &contents);
        }
        self.replace(&module, body, &shape, entrance, &counting.inserted, space)
            .map_err(|reason| self.no_continuation(reason))?;
        let found = CopiedFunction {
            measure: shape.measure,
            labels: match contents.foreign_labels {
                true => labels.max(Labels::Escape),
                false => labels,
            },
            counts: counting.counts,
            heads: counting.inserted.heads,
            probes: counting.probes,
            callees,
        };
        jumps::complete(self.reader.context(), &module);
        Ok((Unit { module, contents }, found))
    }

    /// Inserts the requested counters into a body, and OSR exits at its loops; `entered` tells
    /// whether a continuation of another body's loop starts in it.
    fn count<'m>(
        &self,
        module: &'m OwnedModule,
        body: FunctionRef<'m>,
        shape: &BodyShape<'m>,
        entered: bool,
    ) -> CopiedCounters<'m> {
        let (how, context) = (self.how, self.reader.context());
        let countable = shape::is_countable(self.reader.kinds(), body);
        let by_entry = countable && how.counters == Counters::Entry;
        let counts = by_entry && how.start.is_none();
        let inserted = match counts || (by_entry && entered) {
            true => self.open_loops(module, body, shape),
            false => InsertedExits::default(),
        };
        if counts {
            shape.count(context, module, body, &inserted.latches);
        }
        let probes = match how.counters {
            // SAFETY: the complete copy of a body that was verified, and found countable.
            Counters::Full if countable => unsafe { probe::insert(context, module, body) },
            _ => None,
        };
        CopiedCounters {
            counts,
            inserted,
            probes,
        }
    }

    /// Replaces a complete body with the requested continuation, if any.
    fn replace<'m>(
        &self,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        shape: &BodyShape<'m>,
        entrance: Option<Entrance<'m>>,
        inserted: &InsertedExits<'m>,
        space: Option<ValueRef<'m>>,
    ) -> Result<(), Reason> {
        debug_assert!(
            inserted.heads.counted.is_empty() || verifying::is_valid(body),
            "loops that are no valid IR"
        );
        let (context, kinds, name) = (self.reader.context(), self.reader.kinds(), self.name);
        match (&self.how.start, entrance) {
            (_, Some(entrance)) => {
                entrance.replace(context, module, kinds, body, &inserted.counting, name)
            }
            (Some(start), None) => continuation::build::replace(
                context, module, kinds, body, shape, start, name, space,
            ),
            (None, None) => Ok(()),
        }
    }

    /// Finds where the continuation of another body's loop starts in a body, if one is requested.
    fn entrance<'m>(
        &self,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        shape: &BodyShape<'m>,
    ) -> Result<Option<Entrance<'m>>, CodegenError> {
        let start = self.how.start.as_ref();
        let Some((start, passed)) = start.and_then(|it| Some((it, it.passed.as_ref()?))) else {
            return Ok(None);
        };
        let found = Entrance::find(module, self.reader.kinds(), body, shape, start, passed);
        found
            .map(Some)
            .map_err(|reason| self.no_continuation(reason))
    }

    fn no_continuation(&self, reason: Reason) -> CodegenError {
        CodegenError::NoContinuation {
            module: self.reader.name().to_owned(),
            unit: self.name.to_owned(),
            reason,
        }
    }

    /// Inserts OSR exits at the loops of a body of tier 1, if requested.
    fn open_loops<'m>(
        &self,
        module: &OwnedModule,
        body: FunctionRef<'m>,
        shape: &BodyShape<'m>,
    ) -> InsertedExits<'m> {
        let (context, kinds) = (self.reader.context(), self.reader.kinds());
        match self.how.tier {
            Tier::Baseline if self.how.leaves => {
                continuation::offer::insert(context, module, kinds, body, shape)
            }
            Tier::Baseline => InsertedExits {
                latches: shape.latches().to_vec(),
                ..InsertedExits::default()
            },
            _ => InsertedExits::default(),
        }
    }

    /// Decides how a copy of `root` represents the addresses of its labels. Returns where they go,
    /// and the label space if a continuation has them as addresses of its blocks.
    fn choose_labels<'r>(
        &self,
        copy: &mut UnitCopy<'r>,
        root: FunctionRef<'r>,
        plain: bool,
    ) -> Result<(Labels, Option<ValueRef<'r>>), CodegenError> {
        let how = self.how;
        let passed = how.start.as_ref().and_then(|it| it.passed.as_ref());
        if passed.is_some() && labels::matter(root) {
            // Another body has other numbers for them.
            return Err(self.no_continuation(Reason::Labels));
        }
        let (labels, tables) = places::of(self.reader, self.function, root);
        let mut space = None;
        let starts = how.start.is_some();
        if labels == Labels::Inside && how.tier > Tier::Baseline && (plain || !starts) {
            if starts {
                space = Some(copy.label_space(root)?);
            }
            copy.set_plain_labels(PlainLabels::Of(root, tables));
        }
        Ok((labels, space))
    }

    /// Gives the function a second body for the usual values of its arguments, if it is to have
    /// one; how many of them.
    fn assume(&self, unit: &Unit, measure: &Measure) -> u32 {
        let Unit { module, contents } = unit;
        // Debuggers find the arguments of a function only in its first body.
        let guided = self.how.tier == Tier::Guided && !self.how.variables;
        let wanted = contents.variant.values
            || guided && values::pay(&self.how.values, measure.instructions, measure.loops);
        let body = module.function(&format!("{BODY_PREFIX}{}", self.name));
        match body {
            Some(body) if wanted && self.how.start.is_none() => {
                let (context, kinds) = (self.reader.context(), self.reader.kinds());
                values::split(context, module, kinds, body, &self.how.values)
            }
            _ => 0,
        }
    }

    /// Runs the embedder's transform on a copied function, optimizes it, and emits it.
    fn finish(&mut self, mut unit: Unit, found: CopiedFunction) -> Result<Compiled, CodegenError> {
        let (how, name) = (self.how, self.name);
        if let Some(transform) = &how.transform {
            emission::transform(self.reader, transform, &mut unit, name, how)?;
        }
        let Measure {
            instructions,
            loops,
            nested,
            calls,
        } = found.measure;
        let unit_instructions = instructions + unit.contents.candidate_instructions;
        self.reader.context().gate().expect(unit_instructions);
        let assumed = self.assume(&unit, &found.measure);
        let keeps_stack = how.transform.is_none() && stacks::keeps_stack(&unit);
        let listing = how.listing.as_deref();
        let object = emission::emit(self.reader, &mut unit, name, how.tier, listing)?;
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
            fingerprint: None,
            probes: found.probes,
            guided: contents.guided_functions,
            promoted: contents.promoted,
            depends: depends(&contents, self.function),
            refused: contents.refused,
            taken: contents.taken,
        })
    }
}

fn depends(contents: &UnitContents, function: SymbolId) -> Vec<Dependence> {
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
