//! Jobs that wait for one of a few workers: the urgent ones first, each kind in the order of arrival.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

/// Jobs of one urgency that may wait; further ones are refused. A caller that gives up makes room.
const MOST_WAITING: usize = 16_384;

/// Urgency of a job, the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobUrgency {
    Ordinary,
    /// Before every ordinary job that waits.
    First,
}

/// See the module. A job whose caller has given up is dropped when its turn comes.
pub struct JobQueue<J> {
    waiting: Mutex<WaitingJob<J>>,
    /// Wakes a worker that does every job.
    for_all: Condvar,
    /// Wakes a worker that does only the urgent ones.
    for_first: Condvar,
}

struct WaitingJob<J> {
    first: VecDeque<(Weak<()>, J)>,
    ordinary: VecDeque<(Weak<()>, J)>,
    closed: bool,
}

/// The caller wants the job done as long as it holds this.
#[must_use = "the job is dropped with its ticket"]
#[derive(Debug)]
pub struct Ticket(#[expect(dead_code, reason = "its end is what counts")] Arc<()>);

impl<J> Default for JobQueue<J> {
    fn default() -> Self {
        let waiting = WaitingJob { first: VecDeque::new(), ordinary: VecDeque::new(), closed: false };
        Self { waiting: Mutex::new(waiting), for_all: Condvar::new(), for_first: Condvar::new() }
    }
}

impl<J> JobQueue<J> {
    /// Adds a job; `None` when too many wait.
    pub fn push(&self, urgency: JobUrgency, job: J) -> Option<Ticket> {
        let mut waiting = self.lock();
        let jobs = waiting.jobs(urgency);
        // All wait equally long before they give up: who has is at the front, apart from those who went earlier.
        while jobs.front().is_some_and(is_given_up) {
            jobs.pop_front();
        }
        if jobs.len() >= MOST_WAITING {
            return None;
        }
        let caller = Arc::new(());
        jobs.push_back((Arc::downgrade(&caller), job));
        self.for_all.notify_one();
        if urgency == JobUrgency::First {
            self.for_first.notify_one();
        }
        Some(Ticket(caller))
    }

    /// The next job of at least this urgency; waits for one. `None` once the queue is closed.
    pub fn next(&self, least: JobUrgency) -> Option<J> {
        let arrival = if least == JobUrgency::First { &self.for_first } else { &self.for_all };
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.next(least) {
                return Some(job);
            }
            if waiting.closed {
                return None;
            }
            waiting = arrival.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next job, if one waits.
    pub fn next_now(&self) -> Option<J> {
        self.lock().next(JobUrgency::Ordinary)
    }

    /// Number of waiting jobs, including those whose caller has given up.
    pub fn waiting_jobs(&self) -> usize {
        let waiting = self.lock();
        waiting.first.len() + waiting.ordinary.len()
    }

    /// Ends the workers.
    pub fn close(&self) {
        self.lock().closed = true;
        self.for_all.notify_all();
        self.for_first.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, WaitingJob<J>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> WaitingJob<J> {
    fn jobs(&mut self, urgency: JobUrgency) -> &mut VecDeque<(Weak<()>, J)> {
        match urgency {
            JobUrgency::First => &mut self.first,
            JobUrgency::Ordinary => &mut self.ordinary,
        }
    }

    fn next(&mut self, least: JobUrgency) -> Option<J> {
        [JobUrgency::First, JobUrgency::Ordinary].into_iter().filter(|urgency| *urgency >= least).find_map(|urgency| {
            let jobs = self.jobs(urgency);
            std::iter::from_fn(|| jobs.pop_front()).find(|job| !is_given_up(job)).map(|(_, job)| job)
        })
    }
}

fn is_given_up<J>((caller, _): &(Weak<()>, J)) -> bool {
    caller.strong_count() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_jobs_come_first_and_others_in_the_order_of_arrival() {
        let queue = JobQueue::default();
        let _tickets =
            [(JobUrgency::Ordinary, 1), (JobUrgency::Ordinary, 2), (JobUrgency::First, 3), (JobUrgency::First, 4)]
                .map(|(urgency, job)| queue.push(urgency, job).unwrap());
        let reserved = [queue.next(JobUrgency::First)];
        assert_eq!(reserved, [Some(3)]);
        let all = [(); 3].map(|()| queue.next(JobUrgency::Ordinary).unwrap());
        assert_eq!(all, [4, 1, 2]);
        queue.close();
        assert_eq!(queue.next(JobUrgency::Ordinary), None);
    }

    #[test]
    fn a_job_whose_caller_has_given_up_is_not_begun() {
        let queue = JobQueue::default();
        let first = queue.push(JobUrgency::Ordinary, 1).unwrap();
        let _second = queue.push(JobUrgency::Ordinary, 2).unwrap();
        drop(first);
        assert_eq!((queue.next_now(), queue.next_now()), (Some(2), None));
    }

    #[test]
    fn no_more_jobs_wait_than_may_and_who_gives_up_makes_room() {
        let queue = JobQueue::default();
        let mut tickets: Vec<Ticket> =
            (0..MOST_WAITING).map(|_| queue.push(JobUrgency::Ordinary, ()).unwrap()).collect();
        assert!(queue.push(JobUrgency::Ordinary, ()).is_none());
        let _urgent = queue.push(JobUrgency::First, ()).expect("ordinary jobs do not keep an urgent one out");
        tickets.drain(..10);
        let _ticket = queue.push(JobUrgency::Ordinary, ()).unwrap();
    }
}
