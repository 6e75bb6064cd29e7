//! Output of a terminal beside the log: one line that changes in place, at the end of stderr. Where stderr is no
//! terminal there is none, and everything is as it would be without.

use std::{
    io::{self, IsTerminal as _, Write},
    sync::LazyLock,
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Interval at which a line that waits moves.
const TICK: Duration = Duration::from_millis(120);

/// The lines of this process. They are drawn on stderr, if it is a terminal.
static LINES: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// True if lines are shown.
pub fn is_shown() -> bool {
    io::stderr().is_terminal()
}

/// A line that says what is being done; it is gone when this is dropped.
pub struct LiveLine(ProgressBar);

impl LiveLine {
    /// A line for something whose end is not known.
    pub fn new(text: &str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is valid");
        let line = LINES.add(ProgressBar::new_spinner().with_style(style).with_message(text.to_owned()));
        if is_shown() {
            line.enable_steady_tick(TICK);
        }
        Self(line)
    }

    /// A line for something that is done step by step.
    pub fn of_steps(text: &str) -> Self {
        let template = "{msg} [{bar:30}] {pos}/{len}, {eta} left";
        let style = ProgressStyle::with_template(template).expect("the template is valid").progress_chars("=> ");
        Self(LINES.add(ProgressBar::new(0).with_style(style).with_message(text.to_owned())))
    }

    /// Says something else.
    pub fn say(&self, text: String) {
        self.0.set_message(text);
    }

    /// Shows that this many of all steps are done.
    pub fn step(&self, done: u64, of: u64) {
        self.0.set_length(of);
        self.0.set_position(done);
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Prints above the lines.
pub fn above<T>(print: impl FnOnce() -> T) -> T {
    LINES.suspend(print)
}

/// Where the log goes while there are lines: to stderr, above them.
pub struct LogAboveLines;

impl Write for LogAboveLines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        above(|| io::stderr().write_all(text))?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
