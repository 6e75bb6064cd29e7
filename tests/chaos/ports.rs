//! Ports for servers that are started on them again and again.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Below those that systems give to connections: one of these would take the port of a server that is down.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// A free port of loopback. Two of one process are never the same, and those of two processes begin far apart.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = process::id().wrapping_mul(101);
    loop {
        let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = (FIRST + offset) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
