//! Memory of the machine: the heaps of languages, the words of operating systems.

use lowtide_oom::Certainty::{Likely, Sure};
use lowtide_oom::Engine;
use lowtide_oom::Place::Host;
use lowtide_oom::read;

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
