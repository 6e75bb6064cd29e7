//! Finds the few steps of a failing script that are enough: delta debugging.

use crate::script::Script;

/// The shortest script found that still fails; `fails` runs one.
pub fn shrink(mut script: Script, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let mut size = script.len().div_ceil(2);
    while size > 0 {
        let (mut start, mut changed) = (0, false);
        while start < script.len() {
            let mut fewer = script.clone();
            fewer.drain(start..(start + size).min(script.len()));
            if fails(&fewer) {
                (script, changed) = (fewer, true);
            } else {
                start += size;
            }
        }
        if size == 1 && changed {
            continue;
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    script
}
