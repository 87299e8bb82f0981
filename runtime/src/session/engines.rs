//! Implements [`Engines`] for the session: passes each call on to the room that answers it.

use std::sync::Arc;
use std::time::Duration;

use uruk_base::{FunctionId, Tier};
use uruk_codegen::{Compile, Compiled, Heads, ModulePlan, Sketch, Steady};
use uruk_heap::HeapError;

use crate::code::host_state::HostState;
use crate::code::life::Life;
use crate::code::loops::Loops;
use crate::code::module::Module;
use crate::code::unit_body::UnitBody;
use crate::error::Error;
use crate::session::Session;
use crate::units;
use crate::version::BodyOf;
use crate::version::engines::{Engines, OnLostThread};
use crate::version::request::Made;
use crate::version::request::Request;
use uruk_base::VersionId;
use uruk_codegen::Cancellation;
use uruk_session::Resource;
use uruk_tiering::EntryAddress;

impl Engines for Session {
    fn start_tier(&self, id: FunctionId) -> Tier {
        self.tiers.start_tier(id)
    }

    fn guide(&self, id: FunctionId, how: Compile) -> Compile {
        self.tiers.guide(id, how)
    }

    fn steady(&self, id: FunctionId) -> Vec<Steady> {
        self.tiers.steady(id)
    }

    fn native_samples(&self, id: FunctionId) -> Option<u32> {
        self.tiers.sampling.native_samples(id)
    }

    fn passes(&self, id: FunctionId) -> u64 {
        self.continuations.passes(id)
    }

    fn loops_of(
        self: Arc<Self>,
        of: &BodyOf,
        compiled: &Compiled,
    ) -> Result<Option<Arc<Loops>>, Error> {
        self.continuations.loops_of(of, compiled)
    }

    fn loops_told(&self, id: FunctionId, heads: &Heads, some: bool) {
        self.continuations.refuse_late(id, heads, some);
    }

    fn is_guess(&self, id: FunctionId) -> bool {
        self.speculation.is_guess(id)
    }

    fn wants_sketch(&self, id: FunctionId) -> bool {
        self.speculation.wants(id)
    }

    fn sketched(
        &self,
        id: FunctionId,
        module: &Arc<Module>,
        plan: &Arc<ModulePlan>,
        sketch: Sketch,
    ) {
        self.speculation.sketched(id, module, plan, sketch);
    }

    fn note_code(&self, id: FunctionId, bytes: u64) -> bool {
        self.tiers.note_code(id, bytes)
    }

    fn compiled(&self, now: Duration, id: FunctionId, tier: Tier, made: &Made) {
        self.tiers.on_compiled(now, id, tier, made);
    }

    fn published(&self, now: Duration, id: FunctionId, tier: Tier, made: &Made) {
        self.tiers.on_published(now, id, tier, made);
    }

    fn adopted(&self, id: FunctionId, bytes: u64) {
        self.recall_native(id, bytes);
    }

    fn keep_budget(self: Arc<Self>) {
        self.tiers.keep_budget();
    }

    fn reclaim_for_more(self: Arc<Self>, cause: &HeapError) -> bool {
        self.reclaim.reclaim_for_more(cause)
    }

    fn churn(self: Arc<Self>) -> Result<(), Error> {
        self.tiers.churn()
    }

    fn answer_from_unit(self: Arc<Self>, id: FunctionId, unit: UnitBody) {
        Session::answer_from_unit(&self, id, unit);
    }

    fn compile_unit(
        self: Arc<Self>,
        id: FunctionId,
        unit: &UnitBody,
        tier: Option<Tier>,
    ) -> Result<(), Error> {
        match tier {
            None => units::compile_now(&self, id, unit),
            Some(tier) => units::improve_now(&self, id, unit, tier),
        }
    }

    fn state_for(&self, file: &str) -> Option<HostState> {
        self.host.state_for(file)
    }

    fn check_modules(&self, modules: &[(usize, Arc<Module>)]) -> Result<(), Error> {
        self.check_host_types(modules)
    }

    fn read_ahead(&self, modules: &[(usize, Arc<Module>)]) {
        self.speculation
            .read(modules.iter().map(|(_, module)| module));
    }

    fn reclaim_for_slots(self: Arc<Self>, cause: &Error) -> bool {
        self.reclaim.reclaim_for_slots(cause)
    }

    fn removal_of(
        self: Arc<Self>,
        image: &Arc<Life>,
        functions: Vec<FunctionId>,
    ) -> Box<dyn Resource> {
        Session::removal_of(&self, image, functions)
    }

    fn counts_for_tuning(&self, id: FunctionId) -> bool {
        self.tuning.counts_for_tuning(id)
    }

    fn sampled(&self, id: FunctionId) {
        self.tuning.bring_up_early(id);
    }

    fn tuned(&self, id: FunctionId, how: Compile) -> Compile {
        self.tuning.tuned(id, how)
    }

    fn moved(
        &self,
        id: FunctionId,
        version: VersionId,
        from: EntryAddress,
        to: EntryAddress,
    ) -> bool {
        self.replacing.moved(id, version, from, to)
    }

    fn improve(
        self: Arc<Self>,
        request: Request,
        unit: &UnitBody,
        queued: Option<Duration>,
        cancel: &Cancellation,
    ) -> Result<Made, Error> {
        let made = self.make_better(request, unit, queued, cancel);
        made.inspect_err(|cause| self.report_unit(request.function, cause))
    }

    fn remove_function(self: Arc<Self>, id: FunctionId) {
        Session::remove_function(&self, id);
    }

    fn is_joined(&self) -> bool {
        self.speculation.is_joined()
    }

    fn join_ahead(&self, id: FunctionId) -> bool {
        self.speculation.join_ahead(id)
    }

    fn stranded(&self) -> Option<FunctionId> {
        self.speculation.stranded()
    }

    fn help_ahead(self: Arc<Self>, lost: &OnLostThread) -> Option<String> {
        self.speculation.help_ahead(lost)
    }
}
