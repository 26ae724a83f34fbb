//! Stand-ins for the GPU vendors' driver libraries: all that a program can tell from the
//! real ones, but for time.
//!
//! The library has the functions of `libcuda.so.1`, of `libnvidia-ml.so.1` and of
//! `libamdhip64.so.6`, as far as the engine calls them. A program finds it under each of the names
//! through `LD_LIBRARY_PATH`. Its devices are the
//! host's memory, its streams are threads, and a launch interprets the kernel's PTX, warp by
//! warp, with barriers, shuffles and matrix instructions as they are.
//!
//! It is stricter than a device: memory begins as NaN, an access beside an allocation is a
//! fault wherever it lands, a barrier that not everybody reaches is one too, and so are two warps that touch
//! the same shared memory without a barrier between, one of them writing.
//!
//! | file | what it is about |
//! | --- | --- |
//! | [`environment`] | which devices there are, and what goes wrong, read from variables |
//! | [`machine`] | devices, memory, streams and modules behind both interfaces |
//! | `cuda`, `hip`, `nvml` | the vendors' functions |
//! | `nccl` | sums over the devices of several processes |
//! | `missing` | functions that are taken out of the library again |
//! | [`ptx`] | what kernels do |
//!
//! | variable | example | what it says |
//! | --- | --- | --- |
//! | `FAKE_CUDA_DEVICES` | `H200:9.0:132:143771,RTX4090:8.9:128:24564` | name, compute capability, multiprocessors and MiB of each device |
//! | `FAKE_HIP_DEVICES` | `MI300X:gfx942:304:196608` | the same with the architecture |
//! | `FAKE_NVML_FREE` | `1024,20000` | MiB of free memory of NVIDIA's devices; absent: all of it |
//! | `FAKE_CUDA_FAULT` | `oom@3` | the third allocation finds no memory |
//! | | `fault@5` | the fifth launch hits an illegal address |
//! | | `slow@2:50ms` | the second launch takes so much longer |
//! | | `code917@1` | the first call returns this code, and does nothing |
//! | | `missing:cuDeviceGetUuid` | the library has no such function |
//! | | `multicast-bind` | multicast objects are made, and no memory can be bound to one |
//! | `FAKE_NCCL_FAULT` | `init-hang` | communicators are never ready |
//! | | `async-error@2` | the second collective of each communicator ends in an error |
//! | | `killed@2` | the process is killed in the midst of it |
//! | `FAKE_GPU_COUNTS` | `FILE` | what is alive is written there when the process ends |

mod cuda;
pub mod environment;
mod hip;
pub mod machine;
mod missing;
mod nccl;
mod nvml;
pub mod ptx;
