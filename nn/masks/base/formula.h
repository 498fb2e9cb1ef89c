// Registers a mask and compiles it for both devices; for nn/masks/*.cpp and new masks.
//
//   struct Dilated {
//     static inline const Info info{.name = "dilated", ...};
//     int64_t step = 2;                                                its settings, if it has any
//     template <class V> void visit(V& v) { v("d", step, "...", between(1, 16777216)); }
//     HOST_DEVICE bool visible(int64_t i, int64_t j) const;            does the query at position i attend to key j?
//   };
//   REGISTER_MASK(Dilated);
//
// It may also have `HOST_DEVICE Coverage coverage(Positions i, Positions j) const`, which saves time where a tile is
// visible wholly or not at all; `MaskBand band() const` and `int64_t later() const`, the facts of nn/masks/base/mask.h;
// `void check() const`, which throws for settings that do not fit together; `int64_t layer`, set to the block's number.
#pragma once

#include <bit>

#include "engine/loops/loops.h"
#include "engine/math/minimum.h"
#include "nn/masks/base/mask.h"

namespace orrery::nn {

// Writes the table of an area, tile by tile. words(i, w) has the bits of keys [32 w, 32 w + 32) of query i.
template <class Words>
struct WriteTiles {
  Words words;
  MaskArea area;
  uint32_t* bits;
  uint8_t* coverage;

  static constexpr int side = MaskView::tile;
  HOST_DEVICE int64_t columns() const { return (area.keys + side - 1) / side; }
  // Writes row i of the tile of these keys, zeros where there is no query or key. Returns the number of visible keys.
  HOST_DEVICE int write_row(int64_t i, Positions keys, Coverage known) const {
    int visible = 0;
    for (int64_t w = keys.begin / 32; w < keys.begin / 32 + side / 32; ++w) {
      const int64_t exist = i < area.queries ? maximum(0, minimum(32, keys.end - 32 * w)) : 0;
      const uint32_t existing = exist == 32 ? ~0u : (1u << exist) - 1;
      const uint32_t word =
          existing == 0 || known == Coverage::none ? 0 : existing & (known == Coverage::all ? ~0u : words(i, w));
      bits[i * columns() * (side / 32) + w] = word;
      visible += std::popcount(word);
    }
    return visible;
  }
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t tile) const {
    const WriteTiles my = *this;
    const int64_t first = tile / columns() * side, key = tile % columns() * side;
    const Positions queries{first, minimum(first + side, area.queries)}, keys{key, minimum(key + side, area.keys)};
    const Coverage known = words.coverage(queries, keys);
    const int visible = row.sum([=](int k) { return my.write_row(first + k, keys, known); });
    const bool all = visible == (queries.end - queries.begin) * (keys.end - keys.begin);
    row.once([=] {
      my.coverage[tile] = static_cast<uint8_t>(visible == 0 ? Coverage::none : all ? Coverage::all : Coverage::some);
    });
  }
};
template <class Words>
void write_tiles(Device device, const MaskArea& area, const Words& words, const MaskTable& to) {
  const WriteTiles<Words> write{words, area, reinterpret_cast<uint32_t*>(to.bits.mutable_data<int32_t>()),
                                reinterpret_cast<uint8_t*>(to.coverage.mutable_data<int32_t>())};
  rows(device, to.bits.size(0) / MaskView::tile * write.columns(), MaskView::tile, write);
}

template <class F>
struct WordsOf {
  F f;
  MaskArea area;

  HOST_DEVICE Coverage coverage([[maybe_unused]] Positions i, [[maybe_unused]] Positions j) const {
    if constexpr (requires { f.coverage(i, j); })
      return f.coverage({area.first_query + i.begin, area.first_query + i.end},
                        {area.first_key + j.begin, area.first_key + j.end});
    else
      return Coverage::some;
  }
  HOST_DEVICE uint32_t operator()(int64_t i, int64_t w) const {
    uint32_t word = 0;
    for (int n = 0; n < 32; ++n)
      word |= uint32_t{f.visible(area.first_query + i, area.first_key + 32 * w + n)} << n;
    return word;
  }
};

template <class F>
class CompiledMask final : public MaskFormula {
 public:
  struct Settings {
    F f;
    template <class V>
    void visit(V& v) {
      if constexpr (requires { f.visit(v); }) f.visit(v);
    }
  };
  static inline const Info info = F::info;

  explicit CompiledMask(const Spec& spec) : f_(settings_from<Settings>(spec).f) {
    if constexpr (requires { f_.check(); }) f_.check();
  }
  bool visible(int64_t i, int64_t j) const override { return f_.visible(i, j); }
  std::optional<Coverage> coverage([[maybe_unused]] Positions i, [[maybe_unused]] Positions j) const override {
    if constexpr (requires { f_.coverage(i, j); }) return f_.coverage(i, j);
    return std::nullopt;
  }
  MaskFacts facts() const override {
    MaskFacts facts{.differs_by_layer = requires { f_.layer; }};
    if constexpr (requires { f_.band(); }) facts.band = f_.band();
    if constexpr (requires { f_.later(); }) facts.later = f_.later();
    return facts;
  }
  void set_layer([[maybe_unused]] int64_t layer) override {
    if constexpr (requires { f_.layer; }) f_.layer = layer;
  }
  void write(Device device, const MaskArea& area, const MaskTable& to) const override {
    write_tiles(device, area, WordsOf<F>{f_, area}, to);
  }

 private:
  F f_;
};

#define REGISTER_MASK(Type)                              \
  [[maybe_unused]] static const bool registered_##Type = \
      ::orrery::nn::register_type<::orrery::nn::CompiledMask<Type>>(::orrery::nn::masks())

}  // namespace orrery::nn
