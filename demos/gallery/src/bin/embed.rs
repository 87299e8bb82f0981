//! A small language on top of the library: lines from standard input are compiled with
//! inkwell, added to a session and run.
//!
//! A definition is checked, and costs neither IR nor code until it is called; what is called often
//! moves up the tiers, as `:tier NAME()` shows. Defining a function again replaces it, also for
//! those that call it. What is wrong with a line is told, and the next one is read.

use std::collections::HashMap;
use std::io::{BufRead, IsTerminal, Write, stdin, stdout};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use uruk::inkwell::values::FunctionValue;
use uruk::inkwell::{AddressSpace, IntPredicate, context::Context, module::Module};
use uruk::{FunctionType, Jit};
use uruk_gallery::{VALUE, compile, declare};

/// Stack of the thread that programs run on, in bytes, and how much of it they may use.
const STACK: (usize, u64) = (64 << 20, 32 << 20);

/// Lowest address a frame may have. A call below makes it the highest, so that it and all
/// others return at once: recursion without end is an error, not the end of the process.
static LOWEST: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<()> {
    let thread = thread::Builder::new().stack_size(STACK.0);
    thread.spawn(read_lines)?.join().expect("no panic")
}

fn read_lines() -> Result<()> {
    let (jit, mut known) = (Jit::new()?, HashMap::new());
    let typed = stdin().is_terminal();
    let mut line = Vec::new();
    loop {
        print!("> ");
        stdout().flush()?;
        line.clear();
        if stdin().lock().read_until(b'\n', &mut line)? == 0 {
            println!();
            return Ok(());
        }
        let line = String::from_utf8_lossy(&line);
        if !typed {
            println!("{}", line.trim_end());
        }
        match enter(&jit, &mut known, line.trim()) {
            Ok(answer) if answer.is_empty() => {}
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error: {error:#}"),
        }
    }
}

/// Does what a line says: the answer.
fn enter(jit: &Jit, known: &mut HashMap<String, usize>, line: &str) -> Result<String> {
    if line.is_empty() {
        return Ok(String::new());
    }
    if let Some(name) = line.strip_prefix(":tier ") {
        return Ok(match jit.tier(name)? {
            Some(tier) => format!("{name} runs at tier {}", tier.number()),
            None => format!("{name} is not compiled yet"),
        });
    }
    let context = Context::create();
    let module = context.create_module(line);
    let function = write(&module, known, line)?;
    let name = function.get_name().to_str()?;
    if name == VALUE {
        return evaluate(jit, &module);
    }
    let ty = function.get_type().print_to_string().to_string();
    let ty = FunctionType::parse(&ty).context("a bug: no type of a function")?;
    let (now, of_line) = (known.clone(), line.to_owned());
    jit.main().define_lazy_as(name, ty, move |module| {
        write(module, &now, &of_line)?;
        Ok(())
    })?;
    Ok(
        match known.insert(name.to_owned(), function.count_params() as usize) {
            Some(_) => format!("replaced {name}"),
            None => format!("defined {name}"),
        },
    )
}

/// Writes what a line says into a module.
fn write<'ctx>(
    module: &Module<'ctx>,
    known: &HashMap<String, usize>,
    line: &str,
) -> Result<FunctionValue<'ctx>> {
    for (name, takes) in known {
        declare(module, name, *takes)?;
    }
    let function = compile(module, line)?;
    guard(module, function)?;
    Ok(function)
}

/// Compiles a line that is no definition, runs it, and removes it again.
fn evaluate(jit: &Jit, module: &Module) -> Result<String> {
    let start = Instant::now();
    let tracker = jit.main().create_tracker()?;
    tracker.add_module(module)?;
    let here = 0_u8;
    LOWEST.store(&raw const here as u64 - STACK.1, Relaxed);
    // SAFETY: `compile` wrote a function without parameters, which computes.
    let value = unsafe { jit.function::<extern "C" fn() -> f64>(VALUE)? }.call();
    let time_ms = start.elapsed().as_secs_f64() * 1e3;
    // SAFETY: nothing has its address: the language has no addresses.
    unsafe { tracker.remove()? };
    ensure!(
        LOWEST.load(Relaxed) != u64::MAX,
        "the recursion is too deep"
    );
    Ok(format!("{value}    ({time_ms:.1} ms)"))
}

/// Lets a function return at once if there is no stack left.
fn guard<'ctx>(module: &Module<'ctx>, function: FunctionValue<'ctx>) -> Result<()> {
    let (context, b) = (module.get_context(), module.get_context().create_builder());
    let body = function.get_first_basic_block().context("a bug: no body")?;
    let full = context.prepend_basic_block(body, "");
    b.position_at_end(context.prepend_basic_block(full, ""));
    let (word, pointer) = (
        context.i64_type(),
        context.ptr_type(AddressSpace::default()),
    );
    let lowest = word
        .const_int(LOWEST.as_ptr() as u64, false)
        .const_to_pointer(pointer);
    let frame = b.build_ptr_to_int(b.build_alloca(word, "")?, word, "")?;
    let least = b.build_load(word, lowest, "")?.into_int_value();
    let below = b.build_int_compare(IntPredicate::ULT, frame, least, "")?;
    b.build_conditional_branch(below, full, body)?;
    b.position_at_end(full);
    b.build_store(lowest, word.const_all_ones())?;
    b.build_return(Some(&context.f64_type().const_zero()))?;
    Ok(())
}
