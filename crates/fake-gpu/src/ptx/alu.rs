//! Arithmetic: what an opcode does to its lanes.
//!
//! Approximate instructions are computed as well as the host can: their rounding is a device's own.

use std::cmp::Ordering;

use half::{bf16, f16};

use super::{LANES, Lanes};

/// Up to three operands to one result, lane by lane.
pub(super) type Run = Box<dyn Fn(&Lanes, &Lanes, &Lanes) -> Lanes + Send + Sync>;
/// Two operands to a predicate, a bit a lane.
pub(super) type Compare = Box<dyn Fn(&Lanes, &Lanes) -> u32 + Send + Sync>;
/// Two predicates to one.
pub(super) type Combine = fn(u32, u32) -> u32;

/// A type that a register holds.
trait Word: Copy {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($integer:ty as $unsigned:ty),*) => {$(
        impl Word for $integer {
            fn of(bits: u64) -> Self {
                bits as $integer
            }
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }
    )*};
}

integers!(
    u8 as u8, i8 as u8, u16 as u16, i16 as u16, u32 as u32, i32 as u32, u64 as u64, i64 as u64
);

impl Word for f32 {
    fn of(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
}

impl Word for f64 {
    fn of(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

fn one<A: Word, R: Word>(f: impl Fn(A) -> R + Send + Sync + 'static) -> Option<(Run, usize)> {
    let run = move |a: &Lanes, _: &Lanes, _: &Lanes| {
        std::array::from_fn::<_, LANES, _>(|lane| f(A::of(a[lane])).bits())
    };
    Some((Box::new(run), 1))
}

fn two<A: Word, B: Word, R: Word>(
    f: impl Fn(A, B) -> R + Send + Sync + 'static,
) -> Option<(Run, usize)> {
    let run = move |a: &Lanes, b: &Lanes, _: &Lanes| {
        std::array::from_fn::<_, LANES, _>(|lane| f(A::of(a[lane]), B::of(b[lane])).bits())
    };
    Some((Box::new(run), 2))
}

fn three<A: Word, B: Word, C: Word, R: Word>(
    f: impl Fn(A, B, C) -> R + Send + Sync + 'static,
) -> Option<(Run, usize)> {
    let run = move |a: &Lanes, b: &Lanes, c: &Lanes| {
        std::array::from_fn::<_, LANES, _>(|lane| {
            f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane])).bits()
        })
    };
    Some((Box::new(run), 3))
}

/// What the opcode does, and how many operands it takes; `None`: it is not known.
pub(super) fn lanewise(name: &str, modifiers: &[&str], kinds: &[&str]) -> Option<(Run, usize)> {
    let kind = *kinds.last()?;
    let has = |modifier: &str| modifiers.contains(&modifier);
    match name {
        "mov" => one(|a: u64| a),
        // Spaces have windows in one range of addresses: see `memory`.
        "cvta" => {
            let base = match () {
                () if has("shared") => super::memory::SHARED,
                () if has("local") => super::memory::LOCAL,
                () => 0,
            };
            let is_back = has("to");
            one(move |a: u64| {
                if is_back {
                    a.wrapping_sub(base)
                } else {
                    a.wrapping_add(base)
                }
            })
        }
        "cvt" => convert(modifiers, kinds),
        "shl" => match super::parse::bits_of(kind)? {
            16 => two(|a: u16, b: u32| a.checked_shl(b).unwrap_or(0)),
            32 => two(|a: u32, b: u32| a.checked_shl(b).unwrap_or(0)),
            _ => two(|a: u64, b: u32| a.checked_shl(b).unwrap_or(0)),
        },
        "shr" => match kind {
            "u16" | "b16" => two(|a: u16, b: u32| a.checked_shr(b).unwrap_or(0)),
            "u32" | "b32" => two(|a: u32, b: u32| a.checked_shr(b).unwrap_or(0)),
            "u64" | "b64" => two(|a: u64, b: u32| a.checked_shr(b).unwrap_or(0)),
            "s16" => two(|a: i16, b: u32| a >> b.min(15)),
            "s32" => two(|a: i32, b: u32| a >> b.min(31)),
            "s64" => two(|a: i64, b: u32| a >> b.min(63)),
            _ => None,
        },
        "prmt" if kind == "b32" && modifiers.len() == 1 => three(permuted),
        "shf" => {
            let amount = move |by: u32, wraps: bool| if wraps { by & 31 } else { by.min(32) };
            let wraps = has("wrap");
            let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
            match has("l") {
                true => three(move |low: u32, high: u32, by: u32| {
                    (wide(low, high) << amount(by, wraps) >> 32) as u32
                }),
                false => three(move |low: u32, high: u32, by: u32| {
                    (wide(low, high) >> amount(by, wraps)) as u32
                }),
            }
        }
        "bfe" if kind == "u32" => three(|a: u32, at: u32, bits: u32| {
            let shifted = a.checked_shr(at & 255).unwrap_or(0);
            match bits & 255 {
                bits if bits >= 32 => shifted,
                bits => shifted & ((1 << bits) - 1),
            }
        }),
        "popc" if kind == "b32" => one(|a: u32| a.count_ones()),
        "clz" if kind == "b32" => one(|a: u32| a.leading_zeros()),
        "mul" | "mad" if has("wide") => match kind {
            "u16" => three(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
            "s16" => three(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
            "u32" => three(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
            "s32" => three(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
            _ => None,
        }
        .map(|(run, count)| (run, if name == "mul" { 2 } else { count })),
        // Rounded otherwise than to nearest: a sum of f32 in f64, then the last step.
        "fma" if kind == "f32" && (has("rm") || has("rp") || has("rz")) => {
            let round = rounding(modifiers);
            three(move |a: f32, b: f32, c: f32| {
                directed(f64::from(a) * f64::from(b) + f64::from(c), round)
            })
        }
        "copysign" if kind == "f32" => two(|a: f32, b: f32| b.copysign(a)),
        _ => match kind {
            "u16" | "b16" => integer_u16(name, modifiers),
            "s16" => integer_i16(name, modifiers),
            "u32" | "b32" => integer_u32(name, modifiers),
            "s32" => integer_i32(name, modifiers),
            "u64" | "b64" => integer_u64(name, modifiers),
            "s64" => integer_i64(name, modifiers),
            "f32" => float_f32(name, modifiers),
            "f64" => float_f64(name, modifiers),
            _ => None,
        },
    }
}

macro_rules! integer {
    ($function:ident, $t:ty, $wide:ty, $abs:expr) => {
        fn $function(name: &str, modifiers: &[&str]) -> Option<(Run, usize)> {
            let is_high = modifiers.contains(&"hi");
            let high = |a: $t, b: $t| ((a as $wide * b as $wide) >> <$t>::BITS) as $t;
            match name {
                "add" => two(|a: $t, b: $t| a.wrapping_add(b)),
                "sub" => two(|a: $t, b: $t| a.wrapping_sub(b)),
                "mul" if is_high => two(high),
                "mul" => two(|a: $t, b: $t| a.wrapping_mul(b)),
                "mad" if is_high => three(move |a: $t, b: $t, c: $t| high(a, b).wrapping_add(c)),
                "mad" => three(|a: $t, b: $t, c: $t| a.wrapping_mul(b).wrapping_add(c)),
                // What a device gives for a division by zero is nobody's business.
                "div" => two(|a: $t, b: $t| a.checked_div(b).unwrap_or(!0)),
                "rem" => two(|a: $t, b: $t| a.checked_rem(b).unwrap_or(a)),
                "min" => two(|a: $t, b: $t| a.min(b)),
                "max" => two(|a: $t, b: $t| a.max(b)),
                "neg" => one(|a: $t| (0 as $t).wrapping_sub(a)),
                "abs" => one(|a: $t| $abs(a)),
                "and" => two(|a: $t, b: $t| a & b),
                "or" => two(|a: $t, b: $t| a | b),
                "xor" => two(|a: $t, b: $t| a ^ b),
                "not" => one(|a: $t| !a),
                _ => None,
            }
        }
    };
}

// With a type that holds every product.
integer!(integer_u16, u16, u32, std::convert::identity);
integer!(integer_i16, i16, i32, i16::wrapping_abs);
integer!(integer_u32, u32, u64, std::convert::identity);
integer!(integer_i32, i32, i64, i32::wrapping_abs);
integer!(integer_u64, u64, u128, std::convert::identity);
integer!(integer_i64, i64, i128, i64::wrapping_abs);

macro_rules! float {
    ($function:ident, $t:ty) => {
        fn $function(name: &str, modifiers: &[&str]) -> Option<(Run, usize)> {
            // Rounded to nearest, or approximate; anything else would be another sum.
            let others = ["sat", "rm", "rp", "rz"];
            if others.iter().any(|other| modifiers.contains(other)) {
                return None;
            }
            match name {
                "add" => two(|a: $t, b: $t| a + b),
                "sub" => two(|a: $t, b: $t| a - b),
                "mul" => two(|a: $t, b: $t| a * b),
                "div" => two(|a: $t, b: $t| a / b),
                "fma" | "mad" => three(|a: $t, b: $t, c: $t| a.mul_add(b, c)),
                // The other one, where one is NaN.
                "min" => two(|a: $t, b: $t| a.min(b)),
                "max" => two(|a: $t, b: $t| a.max(b)),
                "neg" => one(|a: $t| -a),
                "abs" => one(|a: $t| a.abs()),
                "sqrt" => one(|a: $t| a.sqrt()),
                "rsqrt" => one(|a: $t| 1.0 / a.sqrt()),
                "rcp" => one(|a: $t| 1.0 / a),
                "ex2" => one(|a: $t| a.exp2()),
                "lg2" => one(|a: $t| a.log2()),
                "tanh" => one(|a: $t| a.tanh()),
                _ => None,
            }
        }
    };
}

float!(float_f32, f32);
float!(float_f64, f64);

/// The `f32` on that side of a value.
fn directed(value: f64, round: Round) -> f32 {
    let nearest = value as f32;
    let off = f64::from(nearest) - value;
    match round {
        Round::Down if off > 0.0 => nearest.next_down(),
        Round::Up if off < 0.0 => nearest.next_up(),
        Round::Zero if off > 0.0 && value > 0.0 => nearest.next_down(),
        Round::Zero if off < 0.0 && value < 0.0 => nearest.next_up(),
        _ => nearest,
    }
}

/// Four bytes out of eight, each picked by three bits of the selector; a fourth repeats its sign.
fn permuted(low: u32, high: u32, selector: u32) -> u32 {
    let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
    let picked = std::array::from_fn(|at| {
        let pick = selector >> (4 * at) & 15;
        let byte = bytes[(pick & 7) as usize];
        match pick & 8 {
            0 => byte,
            _ => (byte as i8 >> 7) as u8,
        }
    });
    u32::from_le_bytes(picked)
}

/// So many bits of the first operand in place of the second's, from a bit on.
pub(super) fn insert(at: u32, bits: u32) -> Run {
    let mask = (((1u64 << bits.min(32)) - 1) << at.min(32)) as u32;
    let run = two(move |a: u32, b: u32| a.checked_shl(at).unwrap_or(0) & mask | b & !mask);
    // Two operands are never unknown.
    run.map_or(Box::new(|_, b, _| *b), |(run, _)| run)
}

/// A value between two types.
#[derive(Clone, Copy)]
enum Wide {
    Integer(i128),
    Float(f64),
}

#[derive(Clone, Copy)]
enum Round {
    Nearest,
    Zero,
    Down,
    Up,
}

fn rounding(modifiers: &[&str]) -> Round {
    let rounds = modifiers.iter().find_map(|modifier| match *modifier {
        "rz" | "rzi" => Some(Round::Zero),
        "rm" | "rmi" => Some(Round::Down),
        "rp" | "rpi" => Some(Round::Up),
        _ => None,
    });
    rounds.unwrap_or(Round::Nearest)
}

fn convert(modifiers: &[&str], kinds: &[&str]) -> Option<(Run, usize)> {
    let has = |modifier: &str| modifiers.contains(&modifier);
    if has("relu") {
        return None;
    }
    let round = rounding(modifiers);
    // Between floats of one type, `rni` and its kind give whole numbers.
    let is_whole = modifiers
        .iter()
        .any(|modifier| modifier.len() == 3 && modifier.ends_with('i'));
    let saturates = has("sat");
    match kinds {
        // The first operand is the upper half.
        ["bf16x2", "f32"] if !matches!(round, Round::Nearest) => None,
        ["bf16x2", "f32"] => two(|high: f32, low: f32| {
            u32::from(bf16::from_f32(high).to_bits()) << 16
                | u32::from(bf16::from_f32(low).to_bits())
        }),
        ["f16x2", "f32"] => two(|high: f32, low: f32| {
            u32::from(f16::from_f32(high).to_bits()) << 16 | u32::from(f16::from_f32(low).to_bits())
        }),
        ["f32", "f16"] => one(|a: u16| f16::from_bits(a).to_f32()),
        ["f32", "bf16"] => one(|a: u16| bf16::from_bits(a).to_f32()),
        ["f16", "f32"] => one(|a: f32| f16::from_f32(a).to_bits()),
        ["bf16", "f32"] if matches!(round, Round::Nearest) => {
            one(|a: f32| bf16::from_f32(a).to_bits())
        }
        [to, from] => {
            let widen = widen(from)?;
            let narrow = narrow(to)?;
            let whole = is_whole || !to.starts_with('f');
            one(move |a: u64| {
                let wide = match widen(a) {
                    Wide::Float(value) if whole => Wide::Float(rounded(value, round)),
                    wide => wide,
                };
                narrow(wide, saturates)
            })
        }
        _ => None,
    }
}

fn rounded(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

fn widen(kind: &str) -> Option<fn(u64) -> Wide> {
    Some(match kind {
        "u8" | "b8" => |bits| Wide::Integer(u8::of(bits).into()),
        "s8" => |bits| Wide::Integer(i8::of(bits).into()),
        "u16" | "b16" => |bits| Wide::Integer(u16::of(bits).into()),
        "s16" => |bits| Wide::Integer(i16::of(bits).into()),
        "u32" | "b32" => |bits| Wide::Integer(u32::of(bits).into()),
        "s32" => |bits| Wide::Integer(i32::of(bits).into()),
        "u64" | "b64" => |bits| Wide::Integer(bits.into()),
        "s64" => |bits| Wide::Integer(i64::of(bits).into()),
        "f32" => |bits| Wide::Float(f32::of(bits).into()),
        "f64" => |bits| Wide::Float(f64::of(bits)),
        _ => return None,
    })
}

fn narrow(kind: &str) -> Option<fn(Wide, bool) -> u64> {
    macro_rules! integer {
        ($t:ty) => {
            |wide, saturates| match wide {
                Wide::Integer(value) if saturates => {
                    (value.clamp(<$t>::MIN.into(), <$t>::MAX.into()) as $t).bits()
                }
                Wide::Integer(value) => (value as $t).bits(),
                // Out of range is the nearest there is.
                Wide::Float(value) => (value as $t).bits(),
            }
        };
    }
    macro_rules! float {
        ($t:ty) => {
            |wide, saturates| match wide {
                Wide::Integer(value) => (value as $t).bits(),
                Wide::Float(value) if saturates => (value.clamp(0.0, 1.0) as $t).bits(),
                Wide::Float(value) => (value as $t).bits(),
            }
        };
    }
    Some(match kind {
        "u8" => integer!(u8),
        "s8" => integer!(i8),
        "u16" | "b16" => integer!(u16),
        "s16" => integer!(i16),
        "u32" | "b32" => integer!(u32),
        "s32" => integer!(i32),
        "u64" | "b64" => integer!(u64),
        "s64" => integer!(i64),
        "f32" => float!(f32),
        "f64" => float!(f64),
        _ => return None,
    })
}

/// What compares two operands; `None`: it is not known.
pub(super) fn compare(how: &str, kind: &str) -> Option<Compare> {
    fn of<T: Word>(holds: impl Fn(T, T) -> bool + Send + Sync + 'static) -> Option<Compare> {
        Some(Box::new(move |a, b| {
            (0..LANES).fold(0, |mask, lane| {
                mask | u32::from(holds(T::of(a[lane]), T::of(b[lane]))) << lane
            })
        }))
    }
    macro_rules! compared {
        ($t:ty) => {
            match how {
                "eq" => of(|a: $t, b: $t| a == b),
                "ne" => of(|a: $t, b: $t| a != b),
                "lt" | "lo" => of(|a: $t, b: $t| a < b),
                "le" | "ls" => of(|a: $t, b: $t| a <= b),
                "gt" | "hi" => of(|a: $t, b: $t| a > b),
                "ge" | "hs" => of(|a: $t, b: $t| a >= b),
                _ => None,
            }
        };
    }
    // Numbers have an order; the `u` forms hold without one, too, where one of them is NaN.
    macro_rules! floats {
        ($t:ty) => {
            match how {
                "ne" => of(|a: $t, b: $t| a.partial_cmp(&b).is_some_and(Ordering::is_ne)),
                "neu" => of(|a: $t, b: $t| a != b),
                "equ" => of(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_eq)),
                "ltu" => of(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_lt)),
                "leu" => of(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_le)),
                "gtu" => of(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_gt)),
                "geu" => of(|a: $t, b: $t| a.partial_cmp(&b).is_none_or(Ordering::is_ge)),
                "num" => of(|a: $t, b: $t| a.partial_cmp(&b).is_some()),
                "nan" => of(|a: $t, b: $t| a.partial_cmp(&b).is_none()),
                _ => compared!($t),
            }
        };
    }
    match kind {
        "u16" | "b16" => compared!(u16),
        "s16" => compared!(i16),
        "u32" | "b32" => compared!(u32),
        "s32" => compared!(i32),
        "u64" | "b64" => compared!(u64),
        "s64" => compared!(i64),
        "f32" => floats!(f32),
        "f64" => floats!(f64),
        _ => None,
    }
}

/// What makes one predicate of two, or of the first.
pub(super) fn combine(name: &str) -> Option<Combine> {
    Some(match name {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        "not" => |a, _| !a,
        "mov" => |a, _| a,
        _ => return None,
    })
}

/// What an atomic instruction makes of what is there and its one or two operands.
pub(super) fn atomic(name: &str, kind: &str) -> Option<Run> {
    let run = match (name, kind) {
        ("exch", _) => two(|_: u64, b: u64| b),
        ("cas", "b32") => three(
            |there: u32, expected: u32, new: u32| {
                if there == expected { new } else { there }
            },
        ),
        ("cas", "b64") => three(
            |there: u64, expected: u64, new: u64| {
                if there == expected { new } else { there }
            },
        ),
        ("add" | "min" | "max" | "and" | "or" | "xor", _) => lanewise(name, &[kind], &[kind]),
        _ => None,
    };
    run.map(|(run, _)| run)
}
