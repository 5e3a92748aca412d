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

#[test]
fn whoever_starts_a_process_tells_of_its_end_in_words_of_his_own() {
    for text in [
        "The command '/bin/sh -c npm run build' returned a non-zero code: 137",
        "> Process 'Gradle Test Executor 1' finished with non-zero exit value 137",
        "systemd[1]: train.service: Main process exited, code=killed, status=9/KILL",
        "  process didn't exit successfully: `rustc --crate-name serde` (signal: 9, SIGKILL: kill)",
        "A jest worker process (pid=1234) was terminated by another process: signal=SIGKILL, exitCode=null.",
        "Error: Command was killed with SIGKILL (Forced termination): vite build",
        "2024-05-01 10:00:00,000 INFO exited: worker (terminated by SIGKILL; not expected)",
        "PM2      | App [api:0] exited with code [0] via signal [SIGKILL]",
        "=   KILLED BY SIGNAL: 9 (Killed)",
        "[2]+  Killed                  python b.py",
        "[3]-  Killed                  python b.py",
        "return code 137 (SIGKILL)",
        "exited with exit code 137(SIGKILL, possible container OOM).",
        "fish: Job 1, 'python train.py' terminated by signal SIGKILL (Forced quit)",
        "ERROR: Job failed: command terminated with exit code 137",
        "Process 'train' terminated by SIGKILL",
        "The process was killed by signal 9.",
        "worker 3 exited by signal=SIGKILL",
        "Child returned status 137",
        "the test runner finished with exit value 137",
        "ERROR: process could not finish, exit code 137",
        "job failed (rc=137)",
        "npm ERR! signal SIGKILL",
        "the container exited with status code 137 after 12 s",
        "worker 3 exited: signal=SIGKILL",
        "\"exit_code\": 137",
    ] {
        let oom = read(text).unwrap_or_else(|| panic!("not read: {text}"));
        assert_eq!((oom.place, oom.certainty), (Host, Slight), "{text}");
    }
}

#[test]
fn signals_that_somebody_sends_and_numbers_of_other_things_are_no_ends() {
    for text in [
        "systemd[1]: nginx.service: Killing process 123 (nginx) with signal SIGKILL.",
        "Unable to shutdown process 4242 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
        "[1] INFO  Killed 5 idle sessions",
        "[12] Killed 5 idle sessions",
        "clEnqueueWriteImage failed with error code -9 (CL_IMAGE_FORMAT_MISMATCH)",
        "[ERROR] error 137 while parsing row",
        "KillSignal=SIGKILL",
        "The default kill signal is SIGKILL after 10 s",
        "docs: explain what exit code 137 means",
        "stop_signal: SIGKILL",
        "The image may exit with code 137 in the phase that builds the model.",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "country code 137 is unknown",
        "HTTP status 137",
        "it was skilled, filled and billed",
        "evaluation finished: return value 137",
        "Solver returned value 137 after 12 iterations",
        "[SAC] episode return value 137",
        "server returned status code 137 items",
        "unicode 137 returned for char",
        "barcode 137 was scanned, the job finished",
        "zipcode 137 returned 12 rows",
        "statuscode: 137 rows returned",
        "is sent a hard termination signal (SIGKILL) to the",
        "will get a hard termination signal (SIGKILL) to the end",
        "@unittest.skipUnless(hasattr(signal, 'SIGKILL'), 'needs it')",
        "docker kill --signal=SIGKILL trainer",
        "Worker process terminated by SIGKILL on close",
        "supervisor: stopped: train (terminated by SIGKILL)",
        "systemd[1]: train.service: Sent signal SIGKILL to main process 4242",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}
