//! Where ranks meet: a Unix socket, in the process that drew the id, by a name that the id is.
//!
//! A rank says who it is, and is told when all are there. For every collective it sends what it asks and
//! has, and gets what comes of that. Whoever goes without a goodbye ends it for everybody.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::mpsc::{self, Sender};
use std::thread;

/// What a rank asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// The sums of what all have (f32), for all.
    Sum,
    /// The largest of what all have (u64), for all.
    Max,
    /// What this rank has, for all.
    From(u32),
    /// Nothing any more.
    Goodbye,
}

/// What a rank sent.
struct Message {
    request: Request,
    values: Vec<u8>,
}

/// Told when all ranks are there.
const ALL_THERE: u8 = 1;

/// The address is no file, and goes with who listens.
fn address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Listens under a name, until all ranks have come and gone.
pub fn open(name: &[u8]) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
    thread::Builder::new()
        .name("fake-gpu meeting".into())
        .spawn(move || {
            // Whoever waits learns of its end by its connection's.
            let _ = serve(&listener);
        })?;
    Ok(())
}

fn serve(listener: &UnixListener) -> io::Result<()> {
    let mut ranks: Vec<Option<UnixStream>> = Vec::new();
    let (sender, receiver) = mpsc::channel();
    while ranks.is_empty() || ranks.iter().any(Option::is_none) {
        let (mut stream, _) = listener.accept()?;
        let (rank, count) = (
            read_u32(&mut stream)? as usize,
            read_u32(&mut stream)? as usize,
        );
        if ranks.is_empty() {
            ranks.resize_with(count, || None);
        }
        if count != ranks.len() || rank >= count || ranks[rank].is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let reader = stream.try_clone()?;
        let sender = sender.clone();
        thread::spawn(move || listen(rank, reader, &sender));
        ranks[rank] = Some(stream);
    }
    let mut streams: Vec<UnixStream> = ranks.into_iter().flatten().collect();
    for stream in &mut streams {
        stream.write_all(&[ALL_THERE])?;
    }
    let ended = collectives(&mut streams, &receiver);
    for stream in &streams {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    ended
}

/// Passes on what a rank sends, and at its end that there is no more.
fn listen(rank: usize, mut stream: UnixStream, sender: &Sender<(usize, Option<Message>)>) {
    while let Ok(message) = read(&mut stream) {
        let is_last = message.request == Request::Goodbye;
        if sender.send((rank, Some(message))).is_err() || is_last {
            return;
        }
    }
    let _ = sender.send((rank, None));
}

/// One collective after the other.
fn collectives(
    streams: &mut [UnixStream],
    receiver: &mpsc::Receiver<(usize, Option<Message>)>,
) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    loop {
        let mut messages: Vec<Option<Message>> = streams.iter().map(|_| None).collect();
        while messages.iter().any(Option::is_none) {
            let (rank, message) = receiver.recv().map_err(|_| gone())?;
            messages[rank] = Some(message.ok_or_else(gone)?);
        }
        let messages: Vec<Message> = messages.into_iter().flatten().collect();
        let request = messages[0].request;
        let is_one = messages.iter().all(|message| {
            message.request == request && message.values.len() == messages[0].values.len()
        });
        // Not all ask the same: devices would wait for each other for ever, or worse.
        if !is_one {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let answer = match request {
            Request::Goodbye => return Ok(()),
            Request::From(root) => messages[root as usize].values.clone(),
            Request::Sum => reduce(messages, |sum, value| {
                (f32::from_le_bytes(sum) + f32::from_le_bytes(value)).to_le_bytes()
            }),
            Request::Max => reduce(messages, |most, value| {
                let most = u64::from_le_bytes(most).max(u64::from_le_bytes(value));
                most.to_le_bytes()
            }),
        };
        for stream in streams.iter_mut() {
            stream.write_all(&answer)?;
        }
    }
}

/// What all have, put together number by number, in the order of the ranks. A number has `N` bytes.
fn reduce<const N: usize>(
    messages: Vec<Message>,
    put_together: impl Fn([u8; N], [u8; N]) -> [u8; N],
) -> Vec<u8> {
    let mut all = messages.into_iter().map(|message| message.values);
    let first = all.next().unwrap_or_default();
    all.fold(first, |mut reduced, values| {
        let numbers = reduced.as_chunks_mut().0.iter_mut();
        for (number, value) in numbers.zip(values.as_chunks().0) {
            *number = put_together(*number, *value);
        }
        reduced
    })
}

/// Comes to a meeting, and waits until all are there. `connected` is given the connection before.
pub fn join(
    name: &[u8],
    rank: u32,
    ranks: u32,
    connected: impl FnOnce(&UnixStream) -> io::Result<()>,
) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    connected(&stream)?;
    stream.write_all(&[rank.to_le_bytes(), ranks.to_le_bytes()].concat())?;
    let mut told = [0];
    stream.read_exact(&mut told)?;
    match told[0] {
        ALL_THERE => Ok(stream),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What a rank sends.
pub fn message(request: Request, values: &[u8]) -> Vec<u8> {
    let (kind, root) = match request {
        Request::Sum => (0, 0),
        Request::From(root) => (1, root),
        Request::Goodbye => (2, 0u32),
        Request::Max => (3, 0),
    };
    let mut message = [kind, root, values.len() as u32]
        .map(u32::to_le_bytes)
        .concat();
    message.extend(values);
    message
}

/// Sends it, and waits for what comes of it.
pub fn ask(stream: &mut UnixStream, message: &[u8], values: &mut [u8]) -> io::Result<()> {
    stream.write_all(message)?;
    stream.read_exact(values)
}

fn read(stream: &mut UnixStream) -> io::Result<Message> {
    let (kind, root) = (read_u32(stream)?, read_u32(stream)?);
    let count = read_u32(stream)? as usize;
    let request = match kind {
        0 => Request::Sum,
        1 => Request::From(root),
        3 => Request::Max,
        _ => Request::Goodbye,
    };
    let mut values = vec![0; count];
    stream.read_exact(&mut values)?;
    Ok(Message { request, values })
}

fn read_u32(stream: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(name: &[u8], ranks: u32) -> Vec<UnixStream> {
        thread::scope(|scope| {
            let all =
                (0..ranks).map(|rank| scope.spawn(move || join(name, rank, ranks, |_| Ok(()))));
            let all: Vec<_> = all.collect();
            all.into_iter()
                .map(|one| one.join().unwrap().unwrap())
                .collect()
        })
    }

    #[test]
    fn ranks_get_sums_the_largest_and_a_roots_values() {
        let name = format!("fake-gpu-test-{}", std::process::id());
        open(name.as_bytes()).unwrap();
        let mut streams = joined(name.as_bytes(), 3);
        let floats = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let rank_floats = |rank: usize| floats([rank as f32, rank as f32 + 10.0]);
        // Not the same when their halves are compared.
        let large = |rank: usize| {
            ((rank as u64) << 40 | (9 - rank as u64))
                .to_le_bytes()
                .to_vec()
        };
        type Values<'a> = &'a (dyn Fn(usize) -> Vec<u8> + Sync);
        let cases: [(Request, Values<'_>, Vec<u8>); 3] = [
            (Request::Sum, &rank_floats, floats([3.0, 33.0])),
            (Request::From(2), &rank_floats, rank_floats(2)),
            (Request::Max, &large, large(2)),
        ];
        for (request, values, expected) in &cases {
            thread::scope(|scope| {
                for (rank, stream) in streams.iter_mut().enumerate() {
                    scope.spawn(move || {
                        let mut values = values(rank);
                        ask(stream, &message(*request, &values.clone()), &mut values).unwrap();
                        assert_eq!(values, *expected);
                    });
                }
            });
        }
        // One goes without a word: the others learn of it.
        drop(streams.pop());
        let mut values = [0; 4];
        let asked = ask(
            &mut streams[0],
            &message(Request::Sum, &[0; 4]),
            &mut values,
        );
        assert!(asked.is_err());
    }
}
