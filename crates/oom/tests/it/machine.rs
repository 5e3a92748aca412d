//! Memory of the machine: the heaps of languages, the words of operating systems.

use lowtide_oom::Certainty::{Likely, Sure};
use lowtide_oom::Engine;
use lowtide_oom::Place::Host;
use lowtide_oom::{Source, read};

use crate::kit::check;

const GIB: u64 = 1 << 30;

#[test]
fn heaps() {
    check(
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.5 GiB for an array with shape (40960, 40960) and data type float64",
        Engine::Numpy,
        Host,
        Sure,
        Some(12 * GIB + GIB / 2),
    );
    check(
        "MemoryError: Unable to allocate 128. GiB for an array with shape (1,) and data type float64",
        Engine::Numpy,
        Host,
        Sure,
        Some(128 * GIB),
    );
    check("MemoryError", Engine::Python, Host, Sure, None);
    check("[rank1]: MemoryError: ", Engine::Python, Host, Sure, None);
    check("pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed", Engine::Arrow, Host, Sure, Some(8 * GIB));
    check("memory allocation of 25769803776 bytes failed", Engine::Rust, Host, Sure, Some(24 * GIB));
    check(
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        Engine::Cpp,
        Host,
        Likely,
        None,
    );
    check("Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space", Engine::Java, Host, Sure, None);
    check(
        "# There is insufficient memory for the Java Runtime Environment to continue.",
        Engine::Java,
        Host,
        Sure,
        None,
    );
    check(
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        Engine::Node,
        Host,
        Sure,
        None,
    );
    check("Error: cannot allocate vector of size 2.0 Gb", Engine::R, Host, Sure, Some(2 * GIB));
    check("OSError: [Errno 12] Cannot allocate memory", Engine::Linux, Host, Sure, None);
    check("bash: fork: Cannot allocate memory", Engine::Linux, Host, Sure, None);
    check(
        "OSError: [WinError 8] Not enough memory resources are available to process this command",
        Engine::Windows,
        Host,
        Sure,
        None,
    );
    check(
        "The paging file is too small for this operation to complete. (os error 1455)",
        Engine::Windows,
        Host,
        Sure,
        None,
    );
}

#[test]
fn windows_tells_of_its_page_file_in_many_languages() {
    for text in [
        "ImportError: DLL load failed: 页面文件太小，无法完成操作。",
        "OSError: Die Auslagerungsdatei ist zu klein, um diesen Vorgang durchzuführen",
        "OSError: El archivo de paginación es demasiado pequeño para completar la operación",
        "OSError: Файл подкачки слишком мал для завершения операции",
    ] {
        let hit = lowtide_oom::scan_post(text.as_bytes()).next().unwrap_or_else(|| panic!("{text}"));
        assert_eq!((hit.oom.engine, hit.oom.place), (Engine::Windows, Host), "{text}");
    }
}

#[test]
fn the_system_s_number_is_a_whole_one() {
    for text in [
        "thread 'main' panicked: Cannot allocate memory (os error 12)",
        "spawn failed: errno=12",
        "mmap failed, errno: 12",
        "read failed: errno = 12, nothing more",
    ] {
        check(text, Engine::Linux, Host, Sure, None);
    }
    for text in [
        "Error: The filename, directory name, or volume label syntax is incorrect. (os error 123)",
        "Error: Remote I/O error (os error 121)",
        "OSError: The requested operation cannot be performed on a file with a user-mapped section open. (os error 1224)",
        "open failed: errno=120",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn runtimes_of_languages_say_it_in_their_own_words() {
    let object_heap = "Could not reserve enough space for 2097152KB object heap";
    check(object_heap, Engine::Java, Host, Sure, Some(2 * GIB));
    check("Could not reserve enough space for object heap", Engine::Java, Host, Sure, None);
    let commit =
        "INFO: os::commit_memory(0x00000000c5330000, 986513408, 0) failed; error='Not enough space' (errno=12)";
    check(commit, Engine::Java, Host, Sure, Some(986_513_408));
    let spark = "org.apache.spark.memory.SparkOutOfMemoryError: Unable to acquire 65536 bytes of memory, got 0";
    check(spark, Engine::Java, Host, Sure, Some(65536));
    check("Fortran runtime error: Allocation would exceed memory limit", Engine::Unknown, Host, Sure, None);
    let worker =
        "Error [ERR_WORKER_OUT_OF_MEMORY]: Worker terminated due to reaching memory limit: JS heap out of memory";
    check(worker, Engine::Node, Host, Sure, None);
    check("Error: spawn ENOMEM", Engine::Linux, Host, Sure, None);
    check("mmap(NULL, 4096) = -1 ENOMEM (Cannot allocate memory)", Engine::Linux, Host, Sure, None);
    check("PANIC: unprotected error in call to Lua API (not enough memory)", Engine::Unknown, Host, Likely, None);
    for text in [
        "std::bad_alloc",
        "[rank0]: std::bad_alloc",
        "std::exception: std::bad_alloc",
        "libc++abi: terminating due to uncaught exception of type std::bad_alloc",
        "Caught std::bad_alloc while it read the file",
        "I get std::bad_alloc with 16 GB",
    ] {
        check(text, Engine::Cpp, Host, Likely, None);
    }
}

#[test]
fn windows_notes_what_took_its_memory() {
    let text =
        "Windows successfully diagnosed a low virtual memory condition. The following programs consumed the most.";
    check(text, Engine::Windows, Host, Sure, None);
    let module = r"Cannot import C:\nodes\Foo module: [WinError 1455] The paging file is too small for this operation.";
    check(module, Engine::Windows, Host, Sure, None);
}

#[test]
fn shared_memory_is_full_where_a_segment_or_a_lock_is_made() {
    let segment =
        "ERROR:  could not resize shared memory segment \"/PostgreSQL.123\" to 8388608 bytes: No space left on device";
    assert_eq!(check(segment, Engine::Linux, Host, Likely, None).source, Source::SharedMemory);
    let frames = "  File \"/lib/python3.8/multiprocessing/synchronize.py\", line 57, in __init__\n    sl = self._semlock = \
                  _multiprocessing.SemLock(\n";
    let full = "OSError: [Errno 28] No space left on device";
    assert_eq!(check(&format!("{frames}{full}"), Engine::Linux, Host, Likely, None).source, Source::SharedMemory);
    let joblib = "/lib/joblib/_multiprocessing_helpers.py:46: UserWarning: [Errno 28] No space left on device.";
    check(joblib, Engine::Linux, Host, Likely, None);
    assert_eq!(read(&format!("  File \"/lib/python3.8/shutil.py\", line 57, in copy\n{full}")), None);
}
