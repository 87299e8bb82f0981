//! Writes a function as text, which [`super::parse`] reads.
//!
//! ```text
//! function(i32 %0, i64 %1 sext) -> i32 zext
//! symbol @table near
//! b0:
//!   %2 = add i32 %0, 5
//!   %3 = offset @table+8 [%2 i32 4] -16
//!   branch %2 b1, b2
//! ```
//!
//! Values are `%n`, addresses `@name+n`, labels `&bn`, bits of a floating-point number `#hex`,
//! constants of 16 bytes `$n`.

use std::fmt::{self, Display, Formatter};

use super::names::Named;
use super::{
    Argument, Block, Call, Callee, Clause, Extension, Function, Instruction, NO_LINE, Op, Operand,
    Ordering, Passing, Returned, Symbol, Tail, Type,
};

/// The text of a function.
pub fn text(function: &Function) -> impl Display {
    Text(function)
}

struct Text<'a>(&'a Function);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let function = self.0;
        head(function, f)?;
        for (index, block) in function.blocks.iter().enumerate() {
            writeln!(f, "b{index}:")?;
            for (_, instruction) in function.of_block(Block(index as u32)) {
                f.write_str("  ")?;
                for (nth, result) in instruction.results.clone().enumerate() {
                    write!(f, "{}%{result}", if nth == 0 { "" } else { ", " })?;
                }
                if !instruction.results.is_empty() {
                    f.write_str(" = ")?;
                }
                let line = OpWriter {
                    function,
                    successors: &block.successors,
                };
                line.instruction(instruction, f)?;
                if instruction.line != NO_LINE {
                    write!(f, " !{}", instruction.line)?;
                }
                f.write_str("\n")?;
            }
        }
        Ok(())
    }
}

/// Writes the lines before the first block.
fn head(function: &Function, f: &mut Formatter<'_>) -> fmt::Result {
    let names = OpWriter {
        function,
        successors: &[],
    };
    f.write_str("function(")?;
    for (index, parameter) in function.parameters.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{} %{index}", parameter.ty)?;
        passing(parameter.passing, f)?;
    }
    if function.is_variadic {
        let comma = if function.parameters.is_empty() {
            ""
        } else {
            ", "
        };
        write!(f, "{comma}...")?;
    }
    f.write_str(")")?;
    returns(&function.returns, f)?;
    f.write_str("\n")?;
    for (index, data) in function.symbols.iter().enumerate() {
        f.write_str("symbol ")?;
        names.symbol(Symbol(index as u32), f)?;
        write!(f, " {}", data.reach.word())?;
        writeln!(f, "{}", if data.is_weak { " weak" } else { "" })?;
    }
    for wide in &function.wide {
        writeln!(f, "wide {:x}", u128::from_le_bytes(*wide))?;
    }
    for line in &function.lines {
        writeln!(f, "line {} {} {}", line.line, line.column, line.file)?;
    }
    if function.no_unwind {
        f.write_str("nounwind\n")?;
    }
    if function.probes_stack {
        f.write_str("probes\n")?;
    }
    counting(&names, f)
}

/// Writes the symbols of a function that have a role, and its counters.
fn counting(names: &OpWriter<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let function = names.function;
    let counting = &function.counting;
    let symbols = [
        ("personality ", function.personality),
        ("counters ", counting.counters),
        ("loops ", counting.loops),
    ];
    for (word, symbol) in symbols {
        if let Some(symbol) = symbol {
            f.write_str(word)?;
            names.symbol(symbol, f)?;
            f.write_str("\n")?;
        }
    }
    for head in &counting.heads {
        write!(
            f,
            "head b{} slot {} count {} left {} ",
            head.block.0, head.slot, head.count, head.left
        )?;
        names.arguments(&head.arguments, f)?;
        for (index, place) in head.loaded.iter().enumerate() {
            write!(f, "{} {place}", if index == 0 { " loaded" } else { "," })?;
        }
        for (index, it) in head.stored.iter().enumerate() {
            f.write_str(if index == 0 { " stored" } else { "," })?;
            write!(f, " {} at {} {} ", it.argument, it.offset, it.ty)?;
            names.operand(it.operand, f)?;
        }
        if !head.has_exit {
            f.write_str(" stays")?;
        }
        f.write_str("\n")?;
    }
    for latch in &counting.latches {
        writeln!(f, "latch b{}", latch.0)?;
    }
    Ok(())
}

/// ` -> i32 zext, f64`, or nothing.
fn returns(list: &[Returned], f: &mut Formatter<'_>) -> fmt::Result {
    for (index, returned) in list.iter().enumerate() {
        write!(
            f,
            "{} {}",
            if index == 0 { " ->" } else { "," },
            returned.ty
        )?;
        match returned.extension {
            Some(Extension::Sign) => f.write_str(" sext")?,
            Some(Extension::Zero) => f.write_str(" zext")?,
            None => {}
        }
    }
    Ok(())
}

fn passing(passing: Passing, f: &mut Formatter<'_>) -> fmt::Result {
    match passing {
        Passing::Plain => Ok(()),
        Passing::SignExtended => f.write_str(" sext"),
        Passing::ZeroExtended => f.write_str(" zext"),
        Passing::Paired => f.write_str(" paired"),
        Passing::Memory { size, align } => write!(f, " memory {size} align {align}"),
        Passing::Result => f.write_str(" sret"),
        Passing::Nest => f.write_str(" nest"),
    }
}

/// The context for writing one line.
struct OpWriter<'a> {
    function: &'a Function,
    successors: &'a [Block],
}

impl OpWriter<'_> {
    fn symbol(&self, symbol: Symbol, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(data) = self.function.symbols.get(symbol.index()) else {
            return write!(f, "@?{}", symbol.0);
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
        match data.name.chars().all(plain) && !data.name.is_empty() {
            true => write!(f, "@{}", data.name),
            false => write!(f, "@\"{}\"", data.name),
        }
    }

    fn operand(&self, operand: Operand, f: &mut Formatter<'_>) -> fmt::Result {
        match operand {
            Operand::Value(value) => write!(f, "%{}", value.0),
            Operand::Int(bits) => write!(f, "{bits}"),
            Operand::Float(bits) => write!(f, "#{bits:x}"),
            Operand::Wide(index) => write!(f, "${index}"),
            Operand::Label(block) => write!(f, "&b{}", block.0),
            Operand::Undef => f.write_str("undef"),
            Operand::Address(symbol, offset) => {
                self.symbol(symbol, f)?;
                match offset {
                    0 => Ok(()),
                    _ => write!(f, "{offset:+}"),
                }
            }
        }
    }

    fn list(&self, operands: &[Operand], f: &mut Formatter<'_>) -> fmt::Result {
        for (index, &operand) in operands.iter().enumerate() {
            f.write_str(if index == 0 { " " } else { ", " })?;
            self.operand(operand, f)?;
        }
        Ok(())
    }

    /// `word type operands`.
    fn plain(&self, word: &str, ty: Type, list: &[Operand], f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{word} {ty}")?;
        self.list(list, f)
    }

    /// `word operands`.
    fn bare(&self, word: &str, list: &[Operand], f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(word)?;
        self.list(list, f)
    }

    fn arguments(&self, arguments: &[Argument], f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (index, argument) in arguments.iter().enumerate() {
            write!(f, "{}{} ", if index == 0 { "" } else { ", " }, argument.ty)?;
            self.operand(argument.operand, f)?;
            passing(argument.passing, f)?;
        }
        f.write_str(")")
    }

    fn call(&self, call: &Call, f: &mut Formatter<'_>) -> fmt::Result {
        let marks = [
            (call.is_variadic, " variadic"),
            (call.tail == Tail::Must, " musttail"),
            (call.returns_twice, " twice"),
        ];
        for (is, word) in marks {
            f.write_str(if is { word } else { "" })?;
        }
        f.write_str(" ")?;
        match call.callee {
            Callee::Symbol(symbol) => self.symbol(symbol, f)?,
            Callee::Operand(operand) => {
                f.write_str("at ")?;
                self.operand(operand, f)?;
            }
        }
        self.arguments(&call.arguments, f)?;
        returns(&call.returns, f)
    }

    fn instruction(&self, instruction: &Instruction, f: &mut Formatter<'_>) -> fmt::Result {
        match &instruction.op {
            Op::Int(op, ty, list) => self.plain(op.word(), *ty, list, f),
            Op::Overflow(op, ty, list) => self.plain(op.word(), *ty, list, f),
            Op::Bits(op, ty, one) => self.plain(op.word(), *ty, &[*one], f),
            Op::Funnel(true, ty, list) => self.plain("fshl", *ty, list, f),
            Op::Funnel(false, ty, list) => self.plain("fshr", *ty, list, f),
            Op::Wide(op, list) => self.bare(op.word(), list, f),
            Op::WideCompare(predicate, list) => {
                write!(f, "wide.icmp {}", predicate.word())?;
                self.list(list, f)
            }
            Op::Float(op, ty, list) => self.plain(op.word(), *ty, list, f),
            Op::FloatUnary(op, ty, one) => self.plain(op.word(), *ty, &[*one], f),
            Op::Fma(ty, list) => self.plain("fma", *ty, list, f),
            Op::Cast(cast, from, to, one) => {
                self.plain(cast.word(), *from, &[*one], f)?;
                write!(f, " to {to}")
            }
            Op::Compare(predicate, ty, list) => {
                write!(f, "icmp ")?;
                self.plain(predicate.word(), *ty, list, f)
            }
            Op::FloatCompare(predicate, ty, list) => {
                write!(f, "fcmp ")?;
                self.plain(predicate.word(), *ty, list, f)
            }
            Op::Select(ty, list) => self.plain("select", *ty, list, f),
            Op::Phi(ty, incoming) => {
                write!(f, "phi {ty}")?;
                for &(block, operand) in incoming {
                    write!(f, " [b{} ", block.0)?;
                    self.operand(operand, f)?;
                    f.write_str("]")?;
                }
                Ok(())
            }
            Op::Call(call) => {
                f.write_str("call")?;
                self.call(call, f)
            }
            op if op.is_terminator() => self.terminator(op, f),
            op => self.memory(op, f),
        }
    }

    /// Writes operations on memory and the frame, and others that compute nothing.
    fn memory(&self, op: &Op, f: &mut Formatter<'_>) -> fmt::Result {
        match op {
            Op::Load {
                ty,
                address,
                align,
                ordering,
                volatile,
            } => {
                self.plain("load", *ty, &[*address], f)?;
                access(*align, *ordering, *volatile, f)
            }
            Op::Store {
                ty,
                address,
                value,
                align,
                ordering,
                volatile,
            } => {
                self.plain("store", *ty, &[*value], f)?;
                self.bare(" to", &[*address], f)?;
                access(*align, *ordering, *volatile, f)
            }
            Op::Offset { base, terms, bytes } => {
                self.bare("offset", &[*base], f)?;
                for term in terms {
                    f.write_str(" [")?;
                    self.operand(term.operand, f)?;
                    write!(f, " i{} {}]", term.bits, term.scale)?;
                }
                write!(f, " {bytes}")
            }
            Op::Alloca { size, align } => write!(f, "alloca {size} align {align}"),
            Op::DynamicAlloca { count, size, align } => {
                self.bare("alloca.dynamic", &[*count], f)?;
                write!(f, " {size} align {align}")
            }
            Op::StackSave => f.write_str("stacksave"),
            Op::StackRestore(one) => self.bare("stackrestore", &[*one], f),
            Op::ThreadLocal(symbol) => {
                f.write_str("threadlocal ")?;
                self.symbol(*symbol, f)
            }
            Op::Memory(op, list, volatile) => {
                self.bare(op.word(), list, f)?;
                f.write_str(if *volatile { " volatile" } else { "" })
            }
            Op::Rmw {
                op,
                ty,
                address,
                value,
            } => {
                f.write_str("rmw ")?;
                self.plain(op.word(), *ty, &[*address, *value], f)
            }
            Op::CompareExchange {
                ty,
                address,
                expected,
                value,
            } => self.plain("cmpxchg", *ty, &[*address, *expected, *value], f),
            Op::Fence(ordering) => write!(f, "fence {}", ordering.word()),
            op => self.machine(op, f),
        }
    }

    /// Writes operations on exceptions, lists of arguments and the processor.
    fn machine(&self, op: &Op, f: &mut Formatter<'_>) -> fmt::Result {
        match op {
            Op::LandingPad { cleanup, clauses } => self.landing_pad(*cleanup, clauses, f),
            Op::TypeId(symbol) => {
                f.write_str("typeid ")?;
                self.symbol(*symbol, f)
            }
            Op::VaStart(one) => self.bare("va_start", &[*one], f),
            Op::VaCopy(list) => self.bare("va_copy", list, f),
            Op::VaArg(ty, one) => self.plain("va_arg", *ty, &[*one], f),
            Op::FrameAddress(depth) => write!(f, "frameaddress {depth}"),
            Op::ReturnAddress(depth) => write!(f, "returnaddress {depth}"),
            Op::Prefetch(one) => self.bare("prefetch", &[*one], f),
            Op::CycleCounter => f.write_str("readcyclecounter"),
            Op::ThreadPointer => f.write_str("threadpointer"),
            Op::Pause => f.write_str("pause"),
            Op::ControlWord => f.write_str("controlword"),
            Op::StoreControl(one) => self.bare("fnstcw", &[*one], f),
            Op::LoadControl(one) => self.bare("fldcw", &[*one], f),
            Op::Trap => f.write_str("trap"),
            _ => f.write_str("?"),
        }
    }

    fn landing_pad(&self, cleanup: bool, clauses: &[Clause], f: &mut Formatter<'_>) -> fmt::Result {
        let one = |symbol: &Option<Symbol>, f: &mut Formatter<'_>| match symbol {
            Some(symbol) => self.symbol(*symbol, f),
            None => f.write_str("null"),
        };
        f.write_str("landingpad")?;
        f.write_str(if cleanup { " cleanup" } else { "" })?;
        for clause in clauses {
            match clause {
                Clause::Catch(symbol) => {
                    f.write_str(" catch ")?;
                    one(symbol, f)?;
                }
                Clause::Filter(list) => {
                    f.write_str(" filter [")?;
                    for (index, symbol) in list.iter().enumerate() {
                        f.write_str(if index == 0 { "" } else { ", " })?;
                        one(symbol, f)?;
                    }
                    f.write_str("]")?;
                }
            }
        }
        Ok(())
    }

    /// Writes the targets of the terminator.
    fn targets(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, block) in self.successors.iter().enumerate() {
            write!(f, "{} b{}", if index == 0 { "" } else { "," }, block.0)?;
        }
        Ok(())
    }

    fn terminator(&self, op: &Op, f: &mut Formatter<'_>) -> fmt::Result {
        match op {
            Op::Return(list) => self.bare("return", list, f),
            Op::Resume(list) => self.bare("resume", list, f),
            Op::Jump => {
                f.write_str("jump")?;
                self.targets(f)
            }
            Op::Branch(one) => {
                self.bare("branch", &[*one], f)?;
                self.targets(f)
            }
            Op::IndirectJump(one) => {
                self.bare("indirectjump", &[*one], f)?;
                self.targets(f)
            }
            Op::Invoke(call) => {
                f.write_str("invoke")?;
                self.call(call, f)?;
                f.write_str(" to")?;
                self.targets(f)
            }
            Op::Switch(ty, one, values) => {
                self.plain("switch", *ty, &[*one], f)?;
                self.targets(f)?;
                numbers(values, f)
            }
            Op::Dispatch(one, values) => {
                self.bare("dispatch", &[*one], f)?;
                self.targets(f)?;
                numbers(values, f)
            }
            _ => f.write_str("unreachable"),
        }
    }
}

/// ` [1, 2]`.
fn numbers(values: &[u64], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(" [")?;
    for (index, value) in values.iter().enumerate() {
        write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
    }
    f.write_str("]")
}

/// ` align 4 weak volatile`.
fn access(align: u32, ordering: Ordering, volatile: bool, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, " align {align}")?;
    if ordering != Ordering::Plain {
        write!(f, " {}", ordering.word())?;
    }
    f.write_str(if volatile { " volatile" } else { "" })
}
