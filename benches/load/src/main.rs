//! `mq9-load`: puts a server under load from one thread, checks that everything arrived, and prints
//! one line of JSON: the rate, and the processor time of both sides.

mod append;
mod arguments;
mod asking;
mod commander;
mod connection;
mod create;
mod drain;
mod failure;
mod fanout;
mod frame;
mod latency;
mod load;
mod pace;
mod poller;
mod processor;
mod publish;
mod push;
mod request;
mod requester;
mod resp;
mod target;
mod template;
mod wait;
mod work;

use std::io::Write as _;
use std::process::ExitCode;

use arguments::{Arguments, USAGE};
use failure::{Doing as _, Failure};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mq9-load: {error}");
            if let Failure::Usage(_) = error {
                eprintln!("\n{USAGE}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let (scenario, mut arguments) = Arguments::parse(std::env::args().skip(1))?;
    if let Some(core) = arguments.optional("cpu")? {
        processor::pin(core)?;
    }
    let line = match &scenario[..] {
        "publish" => publish::run(arguments),
        "fanout" => fanout::run(arguments),
        "request" => request::run(arguments),
        "append" => append::run(arguments),
        "drain" => drain::run(arguments),
        "create" => create::run(arguments),
        "wait" => wait::run(arguments),
        "push" => push::run(arguments),
        "work" => work::run(arguments),
        _ => Err(Failure::Usage(format!("no scenario is called {scenario:?}"))),
    }?;
    writeln!(std::io::stdout(), "{line}").doing("print the result")
}
