//! The land around the base, for the cameras.

use super::{
    point::Point,
    terrain::Terrain,
    vector::{Vector, unit},
};

/// Metres between two heights of the grid.
const CELL: f32 = 5.0;
/// Cells from the middle to an edge.
const REACH: usize = 60;
const ROW: usize = 2 * REACH + 1;

/// The heights around a point, computed once: computing them for each ray would be slow.
#[derive(Debug)]
pub struct Ground {
    middle: Point,
    heights: Vec<f32>,
}

impl Ground {
    /// The heights around this place.
    pub fn around(terrain: &Terrain, middle: Point) -> Self {
        let offset = |n: usize| (n as f32 - REACH as f32) * CELL;
        let heights = (0..ROW * ROW)
            .map(|n| terrain.height(Point::new(middle.x + offset(n % ROW), middle.y + offset(n / ROW))))
            .collect();
        Self { middle, heights }
    }

    /// Metres above the sea; beyond the grid, the height at its edge.
    pub fn height(&self, x: f32, y: f32) -> f32 {
        let cell = |metres: f32| (metres / CELL + REACH as f32).clamp(0.0, 2.0 * REACH as f32 - 0.001);
        let (column, row) = (cell(x - self.middle.x), cell(y - self.middle.y));
        let (right, up) = (column.fract(), row.fract());
        let n = row as usize * ROW + column as usize;
        let south = self.heights[n] + (self.heights[n + 1] - self.heights[n]) * right;
        let north = self.heights[n + ROW] + (self.heights[n + ROW + 1] - self.heights[n + ROW]) * right;
        south + (north - south) * up
    }

    /// The direction in which the ground faces, one metre long.
    pub fn normal(&self, x: f32, y: f32) -> Vector {
        let slope_x = self.height(x + 1.0, y) - self.height(x - 1.0, y);
        let slope_y = self.height(x, y + 1.0) - self.height(x, y - 1.0);
        unit([-slope_x / 2.0, -slope_y / 2.0, 1.0])
    }
}
