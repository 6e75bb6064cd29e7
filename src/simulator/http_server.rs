//! HTTP server of the simulated neighbours.

use std::{io, net::TcpListener};

use actix_web::{App, HttpServer, dev::ServerHandle, web::ServiceConfig};

/// A running server with one worker; stops when dropped.
pub struct NeighbourServer(ServerHandle);

impl NeighbourServer {
    /// Begins to serve these routes. Call it inside an actix system.
    pub fn start(
        listener: TcpListener,
        routes: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let server = HttpServer::new(move || App::new().configure(routes.clone()))
            .workers(1)
            .disable_signals()
            .shutdown_timeout(0)
            .listen(listener)?
            .run();
        let handle = server.handle();
        actix::spawn(server);
        Ok(Self(handle))
    }
}

impl Drop for NeighbourServer {
    fn drop(&mut self) {
        // The call stops it; its answer comes when it has stopped, and is not needed.
        drop(self.0.stop(false));
    }
}
