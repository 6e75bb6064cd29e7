//! The coding of camera pictures: which sample belongs to which pixel, and how samples are packed.
//!
//! A picture of width × height samples arrives in frames of about 3000. Sample number k belongs to pixel
//! `sample_order(width, height)[k]`; within a frame each sample may refer to one of 64 remembered ones.

/// Result of one ray.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// 0..=1023: the distance as a fraction of the far plane.
    pub distance: u16,
    /// 0..=63: how directly the surface faces the camera; 63 is head-on.
    pub alignment: u8,
    /// 0 other, 1 terrain, 2 water, 3 rock, 4 stones, 5 wood, 6 metal, 7 player; more may come.
    pub material: u8,
}

impl Sample {
    /// Nothing within the far plane.
    pub const SKY: Sample = Sample { distance: MAX_DISTANCE, alignment: 0, material: 0 };

    fn slot(self) -> usize {
        (3 * usize::from(self.distance / 128) + 5 * usize::from(self.alignment / 16) + 7 * usize::from(self.material))
            % TABLE_SIZE
    }
}

const MAX_DISTANCE: u16 = 1023;
const MAX_ALIGNMENT: u8 = 63;
const TABLE_SIZE: usize = 64;
/// A full sample whose material is in a byte of its own.
const FULL_WITH_MATERIAL: u8 = 0xFF;

/// The ray data ends inside a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ray data ends inside a sample")]
pub struct CutShort;

/// The pixel (x, y) of each sample, y counted upwards from the bottom row.
///
/// The positions row by row, shuffled (Fisher–Yates from the end) with a fixed seed.
pub fn sample_order(width: u16, height: u16) -> Vec<(u16, u16)> {
    let mut order: Vec<_> = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).collect();
    let mut generator = Generator::new();
    for i in (1..order.len()).rev() {
        let j = generator.below(i as u32 + 1);
        order.swap(i, j as usize);
    }
    order
}

/// Xorshift with the game's quirk: a value with the top bit set comes out lower by two.
struct Generator(u32);

impl Generator {
    fn new() -> Self {
        let mut generator = Self(1337);
        generator.step();
        generator
    }

    /// The state before the step.
    fn step(&mut self) -> u32 {
        let before = self.0;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        before
    }

    /// 0..n.
    fn below(&mut self, n: u32) -> u32 {
        let t = self.step();
        let output = if t < 1 << 31 { t } else { t - 2 };
        (u64::from(output) * u64::from(n) / u64::from(u32::MAX)) as u32
    }
}

/// Packs the samples of one frame, byte for byte as the game does.
///
/// Distances above 1023 and alignments above 63 do not fit and are cut to that.
pub fn encode_rays(samples: &[Sample]) -> Vec<u8> {
    let mut table = [Sample::default(); TABLE_SIZE];
    let mut data = Vec::with_capacity(samples.len() * 2);
    for sample in samples {
        let sample = Sample {
            distance: sample.distance.min(MAX_DISTANCE),
            alignment: sample.alignment.min(MAX_ALIGNMENT),
            ..*sample
        };
        let slot = sample.slot();
        let remembered = table[slot];
        let same_material = remembered.material == sample.material;
        let further = i32::from(sample.distance) - i32::from(remembered.distance);
        let turned = i32::from(sample.alignment) - i32::from(remembered.alignment);
        if remembered == sample {
            data.push(slot as u8);
        } else if same_material && (-15..=16).contains(&further) && (-3..=4).contains(&turned) {
            data.extend([0x40 | slot as u8, ((further + 15) << 3 | (turned + 3)) as u8]);
        } else if same_material && turned == 0 && (-127..=128).contains(&further) {
            data.extend([0x80 | slot as u8, (further + 127) as u8]);
        } else {
            let packed = [(sample.distance >> 2) as u8, (sample.distance << 6) as u8 | sample.alignment];
            if sample.material < 0x3F {
                data.push(0xC0 | sample.material);
                data.extend(packed);
            } else {
                data.push(FULL_WITH_MATERIAL);
                data.extend(packed);
                data.push(sample.material);
            }
            table[slot] = sample;
        }
    }
    data
}

/// Unpacks the samples of one frame.
///
/// At most one sample per byte comes out. A difference that leads out of range is cut to the range.
pub fn decode_rays(data: &[u8]) -> Result<Vec<Sample>, CutShort> {
    let mut table = [Sample::default(); TABLE_SIZE];
    let mut samples = Vec::with_capacity(data.len());
    let mut bytes = data.iter().copied();
    while let Some(control) = bytes.next() {
        let mut next = || bytes.next().ok_or(CutShort);
        let low = control & 0x3F;
        let remembered = table[usize::from(low)];
        samples.push(match control {
            0xC0..=0xFF => {
                let (high, rest) = (next()?, next()?);
                let sample = Sample {
                    distance: u16::from(high) << 2 | u16::from(rest >> 6),
                    alignment: rest & 0x3F,
                    material: if control == FULL_WITH_MATERIAL { next()? } else { low },
                };
                table[sample.slot()] = sample;
                sample
            }
            0x80..=0xBF => moved(remembered, i32::from(next()?) - 127, 0),
            0x40..=0x7F => {
                let delta = next()?;
                moved(remembered, i32::from(delta >> 3) - 15, i32::from(delta & 7) - 3)
            }
            0x00..=0x3F => remembered,
        });
    }
    Ok(samples)
}

/// Number of samples in a frame: those that [`decode_rays`] would unpack.
pub fn count_samples(data: &[u8]) -> Result<usize, CutShort> {
    let (mut at, mut count) = (0, 0);
    while let Some(control) = data.get(at) {
        at += match *control {
            FULL_WITH_MATERIAL => 4,
            0xC0..FULL_WITH_MATERIAL => 3,
            0x40..=0xBF => 2,
            0x00..=0x3F => 1,
        };
        count += 1;
    }
    if at > data.len() { Err(CutShort) } else { Ok(count) }
}

fn moved(sample: Sample, further: i32, turned: i32) -> Sample {
    Sample {
        distance: (i32::from(sample.distance) + further).clamp(0, i32::from(MAX_DISTANCE)) as u16,
        alignment: (i32::from(sample.alignment) + turned).clamp(0, i32::from(MAX_ALIGNMENT)) as u8,
        ..sample
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn generator_gives_the_games_numbers() {
        let mut generator = Generator(1337);
        let raw: Vec<u32> = (0..8).map(|_| generator.step()).collect();
        assert_eq!(raw, [1337, 339970090, 3449400233, 3849456703, 977434341, 3879959018, 2276575093, 1421353882]);
        let mut generator = Generator::new();
        let below_64: Vec<u32> = (0..12).map(|_| generator.below(64)).collect();
        assert_eq!(below_64, [5, 51, 57, 14, 57, 33, 21, 18, 58, 29, 57, 63]);
        let mut generator = Generator::new();
        let below_1000: Vec<u32> = (0..10).map(|_| generator.below(1000)).collect();
        assert_eq!(below_1000, [79, 803, 896, 227, 903, 530, 330, 287, 918, 459]);
    }

    #[test]
    fn order_is_the_games_shuffle() {
        let small = sample_order(4, 4);
        assert_eq!(small[..8], [(2, 1), (3, 3), (0, 2), (0, 0), (0, 1), (3, 2), (1, 2), (3, 1)]);
        assert_eq!(small[13..], [(2, 3), (0, 3), (1, 0)]);
        assert_eq!(sample_order(16, 16)[..8], [(14, 15), (15, 6), (14, 7), (11, 11), (9, 8), (15, 4), (0, 1), (6, 0)]);
        let live = sample_order(160, 90);
        assert_eq!(live[..8], [(51, 36), (143, 3), (60, 60), (144, 59), (79, 58), (157, 85), (119, 65), (134, 73)]);
        assert_eq!(live[14397..], [(104, 80), (44, 72), (19, 7)]);
        let large = sample_order(320, 180);
        assert_eq!(
            large[..8],
            [(173, 66), (107, 164), (314, 66), (45, 113), (85, 125), (185, 10), (11, 152), (217, 4)]
        );
        assert_eq!(large[57597..], [(103, 161), (179, 144), (79, 14)]);
    }

    #[test]
    fn order_of_no_pixels_is_empty() {
        assert!(sample_order(0, 90).is_empty());
        assert_eq!(sample_order(1, 1), [(0, 0)]);
    }

    #[test]
    fn ray_data_decodes_as_recorded() {
        let data = [
            0x00, 0xc0, 0xff, 0xc0, 0x15, 0xc1, 0x7d, 0x3f, 0x5f, 0x90, 0x1f, 0xc1, 0x96, 0x3f, 0xff, 0x19, 0x28, 0x40,
            0x4a, 0x8b, 0xc3, 0x80, 0x20, 0x15,
        ];
        let expected = [
            (0, 0, 0),
            (1023, 0, 0),
            (1023, 0, 0),
            (500, 63, 1),
            (503, 60, 1),
            (500, 63, 1),
            (600, 63, 1),
            (100, 40, 64),
            (102, 40, 64),
            (512, 32, 3),
            (1023, 0, 0),
        ]
        .map(|(distance, alignment, material)| Sample { distance, alignment, material });
        assert_eq!(decode_rays(&data).as_deref(), Ok(&expected[..]));
        assert_eq!(encode_rays(&expected), data);
        assert_eq!(count_samples(&data), Ok(expected.len()));
    }

    #[test]
    fn data_that_ends_inside_a_sample_is_refused() {
        for data in [&[0xC1][..], &[0xC1, 0x00], &[0xFF, 0x00, 0x00], &[0x80], &[0x00, 0x40]] {
            assert_eq!(decode_rays(data), Err(CutShort), "{data:02x?}");
        }
    }

    #[test]
    fn differences_stay_in_range() {
        assert_eq!(decode_rays(&[0x80, 0x00]), Ok(vec![Sample::default()]));
        let highest = decode_rays(&[0xC0, 0xFF, 0xFF, 0x40 | 36, 0xFF]).expect("whole samples");
        assert_eq!(highest[1], Sample { distance: 1023, alignment: 63, material: 0 });
    }

    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        // Neighbours in a picture resemble each other: near values exercise the short forms.
        let near = (480u16..=540, 28u8..=36, 1u8..=2);
        let any = (0u16..=1023, 0u8..=63, any::<u8>());
        let sample =
            prop_oneof![near, any].prop_map(|(distance, alignment, material)| Sample { distance, alignment, material });
        prop::collection::vec(sample, 0..400)
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(samples in samples()) {
            prop_assert_eq!(decode_rays(&encode_rays(&samples)), Ok(samples));
        }

        #[test]
        fn rubbish_never_panics(data in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(count_samples(&data), decode_rays(&data).map(|samples| samples.len()));
            if let Ok(samples) = decode_rays(&data) {
                prop_assert!(samples.len() <= data.len());
                prop_assert!(samples.iter().all(|s| s.distance <= 1023 && s.alignment <= 63));
            }
        }
    }
}
