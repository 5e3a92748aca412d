//! `lowtide report`: a run written down as one file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use lowtide_watch::{Board, chart, report as page};

use crate::output::{Failure, print, report as end, shown};

/// Write a run down as one HTML file that opens from disk, and its chart as SVG or PNG.
///
/// The file has its data inside and asks for nothing: the summary, memory over time, every out-of-memory error and its
/// answer, what was foreseen against what was measured, the loss. A folder of several runs shows them side by side.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide report runs/mine                        writes report.html here
  lowtide report runs/mine --out mine.html --svg mine.svg --png mine.png

Exit codes:
  0    written
  2    bad input: no run is there, or a file cannot be written")]
pub(crate) struct ReportArgs {
    /// Folders of runs or of series.
    #[arg(value_name = "RUN_DIR", required = true)]
    folders: Vec<PathBuf>,

    /// The HTML file to write; one that is there is replaced.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,

    /// Write the chart of the run as SVG too. Of several runs, that of the last.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the chart of the run as PNG too, 1920 pixels wide. Of several runs, that of the last.
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

pub(crate) fn run(args: &ReportArgs) -> ExitCode {
    end(write(args))
}

fn write(args: &ReportArgs) -> Result<(), Failure> {
    let mut board = Board::open(&args.folders)?;
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
