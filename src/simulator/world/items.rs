//! Items of the game, by their ids.

pub const SCRAP: i32 = -932201673;
pub const SULFUR: i32 = -1581843485;
pub const WOOD: i32 = -151838493;
pub const STONES: i32 = -2099697608;
pub const METAL: i32 = 69511070;
pub const HIGH_QUALITY_METAL: i32 = 317398316;
pub const GUNPOWDER: i32 = -265876753;
pub const CLOTH: i32 = -858312878;
pub const LOW_GRADE_FUEL: i32 = -946369541;
pub const EXPLOSIVE_CHARGE: i32 = 1248356124;
pub const ROCKET: i32 = -742865266;
pub const METAL_PIPE: i32 = 95950017;
pub const GEARS: i32 = 479143914;
pub const TECH_TRASH: i32 = 73681876;
pub const ASSAULT_RIFLE: i32 = 1545779598;
