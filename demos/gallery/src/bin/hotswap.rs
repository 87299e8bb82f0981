//! A server on the loopback interface answers clients all the time while the functions
//! behind its answers are replaced, a thousand times by default.
//!
//! Usage: `hotswap [REPLACEMENTS]`. An answer carries what two functions computed, each of
//! which adds its version. No request may fail, no answer may carry two versions, and no
//! client may see a version after a later one; the program fails otherwise.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use uruk::{Func, Jit, Level, Replacement};

type Reply = Func<extern "C" fn(u64, *mut u64)>;

/// Clients, each with a connection of its own.
const CLIENTS: usize = 2;
/// How long requests may wait for threads in old code to leave it.
const WAIT: Duration = Duration::from_secs(10);

/// The functions of the server. `reply` does some work between its two halves.
fn version(version: u64) -> String {
    format!(
        "define i64 @head(i64 %x) {{ %y = add i64 %x, {version} ret i64 %y }}
        define i64 @tail(i64 %x) {{ %y = mul i64 %x, 3 %z = add i64 %y, {version} ret i64 %z }}
        define void @reply(i64 %x, ptr %out) {{
        entry:
          %head = call i64 @head(i64 %x)
          store i64 %head, ptr %out
          br label %work
        work:
          %i = phi i64 [ 0, %entry ], [ %next, %work ]
          %next = add i64 %i, 1
          call void asm sideeffect \"\", \"\"()
          %more = icmp ult i64 %next, 5000
          br i1 %more, label %work, label %done
        done:
          %tail = call i64 @tail(i64 %x)
          %second = getelementptr i64, ptr %out, i64 1
          store i64 %tail, ptr %second
          ret void
        }}"
    )
}

/// Answers the requests of one client until it leaves.
fn serve(mut stream: TcpStream, reply: &Reply) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; 8];
    while stream.read_exact(&mut request).is_ok() {
        let mut out = [0_u64; 2];
        reply.call(u64::from_le_bytes(request), out.as_mut_ptr());
        stream.write_all(&[out[0].to_le_bytes(), out[1].to_le_bytes()].concat())?;
    }
    Ok(())
}

/// Asks until told to stop; checks every answer.
fn ask(mut stream: TcpStream, stop: &AtomicBool, answered: &AtomicU64) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut latest = 0;
    for x in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        stream.write_all(&x.to_le_bytes())?;
        let mut answer = [[0; 8]; 2];
        stream.read_exact(answer.as_flattened_mut())?;
        let [head, tail] = answer.map(u64::from_le_bytes);
        let (first, second) = (head.wrapping_sub(x), tail.wrapping_sub(3 * x));
        ensure!(
            first == second,
            "torn: versions {first} and {second} in one answer"
        );
        ensure!(first >= latest, "version {first} after version {latest}");
        latest = first;
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Replaces the server's functions so many times; how long requests waited, at most.
fn replace(jit: &Jit, times: u64) -> anyhow::Result<Duration> {
    let mut longest = Duration::ZERO;
    for number in 1..=times {
        let new = Replacement::ir("server", &version(number));
        let replaced = jit
            .main()
            .replace(new.level(Level::Quiescent { wait: WAIT }))?;
        longest = longest.max(replaced.closed);
    }
    Ok(longest)
}

fn main() -> anyhow::Result<()> {
    let times = std::env::args().nth(1).unwrap_or_else(|| "1000".to_owned());
    let times: u64 = times.parse().context("usage: hotswap [REPLACEMENTS]")?;
    let jit = Jit::new()?;
    jit.add_ir("server", &version(0))?;
    // SAFETY: the function of this type above, which stores two words.
    let reply: Reply = unsafe { jit.function("reply")? };

    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let (server, _) = listener.accept()?;
            let reply = reply.clone();
            scope.spawn(move || serve(server, &reply));
            clients.push(scope.spawn(|| ask(client, &stop, &answered)));
        }
        let longest = replace(&jit, times);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no panic")?;
        }
        println!(
            "{times} replacements of 3 functions in {:.1} s",
            began.elapsed().as_secs_f64()
        );
        println!(
            "{} requests answered, 0 failed, 0 torn",
            answered.load(Ordering::Relaxed)
        );
        println!(
            "longest time that calls were held up: {:.1} ms",
            longest?.as_secs_f64() * 1e3
        );
        Ok(())
    })
}
