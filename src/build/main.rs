//! Compiles the game's protobuf messages.

fn main() {
    let proto = "src/game/companion.proto";
    println!("cargo:rerun-if-changed={proto}");
    let messages = protox::compile([proto], ["src/game"]).expect("companion.proto compiles");
    prost_build::Config::new().bytes(["."]).compile_fds(messages).expect("the output directory is writable");
}
