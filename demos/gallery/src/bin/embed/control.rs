//! Branches and loops, in blocks that phis join.

use anyhow::Result;
use uruk::inkwell::FloatPredicate::OLE;
use uruk::inkwell::values::{FloatValue, IntValue, PhiValue};

use crate::language::Tree;
use crate::writer::Writer;

impl<'a, 'ctx> Writer<'a, 'ctx> {
    /// One of two values; `arm` writes either, in blocks of its own.
    pub fn fork(
        &mut self,
        condition: IntValue<'ctx>,
        mut arm: impl FnMut(&mut Self, bool) -> Result<FloatValue<'ctx>>,
    ) -> Result<FloatValue<'ctx>> {
        let [yes, no, done] = [self.block(), self.block(), self.block()];
        self.builder.build_conditional_branch(condition, yes, no)?;
        let mut ends = Vec::new();
        for (block, truth) in [(yes, true), (no, false)] {
            self.builder.position_at_end(block);
            ends.push((arm(self, truth)?, self.here()?));
            self.builder.build_unconditional_branch(done)?;
        }
        self.builder.position_at_end(done);
        let phi = self.builder.build_phi(self.number(0.0).get_type(), "")?;
        ends.iter()
            .for_each(|(value, block)| phi.add_incoming(&[(value, *block)]));
        Ok(value_of(phi))
    }

    /// The second of the two names gets the value of `body` for each value of the first.
    pub fn repeat(
        &mut self,
        names: [&'a str; 2],
        (first, last): (FloatValue<'ctx>, FloatValue<'ctx>),
        start: FloatValue<'ctx>,
        body: &'a Tree,
    ) -> Result<FloatValue<'ctx>> {
        let [head, inner, done] = [self.block(), self.block(), self.block()];
        let before = self.here()?;
        self.builder.build_unconditional_branch(head)?;
        self.builder.position_at_end(head);
        let count = self.builder.build_phi(first.get_type(), "")?;
        let result = self.builder.build_phi(first.get_type(), "")?;
        let more = self
            .builder
            .build_float_compare(OLE, value_of(count), last, "")?;
        self.builder.build_conditional_branch(more, inner, done)?;
        self.builder.position_at_end(inner);
        self.scope
            .extend(names.into_iter().zip([count, result].map(value_of)));
        let value = self.value(body)?;
        self.scope.truncate(self.scope.len() - names.len());
        let next = self
            .builder
            .build_float_add(value_of(count), self.number(1.0), "")?;
        count.add_incoming(&[(&first, before), (&next, self.here()?)]);
        result.add_incoming(&[(&start, before), (&value, self.here()?)]);
        self.builder.build_unconditional_branch(head)?;
        self.builder.position_at_end(done);
        Ok(value_of(result))
    }
}

fn value_of(phi: PhiValue<'_>) -> FloatValue<'_> {
    phi.as_basic_value().into_float_value()
}
