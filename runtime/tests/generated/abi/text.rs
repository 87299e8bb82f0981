//! A signature as IR: a callee that stores all that it is passed and gives what it is told to, a
//! caller that does the opposite, and a function between them that passes all on.
//!
//! Names of a signature end with its seed. Callers are `void (ptr, ptr)`: where arguments come from,
//! and where results go. Callees have the variables [`SEEN`] and [`ANSWERS`] for that.

use std::fmt::Write;

use super::body::{Body, indices};
use super::signature::{Form, Forward, Parameter, Passing, Said, Signature};
use super::types::{Extension, Ty};

/// The values that callees were passed.
pub const SEEN: &str = "abi_seen";

/// The values that callees give.
pub const ANSWERS: &str = "abi_answers";

/// A slot that a value is loaded from and one that it is stored to.
#[derive(Debug, Clone)]
pub struct Way {
    pub what: String,
    pub ty: Ty,
    pub from: usize,
    pub to: usize,
    pub extension: Extension,
}

/// Functions of one signature, and how values go through them.
#[derive(Debug, Default)]
pub struct Text {
    pub ir: String,
    /// From the caller's first pointer to [`SEEN`].
    pub passed: Vec<Way>,
    /// From [`ANSWERS`] to the caller's second pointer.
    pub given: Vec<Way>,
    /// From the caller's first pointer to its second: copies of memory that it keeps.
    pub kept: Vec<Way>,
    /// The slot at the caller's second pointer where it stores the pointer to a result, as an
    /// integer.
    pub result_pointer: Option<usize>,
    /// Slots that are used of each buffer.
    pub slots: usize,
}

/// Attributes of a parameter or result, each with a blank before.
fn attributes(passing: &Passing) -> String {
    match passing {
        Passing::Plain => String::new(),
        Passing::Extended(Extension::Zero) => " zeroext".to_owned(),
        Passing::Extended(Extension::Sign) => " signext".to_owned(),
        Passing::InReg => " inreg".to_owned(),
        Passing::ByVal(ty, 0) => format!(" byval({ty})"),
        Passing::ByVal(ty, align) => format!(" byval({ty}) align {align}"),
        Passing::SRet(ty) => format!(" sret({ty})"),
        Passing::Nest => " nest".to_owned(),
        Passing::SwiftSelf => " swiftself".to_owned(),
        Passing::SwiftAsync => " swiftasync".to_owned(),
        Passing::SwiftError => " swifterror".to_owned(),
    }
}

/// Likewise where a list of them may say nothing: of how a number is extended. Callers and callees
/// have to agree in all else.
fn attributes_if(said: bool, passing: &Passing) -> String {
    match passing {
        Passing::Extended(_) if !said => String::new(),
        passing => attributes(passing),
    }
}

impl Text {
    pub fn of(signature: &Signature) -> Text {
        let mut text = Text::default();
        text.plan(signature);
        let seed = signature.seed;
        let declared = |name: &str, said: bool| {
            let list = parameters(signature, said, false);
            let result = result(signature, said);
            let name = format!("{name}_{seed}");
            let convention = signature.convention.name;
            format!("declare {convention}{result} @{name}({list})\n")
        };
        let said = signature.said != Said::ByCall;
        text.ir += &declared("target", said);
        text.ir += &caller(signature, &text);
        text.ir += &callee(signature, &text);
        if signature.forward != Forward::No {
            text.ir += &declared("hop", true);
            text.ir += &forward(signature);
        }
        text
    }

    /// Gives each leaf its slots.
    fn plan(&mut self, signature: &Signature) {
        let extension = |passing: &Passing, at: usize| match passing {
            Passing::Extended(extension) => *extension,
            _ if (signature.seed as usize + at).is_multiple_of(2) => Extension::Zero,
            _ => Extension::Sign,
        };
        let mut next = Next::default();
        for (at, parameter) in signature.parameters.iter().enumerate() {
            let part = Part {
                what: &format!("argument {at}"),
                ty: match &parameter.passing {
                    Passing::ByVal(ty, _) | Passing::SRet(ty) => ty,
                    _ => &parameter.ty,
                },
                extension: extension(&parameter.passing, at),
            };
            let start = next.input;
            if let Passing::SRet(_) = parameter.passing {
                self.result_pointer = Some(next.output);
                next.output += 1;
            } else {
                part.add(&mut self.passed, &mut next.input, &mut next.seen);
            }
            match parameter.passing {
                Passing::ByVal(..) => {
                    let mut start = start;
                    part.add(&mut self.kept, &mut start, &mut next.output);
                }
                Passing::SRet(_) | Passing::SwiftError => {
                    part.add(&mut self.given, &mut next.answers, &mut next.output);
                }
                _ => {}
            }
        }
        let variable = signature.variable.iter().flat_map(|(read, _)| read);
        for (at, ty) in variable.enumerate() {
            let part = Part {
                what: &format!("variable argument {at}"),
                ty,
                extension: Extension::Zero,
            };
            part.add(&mut self.passed, &mut next.input, &mut next.seen);
        }
        if let Some(ty) = &signature.result {
            let part = Part {
                what: "the result",
                ty,
                extension: extension(&signature.result_passing, 1),
            };
            part.add(&mut self.given, &mut next.answers, &mut next.output);
        }
        let more = signature.variable.iter().flat_map(|(_, more)| more);
        let more: usize = more.map(|ty| ty.leaves().len()).sum();
        let most = (next.input + more).max(next.output);
        self.slots = most.max(next.seen).max(next.answers) + 1;
    }
}

/// The next slot of each buffer.
#[derive(Default)]
struct Next {
    input: usize,
    seen: usize,
    answers: usize,
    output: usize,
}

/// A value that is passed or given.
struct Part<'a> {
    what: &'a str,
    ty: &'a Ty,
    extension: Extension,
}

impl Part<'_> {
    /// Adds ways of all its leaves.
    fn add(&self, ways: &mut Vec<Way>, from: &mut usize, to: &mut usize) {
        for leaf in self.ty.leaves() {
            ways.push(Way {
                what: format!("{}{}", self.what, indices(&leaf.path, "")),
                ty: leaf.ty,
                from: *from,
                to: *to,
                extension: self.extension,
            });
            (*from, *to) = (*from + 1, *to + 1);
        }
    }
}

/// The list of parameters of a declaration or definition.
fn parameters(signature: &Signature, said: bool, named: bool) -> String {
    let all = signature.parameters.iter().enumerate().map(|(at, it)| {
        let attributes = attributes_if(said, &it.passing);
        let name = match named {
            true => format!(" %p{at}"),
            false => String::new(),
        };
        format!("{}{attributes}{name}", it.ty)
    });
    let mut all: Vec<String> = all.collect();
    if signature.variable.is_some() {
        all.push("...".to_owned());
    }
    all.join(", ")
}

/// Attributes and type of the result, with a blank before.
fn result(signature: &Signature, said: bool) -> String {
    match &signature.result {
        None => " void".to_owned(),
        Some(ty) => format!("{} {ty}", attributes_if(said, &signature.result_passing)),
    }
}

/// A caller that is being written.
#[derive(Default)]
struct Caller {
    body: Body,
    /// Code behind the call.
    after: Body,
    /// Slots that were used, as in [`Text`].
    from: usize,
    kept: usize,
    given: usize,
}

impl Caller {
    /// The value of an argument.
    fn argument(&mut self, parameter: &Parameter, text: &Text) -> String {
        let Caller {
            body,
            after,
            from,
            kept,
            given,
        } = self;
        match &parameter.passing {
            Passing::ByVal(ty, align) => {
                let memory = body.alloca(&ty.to_string(), (*align).max(16));
                body.fill(ty, &memory, "%in", *from);
                let count = ty.leaves().len();
                after.read(ty, &memory, "%out", &text.kept[*kept..*kept + count]);
                (*from, *kept) = (*from + count, *kept + count);
                memory
            }
            Passing::SRet(ty) => {
                let memory = body.alloca(&ty.to_string(), 16);
                let number = after.value(format!("ptrtoint ptr {memory} to i64"));
                let slot = text.result_pointer.unwrap_or_default();
                after.store(&Ty::Int(64), &number, "%out", slot, Extension::Zero);
                let count = ty.leaves().len();
                after.read(ty, &memory, "%out", &text.given[*given..*given + count]);
                *given += count;
                memory
            }
            Passing::SwiftError => {
                let memory = body.fresh();
                let _ = writeln!(body.head, "  {memory} = alloca swifterror ptr, align 8");
                let value = body.load(&Ty::Ptr, "%in", *from);
                body.line(format!("store ptr {value}, ptr {memory}, align 8"));
                let error = after.value(format!("load ptr, ptr {memory}, align 8"));
                let way = &text.given[*given];
                after.store(&Ty::Ptr, &error, "%out", way.to, way.extension);
                (*from, *given) = (*from + 1, *given + 1);
                memory
            }
            _ => {
                let value;
                (value, *from) = body.build(&parameter.ty, "%in", *from);
                value
            }
        }
    }
}

fn caller(signature: &Signature, text: &Text) -> String {
    let mut caller = Caller::default();
    // Names in both parts differ.
    caller.after.next = 10_000;
    let said = signature.said != Said::ByDeclaration || signature.form == Form::Indirect;
    let mut arguments = Vec::new();
    for parameter in &signature.parameters {
        let attributes = attributes_if(said, &parameter.passing);
        let value = caller.argument(parameter, text);
        arguments.push(format!("{}{attributes} {value}", parameter.ty));
    }
    let Caller {
        mut body,
        mut after,
        mut from,
        given,
        ..
    } = caller;
    let variable = signature.variable.iter();
    for ty in variable.flat_map(|(read, more)| read.iter().chain(more)) {
        let value;
        (value, from) = body.build(ty, "%in", from);
        arguments.push(format!("{ty} {value}"));
    }
    if signature.moves_stack {
        let bytes = body.load(&Ty::Int(64), "%in", 0);
        let bytes = body.value(format!("and i64 {bytes}, 127"));
        let bytes = body.value(format!("or i64 {bytes}, 1"));
        let more = body.value(format!("alloca i8, i64 {bytes}, align 1"));
        body.line(format!("store volatile i8 1, ptr {more}, align 1"));
    }
    call(signature, &arguments, said, &mut body);
    if let Some(ty) = &signature.result {
        after.take_apart(ty, "%result", "%out", &text.given[given..]);
    }
    body.out += &after.out;
    body.line("ret void".to_owned());
    let mut personality = "";
    if signature.form == Form::Invoke {
        body.out += "pad:\n  %landed = landingpad { ptr, i32 } cleanup\n  \
                     resume { ptr, i32 } %landed\n";
        personality = " personality ptr @__gcc_personality_v0";
    }
    let seed = signature.seed;
    body.finish(format!(
        "define void @caller_{seed}(ptr %in, ptr %out) noinline{personality}"
    ))
}

/// The call of what is called `target`.
fn call(signature: &Signature, arguments: &[String], said: bool, body: &mut Body) {
    let mut target = format!("@target_{}", signature.seed);
    if signature.form == Form::Indirect {
        let word = body.alloca("ptr", 8);
        body.line(format!("store volatile ptr {target}, ptr {word}, align 8"));
        target = body.value(format!("load volatile ptr, ptr {word}, align 8"));
    }
    let mut ty = result(signature, said);
    if signature.variable.is_some() {
        let list = signature.parameters.iter().map(|it| it.ty.to_string());
        let list: Vec<String> = list.chain(["...".to_owned()]).collect();
        ty = format!("{ty} ({})", list.join(", "));
    }
    let before = match signature.result {
        Some(_) => "%result = ",
        None => "",
    };
    let convention = signature.convention.name;
    let list = arguments.join(", ");
    match signature.form {
        Form::Invoke => {
            body.line(format!(
                "{before}invoke {convention}{ty} {target}({list}) to label %on unwind label %pad"
            ));
            body.out += "on:\n";
        }
        _ => body.line(format!("{before}call {convention}{ty} {target}({list})")),
    }
}

fn callee(signature: &Signature, text: &Text) -> String {
    let mut body = Body::default();
    let (seen, answers) = (format!("@{SEEN}"), format!("@{ANSWERS}"));
    let (mut passed, mut given) = (0, 0);
    for (at, parameter) in signature.parameters.iter().enumerate() {
        let name = format!("%p{at}");
        match &parameter.passing {
            Passing::ByVal(ty, _) => {
                let count = ty.leaves().len();
                body.read(ty, &name, &seen, &text.passed[passed..passed + count]);
                passed += count;
                // The copy is the callee's: the original must not change.
                for leaf in ty.leaves() {
                    let at = body.element(ty, &name, &leaf.path);
                    body.line(format!(
                        "store {} zeroinitializer, ptr {at}, align 1",
                        leaf.ty
                    ));
                }
            }
            Passing::SRet(ty) => {
                body.fill(ty, &name, &answers, given);
                given += ty.leaves().len();
            }
            Passing::SwiftError => {
                let value = body.value(format!("load ptr, ptr {name}, align 8"));
                let way = &text.passed[passed];
                body.store(&Ty::Ptr, &value, &seen, way.to, way.extension);
                let answer = body.load(&Ty::Ptr, &answers, given);
                body.line(format!("store ptr {answer}, ptr {name}, align 8"));
                (passed, given) = (passed + 1, given + 1);
            }
            _ => {
                let count = parameter.ty.leaves().len();
                let ways = &text.passed[passed..passed + count];
                body.take_apart(&parameter.ty, &name, &seen, ways);
                passed += count;
            }
        }
    }
    if let Some((read, _)) = &signature.variable {
        let list = body.alloca("[24 x i8]", 16);
        body.line(format!("call void @llvm.va_start(ptr {list})"));
        for (ty, way) in read.iter().zip(&text.passed[passed..]) {
            let value = body.value(format!("va_arg ptr {list}, {ty}"));
            body.store(ty, &value, &seen, way.to, way.extension);
        }
        body.line(format!("call void @llvm.va_end(ptr {list})"));
    }
    match &signature.result {
        None => body.line("ret void".to_owned()),
        Some(ty) => {
            let (value, _) = body.build(ty, &answers, given);
            body.line(format!("ret {ty} {value}"));
        }
    }
    body.finish(define(signature, "callee"))
}

fn define(signature: &Signature, name: &str) -> String {
    let list = parameters(signature, true, true);
    let result = result(signature, true);
    let (convention, seed) = (signature.convention.name, signature.seed);
    format!("define {convention}{result} @{name}_{seed}({list}) noinline")
}

fn forward(signature: &Signature) -> String {
    let mut body = Body::default();
    let list = signature.parameters.iter().enumerate();
    let list = list.map(|(at, it)| format!("{}{} %p{at}", it.ty, attributes(&it.passing)));
    let list: Vec<String> = list.collect();
    let kind = match signature.forward {
        Forward::MustTail => "musttail call",
        Forward::TailCall => "tail call",
        Forward::No | Forward::Call => "call",
    };
    let convention = signature.convention.name;
    let call = format!(
        "{kind} {convention}{} @hop_{}({})",
        result(signature, true),
        signature.seed,
        list.join(", ")
    );
    match &signature.result {
        None => {
            body.line(call);
            body.line("ret void".to_owned());
        }
        Some(ty) => {
            let value = body.value(call);
            body.line(format!("ret {ty} {value}"));
        }
    }
    body.finish(define(signature, "forward"))
}
