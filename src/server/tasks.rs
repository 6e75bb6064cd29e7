//! Tasks that go on as long as the service does.

use std::future::Future;

use actix_web::rt;
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::{
    domain::sweep::Sweep,
    ownership::{Ownership, sweeps},
};

/// Tasks that are ended together.
#[derive(Default)]
pub(super) struct Tasks(Vec<JoinHandle<()>>);

impl Tasks {
    /// Starts one on this thread.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.0.push(rt::spawn(task));
    }

    /// Starts work that is done once for all, by this process or by the node that has it.
    pub fn sweep<W>(&mut self, (sweep, ownership): (Sweep, Option<Ownership>), work: impl Fn() -> W + 'static)
    where
        W: Future<Output = ()> + 'static,
    {
        self.spawn(sweeps::run(sweep, ownership, work));
    }

    /// Ends all, and waits until what they held is dropped: a request that is under way would panic if that came after the
    /// end of the runtime.
    pub async fn end(self) {
        self.0.iter().for_each(JoinHandle::abort);
        // Each was ended, or had ended.
        join_all(self.0).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{future, sync::mpsc};

    use tokio::runtime::Handle;

    use super::*;

    /// Reports when it is dropped, and true if a runtime is there.
    struct Held(mpsc::Sender<bool>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send(Handle::try_current().is_ok());
        }
    }

    #[test]
    fn what_a_task_holds_is_dropped_before_the_runtime_ends() {
        let (report, reported) = mpsc::channel();
        actix::System::new().block_on(async {
            let mut tasks = Tasks::default();
            for _ in 0..2 {
                let held = Held(report.clone());
                tasks.spawn(async move {
                    let _held = held;
                    future::pending::<()>().await;
                });
            }
            tasks.spawn(async {});
            tasks.end().await;
        });
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [true, true]);
    }
}
