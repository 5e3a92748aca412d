//! What torchrun, Slurm's srun or `lowtide train --ranks` say to each process that they start.

use std::env;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use lowtide_torch::MeetingPoint;

use super::slurm;

/// One of several processes that were started together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    /// The number of this rank among those of its machine.
    pub(crate) local_rank: u32,
    /// Ranks of its machine.
    pub(crate) local_world: u32,
    /// Times that the group was started again.
    pub(super) restarts: u32,
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether somebody else, such as torchrun, hosts the store.
    pub(super) is_hosted: bool,
    pub(super) network_interface: Option<String>,
    /// Before all keys, so that several groups can meet in one store.
    pub(super) name: String,
}

/// The variables of the environment, as a function of their name.
pub(super) trait Variables: Fn(&str) -> Option<String> {}

impl<F: Fn(&str) -> Option<String>> Variables for F {}

impl Launch {
    /// What the environment says; `None` where this process is alone.
    pub(crate) fn of_environment() -> anyhow::Result<Option<Launch>> {
        let said = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let launch = if said("RANK").is_some() && said("WORLD_SIZE").is_some() {
            Launch::of_torchrun(said)?
        } else if let Some(launch) = slurm::launch(said)? {
            launch
        } else {
            return Ok(None);
        };
        ensure!(
            launch.rank < launch.world,
            "RANK is {}, and WORLD_SIZE is {}: ranks are counted from 0",
            launch.rank,
            launch.world
        );
        Ok(Some(launch).filter(|launch| launch.world > 1 || launch.restarts > 0))
    }

    /// Whether the group was started again after one of it had ended, so that a run goes on.
    pub(crate) fn is_restart(&self) -> bool {
        self.restarts > 0
    }

    /// Where all ranks meet.
    pub(crate) fn meeting(&self, timeout: Duration) -> MeetingPoint {
        MeetingPoint {
            host: self.host.clone(),
            port: self.port,
            serves: !self.is_hosted && self.rank == 0,
            prefix: format!("lowtide/{}/{}", self.name, self.restarts),
            network_interface: self.network_interface.clone(),
            is_local: self.world == self.local_world,
            rank: self.rank,
            world: self.world,
            timeout,
        }
    }

    /// torchrun's variables, which others set too.
    fn of_torchrun(said: impl Variables) -> anyhow::Result<Launch> {
        let (rank, world) = (number(&said, "RANK")?, number(&said, "WORLD_SIZE")?);
        let (rank, world) = (rank.unwrap_or(0), world.unwrap_or(1));
        let missing =
            "RANK and WORLD_SIZE are set and this is not, so ranks cannot find each other; torchrun sets all of them";
        // A rank alone needs nobody.
        let needs = |name: &str| match said(name) {
            None if world > 1 => Err(anyhow!("{name} is missing: {missing}")),
            value => Ok(value.unwrap_or_default()),
        };
        let (host, port) = (needs("MASTER_ADDR")?, needs("MASTER_PORT")?);
        Ok(Launch {
            rank,
            world,
            local_rank: number(&said, "LOCAL_RANK")?.unwrap_or(rank),
            local_world: number(&said, "LOCAL_WORLD_SIZE")?.unwrap_or(world),
            restarts: number(&said, "TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0),
            host,
            port: if world > 1 { port_of("MASTER_PORT", &port)? } else { 0 },
            is_hosted: said("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True"),
            network_interface: said("GLOO_SOCKET_IFNAME"),
            name: said("TORCHELASTIC_RUN_ID").unwrap_or_default(),
        })
    }
}

/// A whole number, where the variable is set.
pub(super) fn number(said: &impl Variables, name: &str) -> anyhow::Result<Option<u32>> {
    let Some(text) = said(name) else { return Ok(None) };
    text.trim().parse().map(Some).ok().with_context(|| format!("{name} is `{text}`, and must be a whole number"))
}

pub(super) fn port_of(name: &str, text: &str) -> anyhow::Result<u16> {
    let port = text.trim().parse().ok().filter(|port| *port > 0);
    port.with_context(|| format!("{name} is `{text}`, and must be a port from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Variables + 'a {
        move |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_rank_of_torchrun_finds_the_store_of_its_agent() {
        let variables = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "node7"),
            ("MASTER_PORT", "29400"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_RUN_ID", "job"),
        ];
        let launch = Launch::of_torchrun(said(&variables)).unwrap();
        assert!(launch.is_restart() && (launch.local_rank, launch.local_world) == (1, 2));
        let meeting = launch.meeting(Duration::from_secs(5));
        assert_eq!((meeting.rank, meeting.world, meeting.port, meeting.host.as_str()), (3, 4, 29400, "node7"));
        assert_eq!((meeting.prefix.as_str(), meeting.serves, meeting.is_local), ("lowtide/job/2", false, false));
        let first = Launch { rank: 0, is_hosted: false, ..launch };
        assert!(first.meeting(Duration::ZERO).serves);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let refused = |variables: &[(&str, &str)]| Launch::of_torchrun(said(variables)).unwrap_err().to_string();
        let ranks = [("RANK", "0"), ("WORLD_SIZE", "2")];
        assert!(refused(&ranks).starts_with("MASTER_ADDR is missing: "));
        let with = |more: &[(&'static str, &'static str)]| [&ranks[..], more].concat();
        assert!(refused(&with(&[("MASTER_ADDR", "here")])).starts_with("MASTER_PORT is missing: "));
        let words = refused(&with(&[("MASTER_ADDR", "here"), ("MASTER_PORT", "none")]));
        assert_eq!(words, "MASTER_PORT is `none`, and must be a port from 1 to 65535");
        assert_eq!(refused(&[("RANK", "x")]), "RANK is `x`, and must be a whole number");
    }
}
