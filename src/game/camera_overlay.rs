//! Trees and persons, drawn over the picture of a camera where nothing nearer hides them, and names above players
//! (protocol §5.6).

use image::{Rgb, RgbImage};

use super::camera_shot::{CameraShot, SeenEntity, SeenKind};

const TREE: Rgb<u8> = Rgb([0x03, 0xAD, 0x15]);
const PLAYER: Rgb<u8> = Rgb([0xFA, 0x28, 0x28]);
const SCIENTIST: Rgb<u8> = Rgb([0x30, 0x98, 0xF2]);
const NAME: Rgb<u8> = Rgb([0xFF, 0xFF, 0xFF]);
const NAME_SHADOW: Rgb<u8> = Rgb([0x00, 0x00, 0x00]);
/// Metres that a sample may be nearer than the front of what it belongs to: samples are rounded.
const HIDDEN_MARGIN: f32 = 0.5;
/// Nothing nearer than this is drawn, metres: it would fill the picture.
const NEAREST: f32 = 0.1;
/// Metres that the body reaches beyond a person's box, and height of the name above the middle of the box.
const HEAD: f32 = 0.3;
const NAME_ABOVE: f32 = 1.3;
/// The part of a tree that is its crown, from the top, and the width of its trunk as a part of the crown's.
const CROWN: f32 = 0.75;
const TRUNK: f32 = 0.2;

/// Position to the right and down, and half the extent, all in pixels from the top left corner.
struct Projected {
    x: f32,
    y: f32,
    half_width: f32,
    half_height: f32,
}

/// From metres in front of the camera to pixels.
struct Projection {
    width: f32,
    height: f32,
    /// 1 / tan of half the vertical field of view.
    focal: f32,
    near: f32,
}

impl Projection {
    /// `None` if the field of view is not between 0 and 180 degrees.
    fn of(shot: &CameraShot) -> Option<Self> {
        let (width, height) = (f32::from(shot.view.width), f32::from(shot.view.height));
        let is_angle = shot.vertical_fov > 0.0 && shot.vertical_fov < 180.0;
        let focal = 1.0 / (shot.vertical_fov.to_radians() / 2.0).tan();
        is_angle.then_some(Self { width, height, focal, near: shot.view.near_plane.max(NEAREST) })
    }

    /// Projects a box of this extent; `None` behind the near plane.
    fn project(&self, [x, y, z]: [f32; 3], wide: f32, high: f32) -> Option<Projected> {
        if z <= self.near {
            return None;
        }
        // A pixel is as wide as high, so one scale serves both.
        let scale = self.focal * self.height / 2.0 / z;
        Some(Projected {
            x: self.width / 2.0 + x * scale,
            y: self.height / 2.0 - y * scale,
            half_width: wide / 2.0 * scale,
            half_height: high / 2.0 * scale,
        })
    }
}

/// Draws the entities of the shot, the farthest first. `depths` are metres, row by row from the top.
pub fn draw_entities(picture: &mut RgbImage, depths: &[f32], shot: &CameraShot) {
    let Some(projection) = Projection::of(shot) else { return };
    for entity in shot.entities.iter().rev() {
        draw_entity(picture, depths, &projection, entity);
    }
    for entity in shot.entities.iter().rev() {
        let [x, y, z] = entity.position;
        if let Some(name) = &entity.name
            && let Some(at) = projection.project([x, y + NAME_ABOVE, z], 0.0, 0.0)
        {
            write_name(picture, name, &at);
        }
    }
}

fn draw_entity(picture: &mut RgbImage, depths: &[f32], projection: &Projection, entity: &SeenEntity) {
    let [wide, high, deep] = entity.size;
    let (colour, high) = match entity.kind {
        SeenKind::Tree => (TREE, high),
        SeenKind::Player => (PLAYER, high + HEAD),
        SeenKind::Scientist => (SCIENTIST, high + HEAD),
    };
    let Some(shape) = projection.project(entity.position, wide, high) else { return };
    let is_inside = if entity.kind == SeenKind::Tree { is_in_tree } else { is_in_person };
    // Its own front does not hide it.
    let hidden_below = entity.distance() - wide.max(deep) / 2.0 - HIDDEN_MARGIN;
    let (width, height) = picture.dimensions();
    let columns = pixels(shape.x, shape.half_width, width);
    for y in pixels(shape.y, shape.half_height, height) {
        for x in columns.clone() {
            let (right, down) = (x as f32 + 0.5 - shape.x, y as f32 + 0.5 - shape.y);
            if depths[(y * width + x) as usize] > hidden_below && is_inside(&shape, right, down) {
                picture.put_pixel(x, y, colour);
            }
        }
    }
}

/// The pixels of this extent that are in the picture.
fn pixels(middle: f32, half: f32, all: u32) -> std::ops::Range<u32> {
    // Casts saturate, and what is not a number becomes 0.
    let end = ((middle + half).ceil() as u32).min(all);
    (middle - half).floor() as u32..end
}

/// A capsule: round ends above and below.
fn is_in_person(shape: &Projected, right: f32, down: f32) -> bool {
    let radius = shape.half_width.min(shape.half_height);
    let beyond = (down.abs() - (shape.half_height - radius)).max(0.0);
    right * right + beyond * beyond <= radius * radius
}

/// A cone on a trunk.
fn is_in_tree(shape: &Projected, right: f32, down: f32) -> bool {
    let from_top = (down + shape.half_height) / (2.0 * shape.half_height);
    let part = if from_top < CROWN { from_top / CROWN } else { TRUNK };
    (0.0..=1.0).contains(&from_top) && right.abs() <= shape.half_width * part
}

const GLYPH_WIDTH: i64 = 3;
const GLYPH_HEIGHT: i64 = 5;

/// Writes the name with its middle here, on a shadow.
fn write_name(picture: &mut RgbImage, name: &str, at: &Projected) {
    // Far outside there is nothing to write on, and numbers may be too large to count with.
    if at.x.abs().max(at.y.abs()) > 1e6 {
        return;
    }
    let step = GLYPH_WIDTH + 1;
    let characters = name.chars().count() as i64;
    let left = at.x as i64 - (characters * step - 1) / 2;
    let top = at.y as i64 - GLYPH_HEIGHT / 2;
    for (colour, shift) in [(NAME_SHADOW, 1), (NAME, 0)] {
        for (n, character) in name.chars().enumerate() {
            let rows = glyph(character.to_ascii_uppercase());
            for (row, column) in (0..GLYPH_HEIGHT).flat_map(|row| (0..GLYPH_WIDTH).map(move |column| (row, column))) {
                let bit = (GLYPH_HEIGHT - 1 - row) * GLYPH_WIDTH + (GLYPH_WIDTH - 1 - column);
                if rows >> bit & 1 == 1 {
                    put(picture, left + n as i64 * step + column + shift, top + row + shift, colour);
                }
            }
        }
    }
}

fn put(picture: &mut RgbImage, x: i64, y: i64, colour: Rgb<u8>) {
    if let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y))
        && x < picture.width()
        && y < picture.height()
    {
        picture.put_pixel(x, y, colour);
    }
}

/// Five rows of three pixels, an octal digit each, from the top.
#[rustfmt::skip]
fn glyph(character: char) -> u16 {
    match character {
        'A' => 0o25755, 'B' => 0o65656, 'C' => 0o34443, 'D' => 0o65556, 'E' => 0o74647, 'F' => 0o74644,
        'G' => 0o34553, 'H' => 0o55755, 'I' => 0o72227, 'J' => 0o11152, 'K' => 0o55655, 'L' => 0o44447,
        'M' => 0o57755, 'N' => 0o65555, 'O' => 0o25552, 'P' => 0o65644, 'Q' => 0o25563, 'R' => 0o65655,
        'S' => 0o34216, 'T' => 0o72222, 'U' => 0o55557, 'V' => 0o55552, 'W' => 0o55775, 'X' => 0o55255,
        'Y' => 0o55222, 'Z' => 0o71247,
        '0' => 0o75557, '1' => 0o26227, '2' => 0o71747, '3' => 0o71317, '4' => 0o55711,
        '5' => 0o74717, '6' => 0o74757, '7' => 0o71122, '8' => 0o75757, '9' => 0o75717,
        ' ' => 0o00000, '-' => 0o00700, '_' => 0o00007, '.' => 0o00002,
        // The font has no more: a box.
        _ => 0o75557,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::time::Timestamp, game::camera_shot::CameraView};

    fn shot(entities: Vec<SeenEntity>) -> CameraShot {
        CameraShot {
            view: CameraView { width: 160, height: 90, near_plane: 0.0, far_plane: 250.0 },
            at: Timestamp::from_unix(1_790_000_000).unwrap(),
            frames: Vec::new(),
            vertical_fov: 90.0,
            entities,
        }
    }

    fn seen(kind: SeenKind, position: [f32; 3]) -> SeenEntity {
        SeenEntity { kind, position, size: [1.0, 2.0, 1.0], name: None }
    }

    fn drawn(entities: Vec<SeenEntity>, depth: f32) -> RgbImage {
        let mut picture = RgbImage::new(160, 90);
        draw_entities(&mut picture, &vec![depth; 160 * 90], &shot(entities));
        picture
    }

    fn count(picture: &RgbImage, colour: Rgb<u8>) -> usize {
        picture.pixels().filter(|pixel| **pixel == colour).count()
    }

    #[test]
    fn a_person_is_where_the_projection_says() {
        // At 10 m and 90 degrees a metre is 4.5 pixels.
        let picture = drawn(vec![seen(SeenKind::Player, [10.0, 5.0, 10.0])], 250.0);
        assert_eq!(picture.get_pixel(125, 22), &PLAYER);
        let rows: Vec<u32> = picture.enumerate_pixels().filter(|(.., pixel)| **pixel == PLAYER).map(|p| p.1).collect();
        assert_eq!((rows.first(), rows.last()), (Some(&17), Some(&27)), "2.3 m high");
        assert_eq!(count(&drawn(vec![seen(SeenKind::Player, [0.0, 0.0, -10.0])], 250.0), PLAYER), 0, "behind");
    }

    #[test]
    fn what_is_nearer_hides() {
        let tree = || vec![seen(SeenKind::Tree, [0.0, 0.0, 5.0])];
        assert!(count(&drawn(tree(), 4.5), TREE) > 30, "its own front");
        assert_eq!(count(&drawn(tree(), 3.9), TREE), 0);
        // The nearer of two is on top.
        let both = vec![seen(SeenKind::Scientist, [0.0, 0.0, 10.0]), seen(SeenKind::Player, [0.0, 0.0, 20.0])];
        assert_eq!(drawn(both, 250.0).get_pixel(80, 45), &SCIENTIST);
    }

    #[test]
    fn a_name_is_above_its_player() {
        let named = SeenEntity { name: Some("Marlow".into()), ..seen(SeenKind::Player, [0.0, 0.0, 10.0]) };
        let picture = drawn(vec![named], 250.0);
        let above = picture.enumerate_pixels().filter(|(_, y, pixel)| *y < 42 && **pixel == NAME).count();
        assert!(above > 40, "{above}");
    }

    #[test]
    fn senseless_numbers_draw_nothing_that_matters() {
        for size in [0.0, -5.0, 1e30] {
            for z in [1e-30, 0.2, 1e30] {
                let huge =
                    SeenEntity { size: [size; 3], name: Some("x".into()), ..seen(SeenKind::Player, [1e30, -1e30, z]) };
                drawn(vec![huge], 250.0);
            }
        }
        let mut flat = shot(vec![seen(SeenKind::Tree, [0.0, 0.0, 5.0])]);
        for fov in [0.0, 180.0, f32::NAN] {
            flat.vertical_fov = fov;
            let mut picture = RgbImage::new(160, 90);
            draw_entities(&mut picture, &[250.0; 160 * 90], &flat);
            assert_eq!(count(&picture, TREE), 0);
        }
    }
}
