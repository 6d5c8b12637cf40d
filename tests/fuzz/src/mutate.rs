//! Changes to inputs that know JSON: a byte changed at random mostly makes no JSON at all, and says
//! nothing of what is done with a member that is short, large, missing or of another kind.

use serde_json::{Value, json};

/// Changes one place of one JSON document in the input; none where there is no document, or it
/// does not fit `max` bytes any more.
#[must_use]
pub fn mutate(input: &[u8], max: usize, seed: u32) -> Option<Vec<u8>> {
    let mut random = Random(u64::from(seed));
    let documents = documents(input);
    let (start, end, mut document) = random.one_of(documents)?;
    let places = count(&document);
    let mut place = random.below(places);
    change(&mut document, &mut place, &mut random);
    let document = serde_json::to_vec(&document).ok()?;
    let parts = [input.get(..start)?, &document, input.get(end..)?];
    let changed = parts.concat();
    (changed.len() <= max && changed != input).then_some(changed)
}

/// Where there is JSON, and what it says.
fn documents(input: &[u8]) -> Vec<(usize, usize, Value)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.first() == Some(&b'{') {
            let mut values = serde_json::Deserializer::from_slice(rest).into_iter();
            if let Some(Ok(value)) = values.next() {
                let end = at + values.byte_offset();
                found.push((at, end, value));
                at = end;
                continue;
            }
        }
        at += 1;
    }
    found
}

/// Values in a document, itself included.
fn count(value: &Value) -> usize {
    let within: usize = match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    within + 1
}

/// Changes the value that is `place` values further on; whether it was in here.
fn change(value: &mut Value, place: &mut usize, random: &mut Random) -> bool {
    if *place == 0 {
        *value = other(value, random);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change(item, place, random)),
        Value::Object(members) => {
            let mut values = members.values_mut();
            values.any(|member| change(member, place, random))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Another value in its place: of its own kind more often than not.
fn other(value: &Value, random: &mut Random) -> Value {
    let own = match value {
        Value::String(text) => {
            let cut = text.floor_char_boundary(random.below(text.len() + 1));
            let (kept, rest) = text.split_at(cut);
            vec![
                json!(kept),
                json!(rest),
                json!(format!("{kept}\u{e9}{rest}")),
                json!(format!("{kept}\0{rest}")),
                json!(text.repeat(2)),
            ]
        }
        Value::Number(number) => {
            let number = number.as_u64().unwrap_or_default();
            let bit = 1_u64 << random.below(64);
            vec![
                json!(number ^ bit),
                json!(number.wrapping_add(1)),
                json!(number.wrapping_sub(1)),
                json!(bit),
                json!(u64::MAX),
            ]
        }
        Value::Array(items) => {
            let mut fewer = items.clone();
            fewer.truncate(random.below(items.len() + 1));
            vec![json!(fewer), json!([items.as_slice(), items].concat())]
        }
        Value::Object(members) => {
            let mut fewer = members.clone();
            let gone = random.one_of(members.keys().collect());
            if let Some(name) = gone {
                fewer.remove(name);
            }
            let mut more = members.clone();
            more.insert("more".to_owned(), json!(1));
            vec![json!(fewer), json!(more)]
        }
        Value::Null | Value::Bool(_) => Vec::new(),
    };
    if random.below(4) > 0
        && let Some(own) = random.one_of(own)
    {
        return own;
    }
    let any = vec![
        json!(null),
        json!(true),
        json!(""),
        json!("a"),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1_u64 << 53),
        json!([]),
        json!({}),
        json!([value]),
    ];
    random.one_of(any).unwrap_or_default()
}

/// `SplitMix64`: libFuzzer gives a seed, and must get the same for the same.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(bits % end).unwrap_or_default()
    }

    fn one_of<T>(&mut self, mut all: Vec<T>) -> Option<T> {
        let index = self.below(all.len());
        (index < all.len()).then(|| all.swap_remove(index))
    }
}
