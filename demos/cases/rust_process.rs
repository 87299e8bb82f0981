// Arguments, environment, standard input, files, child processes, sockets, exit.
// args: first second--third
// env: CASE_RUST=set
// stdin: line one\nline two\n
// status: 33
// gate: D
use std::env;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{self, Command, Stdio};
use std::thread;

struct NotDropped;

impl Drop for NotDropped {
    fn drop(&mut self) {
        println!("process::exit must not come here");
    }
}

fn main() {
    println!("{:?} {:?}", env::args().skip(1).collect::<Vec<_>>(), env::var("CASE_RUST"));
    println!("{:?}", env::var("CASE_MISSING").is_err());
    let lines: Vec<String> = io::stdin().lock().lines().map(Result::unwrap).collect();
    println!("{lines:?}");
    println!("{:?}", fs::read("/no/such/file").map_err(|error| error.kind()));

    let output = Command::new("sh").args(["-c", "echo $0 $CASE_RUST; exit 4", "child"]).output().unwrap();
    println!("{:?} {:?}", output.status.code(), String::from_utf8_lossy(&output.stdout));
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through cat").unwrap();
    let echoed = cat.wait_with_output().unwrap();
    println!("{}", String::from_utf8_lossy(&echoed.stdout));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        text.to_uppercase()
    });
    TcpStream::connect(address).unwrap().write_all(b"over a socket").unwrap();
    println!("{}", server.join().unwrap());

    let _guard = NotDropped;
    print!("no newline");
    process::exit(33);
}
