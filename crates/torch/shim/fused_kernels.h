// The kernels of fused.cpp, and how rows are laid over their threads.
#pragma once

#include "nvrtc.h"

#include <cstring>
#include <string>

namespace {

// A thread holds the same columns of every row: up to this many times a pack.
constexpr int64_t kMostPacks = 4, kMostPacksOfWarp = 8;
constexpr int64_t kMostThreads = 512;
// Warps of a block where each has a row of its own.
constexpr int kWarps = 4;
// Blocks for each multiprocessor where a block takes many rows. More would hide more waiting, and leave more sums to add up.
constexpr int64_t kBlocksEach = 24, kBlocksThatSum = 4;

// `T` is the kind of the products, `W` the columns of a pack, which is read at once, `K` how many packs a thread holds, `GROUP` how
// many threads a row has.
lowtide::Program block_kernels(R"(
template <typename N>
struct alignas(W * sizeof(N) < 16 ? W * sizeof(N) : 16) Some {
  N item[W];
};

template <typename N>
__device__ void load(float* out, const N* from) {
  Some<N> some = *reinterpret_cast<const Some<N>*>(from);
  for (int k = 0; k < W; k++) out[k] = some.item[k].wide();
}

template <typename N>
__device__ void store(N* to, const float* from) {
  Some<N> some;
  for (int k = 0; k < W; k++) some.item[k] = N::of(from[k]);
  *reinterpret_cast<Some<N>*>(to) = some;
}

__device__ void load(float* out, const float* from) { load(out, reinterpret_cast<const Float*>(from)); }
__device__ void store(float* to, const float* from) { store(reinterpret_cast<Float*>(to), from); }

// A row belongs to the whole block, or where GROUP is not 0 to so many of its threads.
__device__ int lanes() { return GROUP ? GROUP : blockDim.x; }
__device__ int group() { return GROUP ? threadIdx.x / GROUP : 0; }
__device__ int groups() { return GROUP ? blockDim.x / GROUP : 1; }
__device__ int lane() { return GROUP ? threadIdx.x % GROUP : threadIdx.x; }

#define ROWS(row) \
  for (long long row = (long long)blockIdx.x * groups() + group(); row < rows; row += (long long)gridDim.x * groups())
#define COLUMNS(k, column) for (int k = 0, column = lane() * W; k < K; k++, column += lanes() * W) if (column < width)

// The sums of two values over all threads of a row, for all of them. `turn` is another one at each call in a row.
__device__ void sum_row(float& a, float& b, int turn) {
  for (int lane = 16; lane > 0; lane >>= 1) {
    a += __shfl_xor_sync(0xffffffffu, a, lane);
    b += __shfl_xor_sync(0xffffffffu, b, lane);
  }
  if (GROUP == 32) return;
  __shared__ float parts[2][2][32];
  int warp = threadIdx.x >> 5;
  if ((threadIdx.x & 31) == 0) { parts[turn][0][warp] = a; parts[turn][1][warp] = b; }
  __syncthreads();
  a = 0.f;
  b = 0.f;
  for (int other = 0; other < blockDim.x >> 5; other++) { a += parts[turn][0][other]; b += parts[turn][1][other]; }
}

// Writes what the rows of the block add up to, one value for each column: in the order of its groups.
__device__ void keep_part(const float (&sums)[K][W], float* part, int width) {
  if (GROUP == 0) {
    COLUMNS(k, column) { store(part + column, sums[k]); }
    return;
  }
  __shared__ float total[K * 32 * W];
  for (int turn = 0; turn < groups(); turn++) {
    if (group() == turn) {
      COLUMNS(k, column) {
        for (int i = 0; i < W; i++) total[column + i] = (turn == 0 ? 0.f : total[column + i]) + sums[k][i];
      }
    }
    __syncthreads();
  }
  for (int column = threadIdx.x; column < width; column += blockDim.x) part[column] = total[column];
  __syncthreads();
}

// sum = x + delta + bias, and its normalised values. Without `delta` the sum is x, and is not written.
extern "C" __global__ void norm_forward(const float* x, const T* delta, const float* bias, const float* gain,
                                        const float* shift, float* sum, T* normed, float* means, float* scales,
                                        long long rows, int width, float epsilon) {
  ROWS(row) {
    const long long start = row * width;
    float values[K][W];
    float total = 0.f, none = 0.f;
    COLUMNS(k, column) {
      load(values[k], x + start + column);
      if (delta) {
        float more[W];
        load(more, delta + start + column);
        for (int i = 0; i < W; i++) values[k][i] += more[i];
        if (bias) {
          load(more, bias + column);
          for (int i = 0; i < W; i++) values[k][i] += more[i];
        }
        store(sum + start + column, values[k]);
      }
      for (int i = 0; i < W; i++) total += values[k][i];
    }
    sum_row(total, none, 0);
    const float mean = total / width;
    float spread = 0.f;
    COLUMNS(k, column) {
      for (int i = 0; i < W; i++) { float apart = values[k][i] - mean; spread += apart * apart; }
    }
    sum_row(spread, none, 1);
    const float scale = rsqrtf(spread / width + epsilon);
    COLUMNS(k, column) {
      float gains[W], shifts[W], out[W];
      load(gains, gain + column);
      load(shifts, shift + column);
      for (int i = 0; i < W; i++) out[i] = (values[k][i] - mean) * scale * gains[i] + shifts[i];
      store(normed + start + column, out);
    }
    if (lane() == 0) { means[row] = mean; scales[row] = scale; }
  }
}

// The gradient of x, also as that of `delta` where there is one, and the block's part of those of gain, shift and bias.
extern "C" __global__ void __launch_bounds__(GROUP ? 128 : 512, GROUP == 0 ? 1 : K <= 6 ? 3 : 2)
norm_backward(const float* sum, const float* means, const float* scales, const float* gain, const T* of_normed,
              const float* of_sum, float* of_x, T* of_delta, float* parts, long long rows, int width) {
  float of_gain[K][W] = {}, of_shift[K][W] = {}, of_bias[K][W] = {};
  int turn = 0;
  ROWS(row) {
    const long long start = row * width;
    const float mean = means[row], scale = scales[row];
    // All is asked for before the first sum is waited for.
    float unit[K][W], slope[K][W], beside[K][W] = {};
    COLUMNS(k, column) {
      load(unit[k], sum + start + column);
      load(slope[k], of_normed + start + column);
      if (of_sum) load(beside[k], of_sum + start + column);
    }
    float slopes = 0.f, along = 0.f;
    COLUMNS(k, column) {
      float gains[W];
      load(gains, gain + column);
      for (int i = 0; i < W; i++) {
        unit[k][i] = (unit[k][i] - mean) * scale;
        of_gain[k][i] += slope[k][i] * unit[k][i];
        of_shift[k][i] += slope[k][i];
        slope[k][i] *= gains[i];
        slopes += slope[k][i];
        along += slope[k][i] * unit[k][i];
      }
    }
    sum_row(slopes, along, turn);
    turn ^= 1;
    slopes /= width;
    along /= width;
    COLUMNS(k, column) {
      float out[W];
      for (int i = 0; i < W; i++) {
        out[i] = (slope[k][i] - slopes - unit[k][i] * along) * scale + beside[k][i];
        of_bias[k][i] += out[i];
      }
      store(of_x + start + column, out);
      if (of_delta) store(of_delta + start + column, out);
    }
  }
  float* part = parts + (long long)blockIdx.x * width;
  const long long whole = (long long)gridDim.x * width;
  keep_part(of_gain, part, width);
  keep_part(of_shift, part + whole, width);
  keep_part(of_bias, part + 2 * whole, width);
}

// x + delta + bias.
extern "C" __global__ void add_forward(const float* x, const T* delta, const float* bias, float* sum, long long rows,
                                       int width) {
  float shifts[K][W] = {};
  COLUMNS(k, column) { if (bias) load(shifts[k], bias + column); }
  ROWS(row) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[W], more[W];
      load(values, x + start + column);
      load(more, delta + start + column);
      for (int i = 0; i < W; i++) values[i] = values[i] + more[i] + shifts[k][i];
      store(sum + start + column, values);
    }
  }
}

// The gradient of the sum as that of `delta`, and the block's part of that of the bias.
extern "C" __global__ void add_backward(const float* of_sum, T* of_delta, float* parts, long long rows, int width) {
  float of_bias[K][W] = {};
  ROWS(row) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[W];
      load(values, of_sum + start + column);
      for (int i = 0; i < W; i++) of_bias[k][i] += values[i];
      store(of_delta + start + column, values);
    }
  }
  keep_part(of_bias, parts + (long long)blockIdx.x * width, width);
}

// The chance that a normal number is below x, and its density there: one exponential for both. Error function by
// Abramowitz and Stegun, 7.1.26: at most 1.5e-7 off, where the exact one costs more than reading the numbers does.
__device__ void normal(float x, float& below, float& density) {
  const float size = fabsf(x);
  const float t = __fdividef(1.f, 1.f + 0.23164190f * size);
  const float power = __expf(-0.5f * x * x);
  const float poly = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * poly * power;
  below = x < 0.f ? tail : 1.f - tail;
  density = 0.39894228f * power;
}

extern "C" __global__ void gelu_forward(const T* x, const float* bias, T* out, long long rows, int width) {
  float shifts[K][W] = {};
  COLUMNS(k, column) { if (bias) load(shifts[k], bias + column); }
  ROWS(row) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[W];
      load(values, x + start + column);
      for (int i = 0; i < W; i++) {
        float value = values[i] + shifts[k][i], below, density;
        normal(value, below, density);
        values[i] = value * below;
      }
      store(out + start + column, values);
    }
  }
}

// With so many registers three blocks of 384 threads find room; a fourth would have to put values aside.
extern "C" __global__ void __maxnreg__(K == 1 ? 56 : 128) gelu_backward(const T* x, const float* bias, const T* of_out, T* of_x, float* parts,
                                         long long rows, int width) {
  float shifts[K][W] = {}, of_bias[K][W] = {};
  COLUMNS(k, column) { if (bias) load(shifts[k], bias + column); }
  ROWS(row) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[W], slopes[W];
      load(values, x + start + column);
      load(slopes, of_out + start + column);
      for (int i = 0; i < W; i++) {
        float value = values[i] + shifts[k][i], below, density;
        normal(value, below, density);
        slopes[i] *= below + value * density;
        of_bias[k][i] += slopes[i];
      }
      store(of_x + start + column, slopes);
    }
  }
  keep_part(of_bias, parts + (long long)blockIdx.x * width, width);
}

// Rows of a table by their numbers, each plus the row of `positions` for its place among `length`. A number that the table does not
// have makes NaN.
extern "C" __global__ void embed_forward(const long long* ids, const float* table, const float* positions, float* out, long long rows,
                                         int width, long long table_rows, int length) {
  ROWS(row) {
    const long long id = ids[row];
    const bool is_known = id >= 0 && id < table_rows;
    COLUMNS(k, column) {
      float values[W] = {}, more[W];
      load(more, positions + row % length * width + column);
      if (is_known) load(values, table + id * width + column);
      for (int i = 0; i < W; i++) values[i] = is_known ? values[i] + more[i] : NAN;
      store(out + row * width + column, values);
    }
  }
}

__device__ void add_to(float* place, const float* more) {
  float values[W];
  load(values, place);
  for (int i = 0; i < W; i++) values[i] += more[i];
  store(place, values);
}

// Rows that a block asks for before it looks at the first.
constexpr int ASKED = 4;

// Adds the rows of a gradient to those of a table, whose numbers are `sorted`; `order` is where each came from. A block takes `slice`
// of them. What numbers that it shares with other blocks add up to is left in its two parts: of the one that came in from
// the block before, and of the one that begins here and goes on.
extern "C" __global__ void embed_backward(const float* of_out, const int* sorted, const long long* order, float* table, float* parts,
                                          int rows, int width, int table_rows, int slice) {
  const int begin = blockIdx.x * slice, end = min(begin + slice, rows);
  bool comes_in = begin > 0 && sorted[begin - 1] == sorted[begin];
  float* const part = parts + 2ll * blockIdx.x * width;
  float total[K][W] = {};
  for (int first = begin; first < end; first += ASKED) {
    float values[ASKED][K][W];
    for (int i = 0; i < ASKED; i++) {
      COLUMNS(k, column) { if (first + i < end) load(values[i][k], of_out + order[first + i] * width + column); }
    }
    for (int i = 0; i < ASKED; i++) {
      const int at = first + i;
      if (at >= end) break;
      COLUMNS(k, column) {
        for (int j = 0; j < W; j++) total[k][j] += values[i][k][j];
      }
      const int id = sorted[at];
      if (at + 1 < end && sorted[at + 1] == id) continue;
      const bool goes_on = at + 1 == end && end < rows && sorted[end] == id;
      COLUMNS(k, column) {
        if (comes_in) {
          store(part + column, total[k]);
        } else if (goes_on) {
          store(part + width + column, total[k]);
        } else if (id >= 0 && id < table_rows) {
          add_to(table + (long long)id * width + column, total[k]);
        }
        for (int j = 0; j < W; j++) total[k][j] = 0.f;
      }
      comes_in = false;
    }
  }
}

// Adds up the parts of numbers that several blocks share: the block where one begins does it.
extern "C" __global__ void embed_join(const int* sorted, const float* parts, float* table, int rows, int width, int table_rows, int slice) {
  const int begin = blockIdx.x * slice, end = begin + slice;
  if (end >= rows || sorted[end] != sorted[end - 1]) return;
  const int id = sorted[end - 1];
  const bool came_in = begin > 0 && sorted[begin] == id && sorted[begin - 1] == id;
  if (came_in || id < 0 || id >= table_rows) return;
  // The first block that it does not reach into, by halves.
  int reached = blockIdx.x + 1, beyond = gridDim.x;
  while (reached < beyond) {
    const int middle = (reached + beyond) / 2;
    if (sorted[middle * slice] == id) reached = middle + 1;
    else beyond = middle;
  }
  COLUMNS(k, column) {
    float total[W], more[W];
    load(total, parts + (2ll * blockIdx.x + 1) * width + column);
#pragma unroll 8
    for (int next = blockIdx.x + 1; next < beyond; next++) {
      load(more, parts + 2ll * next * width + column);
      for (int i = 0; i < W; i++) total[i] += more[i];
    }
    add_to(table + (long long)id * width + column, total);
  }
}

// The gradients of queries, keys and values at their places in one, and what its rows add up to. `step` has how far the next
// sample, head and token of each are; `head` is the width of a head.
struct Steps {
  long long sample[3], head[3], token[3];
};

// Rows that a thread asks for before it looks at the first.
constexpr int AT_ONCE = 4;

// A thread has the same columns of every row, as many as 16 bytes hold.
extern "C" __global__ void heads_backward(const T* queries, const T* keys, const T* values, Steps step, T* joined, float* parts,
                                          int rows, int width, int tokens, int head) {
  constexpr int kCount = Pack<T>::kCount;
  int column = threadIdx.x * kCount, part_width = width / 3;
  if (column >= width) return;
  int part = column / part_width, inside = column % part_width;
  const T* from = part == 0 ? queries : part == 1 ? keys : values;
  from += inside / head * step.head[part] + inside % head;
  float sums[kCount] = {};
  for (int start = blockIdx.x; start < rows; start += AT_ONCE * gridDim.x) {
    Pack<T> pack[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
      int row = start + i * gridDim.x;
      if (row < rows) {
        pack[i] = *reinterpret_cast<const Pack<T>*>(from + row / tokens * step.sample[part] + row % tokens * step.token[part]);
      }
    }
    for (int i = 0; i < AT_ONCE; i++) {
      int row = start + i * gridDim.x;
      if (row >= rows) break;
      for (int k = 0; k < kCount; k++) sums[k] += pack[i].item[k].wide();
      *reinterpret_cast<Pack<T>*>(joined + (long long)row * width + column) = pack[i];
    }
  }
  for (int k = 0; k < kCount; k++) parts[(long long)blockIdx.x * width + column + k] = sums[k];
}

// Where sums go: a place for each list or none, and whether they are added to what is there.
struct Sums {
  float* place[3];
  bool adds[3];
};

// Adds up the parts (lists, count, width) of each list: 32 columns a block, a 32nd of the parts a warp.
extern "C" __global__ void sum_parts(const float* parts, Sums sums, int count, int width) {
  __shared__ float halves[32][33];
  int groups = (width + 31) / 32, list = blockIdx.x / groups, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int column = blockIdx.x % groups * 32 + lane;
  float* place = sums.place[list];
  if (place == nullptr) return;
  float sum = 0.f;
  if (column < width) {
    const float* part = parts + (long long)list * count * width + column;
    for (int row = warp; row < count; row += 32) sum += part[(long long)row * width];
  }
  halves[warp][lane] = sum;
  __syncthreads();
  // Turned around, so that a warp adds up a column.
  sum = halves[lane][warp];
  for (int other = 16; other > 0; other >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, other);
  column = blockIdx.x % groups * 32 + warp;
  if (lane == 0 && column < width) place[column] = sums.adds[list] ? place[column] + sum : sum;
}
)");

// Columns that are read at once: as many as 16 bytes hold, or four where a row is no multiple of that.
int64_t pack_of(at::ScalarType kind, int64_t width) {
  const auto most = static_cast<int64_t>(16 / c10::elementSize(kind));
  return width % most == 0 ? most : 4;
}

// How rows of a width are laid over threads: `packs` times `pack` columns for each of `group`, or of all where that is 0.
struct Layout {
  int64_t pack;
  int64_t packs;
  int group;
  int threads;

  // A block to a row.
  static Layout of_blocks(int64_t width, int64_t pack = 4) {
    int64_t packs = 1;
    while (packs < kMostPacks && width > pack * kMostThreads * packs) packs *= 2;
    const int64_t each = (width + pack * packs - 1) / (pack * packs);
    return {pack, packs, 0, static_cast<int>((each + 31) / 32 * 32)};
  }

  // A warp to a row, which needs no other to add up its values; a block where the row would not fit into registers.
  static Layout of_warps(int64_t width) {
    const int64_t packs = (width + 127) / 128;
    return packs <= kMostPacksOfWarp ? Layout{4, packs, 32, kWarps * 32} : of_blocks(width);
  }

  std::string instance(const char* kind) const {
    return std::string("using T = ") + kind + "; constexpr int W = " + std::to_string(pack) + ", K = " + std::to_string(packs) +
           ", GROUP = " + std::to_string(group) + ";\n";
  }

  // Blocks for each multiprocessor where sums are kept, as many as find registers there.
  int64_t summing_blocks() const { return group == 0 ? kBlocksThatSum : packs <= 6 ? 3 : 2; }

  int64_t rows_at_once() const { return group == 0 ? 1 : threads / group; }
};

// The layout of a kernel: it is compiled for it, and started with it.
Layout layout_of(const char* name, at::ScalarType kind, int64_t width) {
  if (std::strncmp(name, "norm", 4) == 0) return Layout::of_warps(width);
  return Layout::of_blocks(width, std::strncmp(name, "gelu", 4) == 0 ? pack_of(kind, width) : 4);
}

// A kernel for rows of a kind and width, or none.
void* kernel_for(const char* name, const at::Device& device, at::ScalarType kind, int64_t width) {
  const auto* type = lowtide::name_of(kind);
  if (!device.is_cuda() || type == nullptr || width % 4 != 0 || width > 4 * kMostThreads * kMostPacks) return nullptr;
  return block_kernels.kernel(device, layout_of(name, kind, width).instance(type), name);
}

}  // namespace
