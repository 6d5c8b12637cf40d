//! Values that are none of ours.

/// 2^53: the first number that is not exact everywhere.
pub(crate) const TOO_HIGH: u64 = 1 << 53;
/// Well-formed, and never opened.
pub(crate) const NO_SESSION: &str = "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.0";

/// Numbers that are none of ours, as JSON text.
pub(crate) const BAD_NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1.5",
    "\"42\"",
    "9007199254740992",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "1.0",
    "true",
    "null",
    "[]",
    "{}",
    "01",
    "0x10",
    "NaN",
];

/// Names that break one rule each, where `longest` is the bound in bytes.
pub(crate) fn bad_names(longest: usize) -> Vec<String> {
    vec![
        String::new(),
        "x".repeat(longest + 1),
        "é".repeat(longest / 2 + 1),
        "a\u{0}b".to_owned(),
        "a\nb".to_owned(),
        "a\u{7f}b".to_owned(),
        "a\u{85}b".to_owned(),
        "\t".to_owned(),
    ]
}

/// Texts that are no session id, or not its one spelling.
pub(crate) const BAD_SESSIONS: &[&str] = &[
    "",
    "x",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.0.0",
    "2F1C0A52-6A39-4B0E-9F56-0F4C7C1E8A11.1.0",
    "2f1c0a526a394b0e9f560f4c7c1e8a11.1.0",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.01.0",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.-1.0",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.4294967296",
    "2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.18446744073709551616.0",
    " 2f1c0a52-6a39-4b0e-9f56-0f4c7c1e8a11.1.0",
];
