//! Enums whose variants are words: stored, sent, counted or logged.

/// An enum with one word for each variant, by which serde and the schema know it, too. `ALL` and `WORDS` are in the order
/// of the variants.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident = $word:tt),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ::serde::Serialize)]
        $vis enum $name {
            $($(#[$of_variant])* #[serde(rename = $word)] $variant),*
        }

        #[allow(dead_code, reason = "few lists are both sent and read")]
        impl $name {
            /// Every variant.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];
            /// The word of each.
            pub const WORDS: [&'static str; [$($word),*].len()] = [$($word),*];

            /// The word of this variant.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }

            /// The variant of a word.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.word() == word)
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    words! {
        /// Two colours.
        #[derive(Default, Deserialize)]
        enum Colour {
            #[default]
            Red = "red",
            DeepBlue = "deep-blue",
        }
    }

    #[test]
    fn a_variant_has_one_word_everywhere() {
        assert_eq!((Colour::WORDS, Colour::default()), (["red", "deep-blue"], Colour::Red));
        for colour in Colour::ALL {
            assert_eq!(Colour::parse(colour.word()), Some(colour));
            assert_eq!(serde_json::to_value(colour).unwrap(), colour.word());
            assert_eq!(serde_json::from_value::<Colour>(colour.word().into()).unwrap(), colour);
        }
        assert_eq!(Colour::parse("DeepBlue"), None);
    }
}
