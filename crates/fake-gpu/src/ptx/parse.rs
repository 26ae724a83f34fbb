//! A module's text: its kernels, each with its parameters, its shared memory and its statements.

use std::collections::HashMap;
use std::mem;

use super::decode::{self, Instruction};

/// What a module's text says.
#[derive(Debug)]
pub struct Module {
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// The version of PTX it is written in, ten times.
    pub version: u32,
    /// The compute capability it needs, ten times.
    pub target: u32,
    /// Its own memory, for as long as it is loaded.
    globals: Vec<Box<[u64]>>,
}

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    /// As it is looked up.
    pub name: String,
    /// Bytes of each parameter, in their order.
    pub parameters: Vec<Variable>,
    /// Bytes of all of them.
    pub parameter_bytes: usize,
    /// Shared memory that every block has; dynamic memory follows it.
    pub shared_bytes: usize,
    /// Most threads of a block, where it says so.
    pub most_threads: Option<u32>,
    pub(super) local_bytes: usize,
    pub(super) registers: usize,
    pub(super) predicates: usize,
    pub(super) code: Vec<Instruction>,
}

/// A place in some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Where it begins.
    pub offset: usize,
    /// How large it is.
    pub bytes: usize,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Name {
    /// A register, whose type is of this many bits.
    Register(usize),
    Predicate(usize),
    /// Where a variable lies in the memory it is of.
    Parameter(Variable),
    Address(u64),
}

/// What names stand for, the innermost braces last.
#[derive(Default)]
pub(super) struct Scope {
    levels: Vec<HashMap<String, Name>>,
    registers: usize,
    predicates: usize,
}

impl Scope {
    pub(super) fn find(&self, name: &str) -> Option<&Name> {
        self.levels.iter().rev().find_map(|level| level.get(name))
    }

    fn declare(&mut self, name: &str, what: Name) {
        if let Some(level) = self.levels.last_mut() {
            level.insert(name.into(), what);
        }
    }
}

impl Module {
    /// Reads a module.
    ///
    /// # Errors
    /// Which statement is not understood.
    pub fn parse(text: &str) -> Result<Module, String> {
        let text = without_comments(text);
        let mut module = Module {
            kernels: Vec::new(),
            version: 0,
            target: 0,
            globals: Vec::new(),
        };
        let mut scope = Scope::default();
        scope.levels.push(HashMap::new());
        let mut shared_bytes = 0;
        let mut dynamic = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let word = rest.split_whitespace().next().unwrap_or_default();
            match word {
                ".version" | ".target" | ".address_size" => {
                    let line = rest.lines().next().unwrap_or_default();
                    let value = line[word.len()..].trim();
                    match word {
                        ".version" => module.version = tenfold(value)?,
                        ".target" => module.target = target(value)?,
                        _ if value == "64" => {}
                        _ => return Err(format!("{line:?}: addresses have 64 bits")),
                    }
                    rest = rest[line.len()..].trim_start();
                }
                ".visible" | ".extern" | ".weak" => rest = rest[word.len()..].trim_start(),
                ".entry" => {
                    let open = rest.find('{').ok_or("a kernel without a body")?;
                    let end = closing(rest, open)?;
                    let (head, body) = (&rest[6..open], &rest[open + 1..end]);
                    let kernel = kernel(head, body, &mut scope, shared_bytes, &dynamic)?;
                    module.kernels.push(kernel);
                    rest = rest[end + 1..].trim_start();
                }
                ".shared" | ".global" | ".const" => {
                    let end = rest.find(';').ok_or("a variable without an end")?;
                    let declaration = &rest[..end];
                    if word == ".shared" {
                        let (name, variable) = placed(declaration, &mut shared_bytes)?;
                        if variable.bytes == 0 {
                            dynamic.push(name.to_owned());
                        }
                        scope.declare(name, Name::Address(variable.offset as u64));
                    } else {
                        let (name, memory) = global(declaration)?;
                        scope.declare(name, Name::Address(memory.as_ptr() as u64));
                        module.globals.push(memory);
                    }
                    rest = rest[end + 1..].trim_start();
                }
                _ => return Err(format!("{word:?} is not understood")),
            }
        }
        Ok(module)
    }

    /// Where its own memory lies: beginnings and ends.
    pub fn memory(&self) -> impl Iterator<Item = (u64, u64)> {
        let ranges = self.globals.iter().map(|memory| memory.as_ptr_range());
        ranges.map(|range| (range.start as u64, range.end as u64))
    }
}

fn kernel(
    head: &str,
    body: &str,
    scope: &mut Scope,
    mut shared_bytes: usize,
    dynamic: &[String],
) -> Result<Kernel, String> {
    let (name, rest) = head.split_once('(').ok_or("a kernel without parameters")?;
    let (list, directives) = rest.split_once(')').ok_or("parameters without an end")?;
    scope.levels.push(HashMap::new());
    (scope.registers, scope.predicates) = (0, 0);
    let (mut parameters, mut parameter_bytes) = (Vec::new(), 0);
    for declaration in list.split(',').filter(|text| !text.trim().is_empty()) {
        let (name, variable) = placed(declaration, &mut parameter_bytes)?;
        scope.declare(name, Name::Parameter(variable));
        parameters.push(variable);
    }
    let mut most_threads = None;
    let mut words = directives.split_whitespace();
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word {
            ".maxntid" => {
                let sizes = directives.split(".maxntid").nth(1).unwrap_or_default();
                let sizes = sizes.split('.').next().unwrap_or_default();
                let sizes = sizes.split(',').map(|size| size.trim().parse::<u32>());
                let sizes: Result<Vec<u32>, _> = sizes.collect();
                most_threads = Some(sizes.map_err(|error| error.to_string())?.iter().product());
                while words
                    .clone()
                    .next()
                    .is_some_and(|word| !word.starts_with('.'))
                {
                    words.next();
                }
            }
            ".minnctapersm" | ".maxnreg" => {}
            _ => {
                return Err(format!(
                    "{word} {value} of {} is not understood",
                    name.trim()
                ));
            }
        }
    }

    let parts = parts(body)?;
    let texts = || parts.iter().filter_map(Part::statement);
    for declaration in texts().filter(|text| text.starts_with(".shared")) {
        let (name, variable) = placed(declaration, &mut shared_bytes)?;
        scope.declare(name, Name::Address(variable.offset as u64));
    }
    shared_bytes = shared_bytes.next_multiple_of(16);
    for name in dynamic {
        scope.declare(name, Name::Address(shared_bytes as u64));
    }

    // Statements first, so that a label may stand behind whoever jumps to it.
    let mut statements = Vec::new();
    let mut labels = HashMap::new();
    let mut local_bytes = 0;
    for part in &parts {
        match part {
            Part::Open => scope.levels.push(HashMap::new()),
            Part::Close => drop(scope.levels.pop()),
            Part::Label(name) => drop(labels.insert(name.clone(), statements.len())),
            Part::Statement(text) => match text.split_whitespace().next().unwrap_or_default() {
                ".reg" => registers(text, scope)?,
                ".local" => {
                    let (name, variable) = placed(text, &mut local_bytes)?;
                    scope.declare(name, Name::Address(variable.offset as u64));
                }
                ".shared" | ".pragma" => {}
                _ => statements.push(decode::statement(text, scope)?),
            },
        }
    }
    let code = statements
        .into_iter()
        .map(|statement| statement.resolved(&labels))
        .collect::<Result<_, String>>()?;
    scope.levels.truncate(1);
    Ok(Kernel {
        name: name.trim().into(),
        parameters,
        parameter_bytes,
        shared_bytes,
        most_threads,
        local_bytes,
        registers: scope.registers,
        predicates: scope.predicates,
        code,
    })
}

/// A piece of a kernel's body.
enum Part {
    Open,
    Close,
    Label(String),
    Statement(String),
}

impl Part {
    fn statement(&self) -> Option<&str> {
        match self {
            Part::Statement(text) => Some(text),
            _ => None,
        }
    }
}

/// A body in pieces. Braces that begin a statement hold others; those within one hold operands.
fn parts(body: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut text = String::new();
    for letter in body.chars() {
        let is_first = text.trim().is_empty();
        match letter {
            '{' if is_first => {
                parts.push(Part::Open);
                depth += 1;
            }
            '}' if is_first => {
                parts.push(Part::Close);
                depth -= 1;
            }
            ':' if is_label(text.trim()) => {
                parts.push(Part::Label(mem::take(&mut text).trim().to_owned()));
            }
            ';' => {
                let statement = mem::take(&mut text).trim().to_owned();
                if !statement.is_empty() {
                    parts.push(Part::Statement(statement));
                }
            }
            _ => text.push(letter),
        }
    }
    match depth {
        0 if text.trim().is_empty() => Ok(parts),
        _ => Err(format!("{:?} has no end", text.trim())),
    }
}

/// `.reg .b32 %r<5>` or `.reg .pred p, q`.
fn registers(declaration: &str, scope: &mut Scope) -> Result<(), String> {
    let wrong = || format!("{declaration:?} is not understood");
    let rest = declaration[4..].trim_start();
    let (kind, names) = rest.split_once(char::is_whitespace).ok_or_else(wrong)?;
    for name in names.split(',').map(str::trim) {
        let many = name.strip_suffix('>').and_then(|name| name.split_once('<'));
        let names = match many {
            Some((stem, count)) => {
                let count: usize = count.parse().map_err(|_| wrong())?;
                (0..count).map(|at| format!("{stem}{at}")).collect()
            }
            None => vec![name.to_owned()],
        };
        for name in names {
            let what = if kind == ".pred" {
                scope.predicates += 1;
                Name::Predicate(scope.predicates - 1)
            } else {
                bits_of(kind.trim_start_matches('.')).ok_or_else(wrong)?;
                scope.registers += 1;
                Name::Register(scope.registers - 1)
            };
            scope.declare(&name, what);
        }
    }
    Ok(())
}

/// The name of a variable like `.shared .align 16 .b8 tile[1024]`, placed behind those before it.
fn placed<'a>(declaration: &'a str, end: &mut usize) -> Result<(&'a str, Variable), String> {
    let (name, bytes, align) = sized(declaration)?;
    let offset = end.next_multiple_of(align);
    *end = offset + bytes;
    Ok((name, Variable { offset, bytes }))
}

/// The name, size and alignment of a variable.
fn sized(declaration: &str) -> Result<(&str, usize, usize), String> {
    let wrong = || format!("{:?} is not understood", declaration.trim());
    let declared = declaration.split('=').next().unwrap_or_default().trim();
    let (mut align, mut width) = (None, 0);
    let mut words = declared.split_whitespace().peekable();
    let mut name = "";
    while let Some(word) = words.next() {
        if word == ".align" {
            let value = words.next().and_then(|value| value.parse().ok());
            align = Some(value.ok_or_else(wrong)?);
        } else if let Some(kind) = word.strip_prefix('.') {
            if let Some(bits) = bits_of(kind) {
                width = bits.div_ceil(8);
            }
        } else {
            name = word;
        }
    }
    let (name, count) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        // Dynamic shared memory: as much as the launch says.
        Some((name, "")) => (name, 0),
        Some((name, count)) => (name, count.parse().map_err(|_| wrong())?),
        None => (name, 1),
    };
    if name.is_empty() || width == 0 {
        return Err(wrong());
    }
    Ok((name, width * count, align.unwrap_or(width)))
}

/// A variable of the module's own, and what it begins as.
fn global(declaration: &str) -> Result<(&str, Box<[u64]>), String> {
    let (name, bytes, _) = sized(declaration)?;
    let mut memory = vec![0u8; bytes.next_multiple_of(8)];
    if let Some((declared, values)) = declaration.split_once('=') {
        let values = values.trim().trim_start_matches('{').trim_end_matches('}');
        let kinds = declared.split_whitespace();
        let width = kinds
            .filter_map(|word| bits_of(word.strip_prefix('.')?))
            .next_back();
        let width = width.unwrap_or(8) / 8;
        for (at, value) in values.split(',').enumerate() {
            let value = decode::literal(value.trim())
                .ok_or_else(|| format!("{value:?} of {name} is not understood"))?;
            let place = memory.get_mut(at * width..(at + 1) * width);
            let place = place.ok_or_else(|| format!("{name} has too many values"))?;
            place.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
    let words = memory.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    Ok((name, words.collect()))
}

/// How many bits a type has.
pub(super) fn bits_of(kind: &str) -> Option<usize> {
    Some(match kind {
        "pred" => 1,
        "b8" | "u8" | "s8" => 8,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 32,
        "b64" | "u64" | "s64" | "f64" => 64,
        _ => return None,
    })
}

fn is_label(text: &str) -> bool {
    let may_begin = |letter: char| letter.is_ascii_alphabetic() || "_$%".contains(letter);
    let may_follow = |letter: char| letter.is_ascii_alphanumeric() || "_$".contains(letter);
    text.starts_with(may_begin) && text.chars().skip(1).all(may_follow)
}

fn without_comments(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        clean.push_str(&rest[..at]);
        let (end, length) = match &rest[at..at + 2] {
            "/*" => (rest[at..].find("*/"), 2),
            _ => (rest[at..].find('\n'), 0),
        };
        rest = end.map_or("", |end| &rest[at + end + length..]);
    }
    clean + rest
}

/// Where the brace that opens at `open` closes.
fn closing(text: &str, open: usize) -> Result<usize, String> {
    let mut depth = 0;
    for (at, letter) in text.bytes().enumerate().skip(open) {
        match letter {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Ok(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    Err("a brace without an end".into())
}

/// `7.0` as 70.
fn tenfold(version: &str) -> Result<u32, String> {
    let wrong = || format!("version {version:?} is not understood");
    let (major, minor) = version.split_once('.').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    Ok(number(major)? * 10 + number(minor)?)
}

/// `sm_80` as 80.
fn target(target: &str) -> Result<u32, String> {
    let digits = target.strip_prefix("sm_").unwrap_or_default();
    let digits = digits.split(',').next().unwrap_or_default();
    digits
        .trim_end_matches(|letter: char| letter.is_ascii_alphabetic())
        .parse()
        .map_err(|_| format!("target {target:?} is not understood"))
}
