//! `lowtide report`: a run written down as one file.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use lowtide_args::ReportArgs;
use lowtide_watch::{chart, report as page};

use crate::output::{Failure, print, report as end, shown, to_stderr};
use crate::watch::open_board;

pub(crate) fn run(args: &ReportArgs) -> ExitCode {
    end(write(args))
}

fn write(args: &ReportArgs) -> Result<(), Failure> {
    let (mut board, folders) = open_board(None, &args.folders)?;
    if let ([], [newest]) = (&*args.folders, &*folders) {
        to_stderr(&format!("note: this is the newest run, {}", shown(newest)));
    }
    board.catch_up(SystemTime::now())?;
    write_file(&args.out, page(&board).as_bytes())?;
    let Some(run) = board.runs().last().filter(|_| args.svg.is_some() || args.png.is_some()) else { return Ok(()) };
    let drawing = chart(run);
    if let Some(path) = &args.svg {
        write_file(path, drawing.svg().as_bytes())?;
    }
    if let Some(path) = &args.png {
        write_file(path, &drawing.png())?;
    }
    Ok(())
}

fn write_file(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    fs::write(path, contents).map_err(|error| Failure::bad_input(format!("{}: {error}", path.display()), None))?;
    print(&format!("{}\n", shown(path)))
}
