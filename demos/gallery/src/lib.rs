//! The language of `embed` and `race`. Values are floats; what is not zero is true.
//!
//! ```text
//! line    = [ name "(" [ name { "," name } ] ")" "=" ] value
//! value   = operand { ( "<" | "+" | "-" | "*" | "/" ) operand }
//! operand = number | name | name "(" [ value { "," value } ] ")" | "(" value ")"
//!         | "if" value "then" value "else" value
//! ```

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use uruk::inkwell::FloatPredicate::{OLT, UNE};
use uruk::inkwell::values::{FloatValue, FunctionValue};
use uruk::inkwell::{builder::Builder, module::Module};

/// The symbol of a line without a definition; `()` tells `floor` from libm's.
pub const VALUE: &str = "=()";

struct Compiler<'a, 'ctx> {
    module: &'a Module<'ctx>,
    builder: Builder<'ctx>,
    scope: HashMap<&'a str, FloatValue<'ctx>>,
    /// The words that are still to be read, the next one last.
    words: Vec<&'a str>,
}

/// Adds the function that a line stands for; it may call what the module declares.
pub fn compile<'ctx>(module: &Module<'ctx>, line: &str) -> Result<FunctionValue<'ctx>> {
    let (head, body) = line.split_once('=').unwrap_or(("=", line));
    let head = head.replace(['(', ')', ','], " ");
    let mut names = head.split_whitespace();
    let name = names.next().context("what is defined has no name")?;
    let apart = |text: String, sign: &str| text.replace(sign, &format!(" {sign} "));
    let signs = ["(", ")", ",", "<", "+", "-", "*", "/"].into_iter();
    let spaced = signs.fold(body.to_owned(), apart);
    let words: Vec<_> = spaced.split_whitespace().rev().collect();
    ensure!(words.len() < 1000, "the line is too long"); // Bounds the recursion of `value`.
    let function = declare(module, &format!("{name}()"), names.clone().count())?;
    let values = function.get_param_iter().map(|p| p.into_float_value());
    let scope = names.zip(values).collect();
    let builder = module.get_context().create_builder();
    builder.position_at_end(module.get_context().append_basic_block(function, ""));
    let mut compiler = Compiler {
        module,
        builder,
        scope,
        words,
    };
    let value = compiler.value(0)?;
    compiler.builder.build_return(Some(&value))?;
    ensure!(compiler.words.is_empty(), "the line goes on after its end");
    Ok(function)
}

impl<'ctx> Compiler<'_, 'ctx> {
    /// Operands and operators that bind at least as closely as asked.
    fn value(&mut self, least: usize) -> Result<FloatValue<'ctx>> {
        let mut left = self.operand()?;
        while let Some(word) = self.words.last().copied()
            && let Some(closeness) = ["<", "+-", "*/"].iter().position(|all| all.contains(word))
            && closeness >= least
        {
            self.words.pop();
            let right = self.value(closeness + 1)?;
            let b = &self.builder;
            left = match word {
                "+" => b.build_float_add(left, right, "")?,
                "-" => b.build_float_sub(left, right, "")?,
                "*" => b.build_float_mul(left, right, "")?,
                "/" => b.build_float_div(left, right, "")?,
                _ => {
                    let less = b.build_float_compare(OLT, left, right, "")?;
                    b.build_unsigned_int_to_float(less, left.get_type(), "")?
                }
            };
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<FloatValue<'ctx>> {
        let word = self.words.pop().context("the line ends too early")?;
        if word == "(" {
            let value = self.value(0)?;
            self.expect(")").map(|_| value)
        } else if word == "if" {
            self.choice()
        } else if let Some(value) = self.scope.get(word) {
            Ok(*value)
        } else if let Ok(number) = word.parse() {
            Ok(self.module.get_context().f64_type().const_float(number))
        } else {
            let callee = self.module.get_function(&format!("{word}()"));
            self.call(callee.with_context(|| format!("`{word}` is not defined"))?)
        }
    }

    fn choice(&mut self) -> Result<FloatValue<'ctx>> {
        let condition = self.value(0)?;
        let context = self.module.get_context();
        let start = self.builder.get_insert_block().context("no block")?;
        let [done, no, yes] = [(); 3].map(|()| context.insert_basic_block_after(start, ""));
        let zero = condition.get_type().const_zero();
        let truth = self.builder.build_float_compare(UNE, condition, zero, "")?;
        self.builder.build_conditional_branch(truth, yes, no)?;
        let mut ends = Vec::new();
        for (word, block) in [("then", yes), ("else", no)] {
            self.expect(word)?;
            self.builder.position_at_end(block);
            let value = self.value(0)?;
            ends.push((value, self.builder.get_insert_block()));
            self.builder.build_unconditional_branch(done)?;
        }
        self.builder.position_at_end(done);
        let phi = self.builder.build_phi(zero.get_type(), "")?;
        for (value, block) in ends {
            phi.add_incoming(&[(&value, block.context("no block")?)]);
        }
        Ok(phi.as_basic_value().into_float_value())
    }

    fn call(&mut self, callee: FunctionValue<'ctx>) -> Result<FloatValue<'ctx>> {
        let mut values = Vec::new();
        self.expect("(")?;
        for at in 0..callee.count_params() {
            if at > 0 {
                self.expect(",")?;
            }
            values.push(self.value(0)?.into());
        }
        self.expect(")")?;
        let call = self.builder.build_call(callee, &values, "")?;
        Ok(call.try_as_basic_value().unwrap_basic().into_float_value())
    }

    fn expect(&mut self, wanted: &str) -> Result<&str> {
        let word = self.words.pop_if(|word| *word == wanted);
        word.with_context(|| format!("a `{wanted}` is missing"))
    }
}

/// The function of a symbol and so many parameters.
pub fn declare<'c>(module: &Module<'c>, name: &str, takes: usize) -> Result<FunctionValue<'c>> {
    let float = module.get_context().f64_type();
    let kind = float.fn_type(&vec![float.into(); takes], false);
    let known = module.get_function(name);
    let function = known.unwrap_or_else(|| module.add_function(name, kind, None));
    ensure!(function.get_type() == kind, "`{name}` has other parameters");
    Ok(function)
}
