//! Made-up samples, and a run that is written by the test.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use lowtide_core::{Bytes, Event, Line, Metrics, MicroBatch, Phase, Record, Step};
use lowtide_sensors::{
    CardProcesses, Cause, Cgroup, CgroupVersion, Children, Detail, Gpu, GpuMemory, GpuProcess, Gpus, Machine, Missing,
    Pressure, Process, ProcessDetail, Reading, Sample, Stall,
};
use lowtide_watch::{Board, Server};

pub(crate) const GIB: u64 = 1 << 30;

pub(crate) fn missing<T>(cause: Cause, detail: &str) -> Reading<T> {
    Reading::Missing(Missing { cause, detail: detail.to_owned() })
}

/// A process with eight workers on a machine with one card, in a group of 32 GiB.
pub(crate) fn sample(pid: u32, resident: u64) -> Sample {
    let stall = Stall { last_10s_percent: 2.5, last_60s_percent: 1.0, total_microseconds: 9 };
    let memory = GpuMemory { total_bytes: 48 * GIB, used_bytes: 41 * GIB, free_bytes: 6 * GIB, driver_bytes: GIB };
    Sample {
        time: 0.0,
        gpus: Gpus {
            cards: vec![Gpu {
                index: 0,
                name: "Made Up 9000".to_owned(),
                uuid: "GPU-0".to_owned(),
                memory: Reading::Known(memory),
                utilisation_percent: Reading::Known(87),
                temperature_celsius: Reading::Known(64),
            }],
            missing: None,
        },
        process: Reading::Known(process(pid, "python3", resident)),
        children: Children { processes: 8, resident_bytes: 2 * GIB },
        machine: Reading::Known(Machine {
            total_bytes: 64 * GIB,
            available_bytes: 40 * GIB,
            swap_total_bytes: 8 * GIB,
            swap_used_bytes: GIB,
            pressure: Reading::Known(Pressure { some: stall, full: stall }),
        }),
        cgroup: Reading::Known(Cgroup {
            version: CgroupVersion::V2,
            path: "/job".to_owned(),
            limit_bytes: Some(32 * GIB),
            limited_by: Some("/job".to_owned()),
            used_bytes: Some(20 * GIB),
            left_bytes: Some(12 * GIB),
        }),
        others: Vec::new(),
    }
}

fn process(pid: u32, name: &str, resident_bytes: u64) -> Process {
    Process { pid, parent: 1, name: name.to_owned(), resident_bytes, peak_bytes: 9 * GIB, swap_bytes: 0 }
}

pub(crate) fn detail(pid: u32) -> Detail {
    let held = |pid, name: &str, resident| ProcessDetail {
        process: process(pid, name, resident),
        proportional_bytes: Reading::Known(resident / 2),
    };
    let on_card = |pid, name: Reading<String>, bytes: Reading<u64>, watched| GpuProcess {
        pid,
        name,
        memory_bytes: bytes,
        watched,
        of: Some(pid).filter(|_| watched),
    };
    let processes = vec![
        on_card(pid, Reading::Known("python3".to_owned()), Reading::Known(30 * GIB), true),
        on_card(77, missing(Cause::Absent, "process 77 is not one of this container"), Reading::Known(11 * GIB), false),
    ];
    Detail {
        time: 0.0,
        processes: vec![held(pid, "python3", 6 * GIB), held(pid + 1, "pt_data_worker", GIB)],
        cards: vec![CardProcesses { index: 0, processes: Reading::Known(processes) }],
        cgroup_inactive_file_bytes: Reading::Known(5 * GIB),
    }
}

/// A run that this process trains, at times that the test says.
pub(crate) struct Written(File);

impl Written {
    pub(crate) fn begin(folder: &Path, now: SystemTime) -> Written {
        let file = OpenOptions::new().create(true).append(true).open(folder.join("events.jsonl")).unwrap();
        file.lock().unwrap();
        let mut run = Written(file);
        let micro_batch = MicroBatch::new(16).unwrap();
        let (line, host_line) = (Line::at(Bytes::from_gib(40)).unwrap(), Line::at(Bytes::from_gib(16)).unwrap());
        run.write(
            now,
            0.0,
            Event::RunStarted {
                workload: "gpt".to_owned(),
                device: "cuda:0".to_owned(),
                seed: 1,
                batch: 32,
                micro_batch,
                line,
                host_line,
                parameters: 805_632,
                resumed_at: None,
                numerics: None,
            },
        );
        run
    }

    pub(crate) fn step(&mut self, now: SystemTime, time: f64, step: u64) {
        self.write(
            now,
            time,
            Event::StepDone {
                step: Step(step),
                loss: 2.0,
                learning_rate: 0.001,
                samples: 32,
                tokens: None,
                seconds: 2.0,
                allocated: Bytes::from_gib(10),
                peak: Bytes::from_gib(27),
                reserved: Bytes::from_gib(30),
                micro_batch: MicroBatch::new(16).unwrap(),
            },
        );
    }

    pub(crate) fn memory(&mut self, now: SystemTime, time: f64, step: u64) {
        self.write(
            now,
            time,
            Event::Memory {
                step: Step(step),
                allocated: Bytes::from_gib(10),
                reserved: Bytes::from_gib(30),
                retries: 3,
                device_used: Some(Bytes::from_gib(33)),
                device_total: Some(Bytes::from_gib(48)),
                resident: Bytes::from_gib(3),
                host_used: Some(Bytes::from_gib(14)),
                host_total: Some(Bytes::from_gib(32)),
                reserve: None,
                worked: None,
                waited: None,
            },
        );
    }

    pub(crate) fn evaluated(&mut self, now: SystemTime, time: f64, step: u64, metrics: Metrics) {
        self.write(
            now,
            time,
            Event::Evaluated {
                step: Step(step),
                loss: 1.5,
                metrics,
                batches: 4,
                seconds: 0.5,
                allocated: None,
                reserved: None,
                approximate: false,
            },
        );
    }

    pub(crate) fn ran_out(&mut self, now: SystemTime, time: f64, step: u64, message: String) {
        let (step, phase) = (Step(step), Phase::Forward);
        let (requested, limit, allocated, peak, reserved) = (None, None, None, None, None);
        let event = Event::OutOfMemory { step, phase, requested, limit, allocated, peak, reserved, message };
        self.write(now, time, event);
    }

    fn write(&mut self, now: SystemTime, time: f64, event: Event) {
        writeln!(self.0, "{}", serde_json::to_string(&Record::new(time, event)).unwrap()).unwrap();
        self.0.set_modified(now).unwrap();
    }
}

/// A server with a board, ended when this goes.
pub(crate) struct Served {
    address: SocketAddr,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn new(board: Board) -> Served {
        let server = Server::listen(IpAddr::V4(Ipv4Addr::LOCALHOST), Some(0)).unwrap();
        let (address, end) = (server.address(), Arc::new(AtomicBool::new(false)));
        let (flag, board) = (end.clone(), Arc::new(Mutex::new(board)));
        let thread = Some(std::thread::spawn(move || server.serve(&board, &flag)));
        Served { address, end, thread }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is answered, without its head.
    pub(crate) fn get(&self, target: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{target}: {head}");
        body.to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

/// So many seconds after some moment long ago.
pub(crate) fn at(seconds: f64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_secs_f64(seconds)
}
