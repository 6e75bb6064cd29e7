//! A task of an actor that ends the one before it.

use actix::{Actor, AsyncContext as _, Context, SpawnHandle};

/// See the module.
#[derive(Default)]
pub struct LatestTask(Option<SpawnHandle>);

impl LatestTask {
    /// This task has begun: the one before is ended, if it has not ended by itself.
    pub fn replace<A: Actor<Context = Context<A>>>(&mut self, task: SpawnHandle, ctx: &mut Context<A>) {
        if let Some(before) = self.0.replace(task) {
            ctx.cancel_future(before);
        }
    }

    /// Ends the task.
    pub fn end<A: Actor<Context = Context<A>>>(self, ctx: &mut Context<A>) {
        if let Some(task) = self.0 {
            ctx.cancel_future(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    struct Worker;

    impl Actor for Worker {
        type Context = Context<Self>;
    }

    #[actix::test]
    async fn a_task_ends_the_one_before_and_is_ended() {
        let (sender, mut ended) = unbounded_channel();
        Worker::create(move |ctx| {
            let mut tasks = [LatestTask::default(), LatestTask::default()];
            for task in ["first", "second"] {
                for latest in &mut tasks {
                    let sender = sender.clone();
                    let begun = ctx.run_later(Duration::ZERO, move |_, _| sender.send(task).unwrap());
                    latest.replace(begun, ctx);
                }
            }
            let [_, other] = tasks;
            other.end(ctx);
            Worker
        });
        assert_eq!(ended.recv().await, Some("second"));
        assert_eq!(ended.recv().await, None);
    }
}
