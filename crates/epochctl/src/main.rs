//! The command line of epochd.
//!
//! Data goes to stdout, messages to stderr. The exit codes are in [`exit`].

mod acquire;
mod args;
mod audit;
mod chain;
mod cluster;
mod exit;
mod files;
mod held;
mod key;
mod messages;
mod output;
mod permission;
mod proof;
mod record;
mod run;
mod scope;
mod session;
mod signals;
mod statement;
mod times;
mod token;
mod verify;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use epoch_client::{Client, Options};

use crate::args::{Args, Command};
use crate::exit::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    signals::unblock();
    let code = run_to_the_end();
    messages::flush();
    code
}

fn run_to_the_end() -> ExitCode {
    let given: Vec<_> = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return args::refused(error, &given),
    };
    let output = Output::new(args.output);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::local(format!("cannot start: {error}"), "try again");
            return output.failure(&failure);
        }
    };
    let ended = runtime.block_on(Box::pin(dispatch(args, output)));
    // Whatever is left in the background (a dropped session's close, say) had its chance.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(failure) => output.failure(&failure),
    }
}

async fn dispatch(args: Args, output: Output) -> Result<ExitCode, Failure> {
    // Those of the commands that call nobody are not read.
    let calls_nobody = match &args.command {
        Command::Verify(verify) => verify.pin.is_none() || verify.bundle.is_some(),
        command => matches!(command, Command::Completion { .. }),
    };
    let options = match calls_nobody {
        true => Options::default(),
        false => args.options()?,
    };
    let Args {
        endpoints,
        deadline,
        connection,
        command,
        ..
    } = args;
    let client = || Client::connect(endpoints, options).map_err(Failure::from);
    match command {
        Command::Session(command) => session::session(&client()?, output, command).await?,
        Command::Acquire(command) => acquire::acquire(&client()?, output, *command).await?,
        Command::CancelWait(command) => acquire::cancel_wait(&client()?, output, command).await?,
        Command::Transfer(command) => held::transfer(&client()?, output, command).await?,
        Command::Release(command) => held::release(&client()?, output, command).await?,
        Command::Certify(command) => held::certify(&client()?, output, command).await?,
        Command::Revoke(command) => scope::revoke(&client()?, output, command).await?,
        Command::Get(command) => scope::get(&client()?, output, command).await?,
        Command::List(command) => scope::list(&client()?, output, command).await?,
        Command::Watch(command) => watch::watch(&client()?, output, command).await?,
        Command::Record(command) => record::record(&client()?, output, command).await?,
        Command::Permission(command) => {
            permission::permission(&client()?, output, command).await?;
        }
        Command::Audit(command) => audit::audit(&client()?, output, command).await?,
        Command::Status => cluster::status(&client()?, output).await?,
        Command::Verify(command) => {
            verify::verify(client, output, *command, &connection, deadline).await?
        }
        Command::Key(command) => key::key(client, output, *command).await?,
        Command::Statement(command) => statement::statement(client, output, *command).await?,
        Command::HolderKey(command) => proof::holder_key(output, command)?,
        Command::Proof(command) => proof::proof(output, &command)?,
        Command::Run(command) => return run::run(client()?, output, *command).await,
        Command::Completion { shell } => {
            // Into memory first: the generator panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "epochctl", &mut script);
            // A reader that has gone away has had what it wanted.
            drop(std::io::stdout().write_all(&script));
        }
    }
    Ok(ExitCode::SUCCESS)
}
