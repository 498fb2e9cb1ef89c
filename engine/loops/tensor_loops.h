// Loops over tensors. A formula is a functor of typed rows, elements and numbers; these functions
// find the type, the device and the beginning of each row.
//
//   struct Forward {                                       // y = x r,  r = 1 / sqrt(mean x^2 + epsilon), of each row
//     double epsilon;
//     template <class Row, class T>
//     HOST_DEVICE void operator()(Row row, In<T> x, Out<T> y, Arithmetic<T>& rstd) const { ... }
//   };
//   each_row("rms", Forward{epsilon}, row_of(x), out_row(y), out_per_row(rstd));
//
// Operands and the formula's argument for each, in the order given:
//   row_of(x)             x (rows, n): In<T>, the row               of a sum or a map: the element
//   optional_row(x)       likewise; null if x is undefined
//   out_row(y)            y (rows, n): Out<T>, the row
//   optional_out_row(y)   likewise; null if y is undefined
//   per_row(m)            m, one number per row: its value          of a sum: likewise
//   out_per_row(m)        m, one number per row: a reference; written within row.once
//   broadcast(w)          In<T>, all of w; null if w is undefined   of a sum over rows: the column's element
//   row_index()           int64_t, the index of the row             of a sum: likewise
// T is the dtype of the first operand, whose shape also is the number and the length of the rows.
// `Stored` means T and `Computed` Arithmetic<T>. row_of<double>(x) overrides the type of x; the
// default is T, and Arithmetic<T> for numbers and sums.
#pragma once

#include <array>
#include <limits>
#include <tuple>

#include "engine/loops/loops.h"
#include "engine/loops/tensor_sums.h"
#include "engine/tensor/tensor.h"
#include "engine/types/dispatch.h"

namespace orrery {

struct Stored;
struct Computed;

// Returns the dtype for stored results of arithmetic on `dtype`: sums, statistics.
constexpr Dtype arithmetic_dtype(Dtype dtype) { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
// Returns an uninitialized tensor on x's device for numbers computed from x: f64 if x is, else f32.
inline Tensor empty_computed(const Tensor& x, const Shape& shape) {
  return Tensor::empty_like(x, shape, arithmetic_dtype(x.dtype()));
}

namespace detail {

template <class As, class T>
struct TypeFor {
  using type = As;
};
template <class T>
struct TypeFor<Stored, T> {
  using type = T;
};
template <class T>
struct TypeFor<Computed, T> {
  using type = Arithmetic<T>;
};

// Access to an operand in a loop on a device. Row r begins at element `first` of operands with
// rows; element i of a sum is in row r of rows of n.
template <class T>
struct RowAccess {
  static constexpr int size = sizeof(T);
  const T* all;
  HOST_DEVICE In<T> of_row(int64_t, int64_t first) const { return {all + first}; }
  HOST_DEVICE Arithmetic<T> of_element(int64_t i, int64_t, int64_t) const { return load(all, i); }
  HOST_DEVICE auto of_pack(auto packs, int64_t i, int64_t, int64_t) const { return packs.elements(all + i); }
};
template <class T>
struct OptionalRowAccess {
  const T* all;
  HOST_DEVICE In<T> of_row(int64_t, int64_t first) const { return {all ? all + first : nullptr}; }
};
template <class T>
struct OutRowAccess {
  T* all;
  HOST_DEVICE Out<T> of_row(int64_t, int64_t first) const { return {all + first}; }
};
template <class T>
struct OptionalOutRowAccess {
  T* all;
  HOST_DEVICE Out<T> of_row(int64_t, int64_t first) const { return {all ? all + first : nullptr}; }
};
template <class T>
struct PerRowAccess {
  static constexpr int size = sizeof(T);
  const T* all;
  HOST_DEVICE Arithmetic<T> of_row(int64_t r, int64_t) const { return load(all, r); }
  HOST_DEVICE Arithmetic<T> of_element(int64_t, int64_t r, int64_t) const { return load(all, r); }
  HOST_DEVICE auto of_pack(auto packs, int64_t, int64_t r, int64_t) const { return packs.number(all, r); }
};
template <class T>
struct OutPerRowAccess {
  T* all;
  HOST_DEVICE T& of_row(int64_t r, int64_t) const { return all[r]; }
};
template <class T>
struct BroadcastAccess {
  static constexpr int size = sizeof(T);
  const T* all;
  HOST_DEVICE In<T> of_row(int64_t, int64_t) const { return {all}; }
  HOST_DEVICE Arithmetic<T> of_element(int64_t i, int64_t r, int64_t n) const { return load(all, i - r * n); }
  HOST_DEVICE auto of_pack(auto packs, int64_t i, int64_t r, int64_t n) const { return packs.column(all, i - r * n); }
};
struct RowIndexAccess {
  HOST_DEVICE int64_t of_row(int64_t r, int64_t) const { return r; }
  static constexpr int size = 16;  // it has no array
  const void* all = nullptr;
  HOST_DEVICE int64_t of_element(int64_t, int64_t r, int64_t) const { return r; }
  HOST_DEVICE auto of_pack(auto packs, int64_t, int64_t r, int64_t) const { return packs.index(r); }
};

enum class Extent { rows, optional_rows, per_row, any };  // number of elements that an operand must have

template <template <class> class Access, class As, Extent Size, bool Written>
struct Operand {
  static constexpr bool is_row = Size == Extent::rows && !Written;
  const Tensor* x;

  template <class T>
  auto access() const {
    using Of = typename TypeFor<As, T>::type;
    const auto pointer = [&] {
      if constexpr (Written)
        return *x ? x->template mutable_data<Of>() : nullptr;
      else
        return *x ? x->template data<Of>() : nullptr;
    }();
    return Access<Of>{pointer};
  }
  void check_fits(const char* name, Device device, int64_t rows, int64_t n) const {
    check(*x || Size == Extent::any || Size == Extent::optional_rows, name, ": an operand is undefined; give all");
    if (!*x) return;
    check(x->device() == device, name, ": an operand is on ", device, ", another on ", x->device(),
          "; move one of them with .to(device)");
    check((Size != Extent::rows && Size != Extent::optional_rows) || x->numel() == rows * n, name,
          ": an operand of shape ", x->shape(), " must have ", rows, " x ", n, " elements (rows x width)");
    check(Size != Extent::per_row || x->numel() == rows, name, ": numbers of shape ", x->shape(),
          " must have one element per row: ", rows);
  }
};
struct RowIndex {
  static constexpr bool is_row = false;
  template <class T>
  RowIndexAccess access() const {
    return {};
  }
  void check_fits(const char*, Device, int64_t, int64_t) const {}
};

template <class F, class... Access>
struct RowBody {
  F f;
  int64_t width;
  std::tuple<Access...> accesses;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    call(row, r, r * width, std::index_sequence_for<Access...>());
  }
  template <class Row, size_t... K>
  HOST_DEVICE void call(Row row, int64_t r, int64_t first, std::index_sequence<K...>) const {
    f(row, std::get<K>(accesses).of_row(r, first)...);
  }
};
template <class F, class... Access>
struct TermBody {
  F f;
  int64_t n;
  std::tuple<Access...> accesses;
  HOST_DEVICE auto operator()(int64_t i, int64_t r) const { return call(i, r, std::index_sequence_for<Access...>()); }
  template <size_t... K>
  HOST_DEVICE auto call(int64_t i, int64_t r, std::index_sequence<K...>) const {
    return f(std::get<K>(accesses).of_element(i, r, n)...);
  }

  // For a GPU: `pack` adjacent elements from i on, which fill 16 bytes in the smallest type. read
  // returns the values of each operand for them.
  static constexpr int pack = 16 / std::min({Access::size...});
  template <class Packs>
  HOST_DEVICE auto read(const Packs& packs, int64_t i, int64_t r) const {
    return std::apply([&](const auto&... p) { return std::make_tuple(p.of_pack(packs, i, r, n)...); }, accesses);
  }
  template <class Read>
  HOST_DEVICE auto term(const Read& read, int j) const {
    return std::apply([&](const auto&... x) { return f(x[j]...); }, read);
  }
  template <class Predicate>
  bool all_of(const Predicate& predicate) const {
    return std::apply([&](const auto&... p) { return (predicate(p.all) && ...); }, accesses);
  }
};
template <class F, class... Access>
struct ElementBody {  // a map's formula with the operands that all elements share
  F f;
  std::tuple<Access...> shared;
  template <class... A>
  HOST_DEVICE auto operator()(A... x) const {
    return call(std::index_sequence_for<Access...>(), x...);
  }
  template <size_t... K, class... A>
  HOST_DEVICE auto call(std::index_sequence<K...>, A... x) const {
    return f(x..., std::get<K>(shared).of_row(0, 0)...);
  }
};

// Returns the access to each of several operands, for element type T.
template <class T, class... Operands>
auto accesses_of(const Operands&... operands) {
  return std::make_tuple(operands.template access<T>()...);
}
template <template <class...> class Body, class F, class... Access, class... More>
Body<F, Access...> body_of(const F& f, const std::tuple<Access...>& accesses, const More&... more) {
  return {f, more..., accesses};
}

template <class As, int K>
struct Destinations {
  std::array<const Tensor*, K> tensor;
  template <class T>
  auto outputs() const {
    using Of = typename TypeFor<As, T>::type;
    if constexpr (K == 1) {
      return tensor[0]->template mutable_data<Of>();
    } else {
      Outputs<Of, K> out;
      for (int k = 0; k < K; ++k) out.pointer[k] = tensor[static_cast<size_t>(k)]->template mutable_data<Of>();
      return out;
    }
  }
  void check_fit(const char* name, Device device, int64_t numel) const {
    for (const Tensor* t : tensor)
      check(t->device() == device && t->numel() == numel, name, ": a result of shape ", t->shape(), " on ", t->device(),
            " must have numel ", numel, " on ", device);
  }
};

}  // namespace detail

template <class As = Stored>
auto row_of(const Tensor& x) {
  return detail::Operand<detail::RowAccess, As, detail::Extent::rows, false>{&x};
}
template <class As = Stored>
auto optional_row(const Tensor& x) {
  return detail::Operand<detail::OptionalRowAccess, As, detail::Extent::optional_rows, false>{&x};
}
template <class As = Stored>
auto out_row(const Tensor& y) {
  return detail::Operand<detail::OutRowAccess, As, detail::Extent::rows, true>{&y};
}
template <class As = Stored>
auto optional_out_row(const Tensor& y) {
  return detail::Operand<detail::OptionalOutRowAccess, As, detail::Extent::optional_rows, true>{&y};
}
template <class As = Computed>
auto per_row(const Tensor& x) {
  return detail::Operand<detail::PerRowAccess, As, detail::Extent::per_row, false>{&x};
}
template <class As = Computed>
auto out_per_row(const Tensor& y) {
  return detail::Operand<detail::OutPerRowAccess, As, detail::Extent::per_row, true>{&y};
}
template <class As = Stored>
auto broadcast(const Tensor& x) {
  return detail::Operand<detail::BroadcastAccess, As, detail::Extent::any, false>{&x};
}
inline detail::RowIndex row_index() { return {}; }

// Returns the destinations of sums: one tensor for each value of the formula.
template <class As = Computed, std::same_as<Tensor>... T>
auto out_sums(const T&... y) {
  return detail::Destinations<As, sizeof...(T)>{{&y...}};
}
// Returns the destinations of a map: one tensor for each value of the formula.
template <class As = Stored, std::same_as<Tensor>... T>
auto out_elements(const T&... y) {
  return detail::Destinations<As, sizeof...(T)>{{&y...}};
}

// Calls f(row, operands...) for each row of the first operand, over `visited` elements or all.
template <class F, class First, class... More>
void each_row(const char* name, int visited, const F& f, const First& first, const More&... more) {
  const Tensor& x = *first.x;
  const int64_t count = x.shape().rows(), width = x.shape().last();
  (more.check_fits(name, x.device(), count, width), ...);
  dispatch(x.dtype(), name, [&]<class T>() {
    rows(x.device(), count, visited,
         detail::body_of<detail::RowBody>(f, detail::accesses_of<T>(first, more...), width));
  });
}
template <class F, class First, class... More>
void each_row(const char* name, const F& f, const First& first, const More&... more) {
  const int64_t width = first.x->shape().last();
  check(width <= std::numeric_limits<int>::max(), name, ": rows of ", width, " elements are too long; at most ",
        std::numeric_limits<int>::max(), " are allowed");
  each_row(name, static_cast<int>(width), f, first, more...);
}

// Like each_row, for a formula that also adds K values per element to sums over rows. Returns false,
// and does nothing, where this is not supported: on a CPU, and for short, odd or very long rows.
template <class F, int K, class First, class... More>
bool each_row_with_sums(const char* name, const F& f, const SumTensor (&to)[K], const First& first,
                        const More&... more) {
  const Tensor& x = *first.x;
  const int64_t count = x.shape().rows(), width = x.shape().last();
  if (x.device() == Device::cpu || width > std::numeric_limits<int>::max()) return false;
  (more.check_fits(name, x.device(), count, width), ...);
  return dispatch(x.dtype(), name, [&]<class T>() {
    using A = Arithmetic<T>;
    std::array<SumOfRows<A>, K> out;
    for (size_t k = 0; k < K; ++k)
      out[k] = {to[k].sum ? to[k].sum.template mutable_data<A>() : nullptr, to[k].accumulate, to[k].may_wait};
    const auto body = detail::body_of<detail::RowBody>(f, detail::accesses_of<T>(first, more...), width);
    return cuda::rows_with_sums<K, A>(count, static_cast<int>(width), body, out);
  });
}

namespace detail {
template <class F, class To, class First, class... More>
void sum(const char* name, int64_t n, int64_t inner, const F& f, const To& to, const First& first,
         const More&... more) {
  const Tensor& x = *first.x;
  static_assert(First::is_row, "the first operand of a sum must be row_of(x), which determines the number of terms");
  (more.check_fits(name, x.device(), n, inner), ...);
  to.check_fit(name, x.device(), inner);
  dispatch(x.dtype(), name, [&]<class T>() {
    reduce(x.device(), 1, n, inner, body_of<TermBody>(f, accesses_of<T>(first, more...), inner),
           to.template outputs<T>());
  });
}
}  // namespace detail

// Sums f(elements...) over all rows in a fixed order, for each column; f returns a value or Values.
template <class F, class To, class First, class... More>
void sum_rows(const char* name, const F& f, const To& to, const First& first, const More&... more) {
  detail::sum(name, first.x->shape().rows(), first.x->shape().last(), f, to, first, more...);
}
// Sums f(elements...) over all elements in a fixed order.
template <class F, class To, class First, class... More>
void sum_elements(const char* name, const F& f, const To& to, const First& first, const More&... more) {
  detail::sum(name, first.x->numel(), 1, f, to, first, more...);
}

// Sets each element to f(elements..., shared...): first operands row_of(x), then shared broadcast(w).
template <class F, class To, class... In>
void each_element(const char* name, const F& f, const To& to, const In&... in) {
  constexpr size_t elements = (size_t{In::is_row} + ...);
  const Tensor& x = *std::get<0>(std::tie(in...)).x;
  (in.check_fits(name, x.device(), x.shape().rows(), x.shape().last()), ...);
  to.check_fit(name, x.device(), x.numel());
  dispatch(x.dtype(), name, [&]<class T>() {
    const auto accesses = detail::accesses_of<T>(in...);
    const auto run = [&]<size_t... E, size_t... S>(std::index_sequence<E...>, std::index_sequence<S...>) {
      const auto body = detail::body_of<detail::ElementBody>(f, std::make_tuple(std::get<elements + S>(accesses)...));
      map(x.device(), x.numel(), body, to.template outputs<T>(), std::get<E>(accesses).all...);
    };
    run(std::make_index_sequence<elements>(), std::make_index_sequence<sizeof...(In) - elements>());
  });
}

}  // namespace orrery
