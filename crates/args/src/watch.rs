//! What `lowtide watch` takes.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Watch runs in a browser: memory against its limit, every out-of-memory error and its answer, the loss.
///
/// Serves one page that asks for nothing from elsewhere, with what holds memory of the machine and its cards. It can be started before, while and after a run goes, and in no
/// way disturbs it. A folder of several runs shows them side by side. With --pid it shows any process, such as a training
/// script in Python. Ctrl-C ends it. What is on the page is also at /metrics, for Prometheus.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide watch                           the newest run in runs/
  lowtide watch runs/mine                 one run
  lowtide watch runs/a runs/b             two runs, compared; a folder of runs will do too
  lowtide watch --pid 4242                any process: its memory, its children's, its cards
  lowtide watch runs/mine --host 0.0.0.0  for other machines as well; the address then has a token

Exit codes:
  0    ended by Ctrl-C
  2    bad input: no run or no such process is there, or the port cannot be used")]
pub struct WatchArgs {
    /// Folders of runs or of series [default: the newest in runs/].
    #[arg(value_name = "RUN_DIR", value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,

    /// A process to watch instead, with those below it.
    #[arg(long, value_name = "N", conflicts_with = "folders")]
    pub pid: Option<u32>,

    /// The port [default: the first free one from 7823 on].
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,

    /// The address to listen at. For one that other machines can reach a token is made, without which nothing is shown.
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,

    /// Print where the page is as JSON.
    #[arg(long)]
    pub json: bool,

    /// Watch the run that this parent trains, and end with it: what `lowtide train --watch` starts.
    #[arg(long, value_name = "PID", hide = true, conflicts_with_all = ["folders", "pid"])]
    pub with_parent: Option<u32>,
}
