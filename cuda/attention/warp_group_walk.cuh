// The common part of the kernels of attention by warp groups (warp_group_forward.cuh, warp_group_queries.cuh,
// warp_group_keys.cuh), for compute capability 9.0: tiles in shared memory, the group that copies them, and products.
//
// A block of three groups works on tiles of 128 rows, of queries or of keys, until none are left:
//
//   group 0      a warp walks the tiles of 64 or 128 rows that masks, lengths and documents leave
//                (tensor_core_walk.cuh), and one lane copies them to a ring of stages, which name their tiles
//   groups 1, 2  own 64 rows each, 16 a warp, and multiply
//
// Groups 1 and 2 never wait for each other. Products leave their results where those of tensor_core_product.cuh do, so
// the formulas per element are the same functions. A group multiplies as a whole: masks are those of a warp, but what a
// tile takes depends on its coverage for all 64 rows.
//
// A tile that is partly visible may have rows that are not finite (tensor_core.cuh). Such a row makes all products of
// the owned rows with it infinite or NaN, so a tile is checked only if products are. A copy without them is multiplied.
#pragma once

#include <optional>

#include "cuda/attention/tensor_core_backward.cuh"
#include "cuda/matmul/tile_copies.cuh"

namespace orrery::cuda {

inline constexpr int group_attention_threads = 3 * group_threads, group_block_rows = 2 * group_rows;
inline constexpr int group_forward_keys = 128;  // of a tile that forward walks

// Rows as operand of group products and tensor maps: in lines of 64 elements each, then their next 64 elements.
template <int Size, int Count = group_rows>
struct alignas(1024) GroupTile {
  static constexpr int count = Count, size = Size, bytes = count * Size * 2, bytes_of_64 = count * group_line;
  unsigned char line[Size / 64][count][group_line];

  __device__ const void* chunk(int row, int n) const { return &line[n / 8][row][(n ^ row) % 8 * 16]; }  // 16 bytes
  __device__ SharedOperand operand() const { return SharedOperand::at(shared_address(this), bytes_of_64); }
};

// Operands of a problem: (size, tokens, heads, batch).
struct AttentionMaps {
  TensorMap query, output_gradient, key, value;
};

template <int Stages>
struct GroupStages {
  static constexpr int stages = Stages;
  struct alignas(8) Place {
    int head, first;  // first: -1 after the last tile
  } place[Stages];
  TransactionBarrier own_full, own_empty, full[Stages], empty[Stages];

  // By one thread, before the barrier of the block.
  __device__ void init_barriers() {
    own_full.init(1), own_empty.init(group_block_rows / 16);
    for (int s = 0; s < Stages; ++s) full[s].init(1), empty[s].init(2);
    barriers_initialized();
  }
};
// Tiles in shared memory; operand 0: queries or keys, 1: output gradients or values. OwnsKeys: groups own keys.
template <int Size, int Stages, bool OwnsKeys>
struct GroupTiles : GroupStages<Stages> {
  using Tile = GroupTile<Size>;
  alignas(16) TensorCoreRowTerms terms[OwnsKeys ? Stages : 1][group_rows];  // of walked queries
  Tile own[2][2];  // operand, group
  Tile walked[Stages][2];
  Tile finite[OwnsKeys ? 2 : 1][2];  // operand, group: copies of tiles without rows that are not finite

  // Bytes from the first stage to `finite`
  __device__ static constexpr int finite_from_stages(int operand, int group) {
    return static_cast<int>(sizeof(walked)) + (2 * operand + group) * Tile::bytes;
  }
};

// Starts the copy of a tile of a head.
template <int Size, int Count>
__device__ void load_rows(GroupTile<Size, Count>& to, const TensorMap& map, TransactionBarrier& full, int sequence,
                          int head, int first) {
  for (int e = 0; e < Size; e += 64) tile_load(to.line[e / 64], map, full, {e, first, head, sequence});
}

// Starts a block's copies, by the lane `copies` of a warp that walks.
template <class Tiles>
class TileCopies {
 public:
  __device__ TileCopies(Tiles& tiles, bool copies) : tiles_(tiles), copies_(copies) {}

  // Operands of 128 rows of a head
  template <class... Maps>
  __device__ void load_own(int sequence, int head, int first, const Maps&... maps) {
    if (!copies_) return;
    tiles_.own_empty.wait(parity_ ^ 1);
    parity_ ^= 1;
    tiles_.own_full.expect(sizeof tiles_.own);
    int operand = 0;
    const auto load = [&](const TensorMap& map) {
      for (int group = 0; group < 2; ++group)
        load_rows(tiles_.own[operand][group], map, tiles_.own_full, sequence, head, first + group * group_rows);
      ++operand;
    };
    (load(maps), ...);
  }
  // Both operands of a walked tile of a head, and its terms, if any. place_head: what groups read
  __device__ void load_walked(const TensorMap& first_map, const TensorMap& second_map, int sequence, int head,
                              int first, int place_head, const TensorCoreRowTerms* terms) {
    if (copies_) {
      const int s = stage_.index;
      tiles_.empty[s].wait(stage_.parity ^ 1);
      tiles_.place[s] = {place_head, first};
      TransactionBarrier& full = tiles_.full[s];
      int bytes = sizeof tiles_.walked[s];
      if constexpr (requires { tiles_.terms; }) bytes += terms ? sizeof tiles_.terms[s] : 0;
      full.expect(bytes);
      load_rows(tiles_.walked[s][0], first_map, full, sequence, head, first);
      load_rows(tiles_.walked[s][1], second_map, full, sequence, head, first);
      if constexpr (requires { tiles_.terms; })
        if (terms) bulk_load(tiles_.terms[s], terms, sizeof tiles_.terms[s], full);
    }
    stage_.advance();
  }
  __device__ void end() {
    if (copies_) {
      tiles_.empty[stage_.index].wait(stage_.parity ^ 1);
      tiles_.place[stage_.index] = {0, -1};
      tiles_.full[stage_.index].arrive();
    }
    stage_.advance();
  }

 private:
  Tiles& tiles_;
  PipelineStage<Tiles::stages> stage_;
  unsigned parity_ = 0;
  bool copies_;
};

template <class P>
HOST_DEVICE int query_tiles_of(const P& p) {
  return p.batch * p.query_heads * ((p.queries + group_block_rows - 1) / group_block_rows);
}
// Copies tiles of queries, with other operands of their rows, if any, and the keys and values that they attend to; by a
// warp of group 0.
template <class Tiles, class P, class... Maps>
__device__ void copy_keys(Tiles& tiles, const P& p, const AttentionMaps& maps, const Maps&... own_maps) {
  constexpr int side = std::remove_reference_t<decltype(tiles.walked[0][0])>::count;
  TileCopies copies(tiles, elected());
  for (int n = static_cast<int>(blockIdx.x); n < query_tiles_of(p); n += static_cast<int>(gridDim.x)) {
    const QueryTile q = query_tile(p, static_cast<unsigned>(n), group_block_rows);
    copies.load_own(q.sequence, q.head, q.first, maps.query, own_maps...);
    const KeyWalk walk(p, q, group_block_rows, side);
    const int head = kv_head(p, q);
    for (KeyTile keys = walk.begin(); walk.has(keys); keys = walk.after(keys))
      copies.load_walked(maps.key, maps.value, q.sequence, head, keys.first, 0, nullptr);
    copies.end();
  }
}

// ---- products

// The rows that a group owns, of one operand. Products of 64 columns read shared memory at its full rate if both
// operands are there, so rows of 64 elements are kept in registers. There are none left for longer rows.
template <int Size>
class OwnRows {
 public:
  static constexpr bool in_registers = Size == 64;

  // of_warp: the warp's first row
  __device__ OwnRows(const GroupTile<Size>& tile, int of_warp) : operand_(tile.operand()) {
    if constexpr (in_registers)
#pragma unroll
      for (int k = 0; k < Size / 16; ++k)
        load_matrices<false>(row_[k], tile.chunk(of_warp + lane_of_warp() % 16, 2 * k + lane_of_warp() / 16));
  }
  // Starts d = own rows times walked rows, 8 Groups of them.
  template <int Groups>
  __device__ void start_product(const SharedOperand& walked, float (&d)[1][Groups][4]) const {
#pragma unroll
    for (int k = 0; k < Size / 16; ++k) {
      const SharedOperand b = walked.farther(k / 4 * GroupTile<Size, 8 * Groups>::bytes_of_64 + k % 4 * 32);
      if constexpr (in_registers)
        group_product<false>(d[0], row_[k], b, k > 0);
      else
        group_product<false, false>(d[0], operand_.farther(k / 4 * GroupTile<Size>::bytes_of_64 + k % 4 * 32), b,
                                    k > 0);
    }
  }
  // Computes a warp's rows of the product without the other warps of its group.
  template <int Count>
  __device__ void multiply_alone(const GroupTile<Size>& tile, int of_warp, const GroupTile<Size, Count>& walked,
                                 float (&d)[1][Count / 8][4]) const {
    const int lane = in_register(lane_of_warp());  // addresses are not computed before the loop over tiles
    each_score(d, [&](int, int bit) { d[0][bit / 4][bit % 4] = 0; });
#pragma unroll(in_registers ? Size / 16 : 1)
    for (int k = 0; k < Size / 16; ++k) {
      uint32_t a[4], b[4];
      if constexpr (in_registers)
        for (int i = 0; i < 4; ++i) a[i] = row_[k][i];
      else
        load_matrices<false>(a, tile.chunk(of_warp + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < Count / 16; ++j) {
        load_matrices<false>(b, walked.chunk(16 * j + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        mma_m16n8k16(d[0][2 * j], a, b), mma_m16n8k16(d[0][2 * j + 1], a, b + 2);
      }
    }
  }

 private:
  SharedOperand operand_;
  uint32_t row_[in_registers ? Size / 16 : 1][4];
};
// Starts sum += weights times 64 walked rows, or several times 64.
template <int Size, int Parts>
__device__ void start_weights_product(const uint32_t (&weights)[Parts][4][4], const SharedOperand& walked,
                                      float (&sum)[1][Size / 8][4]) {
#pragma unroll
  for (int k = 0; k < 4 * Parts; ++k)
    group_product<true>(sum[0], weights[k / 4][k % 4], walked.farther(k * 16 * group_line));
}

__device__ inline void meet_group(int group) { named_sync(1 + group, group_threads); }
// Returns a mask of the walked rows that are not finite, equal in all warps; products: of the owned rows with them.
template <int Size>
__device__ uint64_t find_bad_rows(const float (&products)[1][8][4], const GroupTile<Size>& walked) {
  float zeros = 0;
#pragma unroll
  for (int n = 0; n < 16; ++n) zeros += 0 * products[0][n / 2][n % 2];  // of one row of each lane
  return __ballot_sync(~0u, zeros != 0) ? find_bad_rows(walked) : 0;
}
// Copies a tile to `finite`, with zeros for the rows `bad`, and makes their weights that are not 0 NaN: so results with
// such a weight become NaN, and the others do not. By a whole group, when it has no products of `finite` in flight.
template <int Size>
__device__ void separate_bad_rows(const GroupTile<Size>& tile, uint64_t bad, int group, GroupTile<Size>& finite,
                                  uint32_t (&weights)[1][4][4]) {
  meet_group(group);
  const int thread = static_cast<int>(threadIdx.x) % group_threads, row = thread / 2;
#pragma unroll 1
  for (int n = thread % 2; n < Size / 8; n += 2) {
    RowChunk chunk = {};
    if (!(bad >> row & 1)) chunk = *static_cast<const RowChunk*>(tile.chunk(row, n));
    store_chunk(const_cast<void*>(finite.chunk(row, n)), chunk.pair);
  }
  shared_written();
  meet_group(group);
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    uint32_t& pair = weights[0][n / 4][n % 4];
    const uint64_t of_pair = bad >> ScoreLayout<false>::column(n / 2 * 4);
    if (of_pair & 1 && pair & 0x7fffu) pair |= 0x7fffu;
    if (of_pair & 2 && pair & 0x7fff0000u) pair |= 0x7fff0000u;
  }
}

// ---- formulas

// Turns products of output gradients and values into g - c.
template <class P, class Terms>
__device__ void centre_gradients(const P& p, const RareOptions& options, const uint32_t (&kept)[1], const Terms& terms,
                                 float (&g)[1][8][4]) {
  const auto each = [&](const auto& change) {
    each_score(g, [&](int block, int bit) { change(g[block][bit / 4][bit % 4], block, bit); });
  };
  if (options.dropout())
    each([&](float& gradient, int block, int bit) {
      gradient = has(kept[block], bit) ? p.dropout.kept * gradient : 0.f;
    });
  if constexpr (decltype(P::weights)::softmax) {
    const auto minus_centre = terms.minus_centres();
    each([&](float& gradient, int block, int bit) { gradient += minus_centre(block, bit); });
  }
}

// ---- launches

// Returns the maps of a problem that these kernels compute: with operands that can be copied by tensor maps, rows of
// head and value sizes that are multiples of 8, and outputs that begin at 16 bytes. Forward has no output gradient, and
// other tiles of keys.
template <class P>
std::optional<AttentionMaps> attention_maps(const P& p, bool forward = false) {
  if (!warp_groups() || p.head_size % 8 != 0 || p.value_size % 8 != 0) return {};
  if (reinterpret_cast<uintptr_t>(p.output.data) % 16 != 0 || p.output.stride % 8 != 0) return {};
  const auto map = [&](const auto& x, int tokens, int heads, int size, int rows = group_rows) {
    return tensor_map({x.data,
                       {size, tokens, heads, p.batch},
                       {x.stride, size, tokens * x.stride},
                       {group_line / 2, rows, 1, 1}});
  };
  const int rows = forward ? group_forward_keys : group_rows;
  const auto query = map(p.query, p.queries, p.query_heads, p.head_size),
             key = map(p.key, p.keys, p.kv_heads, p.head_size, rows),
             value = map(p.value, p.keys, p.kv_heads, p.value_size, rows);
  const auto output_gradient = forward ? query : map(p.output_gradient, p.queries, p.query_heads, p.value_size);
  if (!query || !output_gradient || !key || !value) return {};
  return AttentionMaps{*query, *output_gradient, *key, *value};
}

// Returns a launch of blocks that share `tiles` tiles of owned rows.
template <class Tiles>
Launch group_attention_launch(const char* name, int tiles, int line = __builtin_LINE()) {
  const int blocks = std::min(tiles, device_properties().multiprocessors);
  return {name, static_cast<unsigned>(blocks), group_attention_threads, sizeof(Tiles), __builtin_FILE(), line};
}

// Runs a kernel: copy(tiles) in a warp of group 0, with `CopyRegisters` for each thread of the group, and
// multiply(tiles, group) in groups 1 and 2, as 0 and 1.
template <class Tiles, int CopyRegisters, int Registers, class Copy, class Multiply>
__device__ void run_groups(const Copy& copy, const Multiply& multiply) {
  if (!warp_groups()) return;
  auto& tiles = shared_memory<Tiles>();
  const int group = warp_of_block() / 4;
  if (threadIdx.x == 0) tiles.init_barriers();
  __syncthreads();
  wait_for_earlier();
  if (group == 0) {
    give_registers<CopyRegisters>();
    if (threadIdx.x < 32) {
      copy(tiles);
      allow_next();
    }
  } else {
    take_registers<Registers>();
    multiply(tiles, group - 1);
  }
}

}  // namespace orrery::cuda
