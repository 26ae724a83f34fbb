//! A statement as an instruction: what it does, and where its operands are.

use std::collections::HashMap;
use std::fmt;

use super::Lanes;
use super::alu::{self, Combine, Compare, Run};
use super::matrix::Factor;
use super::parse::{Name, Scope, bits_of};

/// What a warp does in one step.
#[derive(Debug)]
pub(super) struct Instruction {
    /// Which lanes do it.
    pub guard: Option<Guard>,
    pub operation: Operation,
    /// As it is written.
    pub text: String,
}

/// A predicate, or its opposite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub predicate: usize,
    pub is_negated: bool,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Register(usize),
    Value(u64),
    Special(Special),
}

/// What a thread knows of itself. Numbers are x, y and z.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    Warp,
    DynamicShared,
}

/// A place in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub base: Source,
    pub offset: u64,
}

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Parameter,
    Global,
    Shared,
    Local,
    /// Whichever of them the address says.
    Generic,
}

/// How lanes give each other values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What an instruction does.
pub(super) enum Operation {
    Lanewise {
        out: usize,
        sources: [Source; 3],
        run: Run,
    },
    Compare {
        out: usize,
        opposite: Option<usize>,
        sources: [Source; 2],
        run: Compare,
        with: Option<(Combine, Guard)>,
    },
    Predicates {
        out: usize,
        sources: [Guard; 2],
        run: Combine,
    },
    Select {
        out: usize,
        sources: [Source; 2],
        by: Guard,
    },
    Load {
        outs: Vec<usize>,
        space: Space,
        address: Address,
        bytes: usize,
        is_signed: bool,
    },
    Store {
        sources: Vec<Source>,
        space: Space,
        address: Address,
        bytes: usize,
    },
    Atomic {
        out: Option<usize>,
        space: Space,
        address: Address,
        sources: [Source; 2],
        bytes: usize,
        run: Run,
    },
    CopyAsync {
        to: Address,
        from: Address,
        bytes: usize,
        from_bytes: Source,
    },
    CopiesGrouped,
    CopiesAwaited {
        but: usize,
    },
    Shuffle {
        kind: Shuffle,
        out: usize,
        valid: Option<usize>,
        sources: [Source; 4],
    },
    Pack {
        out: usize,
        parts: Vec<Source>,
        bits: usize,
    },
    Unpack {
        outs: Vec<usize>,
        source: Source,
        bits: usize,
    },
    Multiply {
        factor: Factor,
        out: [usize; 4],
        left: [Source; 4],
        right: [Source; 2],
        sum: [Source; 4],
    },
    LoadMatrices {
        outs: Vec<usize>,
        address: Address,
        is_transposed: bool,
    },
    Branch {
        label: String,
        target: usize,
    },
    Barrier,
    WarpBarrier(Source),
    Nothing,
    Exit,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Instruction {
    /// The same, knowing where its label is.
    pub(super) fn resolved(
        mut self,
        labels: &HashMap<String, usize>,
    ) -> Result<Instruction, String> {
        if let Operation::Branch { label, target } = &mut self.operation {
            *target = *labels
                .get(label.as_str())
                .ok_or_else(|| format!("label {label:?} is nowhere"))?;
        }
        Ok(self)
    }
}

/// Reads a statement.
pub(super) fn statement(text: &str, scope: &Scope) -> Result<Instruction, String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let read = Reader { scope, text: &text };
    let (guard, rest) = match text.strip_prefix('@') {
        Some(rest) => {
            let (guard, rest) = rest.split_once(' ').ok_or_else(|| read.wrong())?;
            (Some(read.predicate(guard)?), rest)
        }
        None => (None, &*text),
    };
    let (opcode, operands) = rest.split_once(' ').unwrap_or((rest, ""));
    let operation = read.operation(opcode, &split(operands))?;
    Ok(Instruction {
        guard,
        operation,
        text: text.clone(),
    })
}

/// Operands, separated by commas outside of brackets.
fn split(operands: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in operands.bytes().enumerate() {
        match letter {
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(operands[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !operands[start..].trim().is_empty() {
        parts.push(operands[start..].trim());
    }
    parts
}

/// A number as it is written: its bits.
pub(super) fn literal(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
        return u32::from_str_radix(digits, 16).ok().map(u64::from);
    }
    if let Some(digits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let digits = digits.trim_end_matches('U');
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok()?,
        None => digits.parse::<i128>().ok()?,
    };
    Some((sign * value) as u64)
}

struct Reader<'a> {
    scope: &'a Scope,
    text: &'a str,
}

impl Reader<'_> {
    fn wrong(&self) -> String {
        format!("`{}` is not understood", self.text)
    }

    fn operation(&self, opcode: &str, operands: &[&str]) -> Result<Operation, String> {
        let words: Vec<&str> = opcode.split('.').collect();
        let (name, modifiers) = (words[0], &words[1..]);
        let has = |modifier: &str| modifiers.contains(&modifier);
        let kinds: Vec<&str> = modifiers
            .iter()
            .copied()
            .filter(|modifier| bits_of(modifier).is_some())
            .collect();
        let kind = kinds.last().copied().unwrap_or_default();
        let bits = bits_of(kind).unwrap_or(0);
        let operand = |at: usize| operands.get(at).copied().ok_or_else(|| self.wrong());
        match name {
            "ret" | "exit" => Ok(Operation::Exit),
            "bra" => Ok(Operation::Branch {
                label: operand(0)?.into(),
                target: 0,
            }),
            "bar" | "barrier" if has("warp") => {
                Ok(Operation::WarpBarrier(self.source(operand(0)?)?))
            }
            "bar" | "barrier" if has("sync") && operands.len() == 1 => Ok(Operation::Barrier),
            "membar" | "fence" => Ok(Operation::Nothing),
            "setp" => self.compare(modifiers, kind, operands),
            "and" | "or" | "xor" | "not" | "mov" if kind == "pred" => {
                let first = self.predicate(operand(1)?)?;
                let second = operands.get(2).map(|text| self.predicate(text));
                Ok(Operation::Predicates {
                    out: self.predicate(operand(0)?)?.predicate,
                    sources: [first, second.unwrap_or(Ok(first))?],
                    run: alu::combine(name).ok_or_else(|| self.wrong())?,
                })
            }
            "selp" => Ok(Operation::Select {
                out: self.register(operand(0)?)?,
                sources: [self.source(operand(1)?)?, self.source(operand(2)?)?],
                by: self.predicate(operand(3)?)?,
            }),
            "mov" if operand(1)?.starts_with('{') => Ok(Operation::Pack {
                out: self.register(operand(0)?)?,
                parts: self.sources(operand(1)?)?,
                bits,
            }),
            "mov" if operand(0)?.starts_with('{') => Ok(Operation::Unpack {
                outs: self.registers(operand(0)?)?,
                source: self.source(operand(1)?)?,
                bits,
            }),
            "ld" | "ldu" => Ok(Operation::Load {
                outs: self.registers(operand(0)?)?,
                space: self.space(modifiers),
                address: self.address(operand(1)?)?,
                bytes: bits / 8,
                is_signed: kind.starts_with('s'),
            }),
            "st" => Ok(Operation::Store {
                sources: self.sources(operand(1)?)?,
                space: self.space(modifiers),
                address: self.address(operand(0)?)?,
                bytes: bits / 8,
            }),
            "atom" | "red" => self.atomic(name == "atom", modifiers, kind, operands),
            "cp" if has("commit_group") => Ok(Operation::CopiesGrouped),
            "cp" if has("wait_all") => Ok(Operation::CopiesAwaited { but: 0 }),
            "cp" if has("wait_group") => Ok(Operation::CopiesAwaited {
                but: literal(operand(0)?).ok_or_else(|| self.wrong())? as usize,
            }),
            "cp" if has("async") && has("shared") && has("global") => {
                let bytes = literal(operand(2)?).ok_or_else(|| self.wrong())?;
                let from_bytes = operands.get(3).map(|text| self.source(text));
                Ok(Operation::CopyAsync {
                    to: self.address(operand(0)?)?,
                    from: self.address(operand(1)?)?,
                    bytes: bytes as usize,
                    from_bytes: from_bytes.unwrap_or(Ok(Source::Value(bytes)))?,
                })
            }
            "shfl" if has("sync") => self.shuffle(modifiers, operands),
            "ldmatrix" => Ok(Operation::LoadMatrices {
                outs: self.registers(operand(0)?)?,
                address: self.address(operand(1)?)?,
                is_transposed: has("trans"),
            }),
            "mma" => self.multiply(modifiers, operands),
            "bfi" if kind == "b32" => {
                let constant = |at| literal(operand(at)?).ok_or_else(|| self.wrong());
                let (at, bits) = (constant(3)?, constant(4)?);
                let sources = [self.source(operand(1)?)?, self.source(operand(2)?)?];
                Ok(Operation::Lanewise {
                    out: self.register(operand(0)?)?,
                    sources: [sources[0], sources[1], Source::Value(0)],
                    run: alu::insert(at as u32, bits as u32),
                })
            }
            _ => self.lanewise(name, modifiers, &kinds, operands),
        }
    }

    fn lanewise(
        &self,
        name: &str,
        modifiers: &[&str],
        kinds: &[&str],
        operands: &[&str],
    ) -> Result<Operation, String> {
        let (run, count) = alu::lanewise(name, modifiers, kinds).ok_or_else(|| self.wrong())?;
        if operands.len() != count + 1 {
            return Err(self.wrong());
        }
        let mut sources = [Source::Value(0); 3];
        for (source, text) in sources.iter_mut().zip(&operands[1..]) {
            *source = self.source(text)?;
        }
        Ok(Operation::Lanewise {
            out: self.register(operands[0])?,
            sources,
            run,
        })
    }

    fn compare(
        &self,
        modifiers: &[&str],
        kind: &str,
        operands: &[&str],
    ) -> Result<Operation, String> {
        let (&[out, one, other], last) =
            operands.split_first_chunk().ok_or_else(|| self.wrong())?;
        let run = alu::compare(modifiers[0], kind).ok_or_else(|| self.wrong())?;
        let with = match last {
            [] => None,
            [last] => {
                let combine = alu::combine(modifiers[1]).ok_or_else(|| self.wrong())?;
                Some((combine, self.predicate(last)?))
            }
            _ => return Err(self.wrong()),
        };
        let (out, opposite) = match out.split_once('|') {
            Some((out, opposite)) => (out, Some(self.predicate(opposite)?.predicate)),
            None => (out, None),
        };
        Ok(Operation::Compare {
            out: self.predicate(out)?.predicate,
            opposite,
            sources: [self.source(one)?, self.source(other)?],
            run,
            with,
        })
    }

    fn atomic(
        &self,
        returns: bool,
        modifiers: &[&str],
        kind: &str,
        operands: &[&str],
    ) -> Result<Operation, String> {
        let bytes = bits_of(kind).unwrap_or(0) / 8;
        if bytes != 4 && bytes != 8 {
            return Err(self.wrong());
        }
        let (out, rest) = match (returns, operands) {
            (true, [out, rest @ ..]) => (Some(self.register(out)?), rest),
            (_, rest) => (None, rest),
        };
        let names = modifiers.iter();
        let run = names.filter_map(|name| alu::atomic(name, kind)).next();
        let (address, sources) = match rest {
            [address, one] => (address, [self.source(one)?, Source::Value(0)]),
            [address, one, other] => (address, [self.source(one)?, self.source(other)?]),
            _ => return Err(self.wrong()),
        };
        Ok(Operation::Atomic {
            out,
            space: self.space(modifiers),
            address: self.address(address)?,
            sources,
            bytes,
            run: run.ok_or_else(|| self.wrong())?,
        })
    }

    fn shuffle(&self, modifiers: &[&str], operands: &[&str]) -> Result<Operation, String> {
        let [out, value, lane, clamp, members] = operands else {
            return Err(self.wrong());
        };
        let kind = modifiers.iter().find_map(|modifier| match *modifier {
            "up" => Some(Shuffle::Up),
            "down" => Some(Shuffle::Down),
            "bfly" => Some(Shuffle::Butterfly),
            "idx" => Some(Shuffle::Index),
            _ => None,
        });
        let (out, valid) = match out.split_once('|') {
            Some((out, valid)) => (out, Some(self.predicate(valid)?.predicate)),
            None => (*out, None),
        };
        let sources = [value, lane, clamp, members].map(|text| self.source(text));
        let [value, lane, clamp, members] = sources;
        Ok(Operation::Shuffle {
            kind: kind.ok_or_else(|| self.wrong())?,
            out: self.register(out)?,
            valid,
            sources: [value?, lane?, clamp?, members?],
        })
    }

    /// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`.
    fn multiply(&self, modifiers: &[&str], operands: &[&str]) -> Result<Operation, String> {
        let factor = match modifiers {
            [_, _, "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"] => Factor::Bf16,
            [_, _, "m16n8k16", "row", "col", "f32", "f16", "f16", "f32"] => Factor::F16,
            _ => return Err(self.wrong()),
        };
        let [out, left, right, sum] = operands else {
            return Err(self.wrong());
        };
        let wrong = |_| self.wrong();
        Ok(Operation::Multiply {
            factor,
            out: self.registers(out)?.try_into().map_err(wrong)?,
            left: self.sources(left)?.try_into().map_err(|_| self.wrong())?,
            right: self.sources(right)?.try_into().map_err(|_| self.wrong())?,
            sum: self.sources(sum)?.try_into().map_err(|_| self.wrong())?,
        })
    }

    fn space(&self, modifiers: &[&str]) -> Space {
        let spaces = modifiers.iter().find_map(|modifier| match *modifier {
            "param" => Some(Space::Parameter),
            "global" | "const" => Some(Space::Global),
            "shared" => Some(Space::Shared),
            "local" => Some(Space::Local),
            _ => None,
        });
        spaces.unwrap_or(Space::Generic)
    }

    fn register(&self, text: &str) -> Result<usize, String> {
        match self.scope.find(text) {
            Some(Name::Register(at)) => Ok(*at),
            _ => Err(self.wrong()),
        }
    }

    fn predicate(&self, text: &str) -> Result<Guard, String> {
        let (name, is_negated) = match text.strip_prefix('!') {
            Some(name) => (name, true),
            None => (text, false),
        };
        match self.scope.find(name) {
            Some(Name::Predicate(predicate)) => Ok(Guard {
                predicate: *predicate,
                is_negated,
            }),
            _ => Err(self.wrong()),
        }
    }

    fn registers(&self, text: &str) -> Result<Vec<usize>, String> {
        listed(text).map(|text| self.register(text)).collect()
    }

    fn sources(&self, text: &str) -> Result<Vec<Source>, String> {
        listed(text).map(|text| self.source(text)).collect()
    }

    fn source(&self, text: &str) -> Result<Source, String> {
        if let Some(special) = special(text) {
            return Ok(Source::Special(special));
        }
        match self.scope.find(text) {
            Some(Name::Register(at)) => Ok(Source::Register(*at)),
            Some(Name::Address(address)) => Ok(Source::Value(*address)),
            Some(Name::Parameter(variable)) => Ok(Source::Value(variable.offset as u64)),
            _ => literal(text).map(Source::Value).ok_or_else(|| self.wrong()),
        }
    }

    /// `[%rd1+16]`.
    fn address(&self, text: &str) -> Result<Address, String> {
        let inner = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        let inner = inner.ok_or_else(|| self.wrong())?.trim();
        let (base, offset) = match inner.split_once('+') {
            Some((base, offset)) => (base, literal(offset.trim()).ok_or_else(|| self.wrong())?),
            None => (inner, 0),
        };
        Ok(Address {
            base: self.source(base.trim())?,
            offset,
        })
    }
}

/// What braces hold, or the one operand without them.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    let inner = text.trim_start_matches('{').trim_end_matches('}');
    inner.split(',').map(str::trim)
}

fn special(text: &str) -> Option<Special> {
    let axis = |text: &str| ["x", "y", "z"].iter().position(|axis| *axis == text);
    Some(match text.split_once('.') {
        Some(("%tid", rest)) => Special::Thread(axis(rest)?),
        Some(("%ntid", rest)) => Special::Threads(axis(rest)?),
        Some(("%ctaid", rest)) => Special::Block(axis(rest)?),
        Some(("%nctaid", rest)) => Special::Blocks(axis(rest)?),
        _ => match text {
            "%laneid" => Special::Lane,
            "%warpid" => Special::Warp,
            "%dynamic_smem_size" => Special::DynamicShared,
            _ => return None,
        },
    })
}

/// A value in every lane.
pub(super) fn broadcast(value: u64) -> Lanes {
    [value; super::LANES]
}
