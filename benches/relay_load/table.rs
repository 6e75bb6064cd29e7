//! Figures of several rounds, side by side.

use std::fmt;

/// A measured figure.
#[derive(Clone, Copy, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    pub better: Better,
    /// Behind the point.
    pub digits: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Better {
    Lower,
    Higher,
    /// Only printed.
    Neither,
}

pub type Figures = Vec<(Metric, f64)>;

/// The rounds of one phase: by who served, what was measured in each.
#[derive(Default)]
pub struct Block(Vec<(&'static str, Vec<Figures>)>);

impl Block {
    /// One more round. The first who serves is what all are compared with.
    pub fn add(&mut self, name: &'static str, figures: Figures) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rounds)) => rounds.push(figures),
            None => self.0.push((name, vec![figures])),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for (metric, _) in self.0.iter().flat_map(|(_, rounds)| &rounds[0]) {
            if !metrics.contains(metric) {
                metrics.push(*metric);
            }
        }
        metrics
    }
}

/// Values of each round.
fn values(rounds: &[Figures], metric: Metric) -> Vec<f64> {
    let value = |figures: &Figures| figures.iter().find(|(of, _)| *of == metric).map(|(_, value)| *value);
    rounds.iter().filter_map(value).collect()
}

/// The median and, of several, the lowest and the highest.
fn summary(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    match values[..] {
        [] => String::new(),
        [only] => format!("{only:.digits$}"),
        [lowest, .., highest] => {
            let half = values.len() / 2;
            let median = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
            format!("{median:.digits$} ({lowest:.digits$}–{highest:.digits$})")
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:36}", "")?;
        for (name, _) in &self.0 {
            write!(f, "{name:36}")?;
        }
        for metric in self.metrics() {
            write!(f, "\n  {:34}", metric.name)?;
            let mut limit = Vec::new();
            for (index, (_, rounds)) in self.0.iter().enumerate() {
                let values = values(rounds, metric);
                let ratio = |(limit, value): (&f64, &f64)| match metric.better {
                    Better::Lower => limit / value,
                    _ => value / limit,
                };
                let ratios: Vec<f64> = limit.iter().zip(&values).map(ratio).collect();
                let mut cell = summary(values.clone(), metric.digits);
                if !ratios.is_empty() && metric.better != Better::Neither {
                    cell += &format!("  ×{}", summary(ratios, 2));
                }
                write!(f, "{cell:36}")?;
                if index == 0 {
                    limit = values;
                }
            }
        }
        Ok(())
    }
}
