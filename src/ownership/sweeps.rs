//! Sweeps on one node at a time.

use std::{
    future::{Future, pending},
    time::Duration,
};

use tokio::{
    select,
    time::{Instant, timeout},
};

use crate::{db::engine::pool::writes_by, domain::sweep::Sweep, ownership::Ownership};

/// Time between two wishes that some node has a sweep.
const WANTED_EVERY: Duration = Duration::from_secs(60);

/// True if this process is to do it now: it is the only one, or the node that has it.
pub fn is_here(sweep: Sweep, ownership: Option<&Ownership>) -> bool {
    ownership.is_none_or(|ownership| ownership.fence(&sweep.part()).is_some())
}

/// Works for as long as this node has the sweep, and from the beginning each time that it comes here; all the time if this
/// process is the only one. What is under way when the sweep passes on writes nothing any longer.
pub async fn run<W: Future<Output = ()>>(sweep: Sweep, ownership: Option<Ownership>, work: impl Fn() -> W) {
    let Some(mut ownership) = ownership else { return work().await };
    let (part, mut wanted_at) = (sweep.part(), None::<Instant>);
    loop {
        if let Some(right) = ownership.fence(&part) {
            let works = writes_by(right.clone(), async {
                work().await;
                pending::<()>().await;
            });
            select! {
                () = works => {}
                () = ownership.lost(&right) => {}
            }
            continue;
        }
        if wanted_at.is_none_or(|at| at.elapsed() >= WANTED_EVERY) {
            ownership.want(part.clone());
            wanted_at = Some(Instant::now());
        }
        if let Ok(false) = timeout(WANTED_EVERY, ownership.changed()).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc, sync::Arc};

    use tokio::task::yield_now;

    use super::*;
    use crate::{domain::fence::Fence, ownership::NodeSeat};

    /// Counts those that run.
    struct Running(Rc<Cell<usize>>);

    impl Running {
        fn begin(count: &Rc<Cell<usize>>) -> Self {
            count.set(count.get() + 1);
            Self(count.clone())
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    async fn settle() {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    #[actix::test]
    async fn work_goes_on_as_long_as_the_node_has_it() {
        let (mut seat, ownership) = NodeSeat::new("process");
        let (begun, running) = (Rc::<Cell<usize>>::default(), Rc::<Cell<usize>>::default());
        let (counted, counts) = (begun.clone(), running.clone());
        let work = move || {
            counted.set(counted.get() + 1);
            let running = Running::begin(&counts);
            async move {
                let _running = running;
                pending::<()>().await;
            }
        };
        let right = |number| Arc::new(Fence { part: Sweep::Billing.part(), node: "here".into(), number });
        let asked = ownership.clone();
        assert!(is_here(Sweep::Billing, None) && !is_here(Sweep::Billing, Some(&asked)));
        let task = actix::spawn(run(Sweep::Billing, Some(ownership), work));
        settle().await;
        assert_eq!((begun.get(), running.get()), (0, 0), "another node has it");
        assert_eq!(seat.wanted(), [Sweep::Billing.part()]);
        let first = right(1);
        seat.seat([first.clone()]);
        settle().await;
        assert!(is_here(Sweep::Billing, Some(&asked)) && !is_here(Sweep::Tracking, Some(&asked)));
        assert_eq!((begun.get(), running.get()), (1, 1));
        // Another part changes nothing.
        seat.seat([first.clone(), Arc::new(Fence { part: "other".into(), ..Fence::clone(&first) })]);
        settle().await;
        assert_eq!((begun.get(), running.get()), (1, 1));
        seat.seat([]);
        settle().await;
        assert_eq!((begun.get(), running.get(), Arc::strong_count(&first)), (1, 0, 1));
        seat.seat([right(2)]);
        settle().await;
        assert_eq!((begun.get(), running.get()), (2, 1));
        task.abort();
    }
}
