//! Statements: which operation comes next, and blocks: branches, switches, loops.

use super::generate::{Generator, Value};
use super::types::{I1, Ty, int};

impl Generator {
    /// A statement at a depth of blocks.
    pub fn statement(&mut self, depth: usize) {
        self.fuel = self.fuel.saturating_sub(1);
        match self.random.below(44) {
            0..=4 => self.arithmetic(),
            5 | 6 => self.shift(),
            7 => self.division(),
            8 | 9 => self.comparison(),
            10 | 11 => self.choice(),
            12 | 13 => self.resize(),
            14 => self.reinterpretation(),
            15 | 16 => self.integer_intrinsic(),
            17 => self.overflow(),
            18 => self.order(),
            19 => self.freeze(),
            20 => self.float_arithmetic(),
            21 => self.float_comparison(),
            22 => self.float_intrinsic(),
            23 => self.float_cast(),
            24 => self.extract(),
            25 => self.insert(),
            26 => self.shuffle(),
            27 => self.reduction(),
            28 => self.aggregate(),
            29 | 30 => self.load(),
            31 => self.store(),
            32 => self.place_of_element(),
            33 => self.pointer(),
            34 => self.atomic(),
            35 => self.rare(),
            36 if depth < 3 => self.branch(depth),
            37 if depth < 3 => self.switch(depth),
            38 if depth < 2 => self.repeat(depth),
            39..=42 => self.local_access(),
            _ => self.arithmetic(),
        }
    }

    fn rare(&mut self) {
        match self.random.below(15) {
            0 => self.copy(),
            1 => self.dynamic(),
            2 => self.atomic_float(),
            3 => self.machine(),
            4 => self.library(),
            5 => self.multiply_add(),
            6 => self.class(),
            7 => self.trap(),
            8 => self.thread_local(),
            9 => self.effectless(),
            10 => self.outside(),
            11 => self.table(),
            12 => self.joined(),
            13 => self.flagged_cast(),
            _ => self.assumption(),
        }
    }

    fn place_of_element(&mut self) {
        match self.random.one_in(4) {
            true => self.addresses(),
            false => self.address(),
        }
    }

    /// Edges from one block to the same one several times.
    fn joined(&mut self) {
        let ty = self.ty();
        let (a, b) = (self.value(ty), self.value(ty));
        let number = self.value(int(16)).name;
        let low = self.step(&format!("and i16 {number}, 7"));
        let bit = self.condition();
        let [next, other, end] = ["next", "other", "end"].map(|it| self.fresh(it));
        let block = self.block.clone();
        self.line(&format!(
            "switch i16 {low}, label %{next} [ i16 1, label %{end} i16 5, label %{end} i16 2, label %{other} ]"
        ));
        self.label(&next);
        self.line(&format!("br i1 {bit}, label %{end}, label %{end}"));
        self.label(&other);
        self.line(&format!("br label %{end}"));
        self.label(&end);
        let (a, b, exact) = (&a.name, &b.name, a.exact && b.exact);
        let first = format!("[ {a}, %{block} ], [ {a}, %{block} ]");
        let second = format!("[ {b}, %{next} ], [ {b}, %{next} ], [ {a}, %{other} ]");
        self.make(ty, &format!("phi {ty} {first}, {second}"), exact);
    }

    /// A path that is never taken.
    fn trap(&mut self) {
        let ty = int(13);
        let value = self.value(ty).name;
        let low = self.step(&format!("and {ty} {value}, 255"));
        let bit = self.step(&format!("icmp ugt {ty} {low}, 255"));
        let (dead, on) = (self.fresh("dead"), self.fresh("on"));
        self.line(&format!("br i1 {bit}, label %{dead}, label %{on}"));
        self.label(&dead);
        let text = self.call("void", "llvm.trap", &[]);
        self.line(&text);
        self.line("unreachable");
        self.label(&on);
    }

    /// Statements of an arm, and the values that it gives.
    fn arm(&mut self, depth: usize, types: &[Ty], end: &str) -> (String, Vec<Value>) {
        let scope = self.scope.len();
        for _ in 0..self.random.below(4) {
            self.statement(depth + 1);
        }
        let values = types.iter().map(|&ty| self.value(ty)).collect();
        self.line(&format!("br label %{end}"));
        self.scope.truncate(scope);
        (self.block.clone(), values)
    }

    /// Phis of what arms give.
    fn join(&mut self, types: &[Ty], arms: &[(String, Vec<Value>)]) {
        for (at, &ty) in types.iter().enumerate() {
            let from: Vec<_> = arms
                .iter()
                .map(|(block, values)| format!("[ {}, %{block} ]", values[at].name))
                .collect();
            let exact = arms.iter().all(|(_, values)| values[at].exact);
            self.make(ty, &format!("phi {ty} {}", from.join(", ")), exact);
        }
    }

    fn types(&mut self) -> Vec<Ty> {
        (0..1 + self.random.below(3)).map(|_| self.ty()).collect()
    }

    fn branch(&mut self, depth: usize) {
        let types = self.types();
        let bit = self.condition();
        let [yes, no, end] = ["yes", "no", "end"].map(|it| self.fresh(it));
        self.line(&format!("br i1 {bit}, label %{yes}, label %{no}"));
        let mut arms = Vec::new();
        for label in [&yes, &no] {
            self.label(label);
            arms.push(self.arm(depth, &types, &end));
        }
        self.label(&end);
        self.join(&types, &arms);
    }

    fn switch(&mut self, depth: usize) {
        let mut bits = self.width();
        if bits > 64 && !self.wild {
            bits = 64;
        }
        let ty = int(bits);
        let types = self.types();
        let mut value = self.value(ty).name;
        if self.random.one_in(2) {
            value = self.step(&format!("and {ty} {value}, {}", ty.number(7)));
        }
        let dense = self.random.one_in(2);
        let mut numbers: Vec<String> = Vec::new();
        for at in 0..self.random.below(9) {
            let number = match dense {
                true => ty.number(at as u128),
                false => ty.constant(&mut self.random),
            };
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let end = self.fresh("end");
        let labels: Vec<_> = (0..1 + self.random.below(4))
            .map(|_| self.fresh("arm"))
            .collect();
        let cases: Vec<_> = numbers
            .iter()
            .enumerate()
            .map(|(at, number)| format!("{ty} {number}, label %{}", labels[at % labels.len()]))
            .collect();
        let other = &labels[0];
        self.line(&format!(
            "switch {ty} {value}, label %{other} [ {} ]",
            cases.join(" ")
        ));
        let mut arms = Vec::new();
        // An arm without a case cannot be reached.
        for label in &labels {
            self.label(label);
            arms.push(self.arm(depth, &types, &end));
        }
        self.label(&end);
        self.join(&types, &arms);
    }

    fn repeat(&mut self, depth: usize) {
        let types = self.types();
        let first: Vec<Value> = types.iter().map(|&ty| self.value(ty)).collect();
        let counter = int(self.random.one_of(&[5, 8, 13, 32, 64]));
        let times = self.index(counter, 4);
        let [head, end] = ["head", "end"].map(|it| self.fresh(it));
        let before = self.block.clone();
        self.line(&format!("br label %{head}"));
        self.label(&head);
        let count = self.fresh("%c");
        let phis: Vec<String> = types.iter().map(|_| self.fresh("%v")).collect();
        // The end of the body is not known yet.
        let place = self.out.len();
        for (&ty, name) in types.iter().zip(&phis) {
            // Values of earlier rounds may be inexact.
            self.keep(ty, name, false);
        }
        let scope = self.scope.len();
        for _ in 0..1 + self.random.below(4) {
            self.statement(depth + 1);
        }
        let next: Vec<Value> = types.iter().map(|&ty| self.value(ty)).collect();
        let more = self.step(&format!("add {counter} {count}, 1"));
        let bit = self.step(&format!("icmp ule {counter} {more}, {times}"));
        self.line(&format!("br i1 {bit}, label %{head}, label %{end}"));
        let mut text = format!(
            "  {count} = phi {counter} [ 0, %{before} ], [ {more}, %{} ]\n",
            self.block
        );
        for (at, name) in phis.iter().enumerate() {
            text += &format!(
                "  {name} = phi {} [ {}, %{before} ], [ {}, %{} ]\n",
                types[at], first[at].name, next[at].name, self.block
            );
        }
        self.out.insert_str(place, &text);
        self.label(&end);
        self.scope.truncate(scope);
        self.keep(I1, &bit, true);
        let again = next.iter().filter(|it| it.name.starts_with("%v"));
        let again: Vec<Value> = again.cloned().collect();
        self.scope.extend(again);
    }
}
