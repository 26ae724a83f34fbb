// What the devices of one process do with each other's memory, which each of them reaches.
//
// Without a header, as the other kernels. No kernel here waits for another: the host has seen all of
// a step's end before it begins the next.

// More devices than any machine has that one process drives.
#define MOST 16

// Where each member's numbers begin, in the order of the members; null after the last.
struct Members {
    const float *at[MOST];
};

// Four numbers a thread, and the rest of them for the last. They are read and written at once where `wide`
// says that all that a launch is given begins at a multiple of so many.
#define EACH 4

// The sums of what all members have from one place to another, each from the first member to the last.
// `out` is one of them: nobody else reads that part of it, and every thread reads before it writes.
extern "C" __global__ void __launch_bounds__(256)
reduce(Members members, unsigned long long first, unsigned long long end, float *out,
       unsigned wide) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x * EACH;
    unsigned long long at = first + ((unsigned long long)blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    for (; at < end; at += step) {
        unsigned count = end - at < EACH ? (unsigned)(end - at) : EACH;
        if (wide && count == EACH) {
            float4 sum = *(const float4 *)(members.at[0] + at);
#pragma unroll
            for (int member = 1; member < MOST; member++) {
                if (!members.at[member]) break;
                float4 next = *(const float4 *)(members.at[member] + at);
                sum.x += next.x;
                sum.y += next.y;
                sum.z += next.z;
                sum.w += next.w;
            }
            *(float4 *)(out + at) = sum;
            continue;
        }
        for (unsigned more = 0; more < count; more++) {
            float sum = members.at[0][at + more];
#pragma unroll
            for (int member = 1; member < MOST; member++) {
                if (!members.at[member]) break;
                sum += members.at[member][at + more];
            }
            out[at + more] = sum;
        }
    }
}

// The numbers from one place to another, as another member has them.
extern "C" __global__ void __launch_bounds__(256)
take(const float *from, unsigned long long first, unsigned long long end, float *to,
     unsigned wide) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x * EACH;
    unsigned long long at = first + ((unsigned long long)blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    for (; at < end; at += step) {
        unsigned count = end - at < EACH ? (unsigned)(end - at) : EACH;
        if (wide && count == EACH) {
            *(float4 *)(to + at) = *(const float4 *)(from + at);
            continue;
        }
        for (unsigned more = 0; more < count; more++) to[at + more] = from[at + more];
    }
}
