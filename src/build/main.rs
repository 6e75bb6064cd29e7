//! Compiles the protobuf messages of the game and of its pushes, and watches the migrations.

fn main() {
    // Embedded by a macro of diesel_migrations, which the compiler does not watch.
    println!("cargo:rerun-if-changed=migrations");
    for (proto, directory) in [("src/game/companion.proto", "src/game"), ("src/push/mcs.proto", "src/push")] {
        println!("cargo:rerun-if-changed={proto}");
        let messages = protox::compile([proto], [directory]).unwrap_or_else(|error| panic!("{proto}: {error}"));
        prost_build::Config::new()
            .bytes(["."])
            .skip_debug([".mcs.LoginRequest", ".mcs.AppData"]) // they hold secrets
            .compile_fds(messages)
            .expect("the output directory is writable");
    }
}
