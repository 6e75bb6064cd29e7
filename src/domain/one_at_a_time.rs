//! One read or write at a time: what is asked for meanwhile is one more, which follows it.

/// See the module.
#[derive(Debug, Default)]
pub struct OneAtATime {
    is_under_way: bool,
    is_asked_again: bool,
}

impl OneAtATime {
    /// True if it is to begin now; false: one follows that which is under way.
    pub fn begin(&mut self) -> bool {
        self.is_asked_again = self.is_under_way;
        !std::mem::replace(&mut self.is_under_way, true)
    }

    /// Notes its end; true if another one is to follow.
    pub fn end(&mut self) -> bool {
        self.is_under_way = false;
        std::mem::take(&mut self.is_asked_again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_under_way_and_one_follows_however_often_it_is_asked_for_meanwhile() {
        let mut write = OneAtATime::default();
        assert_eq!([(); 3].map(|()| write.begin()), [true, false, false]);
        assert!(write.end() && write.begin());
        assert!(!write.end(), "nothing was asked for");
        assert!(write.begin());
    }
}
