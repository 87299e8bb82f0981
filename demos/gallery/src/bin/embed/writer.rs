//! Trees to LLVM IR, with inkwell's builder: one function at a time.

use anyhow::{Context as _, Result, bail, ensure};
use uruk::inkwell::FloatPredicate::{OLT, UNE};
use uruk::inkwell::values::{FloatValue, FunctionValue};
use uruk::inkwell::{basic_block::BasicBlock, builder::Builder, module::Module};

use crate::language::Tree::{self, List, Word};
use crate::{language::Names, stack};

/// Writes one function; [`crate::control`] is the rest of it.
pub struct Writer<'a, 'ctx> {
    module: &'a Module<'ctx>,
    pub(super) builder: Builder<'ctx>,
    function: FunctionValue<'ctx>,
    names: &'a Names,
    /// Parameters and names of loops, the innermost last.
    pub(super) scope: Vec<(&'a str, FloatValue<'ctx>)>,
}

impl<'a, 'ctx> Writer<'a, 'ctx> {
    /// Defines a function, whose value is zero if there is no stack left: its symbol.
    ///
    /// # Errors
    /// Unknown names, and lists that make no sense.
    pub fn write(
        module: &'a Module<'ctx>,
        names: &'a Names,
        symbol: String,
        parameters: &[&'a str],
        body: &'a Tree,
    ) -> Result<String> {
        let function = declare(module, &symbol, parameters.len());
        let values = function.get_param_iter().map(|p| p.into_float_value());
        let scope = parameters.iter().copied().zip(values).collect();
        let builder = module.get_context().create_builder();
        let mut writer = Writer {
            module,
            builder,
            function,
            names,
            scope,
        };
        writer.builder.position_at_end(writer.block());
        let full = stack::check(module, &writer.builder)?;
        let value = writer.fork(full, |writer, full| match full {
            true => stack::exhaust(module, &writer.builder).map(|()| writer.number(0.0)),
            false => writer.value(body),
        })?;
        writer.builder.build_return(Some(&value))?;
        Ok(symbol)
    }

    pub(super) fn value(&mut self, tree: &'a Tree) -> Result<FloatValue<'ctx>> {
        let list = match tree {
            Word(word) => return self.word(word),
            List(list) => &list[..],
        };
        match list {
            [Word("if"), condition, yes, no] => {
                let condition = self.value(condition)?;
                let zero = self.number(0.0);
                let truth = self.builder.build_float_compare(UNE, condition, zero, "")?;
                self.fork(truth, |w, truth| w.value(if truth { yes } else { no }))
            }
            [
                Word("for"),
                Word(counter),
                first,
                last,
                Word(name),
                start,
                body,
            ] => {
                let range = (self.value(first)?, self.value(last)?);
                let start = self.value(start)?;
                self.repeat([counter, name], range, start, body)
            }
            [Word(name), values @ ..] => {
                let values = values.iter().map(|value| self.value(value));
                let values = values.collect::<Result<Vec<_>>>()?;
                self.call(name, &values)
            }
            _ => bail!("a list starts with a name"),
        }
    }

    fn word(&self, word: &str) -> Result<FloatValue<'ctx>> {
        if let Ok(number) = word.parse() {
            return Ok(self.number(number));
        }
        let found = self.scope.iter().rev().find(|(name, _)| *name == word);
        let (_, value) = found.with_context(|| format!("`{word}` is not a value here"))?;
        Ok(*value)
    }

    fn call(&self, name: &str, values: &[FloatValue<'ctx>]) -> Result<FloatValue<'ctx>> {
        let builder = &self.builder;
        Ok(match (name, values) {
            ("+", [a, b]) => builder.build_float_add(*a, *b, "")?,
            ("-", [a, b]) => builder.build_float_sub(*a, *b, "")?,
            ("*", [a, b]) => builder.build_float_mul(*a, *b, "")?,
            ("/", [a, b]) => builder.build_float_div(*a, *b, "")?,
            ("<", [a, b]) => {
                let less = builder.build_float_compare(OLT, *a, *b, "")?;
                builder.build_unsigned_int_to_float(less, self.number(0.0).get_type(), "")?
            }
            ("+" | "-" | "*" | "/" | "<" | "if" | "for" | "def", _) => {
                bail!("`{name}` is not used like this")
            }
            _ => {
                let known = self.names.get(name);
                let (symbol, takes) = known.with_context(|| format!("`{name}` is not defined"))?;
                let given = values.len();
                ensure!(
                    given == *takes,
                    "`{name}` takes {takes} values, not {given}"
                );
                let values: Vec<_> = values.iter().map(|value| (*value).into()).collect();
                let callee = declare(self.module, symbol, *takes);
                let call = builder.build_call(callee, &values, "")?;
                call.try_as_basic_value().unwrap_basic().into_float_value()
            }
        })
    }

    pub(super) fn number(&self, number: f64) -> FloatValue<'ctx> {
        self.module.get_context().f64_type().const_float(number)
    }

    pub(super) fn block(&self) -> BasicBlock<'ctx> {
        let context = self.module.get_context();
        context.append_basic_block(self.function, "")
    }

    pub(super) fn here(&self) -> Result<BasicBlock<'ctx>> {
        self.builder
            .get_insert_block()
            .context("no block to write to")
    }
}

fn declare<'ctx>(module: &Module<'ctx>, symbol: &str, parameters: usize) -> FunctionValue<'ctx> {
    module.get_function(symbol).unwrap_or_else(|| {
        let float = module.get_context().f64_type();
        let kind = float.fn_type(&vec![float.into(); parameters], false);
        module.add_function(symbol, kind, None)
    })
}
