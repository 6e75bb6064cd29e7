//! Finds the few steps of a failing script that are enough: delta debugging.

/// The fewest steps found with which it still fails, of these; `fails` runs some.
pub fn shrink(mut steps: Vec<usize>, mut fails: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let (mut start, mut changed) = (0, false);
        while start < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(start..(start + size).min(steps.len()));
            if fails(&fewer) {
                (steps, changed) = (fewer, true);
            } else {
                start += size;
            }
        }
        if size == 1 && changed {
            continue;
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    steps
}
