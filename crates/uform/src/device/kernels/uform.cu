// The kernels of the GPU classes: what a BERT encoder does to a ragged batch.
//
// Without a header, so that they are compiled by NVRTC without a toolkit, and by hiprtc on the
// machine of whoever has an AMD device: there a "warp" is 32 lanes of a wave, and what multiplies by
// tensor cores is left out.
//
// A batch is ragged: the tokens of its texts end to end, each a row. Every row is computed by
// the same instructions in the same order whatever else is in the batch. States are f32; in bf16,
// what a dense layer multiplies is rounded to it, and sums are f32.

typedef unsigned short bf16;

#define WARP 32

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
#define SHUFFLE_XOR(value, mask) __shfl_xor(value, mask, WARP)
#define SHUFFLE(value, lane) __shfl(value, lane, WARP)
#else
#define TENSOR_CORES
#define SHUFFLE_XOR(value, mask) __shfl_xor_sync(0xffffffffu, value, mask)
#define SHUFFLE(value, lane) __shfl_sync(0xffffffffu, value, lane)
#endif

#define INFINITE __int_as_float(0x7f800000)

__device__ __forceinline__ float warp_sum(float value) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) value += SHUFFLE_XOR(value, mask);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) value = fmaxf(value, SHUFFLE_XOR(value, mask));
    return value;
}

// Rounds to the nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ bf16 narrow(float value) {
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bf16)(bits >> 16 | 0x40);
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The activations of `kernels::Activation`, by the numbers that the host passes.
enum { IDENTITY = 0, GELU = 1, GELU_TANH = 2, RELU = 3, TANH = 4, SILU = 5 };

__device__ __forceinline__ float activated(float x, unsigned activation) {
    switch (activation) {
    case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case RELU: return fmaxf(x, 0.0f);
    case TANH: return tanhf(x);
    case SILU: return x / (1.0f + expf(-x));
    default: return x;
    }
}

// ---- Rows: a warp a row, four rows a block. ----

#define ROWS 4

// Layer norm of the row that this warp's lanes have written, each its own elements of it
// (Ba, Kiros and Hinton, 2016). `operand` is the same in bf16, or absent.
__device__ __forceinline__ void normed(float *row, bf16 *operand, const float *gain,
                                       const float *bias, float epsilon, unsigned hidden) {
    unsigned lane = threadIdx.x % WARP;
    float sum = 0.0f;
    for (unsigned at = lane; at < hidden; at += WARP) sum += row[at];
    float mean = warp_sum(sum) / (float)hidden;
    float squares = 0.0f;
    for (unsigned at = lane; at < hidden; at += WARP) {
        float off = row[at] - mean;
        squares += off * off;
    }
    float scale = 1.0f / sqrtf(warp_sum(squares) / (float)hidden + epsilon);
    for (unsigned at = lane; at < hidden; at += WARP) {
        float value = (row[at] - mean) * scale * gain[at] + bias[at];
        row[at] = value;
        if (operand) operand[at] = narrow(value);
    }
}

// The first states: of each token the sum of its rows of three tables, normed.
extern "C" __global__ void __launch_bounds__(ROWS * WARP)
embed(const unsigned *ids, const unsigned *positions, const float *words, const float *places,
      const float *kind, const float *gain, const float *bias, float epsilon, unsigned tokens,
      unsigned hidden, float *states, bf16 *operand) {
    unsigned token = blockIdx.x * ROWS + threadIdx.x / WARP;
    if (token >= tokens) return;
    const float *word = words + (size_t)ids[token] * hidden;
    const float *place = places + (size_t)positions[token] * hidden;
    float *row = states + (size_t)token * hidden;
    for (unsigned at = threadIdx.x % WARP; at < hidden; at += WARP) {
        row[at] = word[at] + place[at] + kind[at];
    }
    normed(row, operand ? operand + (size_t)token * hidden : 0, gain, bias, epsilon, hidden);
}

// Layer norm of every row, in place.
extern "C" __global__ void __launch_bounds__(ROWS * WARP)
layer_norm(float *states, const float *gain, const float *bias, float epsilon, unsigned tokens,
     unsigned hidden, bf16 *operand) {
    unsigned token = blockIdx.x * ROWS + threadIdx.x / WARP;
    if (token >= tokens) return;
    normed(states + (size_t)token * hidden, operand ? operand + (size_t)token * hidden : 0, gain,
           bias, epsilon, hidden);
}

// ---- Dense layers: out = activation(rows . weights^T + bias) + residual ----

// Where a dense layer's results go: in f32, in bf16, or both.
struct Onward {
    const float *bias;
    const float *residual;
    float *out;
    bf16 *operand;
    unsigned activation;
    unsigned width;
};

// Finishes a tile of products that lies in shared memory, two columns a thread: widths are even.
// One loop for all, for what it does to each is long.
template <int THREADS>
__device__ __forceinline__ void finish_tile(const Onward &onward, const float *products,
                                            unsigned pitch, unsigned tall, unsigned wide,
                                            unsigned first_row, unsigned first_column,
                                            unsigned count) {
#pragma unroll 1
    for (unsigned at = threadIdx.x; at < tall * wide / 2; at += THREADS) {
        unsigned down = at / (wide / 2), across = at % (wide / 2) * 2;
        unsigned row = first_row + down, column = first_column + across;
        if (row >= count || column >= onward.width) continue;
        size_t place = (size_t)row * onward.width + column;
        float value[2];
#pragma unroll
        for (int next = 0; next < 2; next++) {
            float sum = products[down * pitch + across + next];
            if (onward.bias) sum += onward.bias[column + next];
            value[next] = activated(sum, onward.activation);
            if (onward.residual) value[next] += onward.residual[place + next];
        }
        if (onward.out) *(float2 *)(onward.out + place) = make_float2(value[0], value[1]);
        if (onward.operand) {
            unsigned both = narrow(value[0]) | (unsigned)narrow(value[1]) << 16;
            *(unsigned *)(onward.operand + place) = both;
        }
    }
}

#define F32_TILE 64
#define F32_DEPTH 16

// In f32: 64 rows and 64 columns a block, four and four a thread. Width is even.
extern "C" __global__ void __launch_bounds__(256)
dense_f32(const float *rows, const float *weights, const float *bias, const float *residual,
          unsigned activation, unsigned count, unsigned width, unsigned depth, float *out) {
    __shared__ float left[F32_DEPTH][F32_TILE + 4];
    __shared__ float right[F32_DEPTH][F32_TILE + 4];
    __shared__ float products[F32_TILE * F32_TILE];
    unsigned first_row = blockIdx.y * F32_TILE, first_column = blockIdx.x * F32_TILE;
    unsigned across = threadIdx.x % 16, down = threadIdx.x / 16;
    float sums[4][4] = {};
    for (unsigned start = 0; start < depth; start += F32_DEPTH) {
#pragma unroll 4
        for (unsigned at = threadIdx.x; at < F32_TILE * F32_DEPTH; at += 256) {
            unsigned line = at / F32_DEPTH, deep = at % F32_DEPTH;
            bool within = start + deep < depth;
            unsigned row = first_row + line, column = first_column + line;
            left[deep][line] =
                within && row < count ? rows[(size_t)row * depth + start + deep] : 0.0f;
            right[deep][line] =
                within && column < width ? weights[(size_t)column * depth + start + deep] : 0.0f;
        }
        __syncthreads();
        for (unsigned deep = 0; deep < F32_DEPTH; deep++) {
            float ones[4], others[4];
#pragma unroll
            for (int at = 0; at < 4; at++) {
                ones[at] = left[deep][down * 4 + at];
                others[at] = right[deep][across * 4 + at];
            }
#pragma unroll
            for (int row = 0; row < 4; row++) {
#pragma unroll
                for (int column = 0; column < 4; column++) {
                    sums[row][column] = fmaf(ones[row], others[column], sums[row][column]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int row = 0; row < 4; row++) {
#pragma unroll
        for (int column = 0; column < 4; column++) {
            products[(down * 4 + row) * F32_TILE + across * 4 + column] = sums[row][column];
        }
    }
    __syncthreads();
    Onward onward = {bias, residual, out, 0, activation, width};
    finish_tile<256>(onward, products, F32_TILE, F32_TILE, F32_TILE, first_row, first_column, count);
}

#if defined(TENSOR_CORES)

extern __shared__ __align__(16) unsigned char space[];

__device__ __forceinline__ unsigned shared_address(const void *place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

// Begins to copy 16 bytes into shared memory, or zeros where there is nothing to copy.
__device__ __forceinline__ void copy16(unsigned to, const void *from, bool is_there) {
    unsigned bytes = is_there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copies_grouped() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for all groups but the last so many.
template <int BUT> __device__ __forceinline__ void copies_awaited() {
    asm volatile("cp.async.wait_group %0;" ::"n"(BUT) : "memory");
}

// Four matrices of 8 by 8: each lane names one row.
__device__ __forceinline__ void load_matrices(unsigned (&out)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(unsigned (&out)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&left)[4],
                                         unsigned right_low, unsigned right_high) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low),
                   "r"(right_high));
}

// Two numbers in bf16, the first in the lower half.
__device__ __forceinline__ unsigned pair(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

#define DEPTH 32
#define STAGES 3
// Bytes from one row of a tile to the next: 16 beside it keep eight rows in different banks.
#define PITCH (2 * DEPTH + 16)

// HEIGHT rows and WIDTH columns a block; each warp TALL by WIDE of them.
template <int HEIGHT, int WIDTH, int TALL, int WIDE>
__device__ __forceinline__ void dense(const bf16 *rows, const bf16 *weights, Onward onward,
                                      unsigned count, unsigned depth) {
    const int THREADS = WARP * (HEIGHT / TALL) * (WIDTH / WIDE);
    const int STAGE = (HEIGHT + WIDTH) * PITCH;
    unsigned width = onward.width;
    unsigned first_row = blockIdx.y * HEIGHT, first_column = blockIdx.x * WIDTH;
    unsigned base = shared_address(space);
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned warp_row = warp / (WIDTH / WIDE) * TALL, warp_column = warp % (WIDTH / WIDE) * WIDE;
    unsigned steps = (depth + DEPTH - 1) / DEPTH;

    auto begin = [&](unsigned step) {
        unsigned stage = base + step % STAGES * STAGE;
        for (unsigned at = threadIdx.x; at < (HEIGHT + WIDTH) * (DEPTH / 8); at += THREADS) {
            unsigned line = at / (DEPTH / 8), part = at % (DEPTH / 8);
            unsigned deep = step * DEPTH + part * 8;
            bool is_row = line < HEIGHT;
            unsigned index = is_row ? first_row + line : first_column + line - HEIGHT;
            bool is_there = deep < depth && index < (is_row ? count : width);
            const bf16 *from = is_row ? rows : weights;
            if (is_there) from += (size_t)index * depth + deep;
            copy16(stage + line * PITCH + part * 16, from, is_there);
        }
    };
    for (unsigned step = 0; step < STAGES - 1; step++) {
        if (step < steps) begin(step);
        copies_grouped();
    }

    float sums[TALL / 16][WIDE / 8][4] = {};
    for (unsigned step = 0; step < steps; step++) {
        copies_awaited<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) begin(step + STAGES - 1);
        copies_grouped();
        unsigned stage = base + step % STAGES * STAGE;
#pragma unroll
        for (int deep = 0; deep < DEPTH; deep += 16) {
            unsigned left[TALL / 16][4];
#pragma unroll
            for (int at = 0; at < TALL / 16; at++) {
                unsigned row = warp_row + at * 16 + lane % 16;
                load_matrices(left[at], stage + row * PITCH + (deep + lane / 16 * 8) * 2);
            }
#pragma unroll
            for (int at = 0; at < WIDE / 16; at++) {
                unsigned column = warp_column + at * 16 + lane % 8 + lane / 16 * 8;
                unsigned line = HEIGHT + column;
                unsigned right[4];
                load_matrices(right, stage + line * PITCH + (deep + lane / 8 % 2 * 8) * 2);
#pragma unroll
                for (int row = 0; row < TALL / 16; row++) {
                    multiply(sums[row][2 * at], left[row], right[0], right[1]);
                    multiply(sums[row][2 * at + 1], left[row], right[2], right[3]);
                }
            }
        }
    }

    // The tiles' memory is free when everybody has multiplied.
    copies_awaited<0>();
    __syncthreads();
    const int WHOLE = WIDTH + 4;
    float *products = (float *)space;
#pragma unroll
    for (int at = 0; at < TALL / 16; at++) {
#pragma unroll
        for (int next = 0; next < WIDE / 8; next++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                unsigned row = warp_row + at * 16 + lane / 4 + half * 8;
                unsigned column = warp_column + next * 8 + lane % 4 * 2;
                *(float2 *)(products + row * WHOLE + column) =
                    make_float2(sums[at][next][2 * half], sums[at][next][2 * half + 1]);
            }
        }
    }
    __syncthreads();
    finish_tile<THREADS>(onward, products, WHOLE, HEIGHT, WIDTH, first_row, first_column, count);
}

// In bf16 by tensor cores. Width and depth are multiples of 8. Dynamic shared memory: 30720 bytes.
extern "C" __global__ void __launch_bounds__(128)
dense_bf16(const bf16 *rows, const bf16 *weights, const float *bias, const float *residual,
           unsigned activation, unsigned count, unsigned width, unsigned depth, float *out,
           bf16 *operand) {
    Onward onward = {bias, residual, out, operand, activation, width};
    dense<64, 64, 32, 32>(rows, weights, onward, count, depth);
}

// The same in larger blocks, for batches that fill the device with them. 67584 bytes.
extern "C" __global__ void __launch_bounds__(256)
dense_bf16_large(const bf16 *rows, const bf16 *weights, const float *bias, const float *residual,
                 unsigned activation, unsigned count, unsigned width, unsigned depth, float *out,
                 bf16 *operand) {
    Onward onward = {bias, residual, out, operand, activation, width};
    dense<128, 128, 64, 32>(rows, weights, onward, count, depth);
}

#endif

// ---- Attention: softmax(Q . K^T / sqrt(d)) . V within each text ----
//
// A block is some queries of one text (x, by the list of pieces) and one head (y). Keys come in
// tiles, and the softmax is brought up to date with each ("online normalizer calculation for
// softmax", Milakov and Gimelshein, 2018).

// Some queries of one text.
struct Piece {
    unsigned first;  // the text's first row in the batch
    unsigned length; // the text's tokens
    unsigned start;  // the first query, within the text
};

#define F32_KEYS 32
#define F32_QUERIES 16

// In f32: two queries a warp; a lane is a key, then elements of the result.
template <int PARTS>
__device__ __forceinline__ void attend(const float *projected, const Piece *pieces,
                                       unsigned hidden, unsigned size, float *out) {
    const int MOST = PARTS * WARP;
    __shared__ float queries[F32_QUERIES][MOST];
    __shared__ float keys[F32_KEYS][MOST + 1];
    __shared__ float values[F32_KEYS][MOST];
    Piece piece = pieces[blockIdx.x];
    unsigned head = blockIdx.y * size;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t pitch = 3 * (size_t)hidden;
    const float *text = projected + piece.first * pitch + head;
    float scale = 1.0f / sqrtf((float)size);

#pragma unroll 2
    for (unsigned at = threadIdx.x; at < F32_QUERIES * MOST; at += 256) {
        unsigned query = piece.start + at / MOST, element = at % MOST;
        bool is_there = query < piece.length && element < size;
        queries[at / MOST][element] = is_there ? text[query * pitch + element] * scale : 0.0f;
    }
    float sums[2][PARTS] = {};
    float most[2] = {-INFINITE, -INFINITE}, total[2] = {0.0f, 0.0f};
    for (unsigned start = 0; start < piece.length; start += F32_KEYS) {
        __syncthreads();
#pragma unroll 2
        for (unsigned at = threadIdx.x; at < F32_KEYS * MOST; at += 256) {
            unsigned key = start + at / MOST, element = at % MOST;
            bool is_there = key < piece.length && element < size;
            const float *row = text + key * pitch + hidden + element;
            keys[at / MOST][element] = is_there ? row[0] : 0.0f;
            values[at / MOST][element] = is_there ? row[hidden] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int query = 0; query < 2; query++) {
            float score = 0.0f;
#pragma unroll 8
            for (int element = 0; element < MOST; element++) {
                score = fmaf(queries[2 * warp + query][element], keys[lane][element], score);
            }
            if (start + lane >= piece.length) score = -INFINITE;
            float now = fmaxf(most[query], warp_max(score));
            float before = expf(most[query] - now), weight = expf(score - now);
            most[query] = now;
            total[query] = total[query] * before + warp_sum(weight);
#pragma unroll
            for (int part = 0; part < PARTS; part++) sums[query][part] *= before;
#pragma unroll 4
            for (int key = 0; key < F32_KEYS; key++) {
                float share = SHUFFLE(weight, key);
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    float value = values[key][part * WARP + lane];
                    sums[query][part] = fmaf(share, value, sums[query][part]);
                }
            }
        }
    }
#pragma unroll
    for (int at = 0; at < 2; at++) {
        unsigned query = piece.start + 2 * warp + at;
        if (query >= piece.length) continue;
        float *row = out + (piece.first + query) * (size_t)hidden + head;
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            unsigned element = part * WARP + lane;
            if (element < size) row[element] = sums[at][part] / total[at];
        }
    }
}

// Head sizes up to 32, 64 and 128. `projected` is queries, keys and values beside each other.
#define ATTEND_F32(PARTS, NAME)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                              \
    NAME(const float *projected, const Piece *pieces, unsigned hidden, unsigned size, float *out) { \
        attend<PARTS>(projected, pieces, hidden, size, out);                                       \
    }
ATTEND_F32(1, attend_f32_32)
ATTEND_F32(2, attend_f32_64)
ATTEND_F32(4, attend_f32_128)

#if defined(TENSOR_CORES)

#define QUERIES 64
#define KEYS 64

// In bf16 by tensor cores: sixteen queries a warp. Sizes are multiples of 8.
template <int MOST>
__device__ __forceinline__ void attend_by_matrices(const bf16 *projected, const Piece *pieces,
                                                   unsigned hidden, unsigned size, bf16 *out) {
    const int ROW = 2 * MOST + 16;
    Piece piece = pieces[blockIdx.x];
    unsigned head = blockIdx.y * size;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t pitch = 3 * (size_t)hidden;
    const bf16 *text = projected + piece.first * pitch + head;
    unsigned queries = shared_address(space);
    unsigned keys = queries + QUERIES * ROW, values = keys + KEYS * ROW;
    // Powers of two are cheaper: exp(x) = 2^(x log2 e).
    float scale = 1.44269504f / sqrtf((float)size);

    // So many rows from one on, beginning at a column of the projections.
    auto begin = [&](unsigned to, unsigned start, unsigned column) {
        for (unsigned at = threadIdx.x; at < KEYS * (MOST / 8); at += 128) {
            unsigned line = at / (MOST / 8), element = at % (MOST / 8) * 8;
            bool is_there = start + line < piece.length && element < size;
            const bf16 *from = text;
            if (is_there) from += (start + line) * pitch + column + element;
            copy16(to + line * ROW + element * 2, from, is_there);
        }
    };
    begin(queries, piece.start, 0);
    copies_grouped();

    float sums[MOST / 8][4] = {};
    float most[2] = {-INFINITE, -INFINITE}, total[2] = {0.0f, 0.0f};
    for (unsigned start = 0; start < piece.length; start += KEYS) {
        __syncthreads();
        begin(keys, start, hidden);
        begin(values, start, 2 * hidden);
        copies_grouped();
        copies_awaited<0>();
        __syncthreads();

        float scores[KEYS / 8][4] = {};
#pragma unroll
        for (int deep = 0; deep < MOST; deep += 16) {
            unsigned left[4];
            unsigned row = warp * 16 + lane % 16;
            load_matrices(left, queries + row * ROW + (deep + lane / 16 * 8) * 2);
#pragma unroll
            for (int at = 0; at < KEYS / 16; at++) {
                unsigned key = at * 16 + lane % 8 + lane / 16 * 8;
                unsigned right[4];
                load_matrices(right, keys + key * ROW + (deep + lane / 8 % 2 * 8) * 2);
                multiply(scores[2 * at], left, right[0], right[1]);
                multiply(scores[2 * at + 1], left, right[2], right[3]);
            }
        }
        // Of this lane's two rows: the greatest, which the four lanes of a group agree on.
        float now[2] = {most[0], most[1]};
#pragma unroll
        for (int at = 0; at < KEYS / 8; at++) {
#pragma unroll
            for (int place = 0; place < 4; place++) {
                unsigned key = start + at * 8 + lane % 4 * 2 + place % 2;
                float score = key < piece.length ? scores[at][place] * scale : -INFINITE;
                scores[at][place] = score;
                now[place / 2] = fmaxf(now[place / 2], score);
            }
        }
        float before[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            now[half] = fmaxf(now[half], SHUFFLE_XOR(now[half], 1));
            now[half] = fmaxf(now[half], SHUFFLE_XOR(now[half], 2));
            before[half] = exp2f(most[half] - now[half]);
            most[half] = now[half];
            total[half] *= before[half];
        }
#pragma unroll
        for (int at = 0; at < KEYS / 8; at++) {
#pragma unroll
            for (int place = 0; place < 4; place++) {
                float weight = exp2f(scores[at][place] - now[place / 2]);
                scores[at][place] = weight;
                total[place / 2] += weight;
            }
        }
#pragma unroll
        for (int at = 0; at < MOST / 8; at++) {
#pragma unroll
            for (int place = 0; place < 4; place++) sums[at][place] *= before[place / 2];
        }
#pragma unroll
        for (int key = 0; key < KEYS; key += 16) {
            // A product's lanes hold what a factor's lanes hold.
            float(&low)[4] = scores[key / 8], (&high)[4] = scores[key / 8 + 1];
            unsigned left[4] = {pair(low[0], low[1]), pair(low[2], low[3]),
                                pair(high[0], high[1]), pair(high[2], high[3])};
#pragma unroll
            for (int at = 0; at < MOST / 16; at++) {
                unsigned right[4];
                unsigned row = key + lane % 16;
                load_transposed(right, values + row * ROW + (at * 16 + lane / 16 * 8) * 2);
                multiply(sums[2 * at], left, right[0], right[1]);
                multiply(sums[2 * at + 1], left, right[2], right[3]);
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        total[half] += SHUFFLE_XOR(total[half], 1);
        total[half] += SHUFFLE_XOR(total[half], 2);
        unsigned query = piece.start + warp * 16 + lane / 4 + half * 8;
        bf16 *row = out + (piece.first + query) * (size_t)hidden + head;
#pragma unroll
        for (int at = 0; at < MOST / 8; at++) {
            unsigned element = at * 8 + lane % 4 * 2;
            float low = sums[at][2 * half] / total[half];
            float high = sums[at][2 * half + 1] / total[half];
            if (query < piece.length && element < size) {
                *(unsigned *)(row + element) = pair(low, high);
            }
        }
    }
}

// Head sizes up to 32, 64 and 128. Dynamic shared memory: 192 rows of 80, 144 and 272 bytes.
#define ATTEND_BF16(MOST, NAME)                                                                    \
    extern "C" __global__ void __launch_bounds__(128)                                              \
    NAME(const bf16 *projected, const Piece *pieces, unsigned hidden, unsigned size, bf16 *out) {  \
        attend_by_matrices<MOST>(projected, pieces, hidden, size, out);                            \
    }
ATTEND_BF16(32, attend_bf16_32)
ATTEND_BF16(64, attend_bf16_64)
ATTEND_BF16(128, attend_bf16_128)

#endif

// ---- Texts ----

// The modes of `model::Pooling`, by the numbers that the host passes.
enum { MEAN = 0, CLS = 1, MAX = 2, LAST = 3, MEAN_SQRT = 4, WEIGHTED_MEAN = 5 };

// Token vectors to one vector a text: a block a text. `starts` is where each text's tokens begin, and
// at its end where the last one's end; `skip` is how many leading tokens take no part, of each text.
extern "C" __global__ void __launch_bounds__(256)
pool(const float *states, const unsigned *starts, const unsigned *skip, unsigned mode,
     unsigned hidden, float *out) {
    unsigned first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    unsigned from = min(first + skip[blockIdx.x], end);
    for (unsigned at = threadIdx.x; at < hidden; at += 256) {
        float value = 0.0f, total = 0.0f;
        if (first < end && mode == CLS) value = states[(size_t)first * hidden + at];
        if (first < end && mode == LAST) value = states[(size_t)(end - 1) * hidden + at];
        if (mode != CLS && mode != LAST) {
            for (unsigned token = from; token < end; token++) {
                float weight = mode == WEIGHTED_MEAN ? (float)(token - from + 1) : 1.0f;
                float state = states[(size_t)token * hidden + at];
                total += weight;
                if (mode == MAX) value = token == from ? state : fmaxf(value, state);
                else value += weight * state;
            }
            if (mode == MEAN_SQRT) total = sqrtf(total);
            if (mode != MAX && total > 0.0f) value /= total;
        }
        out[(size_t)blockIdx.x * hidden + at] = value;
    }
}

// The first `dimensions` of each vector, scaled to length one if asked: a block a text.
extern "C" __global__ void __launch_bounds__(256)
finish(const float *vectors, unsigned width, unsigned dimensions, unsigned normalizes,
       float *out) {
    __shared__ float parts[256 / WARP];
    const float *vector = vectors + (size_t)blockIdx.x * width;
    float squares = 0.0f;
    for (unsigned at = threadIdx.x; at < dimensions; at += 256) squares += vector[at] * vector[at];
    squares = warp_sum(squares);
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = squares;
    __syncthreads();
    float total = 0.0f;
    for (int at = 0; at < 256 / WARP; at++) total += parts[at];
    // sentence-transformers normalises with torch's default floor for the length.
    float length = normalizes ? fmaxf(sqrtf(total), 1e-12f) : 1.0f;
    for (unsigned at = threadIdx.x; at < dimensions; at += 256) {
        out[(size_t)blockIdx.x * dimensions + at] = vector[at] / length;
    }
}
