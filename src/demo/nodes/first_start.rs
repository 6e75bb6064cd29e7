//! The service as one process alone, for as long as its users are set up, which the nodes then serve.

use std::{future::ready, io, thread};

use actix_web::web;
use tokio::sync::oneshot;

use crate::{
    api::context::ApiContext,
    clock::Clock,
    config::Config,
    demo::error::DemoError,
    server::{Server, StartError},
};

type BuiltContext = Result<web::Data<ApiContext>, StartError>;

/// Such a service, on a thread of its own, so that nothing of it is left once it has ended. It serves no client.
pub struct FirstStart {
    pub context: web::Data<ApiContext>,
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl FirstStart {
    /// Begins it.
    pub async fn begin(config: Config, clock: Clock) -> Result<Self, DemoError> {
        let (built, begins) = oneshot::channel();
        let (end, ends) = oneshot::channel();
        let (stopped, ended) = oneshot::channel();
        let run = move || actix::System::new().block_on(serve(config, clock, built, ends, stopped));
        let thread = thread::Builder::new().name("first-start".to_owned()).spawn(run);
        thread.map_err(DemoError::io("the first start"))?;
        let context = begins.await.map_err(|_| has_failed())??;
        Ok(Self { context, end, ended })
    }

    /// Stops it as ever; the database and its directory are free then.
    pub async fn end(self) -> Result<(), DemoError> {
        let Self { context, end, ended } = self;
        drop(context);
        let _ = end.send(());
        let stopped = ended.await.map_err(|_| has_failed())?;
        stopped.map_err(DemoError::io("the first start"))
    }
}

/// Builds the service, and stops it when `ends` completes. A receiver that is gone is that of a demo that ends.
async fn serve(
    config: Config,
    clock: Clock,
    built: oneshot::Sender<BuiltContext>,
    ends: oneshot::Receiver<()>,
    stopped: oneshot::Sender<io::Result<()>>,
) {
    let server = match Server::build(config, clock) {
        Ok(server) => server,
        Err(error) => return drop(built.send(Err(error))),
    };
    let _ = built.send(Ok(server.context().clone()));
    let _ = ends.await;
    let _ = stopped.send(server.run_until_stopped(ready(())).await);
}

/// Its thread has panicked, which is in the log.
fn has_failed() -> DemoError {
    DemoError::io("the first start")(io::Error::other("it has failed"))
}
