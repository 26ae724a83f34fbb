// How fast a device multiplies when nothing has to be fetched: everything is in registers.

#define SUMS 8

// By tensor cores, in bf16: eight products of 16 by 8 over 16 a warp and round.
extern "C" __global__ void __launch_bounds__(256) matrices(unsigned rounds, float *out) {
    unsigned left[4], right[2];
    for (unsigned at = 0; at < 4; at++) left[at] = 0x3c003c00u + threadIdx.x + at;
    for (unsigned at = 0; at < 2; at++) right[at] = 0x3c003c00u + threadIdx.x * 2 + at;
    float sums[SUMS][4] = {};
    for (unsigned round = 0; round < rounds; round++) {
#pragma unroll
        for (int at = 0; at < SUMS; at++) {
            float(&sum)[4] = sums[at];
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                         "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                         : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                         : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                           "r"(right[1]));
        }
    }
    float total = 0.0f;
    for (int at = 0; at < SUMS; at++) total += sums[at][0] + sums[at][1] + sums[at][2] + sums[at][3];
    out[blockIdx.x * 256 + threadIdx.x] = total;
}

// In f32: sixteen products a thread and round.
extern "C" __global__ void __launch_bounds__(256) products(unsigned rounds, float *out) {
    float factor = 1.0f + threadIdx.x * 1e-9f;
    float sums[2 * SUMS] = {};
    for (unsigned round = 0; round < rounds; round++) {
#pragma unroll
        for (int at = 0; at < 2 * SUMS; at++) sums[at] = fmaf(sums[at], factor, factor);
    }
    float total = 0.0f;
    for (int at = 0; at < 2 * SUMS; at++) total += sums[at];
    out[blockIdx.x * 256 + threadIdx.x] = total;
}
