// A bit of everything that an interpreter of JavaScript has, with one line of output for each.

class Shape {
  constructor(name) { this.name = name; }
  area() { return 0; }
}
class Square extends Shape {
  constructor(side) { super("square"); this.side = side; }
  area() { return this.side * this.side; }
}
class Circle extends Shape {
  constructor(radius) { super("circle"); this.radius = radius; }
  area() { return Math.PI * this.radius ** 2; }
}

function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

function objects() {
  let total = 0;
  for (let i = 0; i < 40000; i++) {
    const shape = i % 3 ? new Square(i % 17) : new Circle(i % 13);
    total += shape.area();
  }
  return total.toFixed(6);
}

function closures() {
  const counters = Array.from({ length: 50 }, (_, i) => { let n = i; return () => n += i; });
  let sum = 0;
  for (let round = 0; round < 400; round++) for (const count of counters) sum += count();
  return sum;
}

function strings() {
  const words = [];
  for (let i = 0; i < 3000; i++) words.push(`w${(i * 7919) % 1000}`);
  const text = words.join(" ");
  const numbers = text.replace(/w(\d)(\d*)/g, (_, a, b) => b + a).split(" ").map(Number);
  return [text.length, numbers.reduce((a, b) => a + b, 0), /w99\d .* w1/.test(text)].join();
}

function maps() {
  const seen = new Map();
  for (let i = 0; i < 30000; i++) {
    const key = `k${(i * i) % 1009}`;
    seen.set(key, (seen.get(key) ?? 0) + 1);
  }
  const most = [...seen].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  return `${seen.size} ${most.slice(0, 3).map(([k, n]) => k + ":" + n).join(" ")}`;
}

function exceptions() {
  let caught = 0, last = 0;
  const fail = (i) => { if (i % 5 === 0) throw new RangeError(`at ${i}`); return i; };
  for (let i = 0; i < 5000; i++) {
    try { last += fail(i); } catch (e) { caught += e instanceof RangeError; } finally { last ^= 1; }
  }
  return `${caught} ${last}`;
}

function* primes(limit) {
  const sieve = new Uint8Array(limit);
  for (let i = 2; i < limit; i++) {
    if (sieve[i]) continue;
    yield i;
    for (let j = i * i; j < limit; j += i) sieve[j] = 1;
  }
}

function generators() {
  let count = 0, last = 0;
  for (const p of primes(50000)) { count++; last = p; }
  return `${count} ${last}`;
}

function numbers() {
  let big = 1n, x = 0.5;
  for (let i = 1n; i <= 120n; i++) big *= i;
  for (let i = 0; i < 50000; i++) x = 3.9 * x * (1 - x);
  return `${big % 1000000007n} ${big.toString().length} ${x.toPrecision(12)}`;
}

function json() {
  const tree = (depth) => depth ? { depth, kids: [tree(depth - 1), tree(depth - 1)] } : null;
  const text = JSON.stringify(tree(10));
  return `${text.length} ${JSON.stringify(JSON.parse(text)) === text}`;
}

for (const part of [objects, closures, strings, maps, exceptions, generators, numbers, json]) {
  console.log(part.name, part());
}
console.log("fib", fib(22));
Promise.resolve(20).then((n) => console.log("later", n + 1));
