//! What `lowtide report` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Write a run down as one HTML file that opens from disk, and its chart as SVG or PNG.
///
/// The file has its data inside and asks for nothing: the summary, memory over time, every out-of-memory error and its
/// answer, what was foreseen against what was measured, the loss. A folder of several runs shows them side by side.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide report                                  the newest run in runs/
  lowtide report runs/mine                        writes report.html here
  lowtide report runs/mine --out mine.html --svg mine.svg --png mine.png

Exit codes:
  0    written
  2    bad input: no run is there, or a file cannot be written")]
pub struct ReportArgs {
    /// Folders of runs or of series [default: the newest in runs/].
    #[arg(value_name = "RUN_DIR", value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,

    /// The HTML file to write; one that is there is replaced.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "report.html")]
    pub out: PathBuf,

    /// Write the chart of the run as SVG too. Of several runs, that of the last.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,

    /// Write the chart of the run as PNG too, 1920 pixels wide. Of several runs, that of the last.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub png: Option<PathBuf>,
}
