//! Bakes the folder of LibTorch's libraries into the program, so that it starts without `LD_LIBRARY_PATH`.

fn main() {
    let libdir =
        std::env::var("DEP_LOWTIDE_PROGRAM_LIBDIR").expect("lowtide-program publishes LibTorch's library folder");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{libdir}");
}
