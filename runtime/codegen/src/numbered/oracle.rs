//! The reader of bitcode against LLVM: the same blocks, instructions, operands and types, for
//! every body of modules that LLVM has written.

use std::collections::HashMap;

use inkwell::llvm_sys::core::{
    LLVMConstIntGetZExtValue, LLVMCountParamTypes, LLVMGetElementType, LLVMGetIntTypeWidth,
    LLVMGetNumOperands, LLVMGetNumSuccessors, LLVMGetSuccessor, LLVMGetTypeKind,
    LLVMIsAConstantInt, LLVMIsConstant, LLVMIsNull, LLVMIsUndef, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMOpcode, LLVMTypeKind, LLVMValueKind};
use uruk_bitcode::ir::{BinaryOp, Body, CastOp, Constant, Definition, Op, Type, TypeId, ValueId};

use super::Numbered;
use super::damage::damaged;
use crate::bitcode::Bitcode;
use crate::continuation::parts::{incoming, parameters};
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::reader::{Reader, Verify};
use crate::summary::SymbolId;

struct Compared<'r> {
    reader: &'r Reader,
    numbered: &'r Numbered,
    body: &'r Body,
    values: HashMap<LLVMValueRef, ValueId>,
    blocks: HashMap<usize, u32>,
}

/// Compares all bodies of a module; returns how many.
fn compare(bitcode: &Bitcode) -> usize {
    let reader = Reader::new(bitcode).expect("valid");
    let numbered = Numbered::read(bitcode, reader.summary()).expect("read here, too");
    let mut body = Body::default();
    let mut count = 0;
    for index in 0..reader.summary().symbols.len() as u32 {
        let symbol = SymbolId(index);
        let Some(number) = numbered.body(symbol) else {
            continue;
        };
        let function = reader.function(symbol).expect("a function");
        reader.materialize(function, Verify::Yes).expect("valid");
        let read = numbered
            .source
            .read_body(numbered.bytes(), number, &mut body);
        if let Err(cause) = read {
            panic!("{}: {cause}", function.name());
        }
        let mut compared = Compared {
            reader: &reader,
            numbered: &numbered,
            body: &body,
            values: HashMap::new(),
            blocks: HashMap::new(),
        };
        compared.function(function);
        count += 1;
    }
    count
}

impl Compared<'_> {
    fn function(&mut self, function: FunctionRef<'_>) {
        let name = function.name();
        let first = self.body.first;
        for (index, parameter) in parameters(function).into_iter().enumerate() {
            self.values
                .insert(parameter.raw(), ValueId(first + index as u32));
        }
        let mut next = first + self.body.parameters + self.body.constants.len() as u32;
        for (index, block) in function.blocks().enumerate() {
            self.blocks.insert(block.raw() as usize, index as u32);
            for instruction in block.instructions() {
                // SAFETY: a live value and its type.
                let kind = unsafe { LLVMGetTypeKind(LLVMTypeOf(instruction.raw())) };
                if kind != LLVMTypeKind::LLVMVoidTypeKind {
                    self.values.insert(instruction.raw(), ValueId(next));
                    next += 1;
                }
            }
        }
        let blocks: Vec<_> = function.blocks().collect();
        assert_eq!(blocks.len(), self.body.blocks.len(), "{name}");
        for (block, range) in blocks.iter().zip(&self.body.blocks) {
            let instructions: Vec<_> = block.instructions().collect();
            assert_eq!(instructions.len(), range.len(), "{name}");
            for (theirs, at) in instructions.into_iter().zip(range.clone()) {
                self.instruction(theirs, at as usize, &name);
            }
        }
    }

    fn instruction(&self, theirs: InstructionRef<'_>, at: usize, name: &str) {
        let ours = &self.body.instructions[at];
        let context = || format!("{name}: instruction {at}: {ours:?}");
        assert!(agree(theirs.opcode(), &ours.op), "{}", context());
        let result = self.values.get(&theirs.raw()).copied();
        assert_eq!(ours.result, result, "{}", context());
        if let Some(result) = result {
            let ty = self.body.type_of(&self.numbered.source.module, result);
            // SAFETY: a live value.
            let theirs = unsafe { LLVMTypeOf(theirs.raw()) };
            self.same_type(ty.expect("it has one"), theirs, &context());
        }
        let operands = self.operands(theirs);
        // LLVM-C shows neither cases nor a mask as operands.
        let mine = match (&ours.op, self.body.operands_of(ours)) {
            (Op::Switch(_), all) => &all[..1],
            (Op::ShuffleVector, all) => &all[..2],
            (_, all) => all,
        };
        assert_eq!(operands.len(), mine.len(), "{}", context());
        for (theirs, &ours) in operands.into_iter().zip(mine) {
            self.operand(theirs, ours, &context());
        }
        self.successors(theirs, &ours.op, &context());
    }

    /// Operands in the order of our reader.
    fn operands<'m>(&self, theirs: InstructionRef<'m>) -> Vec<ValueRef<'m>> {
        let mut all: Vec<_> = match theirs.opcode() {
            LLVMOpcode::LLVMPHI => incoming(theirs).map(|(value, _)| value).collect(),
            _ => theirs.operands().flatten().collect(),
        };
        let is_block = |it: &ValueRef<'_>| it.kind() == LLVMValueKind::LLVMBasicBlockValueKind;
        all.retain(|it| !is_block(it));
        match theirs.opcode() {
            LLVMOpcode::LLVMSelect => all.rotate_left(1),
            LLVMOpcode::LLVMStore => all.swap(0, 1),
            LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke => {
                // Bundles' operands come between arguments and the callee.
                // SAFETY: a live call, here and below.
                let bundled =
                    unsafe { inkwell::llvm_sys::core::LLVMGetNumOperandBundles(theirs.raw()) };
                // SAFETY: as above.
                let arguments =
                    unsafe { inkwell::llvm_sys::core::LLVMGetNumArgOperands(theirs.raw()) };
                let callee = all.pop();
                if bundled != 0 {
                    all.truncate(arguments as usize);
                }
                all.splice(0..0, callee);
            }
            LLVMOpcode::LLVMSwitch => all.truncate(1),
            _ => {}
        }
        all
    }

    fn operand(&self, theirs: ValueRef<'_>, ours: ValueId, context: &str) {
        if theirs.kind() == LLVMValueKind::LLVMMetadataAsValueValueKind {
            assert_eq!(ours, ValueId(u32::MAX), "{context}");
            return;
        }
        let module = &self.numbered.source.module;
        let definition = self.body.definition(module, ours);
        if let Some(&value) = self.values.get(&theirs.raw()) {
            assert_eq!(value, ours, "{context}");
            return;
        }
        if let Some(symbol) = self.reader.table().id(theirs) {
            let global = self.numbered.global(symbol);
            assert_eq!(definition, Some(Definition::Global(global)), "{context}");
            return;
        }
        let Some(Definition::Constant(constant)) = definition else {
            panic!("{context}: {definition:?} is no constant");
        };
        self.constant(theirs, constant, context);
        let ty = self.body.type_of(module, ours).expect("it has one");
        // SAFETY: a live value.
        self.same_type(ty, unsafe { LLVMTypeOf(theirs.raw()) }, context);
    }

    fn constant(&self, theirs: ValueRef<'_>, ours: &Constant, context: &str) {
        let raw = theirs.raw();
        // SAFETY: a live value; a constant integer is asked for its value, if it is not too wide.
        unsafe {
            match ours {
                Constant::Null => assert!(LLVMIsNull(raw) != 0, "{context}"),
                Constant::Undef | Constant::Poison => assert!(LLVMIsUndef(raw) != 0, "{context}"),
                Constant::Integer(words) => {
                    assert!(!LLVMIsAConstantInt(raw).is_null(), "{context}");
                    let bits = LLVMGetIntTypeWidth(LLVMTypeOf(raw));
                    if bits <= 64 {
                        let mask = u64::MAX >> (64 - bits);
                        let value = LLVMConstIntGetZExtValue(raw);
                        assert_eq!(value, words[0] & mask, "{context}");
                    }
                }
                Constant::Aggregate(parts) => {
                    let count = LLVMGetNumOperands(raw) as usize;
                    assert_eq!(count, parts.len(), "{context}");
                    for (theirs, &ours) in theirs.parts().zip(parts) {
                        self.operand(theirs, ours, context);
                    }
                }
                Constant::Offset(_, operands) => {
                    for (theirs, &ours) in theirs.parts().zip(operands) {
                        self.operand(theirs, ours, context);
                    }
                }
                Constant::Cast(_, operand) => {
                    let theirs = theirs.parts().next().expect("a cast has one");
                    self.operand(theirs, *operand, context);
                }
                _ => assert!(LLVMIsConstant(raw) != 0 || matches!(ours, Constant::Assembly(_))),
            }
        }
    }

    fn successors(&self, theirs: InstructionRef<'_>, ours: &Op, context: &str) {
        let mine: Vec<u32> = match ours {
            Op::Jump(to) => vec![to.0],
            Op::Branch(to) | Op::Invoke(_, to) => to.iter().map(|it| it.0).collect(),
            Op::Switch(to) | Op::IndirectBranch(to) => to.iter().map(|it| it.0).collect(),
            Op::Phi(from) => {
                let theirs: Vec<u32> = incoming(theirs)
                    .map(|(_, from)| self.blocks[&from])
                    .collect();
                let mine: Vec<u32> = from.iter().map(|it| it.0).collect();
                assert_eq!(theirs, mine, "{context}");
                return;
            }
            _ => return,
        };
        // SAFETY: a live terminator, and indices below its count.
        let theirs: Vec<u32> = unsafe {
            (0..LLVMGetNumSuccessors(theirs.raw()))
                .map(|index| self.blocks[&(LLVMGetSuccessor(theirs.raw(), index) as usize)])
                .collect()
        };
        assert_eq!(theirs, mine, "{context}");
    }

    fn same_type(&self, ours: TypeId, theirs: LLVMTypeRef, context: &str) {
        // SAFETY: a live type, here and below.
        let kind = unsafe { LLVMGetTypeKind(theirs) };
        let ty = self.numbered.source.module.ty(ours);
        let same = match (kind, ty) {
            (LLVMTypeKind::LLVMIntegerTypeKind, Type::Integer(bits)) => {
                // SAFETY: an integer's type.
                *bits == unsafe { LLVMGetIntTypeWidth(theirs) }
            }
            (LLVMTypeKind::LLVMPointerTypeKind, Type::Pointer(_)) => true,
            (LLVMTypeKind::LLVMFloatTypeKind, Type::Float) => true,
            (LLVMTypeKind::LLVMDoubleTypeKind, Type::Double) => true,
            (LLVMTypeKind::LLVMX86_FP80TypeKind, Type::X86Fp80) => true,
            (LLVMTypeKind::LLVMFP128TypeKind, Type::Fp128) => true,
            (LLVMTypeKind::LLVMHalfTypeKind, Type::Half) => true,
            (LLVMTypeKind::LLVMBFloatTypeKind, Type::BFloat) => true,
            (LLVMTypeKind::LLVMVectorTypeKind, Type::Vector(_, of, _))
            | (LLVMTypeKind::LLVMArrayTypeKind, Type::Array(_, of)) => {
                // SAFETY: a type with elements.
                self.same_type(*of, unsafe { LLVMGetElementType(theirs) }, context);
                true
            }
            (LLVMTypeKind::LLVMStructTypeKind, Type::Struct(..)) => true,
            (LLVMTypeKind::LLVMFunctionTypeKind, Type::Function(_, parameters, _)) => {
                // SAFETY: a function's type.
                parameters.len() == unsafe { LLVMCountParamTypes(theirs) } as usize
            }
            (LLVMTypeKind::LLVMTokenTypeKind, Type::Token) => true,
            (LLVMTypeKind::LLVMMetadataTypeKind, Type::Metadata) => true,
            _ => false,
        };
        assert!(same, "{context}: {ty:?} against {kind:?}");
    }
}

/// Whether LLVM's opcode is ours.
fn agree(theirs: LLVMOpcode, ours: &Op) -> bool {
    use LLVMOpcode as L;
    match ours {
        Op::Binary(op, _) => {
            let (of_integers, of_floats) = match op {
                BinaryOp::Add => (L::LLVMAdd, Some(L::LLVMFAdd)),
                BinaryOp::Sub => (L::LLVMSub, Some(L::LLVMFSub)),
                BinaryOp::Mul => (L::LLVMMul, Some(L::LLVMFMul)),
                BinaryOp::UDiv => (L::LLVMUDiv, None),
                BinaryOp::SDiv => (L::LLVMSDiv, Some(L::LLVMFDiv)),
                BinaryOp::URem => (L::LLVMURem, None),
                BinaryOp::SRem => (L::LLVMSRem, Some(L::LLVMFRem)),
                BinaryOp::Shl => (L::LLVMShl, None),
                BinaryOp::LShr => (L::LLVMLShr, None),
                BinaryOp::AShr => (L::LLVMAShr, None),
                BinaryOp::And => (L::LLVMAnd, None),
                BinaryOp::Or => (L::LLVMOr, None),
                BinaryOp::Xor => (L::LLVMXor, None),
            };
            theirs == of_integers || Some(theirs) == of_floats
        }
        Op::Cast(op) => theirs == cast(*op),
        op => Some(theirs) == other(op),
    }
}

fn cast(op: CastOp) -> LLVMOpcode {
    match op {
        CastOp::Trunc => LLVMOpcode::LLVMTrunc,
        CastOp::ZExt => LLVMOpcode::LLVMZExt,
        CastOp::SExt => LLVMOpcode::LLVMSExt,
        CastOp::FpToUi => LLVMOpcode::LLVMFPToUI,
        CastOp::FpToSi => LLVMOpcode::LLVMFPToSI,
        CastOp::UiToFp => LLVMOpcode::LLVMUIToFP,
        CastOp::SiToFp => LLVMOpcode::LLVMSIToFP,
        CastOp::FpTrunc => LLVMOpcode::LLVMFPTrunc,
        CastOp::FpExt => LLVMOpcode::LLVMFPExt,
        CastOp::PtrToInt => LLVMOpcode::LLVMPtrToInt,
        CastOp::IntToPtr => LLVMOpcode::LLVMIntToPtr,
        CastOp::BitCast => LLVMOpcode::LLVMBitCast,
        CastOp::AddrSpaceCast => LLVMOpcode::LLVMAddrSpaceCast,
        CastOp::PtrToAddr => LLVMOpcode::LLVMPtrToAddr,
    }
}

fn other(op: &Op) -> Option<LLVMOpcode> {
    use LLVMOpcode as L;
    Some(match op {
        Op::FNeg(_) => L::LLVMFNeg,
        Op::GetElementPtr(_) => L::LLVMGetElementPtr,
        Op::ExtractValue(_) => L::LLVMExtractValue,
        Op::InsertValue(_) => L::LLVMInsertValue,
        Op::Select => L::LLVMSelect,
        Op::ExtractElement => L::LLVMExtractElement,
        Op::InsertElement => L::LLVMInsertElement,
        Op::ShuffleVector => L::LLVMShuffleVector,
        Op::Compare(predicate) if *predicate < 16 => L::LLVMFCmp,
        Op::Compare(_) => L::LLVMICmp,
        Op::Phi(_) => L::LLVMPHI,
        Op::Alloca { .. } => L::LLVMAlloca,
        Op::Load { .. } => L::LLVMLoad,
        Op::Store { .. } => L::LLVMStore,
        Op::CompareExchange { .. } => L::LLVMAtomicCmpXchg,
        Op::Rmw { .. } => L::LLVMAtomicRMW,
        Op::Fence(_) => L::LLVMFence,
        Op::Call(_) => L::LLVMCall,
        Op::Invoke(..) => L::LLVMInvoke,
        Op::LandingPad(..) => L::LLVMLandingPad,
        Op::Resume => L::LLVMResume,
        Op::VaArg => L::LLVMVAArg,
        Op::Freeze => L::LLVMFreeze,
        Op::Return => L::LLVMRet,
        Op::Jump(_) | Op::Branch(_) => L::LLVMBr,
        Op::Switch(_) => L::LLVMSwitch,
        Op::IndirectBranch(_) => L::LLVMIndirectBr,
        Op::Unreachable => L::LLVMUnreachable,
        _ => return None,
    })
}

const TEXT: &str = r#"
    @data = global [4 x i64] [i64 1, i64 -2, i64 3, i64 4]
    @table = constant [2 x ptr] [ptr @one, ptr getelementptr (i8, ptr @data, i64 8)]
    @thread = thread_local global i32 7
    @other = alias i32 (i32), ptr @one
    declare void @use(...)
    declare i32 @personality(...)
    define i32 @one(i32 %x) {
        %y = add i32 %x, -1
        ret i32 %y
    }
    define i64 @loop(i64 %n, ptr %p) {
    entry:
        %room = alloca [8 x i32], align 16
        br label %head
    head:
        %i = phi i64 [ 0, %entry ], [ %next, %head2 ]
        %sum = phi i64 [ %n, %entry ], [ %more, %head2 ]
        %goes = icmp ult i64 %i, %n
        br i1 %goes, label %body, label %end
    body:
        %at = getelementptr inbounds [4 x i64], ptr @data, i64 0, i64 %i
        %value = load i64, ptr %at, align 8
        %more = add nsw i64 %sum, %value
        %next = add nuw i64 %i, 1
        store volatile i64 %more, ptr %p, align 4
        %odd = trunc i64 %more to i1
        switch i64 %value, label %head2 [ i64 5, label %end i64 -7, label %body2 i64 9, label %head3 ]
    head2:
        br label %head
    body2:
        call void (...) @use(i32 1, double 2.5, ptr @table, ptr %room)
        unreachable
    head3:
        br i1 %odd, label %end, label %end
    end:
        %r = phi i64 [ %sum, %head ], [ 9, %body ], [ 1, %head3 ], [ 1, %head3 ]
        %s = select i1 %goes, i64 %r, i64 undef
        ret i64 %s
    }
    define { i64, i1 } @parts(ptr %p, i128 %w, <4 x float> %v, x86_fp80 %l) personality ptr @personality {
        %pair = cmpxchg ptr %p, i64 1, i64 2 acq_rel monotonic
        %old = extractvalue { i64, i1 } %pair, 0
        %new = insertvalue { i64, i1 } %pair, i64 %old, 0
        %rmw = atomicrmw add ptr %p, i64 %old seq_cst
        fence seq_cst
        %e = extractelement <4 x float> %v, i32 2
        %f = insertelement <4 x float> %v, float %e, i64 1
        %g = shufflevector <4 x float> %f, <4 x float> %v, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
        %n = fneg <4 x float> %g
        %c = fcmp olt <4 x float> %n, zeroinitializer
        %m = mul i128 %w, 36893488147419103233
        %x = fadd x86_fp80 %l, 0xK40008000000000000000
        %z = freeze i128 %m
        %t = invoke i32 @one(i32 3) to label %good unwind label %bad
    good:
        ret { i64, i1 } %new
    bad:
        %lp = landingpad { ptr, i32 } cleanup catch ptr null filter [1 x ptr] [ptr @data]
        resume { ptr, i32 } %lp
    }
    define void @jumps(ptr %to) {
        indirectbr ptr %to, [label %a, label %b]
    a:
        %x = ptrtoint ptr blockaddress(@jumps, %b) to i64
        ret void
    b:
        ret void
    }
"#;

#[test]
fn bodies_are_as_llvm_reads_them() {
    let bitcode = Bitcode::from_ir_text("m", TEXT).expect("valid");
    assert_eq!(compare(&bitcode), 4);
}

/// Runs on the files that `URUK_BITCODE` names, with spaces between them.
#[test]
#[ignore = "files are to be named"]
fn bodies_of_files_are_as_llvm_reads_them() {
    let files = std::env::var("URUK_BITCODE").expect("names of files");
    for file in files.split_whitespace() {
        let bytes = std::fs::read(file).expect("readable");
        println!("{file}: {}", compare(&Bitcode::new(file, bytes)));
    }
}

/// Damaged bitcode is read or refused, in bounds and in time.
#[test]
fn damage_never_panics() {
    let bitcode = Bitcode::from_ir_text("m", TEXT).expect("valid");
    let mut body = Body::default();
    let mut whole = 0;
    for bytes in damaged(bitcode.bytes(), 0x9e37_79b9_7f4a_7c15, 4000) {
        let Ok(source) = uruk_bitcode::Source::read(&bytes) else {
            continue;
        };
        for global in 0..source.module.globals.len() as u32 {
            let Some(number) = source.body_of(global) else {
                continue;
            };
            if source.read_body(&bytes, number, &mut body).is_err() {
                continue;
            }
            whole += 1;
            for instruction in &body.instructions {
                for &operand in body.operands_of(instruction) {
                    if operand != ValueId(u32::MAX) {
                        assert!(body.definition(&source.module, operand).is_some());
                        assert!(body.type_of(&source.module, operand).is_some());
                    }
                }
            }
        }
    }
    assert!(whole > 1000, "{whole}");
}
