//! Several processes that train together, over LibTorch's own store and gloo group, and by NCCL beside it ([`Ranks::use_nccl`]).
//!
//! Every call here but those from one rank to another is made by all ranks in the same order, and returns on none before all have
//! made it. A rank that does not is waited for up to the timeout; then all others find out by a roll call in the store who it was, and end with that error.

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tch::Tensor;

use crate::error::TorchError;
use crate::ffi;

/// How long a rank that heard of a failure waits for others to say that they are there.
const ROLL_CALL: Duration = Duration::from_secs(5);
/// Beyond the timeout, for LibTorch to say itself what is wrong.
const STORE_GRACE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Where ranks meet, and who this one is among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeetingPoint {
    /// The host of the store.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether this process hosts the store; else somebody else does.
    pub serves: bool,
    /// Before all keys in the store: another one for each start of the group.
    pub prefix: String,
    /// The network interface that tensors go through; `None` takes the one of the host's name.
    pub network_interface: Option<String>,
    /// Whether all ranks are on this machine.
    pub is_local: bool,
    /// The number of this rank, from 0.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// How long a rank is waited for.
    pub timeout: Duration,
}

/// Why ranks cannot train together; each is the same on every rank, but for the rank that is to blame.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RanksError {
    /// This process was not told who it is among others, or where they meet.
    #[error("{0}")]
    Unplaced(String),
    /// Something else listens there.
    #[error("port {port} is taken by another program, and the ranks were to meet there")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// Nobody hosts the store.
    #[error("nobody answered at {host}:{port} within {}, where rank 0 was to be: {message}", seconds(*.timeout))]
    NobodyThere {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// How long was waited.
        timeout: Duration,
        /// The engine's own words.
        message: String,
    },
    /// Some ranks did not come.
    #[error("{} of {world} did not come within {}", RankList(missing), seconds(*.timeout))]
    Missing {
        /// Those who did not.
        missing: Vec<u32>,
        /// The number of ranks.
        world: u32,
        /// How long was waited.
        timeout: Duration,
    },
    /// Some ranks ended, or did not answer any more.
    #[error("{} fell silent while {doing}: {message}", RankList(silent))]
    Silent {
        /// Those who did; empty where all others are still there.
        silent: Vec<u32>,
        /// What all were to do together.
        doing: &'static str,
        /// The engine's own words.
        message: String,
    },
    /// Tensors were to go by NCCL alone.
    #[error("ranks.backend is nccl, and tensors cannot go by it: {0}")]
    NoNccl(String),
    /// This rank itself cannot go on.
    #[error(transparent)]
    Own(#[from] TorchError),
}

/// Ranks in words.
struct RankList<'a>(&'a [u32]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match self.0.len() {
            0 => formatter.write_str("a rank"),
            1 => write!(formatter, "rank {names}"),
            _ => write!(formatter, "ranks {names}"),
        }
    }
}

fn seconds(timeout: Duration) -> String {
    format!("{} s", timeout.as_secs_f64())
}

/// This process among the ranks.
#[derive(Debug)]
pub struct Ranks {
    pub(crate) handle: *mut c_void,
    /// Whether something failed that all were to do together: nothing can be done together since.
    has_hung_up: Cell<bool>,
    rank: u32,
    world: u32,
}

impl Ranks {
    /// Meets all other ranks.
    pub fn join(meeting: &MeetingPoint) -> Result<Ranks, RanksError> {
        // SAFETY: sets a function pointer of the engine's.
        unsafe { ffi::lt_leave_out_stacks() };
        let handle = open_store(meeting)?;
        let ranks = Ranks { handle, has_hung_up: Cell::new(false), rank: meeting.rank, world: meeting.world };
        let missing = ranks.roll_call("here", meeting.timeout);
        if !missing.is_empty() {
            return Err(RanksError::Missing { missing, world: meeting.world, timeout: meeting.timeout });
        }
        // SAFETY: the handle is a store that is open.
        let connected = meeting.with_address(|address| unsafe { ffi::lt_ranks_connect(ranks.handle, address) }.check());
        connected.map_err(|error| ranks.silence("connecting with each other", &error))?;
        Ok(ranks)
    }

    /// The number of this one, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many there are.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Ends what ranks do together, once all are done with it: nobody closes connections that another still reads from, and the one that
    /// hosts the store leaves last. One who does not come is waited for a few seconds.
    pub fn part(self) {
        if self.has_hung_up.get() {
            return;
        }
        let _ = self.roll_call("done", ROLL_CALL);
        self.hang_up();
        if self.rank == 0 {
            let _ = self.roll_call("left", ROLL_CALL);
        } else {
            let _ = self.say("left");
        }
    }

    /// Some numbers of each rank, in the order of ranks; every rank brings as many. One message, and no tensor memory.
    pub fn gather_numbers(&self, doing: &'static str, mine: &[i64]) -> Result<Vec<Vec<i64>>, RanksError> {
        let bytes: Vec<u8> = mine.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let rows = self.gather_rows(doing, &bytes)?;
        let number = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        Ok(rows.iter().map(|row| row.chunks_exact(8).map(number).collect()).collect())
    }

    /// Some bytes of each rank, in the order of ranks; their numbers may differ.
    pub fn gather(&self, doing: &'static str, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let lengths = self.gather_numbers(doing, &[i64::try_from(mine.len()).unwrap_or(i64::MAX)])?;
        let lengths: Vec<usize> = lengths.iter().map(|row| usize::try_from(row[0]).unwrap_or(0)).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return Ok(vec![Vec::new(); lengths.len()]);
        }
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let mut rows = self.gather_rows(doing, &padded)?;
        rows.iter_mut().zip(lengths).for_each(|(row, length)| row.truncate(length));
        Ok(rows)
    }

    /// Adds up a tensor over all ranks, in place on each, with the same bits on all.
    pub fn sum(&self, doing: &'static str, tensor: &Tensor) -> Result<(), RanksError> {
        self.check_connected(doing)?;
        // SAFETY: both live through the call.
        let summed = unsafe { ffi::lt_ranks_sum(self.handle, tensor.as_ptr()) };
        summed.check().map_err(|error| self.silence(doing, &error))
    }

    /// Copies a tensor of rank 0 into those of all others, in place.
    pub fn spread(&self, doing: &'static str, tensor: &Tensor) -> Result<(), RanksError> {
        self.spread_from(0, doing, tensor)
    }

    /// Copies a tensor of one rank into those of all others, in place.
    pub fn spread_from(&self, rank: u32, doing: &'static str, tensor: &Tensor) -> Result<(), RanksError> {
        self.check_connected(doing)?;
        // SAFETY: both live through the call.
        let spread = unsafe { ffi::lt_ranks_broadcast(self.handle, tensor.as_ptr(), number(rank)) };
        spread.check().map_err(|error| self.silence(doing, &error))
    }

    /// Sends a contiguous tensor to one rank, which receives it. Allocates no tensor memory.
    pub fn send(&self, to: u32, doing: &'static str, tensor: &Tensor) -> Result<(), RanksError> {
        self.check_connected(doing)?;
        // SAFETY: both live through the call.
        let sent = unsafe { ffi::lt_ranks_send(self.handle, tensor.as_ptr(), number(to)) };
        sent.check().map_err(|error| self.silence(doing, &error))
    }

    /// Receives what one rank sends into a contiguous tensor of the same size. Allocates no tensor memory.
    pub fn receive(&self, from: u32, doing: &'static str, tensor: &Tensor) -> Result<(), RanksError> {
        self.check_connected(doing)?;
        // SAFETY: both live through the call.
        let received = unsafe { ffi::lt_ranks_receive(self.handle, tensor.as_ptr(), number(from)) };
        received.check().map_err(|error| self.silence(doing, &error))
    }

    /// Sends a number to one rank, which receives it.
    pub fn send_number(&self, to: u32, doing: &'static str, value: i64) -> Result<(), RanksError> {
        self.check_connected(doing)?;
        // SAFETY: the handle lives through the call.
        let sent = unsafe { ffi::lt_ranks_send_number(self.handle, value, number(to)) };
        sent.check().map_err(|error| self.silence(doing, &error))
    }

    /// Receives a number of one rank.
    pub fn receive_number(&self, from: u32, doing: &'static str) -> Result<i64, RanksError> {
        self.check_connected(doing)?;
        let mut value = 0;
        // SAFETY: the handle lives through the call; `value` is valid for writing, and nobody writes to it afterwards.
        let received = unsafe { ffi::lt_ranks_receive_number(self.handle, &mut value, number(from)) };
        received.check().map_err(|error| self.silence(doing, &error))?;
        Ok(value)
    }

    /// A row of each rank, all of the same length.
    fn gather_rows(&self, doing: &'static str, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        self.check_connected(doing)?;
        let mut rows = vec![0_u8; mine.len() * self.world as usize];
        let start = mine.len() * self.rank as usize;
        rows[start..start + mine.len()].copy_from_slice(mine);
        // SAFETY: the buffer is ours alone and lives through the call, which returns when nobody writes to it any more.
        let gathered = unsafe { ffi::lt_ranks_gather(self.handle, rows.as_mut_ptr(), rows.len()) };
        gathered.check().map_err(|error| self.silence(doing, &error))?;
        Ok(rows.chunks_exact(mine.len().max(1)).map(<[u8]>::to_vec).collect())
    }

    fn check_connected(&self, doing: &'static str) -> Result<(), RanksError> {
        if !self.has_hung_up.get() {
            return Ok(());
        }
        Err(RanksError::Silent { silent: Vec::new(), doing, message: "the ranks have parted already".to_owned() })
    }

    /// Who is to blame for something that failed.
    fn silence(&self, doing: &'static str, error: &TorchError) -> RanksError {
        self.hang_up();
        RanksError::Silent { silent: self.roll_call("alive", ROLL_CALL), doing, message: first_line(error) }
    }

    /// Closes the connections with others.
    fn hang_up(&self) {
        self.has_hung_up.set(true);
        // SAFETY: the handle is open; nothing else is done with its group any more.
        unsafe { ffi::lt_ranks_hang_up(self.handle) };
    }

    /// Says under `key` that this rank is there.
    fn say(&self, key: &str) -> Result<(), TorchError> {
        let name = name_of(key, self.rank);
        // SAFETY: handle, key and value live through the call.
        unsafe { ffi::lt_ranks_set(self.handle, name.as_ptr(), c"1".as_ptr(), 1) }.check()
    }

    /// Says under `key` that this rank is there, and waits for all others to say so; those who did not.
    fn roll_call(&self, key: &str, patience: Duration) -> Vec<u32> {
        let begun = Instant::now();
        if self.say(key).is_err() {
            // The store is gone, and with it the rank that hosts it.
            return vec![0];
        }
        let mut missing: Vec<u32> = (0..self.world).filter(|rank| *rank != self.rank).collect();
        loop {
            let mut store_is_gone = false;
            missing.retain(|rank| {
                let mut there = 0;
                // SAFETY: handle and key live through the call; `there` is valid for writing.
                let looked = unsafe { ffi::lt_ranks_check(self.handle, name_of(key, *rank).as_ptr(), &mut there) };
                store_is_gone |= looked.check().is_err();
                there == 0
            });
            if missing.is_empty() || store_is_gone || begun.elapsed() >= patience {
                return missing;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The key under which a rank says something.
fn name_of(key: &str, rank: u32) -> CString {
    CString::new(format!("{key}/{rank}")).expect("it has no zero")
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and this is its last use.
        unsafe { ffi::lt_ranks_leave(self.handle) };
    }
}

/// Opens the store. LibTorch waits without end for one who listens there and never answers, so a thread of its own does this; where
/// that is stuck, it is left behind, and the process is about to end.
fn open_store(meeting: &MeetingPoint) -> Result<*mut c_void, RanksError> {
    let (sender, receiver) = mpsc::channel();
    let own = meeting.clone();
    thread::spawn(move || {
        let mut handle = ptr::null_mut();
        // SAFETY: the address lives through the call; `handle` is valid for writing.
        let opened = own.with_address(|address| unsafe { ffi::lt_ranks_store(address, &mut handle) }.check());
        // A pointer as a number, to pass from one thread to another: nothing else knows it.
        let _ = sender.send(opened.map(|()| handle.expose_provenance()));
    });
    match receiver.recv_timeout(meeting.timeout.saturating_add(STORE_GRACE)) {
        Ok(Ok(handle)) => Ok(ptr::with_exposed_provenance_mut(handle)),
        Ok(Err(error)) => Err(meeting.refusal(&error)),
        Err(_) => {
            let message = "somebody listens there and does not answer as a rank would".to_owned();
            Err(RanksError::NobodyThere {
                host: meeting.host.clone(),
                port: meeting.port,
                timeout: meeting.timeout,
                message,
            })
        }
    }
}

impl MeetingPoint {
    /// Calls the shim with it.
    fn with_address<T>(&self, call: impl FnOnce(&ffi::RanksAddress) -> T) -> T {
        let text = |text: &str| CString::new(text.replace('\0', "")).expect("it has no zero");
        let (host, prefix) = (text(&self.host), text(&self.prefix));
        let network_interface = self.network_interface.as_deref().map(text);
        call(&ffi::RanksAddress {
            host: host.as_ptr(),
            prefix: prefix.as_ptr(),
            network_interface: network_interface.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
            rank: number(self.rank),
            world: number(self.world),
            port: self.port,
            serves: self.serves.into(),
            is_local: self.is_local.into(),
            timeout_ms: i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX),
        })
    }

    /// Why there is no store.
    fn refusal(&self, error: &TorchError) -> RanksError {
        let message = first_line(error);
        if message.contains("EADDRINUSE") {
            return RanksError::PortTaken { port: self.port };
        }
        RanksError::NobodyThere { host: self.host.clone(), port: self.port, timeout: self.timeout, message }
    }
}

pub(crate) fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

pub(crate) fn first_line(error: &TorchError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
