//! `uruk run`: loads the program of a command line; the command ends with the program.

use std::path::{Path, PathBuf};

use uruk::{
    Baseline, EXIT_FAILURE, Error, HeapConfig, InputLimits, Jit, JitBuilder, Mode, PolicyConfig,
    Program, ProgramOptions, ReclaimConfig, StatsFormat, ToolSettings, needs_low_addresses,
    needs_near_libraries,
};
use uruk_files::say;
use uruk_live::tunables;

use super::{
    Begun, ContractChoice, Run, StatsChoice, TiersChoice, USAGE, fail_of_program, launcher, log,
    outputs, settings, thread_locals, tip,
};

/// Loads the program that a command line describes.
pub(super) fn load_program(run: Run) -> Begun {
    if let Some(file) = &run.launcher {
        let error = launcher::start(&run, file);
        say!("uruk: --launcher {}: {error}", file.display());
        return Begun::Done(EXIT_FAILURE);
    }
    if run.tune || run.tuning.is_some() {
        // SAFETY: nothing has started a thread so far.
        unsafe { tunables::start_again() };
    }
    // SAFETY: as above.
    unsafe { thread_locals::take_ours() };
    let mut policy = PolicyConfig::default();
    let mut reclaim = ReclaimConfig::default();
    for setting in &run.set {
        if let Err(message) = settings::set(&mut policy, &mut reclaim, setting) {
            say!("uruk: --set: {message}\n  tip: `uruk run --print-config` lists the settings");
            return Begun::Done(USAGE);
        }
    }
    if run.print_config {
        let builder = Jit::builder().policy(policy);
        let builder = match run.jobs {
            Some(jobs) => builder.jobs(jobs as usize),
            None => builder,
        };
        settings::print(&builder.effective_policy(), &reclaim);
        return Begun::Done(0);
    }
    log::init(run.verbose);
    let (shared, files) = run.libraries();
    if let Err(message) = check_outputs(&run, &shared, &files) {
        say!("uruk: {message}");
        return Begun::Done(EXIT_FAILURE);
    }
    for file in run.watch.iter().filter(|file| !file.exists()) {
        say!("uruk: --watch: {} does not exist yet", file.display());
    }
    crate::memory::spare();
    let builder = builder(&run, &files, policy, reclaim);
    // Constructors of its libraries may call code that LLVM must compile, under the loader's lock.
    let early = run.baseline == Baseline::Off || !shared.is_empty() || run.untrusted;
    let builder = builder.late_llvm(!early);
    match load(&run, &shared, &files, &builder) {
        Ok(program) => Begun::Loaded(Box::new(program), run.args),
        Err(error) => {
            let status = fail_of_program(&error);
            if let Some(tip) = tip(&error, &files) {
                say!("  tip: {tip}");
            }
            Begun::Done(status)
        }
    }
}

/// Checks that outputs can be written and are no inputs.
fn check_outputs(run: &Run, shared: &[String], files: &[PathBuf]) -> Result<(), String> {
    let written = run.trace.iter().chain(&run.report).chain(&run.record);
    let written = written.chain(&run.first_calls).chain(&run.tuning);
    // Libraries without a slash are names.
    let libraries = shared
        .iter()
        .filter(|name| name.contains('/'))
        .map(Path::new);
    let inputs = run.files.iter().chain(files).chain(&run.watch);
    let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).chain(libraries).collect();
    outputs::check(written, &inputs)
}

/// The session that the command line describes.
fn builder(
    run: &Run,
    files: &[PathBuf],
    policy: PolicyConfig,
    reclaim: ReclaimConfig,
) -> JitBuilder {
    let mut tools = ToolSettings::default();
    tools.perf_map = run.perf_map;
    tools.jitdump = run.jitdump.clone();
    tools.gdb = run.gdb;
    let mut heap = HeapConfig::default();
    heap.freed = run.freed.into();
    let inputs = || files.iter().chain(&run.watch);
    let low = run.low_addresses || inputs().any(|file| needs_low_addresses(file));
    let builder = Jit::builder().heap(heap);
    let builder = match low {
        true => builder.low_addresses(true),
        false => builder.near_libraries(inputs().any(|file| needs_near_libraries(file))),
    };
    let mut builder = builder
        .tiers(match (run.tiers, run.osr_loops) {
            (TiersChoice::Auto, Some(passes)) => uruk::Tiers::Leave(passes),
            (choice, _) => choice.into(),
        })
        .baseline(run.baseline)
        .sampling(run.sampling.into())
        .policy(policy)
        .reclaim(reclaim)
        .tools(tools)
        .modules_apart(run.modules_apart)
        .speculate(!run.no_speculate)
        .time_parts(run.stats.is_some())
        .variant(run.variant)
        .tune(run.tune || run.tuning.is_some())
        .fp_contract(run.fp_contract == ContractChoice::Fast);
    if let Some(jobs) = run.jobs {
        builder = builder.jobs(jobs as usize);
    }
    if let Some(bytes) = run.code_budget {
        builder = builder.code_budget(bytes);
    }
    if let Some(percent) = run.tuning_percent {
        let (share, credit) = uruk_live::settings::budget(percent);
        builder = builder.tuning_budget(share, credit);
    }
    // An empty file was just created.
    let tuned = run
        .tuning
        .as_ref()
        .and_then(|file| uruk_files::read_left(file).ok());
    if let Some(tuned) = tuned.filter(|tuned| !tuned.is_empty()) {
        builder = builder.tuned_before(String::from_utf8_lossy(&tuned).into_owned());
    }
    // Counting fails only where the process is no executable; this command is one.
    if run.count_fuel
        && let Ok(counting) = builder.clone().count_fuel(true)
    {
        builder = counting;
    }
    if run.untrusted {
        builder = builder.untrusted(InputLimits::default());
    }
    builder
}

/// Loads the program; loads it again with room for its static data, if that is needed.
fn load(
    run: &Run,
    shared: &[String],
    files: &[PathBuf],
    builder: &JitBuilder,
) -> Result<Program, Error> {
    let options = ProgramOptions {
        mode: if run.eager { Mode::Eager } else { Mode::Lazy },
        name: run.argv0.clone(),
        entry: run.entry.clone(),
        stats: run.stats.map(|choice| match choice {
            StatsChoice::Table => StatsFormat::Table,
            StatsChoice::Json => StatsFormat::Json,
        }),
        trace: run.trace.clone(),
        report: run.report.clone(),
        first_calls: run.first_calls.clone(),
        tuning: run.tuning.clone(),
        record: run.record.clone(),
        dump_asm: run.dump_asm.clone(),
        preempt_libraries: !run.no_preempt,
        undefined: run.undefined.clone(),
    };
    let attempt = |builder: JitBuilder| {
        let jit = builder.build()?;
        for library in shared {
            jit.add_library(library)?;
        }
        Program::load(&jit, files, options.clone()).map(|program| (jit, program))
    };
    // Nothing has run. Not at once, because more room for data is less for code, and below 2 GiB there
    // is less room.
    let mut builder = builder.clone();
    let mut loaded = attempt(builder.clone());
    if let Err(error) = &loaded
        && error.wants_low_addresses()
        && !run.low_addresses
    {
        builder = builder.low_addresses(true);
        loaded = attempt(builder.clone());
    }
    if let Err(error) = &loaded
        && let Some(bytes) = error.wants_static_data()
    {
        loaded = attempt(builder.static_data(bytes));
    }
    if let Err(Error::ThreadLocals { size, align, .. }) = loaded {
        // SAFETY: no other thread of ours uses the environment, and nothing else has run.
        unsafe { thread_locals::start_again(size, align) };
    }
    let (jit, program) = loaded?;
    if !run.watch.is_empty() {
        jit.watch(&run.watch)?;
    }
    Ok(program)
}
