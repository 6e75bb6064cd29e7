//! Compiles the game's protobuf messages and watches the migrations.

fn main() {
    let proto = "src/game/companion.proto";
    println!("cargo:rerun-if-changed={proto}");
    // Embedded by a macro of diesel_migrations, which the compiler does not watch.
    println!("cargo:rerun-if-changed=migrations");
    let messages = protox::compile([proto], ["src/game"]).expect("companion.proto compiles");
    prost_build::Config::new().bytes(["."]).compile_fds(messages).expect("the output directory is writable");
}
