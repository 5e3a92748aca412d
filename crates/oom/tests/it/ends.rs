//! How processes end: statuses, signals, what shells say. Memory is one reason among several.

use lowtide_oom::Certainty::Slight;
use lowtide_oom::Place::Host;
use lowtide_oom::read;

#[test]
fn ends_of_processes_are_slight() {
    for text in [
        "Killed",
        "KILLED",
        "[1]    2843557 killed",
        "     ━━━━━━━━━╸ 749.6/750.6 MB 41.3 MB/s eta 0:00:01Killed",
        "run.sh: line 5: 12345 Killed                  python train.py",
        "Killedg in train batch: 127687 / 263115",
        "Loading database information...Killed",
        "It comes no further than \"Loading checkpoint shards:  38%|███       | 3/8 [00:08<00:14,  2.91s/it]Killed\"",
        "Killed  31%|███       | 512/1650 [06:02<13:11,  1.44it/s]",
        "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
        "container exited with code 137",
        "[ERROR] ['/opt/conda/bin/python', '-u', 'train.py', '--local_rank=7'] exits with return code = -9",
        "                        \"exitCode\": 137,",
        "The replica workerpool0-0 exited with a non-zero status of 137.",
        "make: *** [Makefile:12: train] Error 137",
        "make: *** [Makefile:12: train] Killed",
        "INFO - Task exited with return code Negsignal.SIGKILL",
        "c++: fatal error: Killed signal terminated program cc1plus",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.",
        "  exitcode  : -9 (pid: 4242)",
        "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 0 (pid: 9) of binary: python",
        "  traceback : Signal 9 (SIGKILL) received by PID 4242",
        "RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly",
        "Command terminated by signal 9",
        "exit status 137",
        "train exited with 137",
        "srun: error: node3: task 0: Killed",
        "subprocess exited with status -9",
        "      Exit Code:    137",
        "[f81-n0-0] terminated with exit code (137). Reason [Error]. Message: ",
        "web-1 exited (137)",
        "the exit code is 137",
        "step failed: exit_code=137",
        "command terminated with non-zero exit code: Error executing in Docker Container: 137",
        "['python', '-u', 'train.py', '--local_rank=2'] exits with return code = -7",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGBUS: 7>.",
        "Worker exit detail: (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop",
        "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug, disable it.",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the \
         future was running or pending.",
    ] {
        let oom = read(text).unwrap_or_else(|| panic!("not read: {text}"));
        assert_eq!((oom.place, oom.certainty), (Host, Slight), "{text}");
    }
    for text in ["exit_code=1371", "epoch=137", "iteration (137) is over", "src=137", "the talk ended abruptly"] {
        assert_eq!(read(text), None, "{text}");
    }
}
