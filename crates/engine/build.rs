//! Bakes the folder of LibTorch's libraries into the program.

fn main() {
    let libdir = std::env::var("DEP_LOWTIDE_PROGRAM_LIBDIR").expect("lowtide-program publishes its library folder");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{libdir}");
}
