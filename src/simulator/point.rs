//! Points on the map, and ways between them.

/// A point on the map: metres from the south-west corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f32,
    pub y: f32,
}

impl Point {
    /// Metres from the south-west corner, to the east and to the north.
    pub fn new(x: f32, y: f32) -> Self {
        Self { x, y }
    }

    /// Metres.
    pub fn distance(self, other: Point) -> f32 {
        (self.x - other.x).hypot(self.y - other.y)
    }

    /// `metres` away in the direction `angle` (radians, counter-clockwise from east).
    pub fn towards(self, angle: f32, metres: f32) -> Point {
        Point::new(self.x + metres * angle.cos(), self.y + metres * angle.sin())
    }

    /// The direction from here to `other`: radians, counter-clockwise from east.
    pub fn bearing(self, other: Point) -> f32 {
        (other.y - self.y).atan2(other.x - self.x)
    }

    /// At most `reach` metres from here towards `goal`.
    pub fn step(self, goal: Point, reach: f32) -> Point {
        let metres = self.distance(goal);
        if metres <= reach {
            return goal;
        }
        let part = reach / metres;
        Point::new(self.x + (goal.x - self.x) * part, self.y + (goal.y - self.y) * part)
    }

    /// The rotation of a marker that goes from here to `goal`, in degrees as the game sends it.
    pub fn heading(self, goal: Point) -> f32 {
        ((goal.x - self.x).atan2(self.y - goal.y).to_degrees() + 180.0) % 360.0
    }
}
