//! Statements of random functions: loops, ways that come together, memory, calls, lives.

use super::generate::{Generator, ODD, TYPES};

impl Generator<'_> {
    pub fn statements(&mut self, depth: usize) {
        for _ in 0..2 + self.random.below(4) {
            if self.fuel == 0 {
                return;
            }
            self.fuel -= 1;
            match self.random.below(12) {
                0 | 1 if depth < 3 => self.count(depth),
                2 if depth < 4 => self.choose(depth),
                3 => self.catch(),
                4 if self.chooses => {
                    self.catch();
                    self.count(depth.max(2));
                    self.compare_choice();
                }
                4 => self.call(),
                5 => self.stack(),
                6 if !self.born => self.live(depth),
                7 | 8 => {
                    let ty = TYPES[self.random.below(TYPES.len())];
                    let value = self.value(ty);
                    let changed = self.change(ty, &value);
                    if self.random.one_in(2) {
                        self.word_of(ty, &changed);
                    }
                }
                _ => self.memory(),
            }
        }
    }

    fn memory(&mut self) {
        match self.random.below(14) {
            12 | 13 => self.odd_byte(),
            0 => {
                let word = self.word();
                let low = self.step(&format!("and i64 {word}, 31"));
                let at = self.step(&format!("getelementptr i64, ptr %mem, i64 {low}"));
                self.access(&at);
            }
            1 | 2 => {
                let at = ["%v0", "%v1"][self.random.below(2)];
                self.access(at);
            }
            3 => {
                let value = self.value("i32");
                self.line(&format!("store i32 {value}, ptr %v2"));
            }
            4 => {
                self.make("i32", "load i32, ptr %v2");
                self.make("double", "load double, ptr %v3");
                // Of which only a part is written.
                let whole = self.step("load i16, ptr %v4");
                self.make("i64", &format!("zext i16 {whole} to i64"));
            }
            5 => {
                let value = self.value("double");
                self.line(&format!("store double {value}, ptr %v3"));
                let word = self.word();
                let low = self.step(&format!("trunc i64 {word} to i8"));
                self.line(&format!("store i8 {low}, ptr %v4"));
            }
            6 | 7 => {
                let array = ["%a0", "%a1", "%kept", "%known"][self.random.below(4)];
                let at = self.place(array);
                self.access(&at);
            }
            8 => {
                let word = self.word();
                let index = self.step(&format!("urem i64 {word}, 100"));
                let at = self.step(&format!(
                    "getelementptr [100 x i64], ptr %large, i64 0, i64 {index}"
                ));
                self.access(&at);
            }
            9 => {
                let value = self.value("<4 x i32>");
                self.line(&format!("store <4 x i32> {value}, ptr %vector"));
                self.make("<4 x i32>", "load <4 x i32>, ptr %vector");
            }
            10 => {
                let arrays = ["%a0", "%a1", "%kept"];
                let (to, from) = (self.random.below(3), self.random.below(3));
                if to != from {
                    let (to, from) = (arrays[to], arrays[from]);
                    self.line(&format!(
                        "call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {from}, i64 64, i1 false)"
                    ));
                }
            }
            _ => {
                // Made at the beginning, of what was known then.
                let at = ["%far0", "%far1", "%third"][self.random.below(3)];
                self.access(at);
            }
        }
    }

    /// Exchanges a byte of an `alloca` whose type does not say all its bits.
    fn odd_byte(&mut self) {
        let (name, _, bytes) = ODD[self.random.below(ODD.len())];
        let offset = self.random.below(bytes);
        let at = self.step(&format!("getelementptr i8, ptr {name}, i64 {offset}"));
        let word = self.word();
        let low = self.step(&format!("trunc i64 {word} to i8"));
        let before = self.step(&format!("load i8, ptr {at}"));
        self.line(&format!("store i8 {low}, ptr {at}"));
        self.make("i64", &format!("zext i8 {before} to i64"));
    }

    /// Hands an address out, or has it used by who knows it.
    fn call(&mut self) {
        let word = self.word();
        match self.random.below(4) {
            0 => drop(self.make("i64", &format!("call i64 @touch(ptr %known, i64 {word})"))),
            1 => drop(self.make("i64", &format!("call i64 @again(i64 {word})"))),
            2 => {
                let name = self.name.clone();
                let (deeper, flat) = (self.fresh("deeper"), self.fresh("flat"));
                let low = self.step(&format!("and i64 {word}, 1"));
                let both = self.step(&format!("and i64 {low}, %depth"));
                let is = self.step(&format!("icmp ne i64 {both}, 0"));
                let before = self.block.clone();
                self.line(&format!("br i1 {is}, label %{deeper}, label %{flat}"));
                self.label(&deeper);
                let result = self.step(&format!("call i64 @{name}(ptr %mem, i64 {word}, i64 0)"));
                // Whose address was known is that frame's no more.
                let own = self.step("call i64 @touch(ptr %known, i64 1)");
                let sum = self.step(&format!("add i64 {result}, {own}"));
                self.line(&format!("br label %{flat}"));
                self.label(&flat);
                self.make(
                    "i64",
                    &format!("phi i64 [ 3, %{before} ], [ {sum}, %{deeper} ]"),
                );
            }
            _ => {
                let at = self.place("%known");
                self.line(&format!("store i64 {word}, ptr {at}"));
                self.make("i64", &format!("call i64 @again(i64 {word})"));
            }
        }
    }

    /// Memory on the stack, which is given back.
    fn stack(&mut self) {
        let word = self.word();
        let saved = self.step("call ptr @llvm.stacksave.p0()");
        let through = self.random.one_in(2);
        if through {
            self.line(&format!("store ptr {saved}, ptr %stack"));
        }
        let low = self.step(&format!("and i64 {word}, 7"));
        let count = self.step(&format!("add i64 {low}, 1"));
        let room = self.step(&format!("alloca i64, i64 {count}"));
        let last = self.step(&format!("getelementptr i64, ptr {room}, i64 {low}"));
        self.line(&format!("store i64 {word}, ptr {last}"));
        let scope = self.scope.len();
        if self.fuel > 4 && self.random.one_in(2) {
            self.fuel -= 2;
            self.count(2);
        }
        let read = self.step(&format!("load i64, ptr {last}"));
        self.scope.truncate(scope);
        self.scope.push((read, "i64"));
        let from = match through {
            true => self.step("load ptr, ptr %stack"),
            false => saved,
        };
        self.line(&format!("call void @llvm.stackrestore.p0(ptr {from})"));
    }

    /// A life of variables, with addresses from before it.
    fn live(&mut self, depth: usize) {
        for born in ["%born", "%lives"] {
            let byte = self.random.below(100);
            self.line(&format!("call void @llvm.lifetime.start.p0(ptr {born})"));
            self.line(&format!(
                "call void @llvm.memset.p0.i64(ptr {born}, i8 {byte}, i64 64, i1 false)"
            ));
        }
        self.born = true;
        // Memory that was filled by its name is accessed by the address from before, and the other
        // way round.
        self.read("%early");
        self.write("%early");
        let again = self.step("getelementptr [8 x i64], ptr %born, i64 0, i64 %low");
        self.read(&again);
        let at = self.place("%lives");
        self.write(&at);
        let scope = self.scope.len();
        self.statements(depth + 1);
        self.scope.truncate(scope);
        let at = self.place("%born");
        self.read(&at);
        self.read("%early");
        let at = self.place("%lives");
        self.read(&at);
        self.born = false;
        for born in ["%born", "%lives"] {
            self.line(&format!("call void @llvm.lifetime.end.p0(ptr {born})"));
        }
    }

    /// A branch, or a switch, and what it comes to.
    fn choose(&mut self, depth: usize) {
        let word = self.word();
        let join = self.fresh("join");
        let ways = 2 + self.random.below(3);
        let labels: Vec<String> = (0..ways).map(|_| self.fresh("way")).collect();
        let low = self.step(&format!("and i64 {word}, 3"));
        let cases: Vec<String> = (1..ways)
            .map(|way| format!("i64 {way}, label %{}", labels[way]))
            .collect();
        self.line(&format!(
            "switch i64 {low}, label %{} [ {} ]",
            labels[0],
            cases.join(" ")
        ));
        let ty = TYPES[self.random.below(TYPES.len())];
        let mut from = Vec::new();
        for label in &labels {
            self.label(label);
            let scope = self.scope.len();
            self.statements(depth + 1);
            let value = self.value(ty);
            self.scope.truncate(scope);
            from.push(format!("[ {value}, %{} ]", self.block));
            self.line(&format!("br label %{join}"));
        }
        self.label(&join);
        self.make(ty, &format!("phi {ty} {}", from.join(", ")));
    }

    /// Keeps what a landing pad chose, changed in one of several ways.
    fn keep_choice(&mut self, caught: &str) {
        let chosen = self.step(&format!("extractvalue {{ ptr, i32 }} {caught}, 1"));
        let mut wide = match self.random.one_in(2) {
            true => self.step(&format!("zext i32 {chosen} to i64")),
            false => {
                let swapped = self.step(&format!(
                    "insertvalue {{ i32, ptr }} zeroinitializer, i32 {chosen}, 0"
                ));
                let first = self.step(&format!("extractvalue {{ i32, ptr }} {swapped}, 0"));
                self.step(&format!("sext i32 {first} to i64"))
            }
        };
        let mut at = "%chosen";
        match self.random.below(6) {
            0 => wide = self.step(&format!("call i64 @same(i64 {wide})")),
            1 => {
                let turned = self.step(&format!("xor i64 {wide}, -1"));
                wide = self.step(&format!("xor i64 {turned}, -1"));
            }
            2 | 3 => at = "%copied",
            _ => {}
        }
        self.line(&format!("store i64 {wide}, ptr {at}"));
        if at == "%copied" {
            self.line(
                "call void @llvm.memcpy.p0.p0.i64(ptr %chosen, ptr %copied, i64 8, i1 false)",
            );
        }
    }

    /// Whether a landing pad chose a type last, as a word.
    fn compare_choice(&mut self) {
        let ty = ["@_ZTIl", "@_ZTIi"][self.random.below(2)];
        let number = self.step(&format!("call i32 @llvm.eh.typeid.for.p0(ptr {ty})"));
        let wide = self.step(&format!("zext i32 {number} to i64"));
        let chosen = self.step("load i64, ptr %chosen");
        let is = self.step(&format!("icmp eq i64 {chosen}, {wide}"));
        self.make("i64", &format!("zext i1 {is} to i64"));
    }

    /// A call that may throw, and the handler.
    fn catch(&mut self) {
        let word = self.word();
        let [fine, pad, join] = ["fine", "pad", "join"].map(|it| self.fresh(it));
        let result = self.step(&format!(
            "invoke i64 @throws(i64 {word}) to label %{fine} unwind label %{pad}"
        ));
        self.label(&pad);
        let all = ["", "catch ptr @_ZTIi ", "catch ptr @_ZTId "];
        let other = all[self.random.below(if self.chooses { 3 } else { 1 })];
        let caught = self.step(&format!(
            "landingpad {{ ptr, i32 }} {other}catch ptr @_ZTIl"
        ));
        if self.chooses {
            self.keep_choice(&caught);
        }
        let exception = self.step(&format!("extractvalue {{ ptr, i32 }} {caught}, 0"));
        let object = self.step(&format!("call ptr @__cxa_begin_catch(ptr {exception})"));
        let thrown = self.step(&format!("load i64, ptr {object}"));
        self.line("call void @__cxa_end_catch()");
        self.line(&format!("br label %{join}"));
        self.label(&fine);
        self.line(&format!("br label %{join}"));
        self.label(&join);
        self.make(
            "i64",
            &format!("phi i64 [ {result}, %{fine} ], [ {thrown}, %{pad} ]"),
        );
    }

    /// Ways out of a loop before its end: to its exit, with a value, and out of the function.
    fn leave_in_the_middle(
        &mut self,
        depth: usize,
        ty: &'static str,
        exit: &str,
        outs: &mut Vec<(String, String)>,
    ) {
        if self.random.one_in(3) {
            let (stop, on) = (self.value(ty), self.fresh("on"));
            let word = self.word();
            let low = self.step(&format!("and i64 {word}, 7"));
            let is = self.step(&format!("icmp eq i64 {low}, 3"));
            outs.push((stop, self.block.clone()));
            self.line(&format!("br i1 {is}, label %{exit}, label %{on}"));
            self.label(&on);
            self.statements(depth + 1);
        }
        if self.random.one_in(8) {
            let (word, out, on) = (self.word(), self.fresh("out"), self.fresh("on"));
            let low = self.step(&format!("and i64 {word}, 63"));
            let is = self.step(&format!("icmp eq i64 {low}, 9"));
            self.line(&format!("br i1 {is}, label %{out}, label %{on}"));
            self.label(&out);
            self.line(&format!("ret i64 {word}"));
            self.label(&on);
        }
    }

    /// The middle of a loop that is entered there too, from `before`: of its values only those
    /// live on that both ways give, here first the counter.
    fn meet_in_the_middle(
        &mut self,
        middle: &str,
        before: &str,
        scope: usize,
        values: &mut [(String, &'static str, String)],
    ) {
        let from = self.block.clone();
        self.line(&format!("br label %{middle}"));
        self.label(middle);
        self.scope.truncate(scope);
        for (name, ty, begin) in values {
            let phi = format!("phi {ty} [ {begin}, %{before} ], [ {name}, %{from} ]");
            *name = self.make(ty, &phi);
        }
    }

    /// A loop.
    pub fn count(&mut self, depth: usize) {
        let [head, latch, exit] = ["head", "latch", "exit"].map(|it| self.fresh(it));
        let middle = self.random.one_in(4).then(|| self.fresh("middle"));
        let limit = match self.random.one_in(2) {
            true => format!("{}", 1 + self.random.below(5)),
            false => {
                let word = self.word();
                let low = self.step(&format!("and i64 {word}, 3"));
                self.step(&format!("add i64 {low}, 1"))
            }
        };
        let types: Vec<&'static str> = (0..self.random.below(4))
            .map(|_| TYPES[self.random.below(TYPES.len())])
            .collect();
        let begin: Vec<String> = types.iter().map(|ty| self.value(ty)).collect();
        let before = self.block.clone();
        match &middle {
            None => self.line(&format!("br label %{head}")),
            Some(middle) => {
                let word = self.word();
                let is = self.step(&format!("trunc i64 {word} to i1"));
                self.line(&format!("br i1 {is}, label %{head}, label %{middle}"));
            }
        }
        self.label(&head);
        let scope = self.scope.len();
        let mut counter = self.fresh("%i");
        let next = self.fresh("%n");
        self.line(&format!(
            "{counter} = phi i64 [ 0, %{before} ], [ {next}, %{latch} ]"
        ));
        self.scope.push((counter.clone(), "i64"));
        let mut carried = Vec::new();
        for (ty, begin) in types.iter().zip(&begin) {
            let name = self.fresh("%c");
            self.line(&format!(
                "{name} = phi {ty} [ {begin}, %{before} ], [ @@{name}@@, %{latch} ]"
            ));
            self.scope.push((name.clone(), ty));
            carried.push(name);
        }
        let heads = carried.clone();
        self.statements(depth + 1);
        if let Some(middle) = &middle {
            let own = [(counter.clone(), "i64", "0".to_owned())].into_iter();
            let others = carried.iter().cloned().zip(types.iter().copied());
            let others = others
                .zip(&begin)
                .map(|((name, ty), begin)| (name, ty, begin.clone()));
            let mut values: Vec<_> = own.chain(others).collect();
            self.meet_in_the_middle(middle, &before, scope, &mut values);
            let mut names = values.into_iter().map(|(name, ..)| name);
            counter = names.next().unwrap_or(counter);
            carried = names.collect();
            self.statements(depth + 1);
        }
        let ty = TYPES[self.random.below(TYPES.len())];
        let mut outs = Vec::new();
        self.leave_in_the_middle(depth, ty, &exit, &mut outs);
        let mut after: Vec<String> = Vec::new();
        let swaps = carried.len() >= 2 && types[0] == types[1] && self.random.one_in(2);
        for (index, (ty, name)) in types.iter().zip(&carried).enumerate() {
            after.push(match swaps && index < 2 {
                true => carried[1 - index].clone(),
                false => self.change(ty, name),
            });
        }
        let stop = self.value(ty);
        self.line(&format!("br label %{latch}"));
        self.label(&latch);
        self.line(&format!("{next} = add i64 {counter}, 1"));
        let more = self.step(&format!("icmp ult i64 {next}, {limit}"));
        outs.push((stop, latch.clone()));
        self.line(&format!("br i1 {more}, label %{head}, label %{exit}"));
        for (name, after) in heads.iter().zip(&after) {
            self.out = self.out.replace(&format!("@@{name}@@"), after);
        }
        self.label(&exit);
        self.scope.truncate(scope);
        let from: Vec<String> = outs
            .iter()
            .map(|(value, from)| format!("[ {value}, %{from} ]"))
            .collect();
        self.make(ty, &format!("phi {ty} {}", from.join(", ")));
    }
}
