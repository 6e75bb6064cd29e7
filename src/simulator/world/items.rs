//! Items of the game, by their ids.

pub(crate) const SCRAP: i32 = -932201673;
pub(crate) const SULFUR: i32 = -1581843485;
pub(crate) const WOOD: i32 = -151838493;
pub(crate) const STONES: i32 = -2099697608;
pub(crate) const METAL: i32 = 69511070;
pub(crate) const HIGH_QUALITY_METAL: i32 = 317398316;
pub(crate) const GUNPOWDER: i32 = -265876753;
pub(crate) const CLOTH: i32 = -858312878;
pub(crate) const LOW_GRADE_FUEL: i32 = -946369541;
pub(crate) const EXPLOSIVE_CHARGE: i32 = 1248356124;
pub(crate) const ROCKET: i32 = -742865266;
pub(crate) const METAL_PIPE: i32 = 95950017;
pub(crate) const GEARS: i32 = 479143914;
pub(crate) const TECH_TRASH: i32 = 73681876;
pub(crate) const ASSAULT_RIFLE: i32 = 1545779598;
