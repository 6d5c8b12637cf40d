//! Random numbers that a seed decides.

/// The SplitMix64 generator: small, fast and good enough to choose faults. Not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The generator that `seed` stands for.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// True half of the time.
    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// A number from 0 up to and with `most`.
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        let chosen = self.below((most as u64).saturating_add(1));
        usize::try_from(chosen).unwrap_or(most)
    }
}
