//! What Slurm's srun says to each task that it starts.
//!
//! Outside of a step (in a batch script, say) Slurm sets the number of tasks too, and there is only one process: a step is known
//! by its list of nodes.

use anyhow::Context;

use super::place::{Launch, Variables, number, port_of};

/// Ports from here on, below those that systems give out by themselves.
const FIRST_PORT: u16 = 12_000;
const PORTS: u32 = 16_000;

/// One of the tasks of a step; `None` outside of one.
pub(super) fn launch(said: impl Variables) -> anyhow::Result<Option<Launch>> {
    let (Some(nodes), Some(rank)) = (said("SLURM_STEP_NODELIST"), number(&said, "SLURM_PROCID")?) else {
        return Ok(None);
    };
    let tasks = number(&said, "SLURM_STEP_NUM_TASKS")?.or(number(&said, "SLURM_NTASKS")?);
    let Some(world) = tasks else { return Ok(None) };
    let job = number(&said, "SLURM_JOB_ID")?.unwrap_or(0);
    let step = number(&said, "SLURM_STEP_ID")?.unwrap_or(0);
    let host = match said("MASTER_ADDR") {
        Some(host) => host,
        None => first_host(&nodes).with_context(|| format!("SLURM_STEP_NODELIST names no host: {nodes}"))?,
    };
    let port = match said("MASTER_PORT") {
        Some(port) => port_of("MASTER_PORT", &port)?,
        None => port(job, step),
    };
    let node = number(&said, "SLURM_NODEID")?.unwrap_or(0);
    let counts = said("SLURM_STEP_TASKS_PER_NODE").or_else(|| said("SLURM_TASKS_PER_NODE"));
    Ok(Some(Launch {
        rank,
        world,
        local_rank: number(&said, "SLURM_LOCALID")?.unwrap_or(0),
        local_world: counts.and_then(|counts| tasks_of(&counts, node)).unwrap_or(1),
        restarts: number(&said, "SLURM_RESTART_COUNT")?.unwrap_or(0),
        host,
        port,
        is_hosted: false,
        network_interface: said("GLOO_SOCKET_IFNAME"),
        name: format!("{job}.{step}"),
    }))
}

/// The same port on all nodes, and mostly another for each step of each job.
fn port(job: u32, step: u32) -> u16 {
    let offset = job.wrapping_mul(7).wrapping_add(step) % PORTS;
    FIRST_PORT + u16::try_from(offset).expect("it is below the number of ports")
}

/// The first of `node[03-05,07],login`: node03.
fn first_host(nodes: &str) -> Option<String> {
    let (mut host, mut rest) = (String::new(), nodes.trim());
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        let Some(inside) = rest[end..].strip_prefix('[') else { break };
        let (list, after) = inside.split_once(']')?;
        host.push_str(&list[..list.find(['-', ',']).unwrap_or(list.len())]);
        rest = after;
    }
    Some(host).filter(|host| !host.is_empty())
}

/// The tasks of a node in `4(x2),3`, which are 4, 4 and 3.
fn tasks_of(counts: &str, node: u32) -> Option<u32> {
    let mut before = 0;
    for part in counts.trim().split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse::<u32>().ok()?),
            None => (part, 1),
        };
        before += times;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_list() {
        let check = |nodes: &str, expect: Option<&str>| assert_eq!(first_host(nodes).as_deref(), expect, "{nodes}");
        check("alone", Some("alone"));
        check("one,two", Some("one"));
        check("node[03-05,07],login", Some("node03"));
        check("node[7,9]", Some("node7"));
        check("rack[1-2]node[08-10].cluster", Some("rack1node08.cluster"));
        check("node[3", None);
        check("", None);
    }

    #[test]
    fn tasks_by_node() {
        let check = |counts: &str, expect: &[u32]| {
            let found: Vec<u32> = (0..).map_while(|node| tasks_of(counts, node)).collect();
            assert_eq!(found, expect, "{counts}");
        };
        check("4(x2),3", &[4, 4, 3]);
        check("8", &[8]);
        check("1,2(x3)", &[1, 2, 2, 2]);
        check("x", &[]);
    }

    #[test]
    fn a_task_of_a_step_is_a_rank() {
        let variables = [
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NODEID", "1"),
            ("SLURM_TASKS_PER_NODE", "4(x2)"),
            ("SLURM_STEP_NODELIST", "gpu[11-12]"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "2"),
        ];
        let said = |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
        let launch = launch(said).unwrap().unwrap();
        assert_eq!((launch.rank, launch.world, launch.local_rank, launch.local_world), (5, 8, 1, 4));
        assert_eq!((launch.host.as_str(), launch.name.as_str()), ("gpu11", "4711.2"));
        assert_eq!(launch.port, port(4711, 2));
        assert!(!launch.is_restart());
    }

    #[test]
    fn a_batch_script_is_no_step() {
        let said = |name: &str| match name {
            "SLURM_PROCID" => Some("0".to_owned()),
            "SLURM_NTASKS" => Some("8".to_owned()),
            _ => None,
        };
        assert_eq!(launch(said).unwrap(), None);
    }
}
