// Optimizers compared with plain versions of their formulas, and properties of all optimizers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/golden.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

using Numbers = std::vector<double>;

// A matrix longer than one chunk of the update, a vector, a table.
struct Three final : Module {
  Parameter matrix, vector, table;
  explicit Three(Dtype dtype = Dtype::f64, const Shape& shape = {70, 60})
      : matrix(shape, constant(0), dtype), vector({5}, constant(0), dtype), table({6, 4}, constant(0), dtype) {
    table.is_lookup_table = true;
    int seed = 1;
    for (Parameter* p : {&matrix, &vector, &table}) p->value.copy_from(random_tensor(p->value.shape(), seed++));
  }
  Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
  void visit(Visitor& v) override { v("matrix", matrix), v("vector", vector), v("table", table); }
};

Tensor gradient_of(const Parameter& p, int step, double size = 1) {
  return random_tensor(p.value.shape(), 100 * step + static_cast<int>(p.value.numel()), p.value.dtype()) * size;
}
void give_gradient(const Parameter& p, const Tensor& g) {
  backward(p.value * g, Tensor::full(g.shape(), 1, g.dtype()));
}
struct Run {  // a model with its optimizer
  Three model;
  FlatParameters flat;
  std::unique_ptr<Optimizer> optimizer;
  explicit Run(const std::string& spec, Dtype dtype = Dtype::f64, const Shape& shape = {70, 60})
      : model(dtype, shape), flat(model), optimizer(make_optimizer(parse_spec(spec), flat)) {}
  void step(int number, double lr = 0.01, double size = 1) {
    flat.zero_gradients();
    for (Parameter* p : {&model.matrix, &model.vector, &model.table}) give_gradient(*p, gradient_of(*p, number, size));
    CHECK(optimizer->step(lr));
  }
};

// Compares three steps with a plain formula (p, g, state of the parameter, step from 1, parameter).
using Plain = std::function<void(Numbers& p, const Numbers& g, std::map<std::string, Numbers>&, int, const Parameter&)>;
void check_formula(const std::string& spec, const Plain& plain, double lr = 0.01, double size = 1) {
  INFO(spec);
  Run run(spec);
  for (Parameter* p : {&run.model.matrix, &run.model.vector, &run.model.table}) {
    Run fresh(spec);
    const size_t which = p == &run.model.matrix ? 0 : p == &run.model.vector ? 1 : 2;
    Parameter& watched = which == 0 ? fresh.model.matrix : which == 1 ? fresh.model.vector : fresh.model.table;
    Numbers expected = watched.value.to_vector();
    std::map<std::string, Numbers> state;
    for (int t = 1; t <= 3; ++t) {
      plain(expected, gradient_of(watched, t, size).to_vector(), state, t, watched);
      fresh.step(t, lr, size);
      CHECK(largest_difference(watched.value, Tensor::from(watched.value.shape(), expected, Dtype::f64)) <= 1e-12);
    }
  }
}

Numbers& of(std::map<std::string, Numbers>& state, const std::string& name, size_t n) {
  Numbers& m = state[name];
  m.resize(n, 0.0);
  return m;
}
double norm(const Numbers& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

void plain_adamw(Numbers& p, const Numbers& g, std::map<std::string, Numbers>& state, int t, bool decays, double lr,
                 double beta1, double beta2, double epsilon, double decay) {
  Numbers &m = of(state, "m", p.size()), &v = of(state, "v", p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    m[i] = beta1 * m[i] + (1 - beta1) * g[i], v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    const double mean = m[i] / (1 - std::pow(beta1, t)), square = v[i] / (1 - std::pow(beta2, t));
    p[i] = (decays ? 1 - lr * decay : 1) * p[i] - lr * mean / (std::sqrt(square) + epsilon);
  }
}

Numbers product(const Numbers& a, const Numbers& b, size_t m, size_t k, size_t n) {
  Numbers c(m * n, 0.0);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      for (size_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[l * n + j];
  return c;
}
Numbers transposed(const Numbers& a, size_t m, size_t n) {
  Numbers t(a.size());
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) t[j * m + i] = a[i * n + j];
  return t;
}

// Returns singular values, descending: rotates column pairs until orthogonal (one-sided Jacobi).
Numbers singular_values(const Tensor& x) {
  size_t m = static_cast<size_t>(x.size(0)), n = static_cast<size_t>(x.size(1));
  Numbers a = x.to_vector();
  if (n > m) a = transposed(a, m, n), std::swap(m, n);
  for (int sweep = 0; sweep < 30; ++sweep)
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        double pp = 0, qq = 0, pq = 0;
        for (size_t i = 0; i < m; ++i) {
          const double u = a[i * n + p], v = a[i * n + q];
          pp += u * u, qq += v * v, pq += u * v;
        }
        if (std::fabs(pq) <= 1e-15 * std::sqrt(pp * qq)) continue;
        const double zeta = (qq - pp) / (2 * pq), t = (zeta >= 0 ? 1 : -1) / (std::fabs(zeta) + std::hypot(1, zeta)),
                     c = 1 / std::hypot(1, t), s = c * t;
        for (size_t i = 0; i < m; ++i) {
          const double u = a[i * n + p], v = a[i * n + q];
          a[i * n + p] = c * u - s * v, a[i * n + q] = s * u + c * v;
        }
      }
  Numbers sigma;
  for (size_t j = 0; j < n; ++j) {
    double sum = 0;
    for (size_t i = 0; i < m; ++i) sum += a[i * n + j] * a[i * n + j];
    sigma.push_back(std::sqrt(sum));
  }
  std::sort(sigma.rbegin(), sigma.rend());
  return sigma;
}

}  // namespace

TEST_CASE("steps of optimizers equal those of the golden file") {
  const testing::Golden golden("optimizers.safetensors");
  struct Values final : Module {
    std::vector<Parameter> all;
    Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
    void visit(Visitor& v) override {
      for (size_t i = 0; i < all.size(); ++i) v(std::to_string(i), all[i]);
    }
  };
  for (const auto& given :
       {std::tuple("adagrad_clipped", "adagrad(grad_clip=0.03)", 0.07),
        std::tuple("adagrad", "adagrad(grad_clip=0)", 0.07), std::tuple("lion", "lion", 0.01),
        std::tuple("lion_decayed", "lion(weight_decay=0.1)", 0.01), std::tuple("muon", "muon", 0.02),
        std::tuple("adamw", "adamw(beta2=0.95, weight_decay=0.1)", 0.01)}) {
    const std::string name = std::get<0>(given), spec = std::get<1>(given);
    const double lr = std::get<2>(given);
    INFO(name);
    const auto tensor = [&](const char* what, int i) { return golden(name + "." + what + std::to_string(i)); };
    Values model;
    for (int i = 0; i < 3; ++i) {
      model.all.emplace_back(tensor("p", i).shape(), constant(0), Dtype::f64);
      model.all.back().value.copy_from(tensor("p", i));
      model.all.back().decay = true;  // the golden run decays the vector too
    }
    FlatParameters flat(model);
    const auto optimizer = make_optimizer(parse_spec(spec), flat);
    for (int step = 0; step < 5; ++step) {
      flat.zero_gradients();
      for (int i = 0; i < 3; ++i) give_gradient(model.all[static_cast<size_t>(i)], tensor("g", i)[step]);
      CHECK(optimizer->step(lr));
      for (int i = 0; i < 3; ++i)
        CHECK(largest_difference(model.all[static_cast<size_t>(i)].value, tensor("steps", i)[step]) <= 1e-12);
    }
  }
}

TEST_CASE("lion's steps follow its formula") {
  check_formula("lion(beta1=0.8, beta2=0.95, weight_decay=0.3)",
                [](Numbers& p, const Numbers& g, auto& state, int, const Parameter& like) {
                  Numbers& m = of(state, "m", p.size());
                  for (size_t i = 0; i < p.size(); ++i) {
                    const double d = 0.8 * m[i] + 0.2 * g[i];
                    p[i] = (like.decay ? 1 - 0.01 * 0.3 : 1) * p[i] - 0.01 * (d > 0 ? 1 : d < 0 ? -1 : 0);
                    m[i] = 0.95 * m[i] + 0.05 * g[i];
                  }
                });
}

TEST_CASE("lion's step has the size of the learning rate everywhere, and is 0 if all gradients were 0") {
  Run run("lion");
  const Tensor before = run.model.matrix.value.clone();
  run.step(1, 0.25, 1e-6);
  const Numbers moved = abs(run.model.matrix.value - before).to_vector();
  for (const double x : moved) CHECK(x == doctest::Approx(0.25).epsilon(1e-12));
  Run still("lion");
  still.step(1, 0.25, 0);
  CHECK(largest_difference(still.model.matrix.value, before) == 0);
}

TEST_CASE("adagrad's steps follow its formula, below and above the clip of each tensor") {
  for (const double size : {1.0, 1e-4}) {  // norms of about 65, 2 and 5; then 1e-4 of these
    int clipped = 0;
    check_formula(
        "adagrad(grad_clip=0.001)",
        [&](Numbers& p, const Numbers& g, auto& state, int, const Parameter&) {
          Numbers& sum = of(state, "s", p.size());
          const double n = norm(g), lr = n > 0.001 ? 0.07 * 0.001 / (n + 1e-10) : 0.07;
          clipped += n > 0.001;
          for (size_t i = 0; i < p.size(); ++i) {
            sum[i] += g[i] * g[i];
            p[i] -= lr * g[i] / (std::sqrt(sum[i]) + 1e-10);
          }
        },
        0.07, size);
    CHECK(clipped == (size == 1 ? 9 : 3));  // only the matrix exceeds the clip in the second run
  }
}

TEST_CASE("adagrad's clip scales the step, not the sum of squares") {
  Run clipped("adagrad(grad_clip=0.5)"), open("adagrad(grad_clip=0)");
  const Tensor before = clipped.model.vector.value.clone();
  clipped.step(1, 1), open.step(1, 1);
  const auto all = clipped.optimizer->moments(), unclipped = open.optimizer->moments();
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].first == unclipped[i].first);
    CHECK(largest_difference(all[i].second, unclipped[i].second) == 0);
  }
  const double n = norm(gradient_of(clipped.model.vector, 1).to_vector());
  CHECK(n > 0.5);
  CHECK(largest_difference((before - clipped.model.vector.value) / (0.5 / n), before - open.model.vector.value) <=
        1e-9);
}

TEST_CASE("muon's steps follow its formula for a wide and a tall matrix; other parameters use AdamW") {
  for (const Shape shape : {Shape{3, 5}, Shape{7, 4}, Shape{3, 2, 2, 1}}) {
    INFO(shape);
    const size_t m = static_cast<size_t>(shape[0]), n = static_cast<size_t>(shape.numel() / shape[0]);
    Run run("muon(weight_decay=0.2)", Dtype::f64, shape);
    Numbers w = run.model.matrix.value.to_vector(), u(m * n, 0.0);
    for (int t = 1; t <= 3; ++t) {
      const Numbers g = gradient_of(run.model.matrix, t).to_vector();
      Numbers x(m * n);
      for (size_t i = 0; i < m * n; ++i) u[i] = 0.95 * u[i] + g[i], x[i] = g[i] + 0.95 * u[i];
      const double length = norm(x) + 1e-7;
      for (double& v : x) v /= length;
      for (int i = 0; i < 5; ++i) {
        const Numbers a = product(x, transposed(x, m, n), m, n, m), ax = product(a, x, m, m, n),
                      aax = product(a, ax, m, m, n);
        for (size_t j = 0; j < m * n; ++j) x[j] = 3.4445 * x[j] - 4.7750 * ax[j] + 2.0315 * aax[j];
      }
      const double scale = std::sqrt(std::max(1.0, static_cast<double>(m) / static_cast<double>(n)));
      for (size_t i = 0; i < m * n; ++i) w[i] = (1 - 0.01 * 0.2) * w[i] - 0.01 * scale * x[i];
      run.step(t);
      CHECK(largest_difference(run.model.matrix.value, Tensor::from(shape, w, Dtype::f64)) <= 1e-12);
    }
  }
  Run muon("muon(adamw_learning_rate=0.5, beta1=0.8, beta2=0.9, epsilon=1e-6, weight_decay=0.2)");
  std::map<std::string, Numbers> state[2];
  Parameter* others[] = {&muon.model.vector, &muon.model.table};
  Numbers expected[] = {others[0]->value.to_vector(), others[1]->value.to_vector()};
  for (int t = 1; t <= 3; ++t) {
    muon.step(t);
    for (int i = 0; i < 2; ++i) {
      plain_adamw(expected[i], gradient_of(*others[i], t).to_vector(), state[i], t, i == 1, 0.005, 0.8, 0.9, 1e-6, 0.2);
      CHECK(largest_difference(others[i]->value, Tensor::from(others[i]->value.shape(), expected[i], Dtype::f64)) <=
            1e-12);
    }
  }
}

TEST_CASE("muon's step is nearly orthogonal: singular values from 0.65 to 1.25, along those of the momentum") {
  for (const Shape shape : {Shape{24, 60}, Shape{60, 24}, Shape{30, 40}}) {
    INFO(shape);
    Run run("muon(nesterov=no)", Dtype::f64, shape);
    const Tensor before = run.model.matrix.value.clone();
    run.step(1, 1);
    const double scale = std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
    const Tensor x = (before - run.model.matrix.value) / scale, g = gradient_of(run.model.matrix, 1);
    const Numbers sigma = singular_values(x), of_g = singular_values(g);
    CHECK(sigma.size() == static_cast<size_t>(std::min(shape[0], shape[1])));
    CHECK(sigma.back() >= 0.65);
    CHECK(sigma.front() <= 1.25);
    CHECK(of_g.front() / of_g.back() > 2);  // g itself has a wider spread
    double nuclear = 0;
    for (const double s : of_g) nuclear += s;
    CHECK(sum(x * g).item() >= 0.65 * nuclear);  // equal for U V^T
    CHECK(sum(x * g).item() <= 1.25 * nuclear);
  }
}

TEST_CASE("muon stores one number for an element of a matrix and two for any other") {
  Run run("muon");
  int64_t held = 0;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : run.optimizer->moments()) held += tensor.numel(), names.push_back(name);
  CHECK(held == 70 * 60 + 2 * (5 + 24));
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"first_moment.table", "first_moment.vector", "momentum.matrix",
                                          "second_moment.table", "second_moment.vector"});
}

TEST_CASE("weight decay is decoupled and applies only to parameters with decay") {
  for (const std::string name : {"adamw", "lion", "muon", "sgd"}) {
    INFO(name);
    Run run(name + (name == "muon" ? "(weight_decay=0.5, adamw_learning_rate=1)" : "(weight_decay=0.5)"));
    const Three before;
    run.step(1, 0.1, 0);
    CHECK(largest_difference(run.model.matrix.value, before.matrix.value * 0.95) <= 1e-15);
    CHECK(largest_difference(run.model.table.value, before.table.value * 0.95) <= 1e-15);
    CHECK(largest_difference(run.model.vector.value, before.vector.value) == 0);
  }
}

TEST_CASE("every optimizer: the learning rate of a group is scaled by its factor, and 0 freezes the group") {
  for (const std::string& name : optimizers().names()) {
    INFO(name);
    const auto moved = [&](const std::string& rates) {
      Three model;
      model.matrix.lr_group = "maps", model.vector.lr_group = "slopes";
      FlatParameters flat(model);
      const auto optimizer = make_optimizer(parse_spec(name + rates), flat);
      flat.zero_gradients();
      for (Parameter* p : {&model.matrix, &model.vector, &model.table}) give_gradient(*p, gradient_of(*p, 1));
      CHECK(optimizer->step(0.01));
      const Three before;
      return std::array{model.matrix.value - before.matrix.value, model.vector.value - before.vector.value,
                        model.table.value - before.table.value};
    };
    const std::string decay = name == "adamw" ? "weight_decay=0, " : "";
    const auto plain = moved("(" + decay + "lr_scales=none)"),
               scaled = moved("(" + decay + "lr_scales=groups(slopes=0.125, maps=4))");
    CHECK(largest_difference(scaled[0], plain[0] * 4.0) <= 1e-13);
    CHECK(largest_difference(scaled[1], plain[1] * 0.125) <= 1e-13);
    CHECK(largest_difference(scaled[2], plain[2]) <= 1e-15);
    const auto held = moved("(" + decay + "lr_scales=groups(maps=0))");
    CHECK(largest_difference(held[0], plain[0] * 0.0) == 0);
    CHECK(largest_difference(held[1], plain[1]) <= 1e-15);
  }
}

TEST_CASE("invalid group factors have error messages") {
  Three model;
  FlatParameters none(model);
  const auto make_without = [&] { make_optimizer(parse_spec("lion(lr_scales=groups(spans=2))"), none); };
  expect_error(make_without).names("lion").names("lr_scales").value("'spans'").offers("leave lr_scales out");
  model.matrix.lr_group = "spans", model.vector.lr_group = "slopes";
  FlatParameters flat(model);
  CHECK(flat.lr_groups() == std::vector<std::string>{"slopes", "spans"});
  const auto refused = [&](const std::string& optimizer, const std::string& rates) {
    const Spec spec = parse_spec(optimizer + "(lr_scales=" + rates + ")");
    return expect_error([&] { make_optimizer(spec, flat); }).names(optimizer).names("lr_scales");
  };
  refused("lion", "groups(slope=2)").names("group").value("'slope'").offers("'slopes'").offers("slopes, spans");
  refused("muon", "groups(spans=-1)").names("spans").value(-1).offers("finite").offers(0);
  refused("sgd", "groups(spans=fast)").names("spans").value("'fast'").offers("number");
  refused("adamw", "groups(2)").value(2).names("groups(2)").offers("groups(GROUP=FACTOR)");
  refused("adagrad", "none(spans=2)").names("none").value("none(spans=2)").offers("groups(GROUP=FACTOR)");
  refused("adamw", "slopes").value("'slopes'").offers("none, groups");
}

TEST_CASE("learning rates that cannot work have error messages") {
  Three model;
  FlatParameters flat(model);
  for (const double lr : {-1.0, double(INFINITY)})
    expect_error([&] { make_optimizer(parse_spec("sgd"), flat)->step(lr); })
        .names("optimizer")
        .names("learning rate")
        .offers(0)
        .value(lr);
}

TEST_CASE("every optimizer brings values back into their bounds after the step") {
  for (const std::string& name : optimizers().names()) {
    INFO(name);
    Three model;
    for (Parameter* p : {&model.matrix, &model.vector, &model.table}) p->min_value = -0.1, p->max_value = 0.25;
    FlatParameters flat(model);
    const auto optimizer = make_optimizer(parse_spec(name), flat);
    flat.zero_gradients();
    for (Parameter* p : {&model.matrix, &model.vector, &model.table}) give_gradient(*p, gradient_of(*p, 1));
    CHECK(optimizer->step(0.01));
    for (Parameter* p : {&model.matrix, &model.vector, &model.table}) {
      const Numbers values = p->value.to_vector();
      CHECK(*std::min_element(values.begin(), values.end()) == -0.1);
      CHECK(*std::max_element(values.begin(), values.end()) == 0.25);
    }
  }
}

TEST_CASE("every optimizer: bit-identical for one and two threads, and from moments that were copied") {
  const int before = thread_count();
  for (const std::string& name : optimizers().names()) {
    INFO(name);
    const auto run = [&](int threads) {
      set_thread_count(threads);
      auto r = std::make_unique<Run>(name, Dtype::f32, Shape{300, 200});
      for (int t = 1; t <= 4; ++t) r->step(t);
      return r;
    };
    const auto one = run(1), two = run(2);
    CHECK(largest_difference(one->flat.values(), two->flat.values()) == 0);
    Run first(name, Dtype::f32, {300, 200}), second(name, Dtype::f32, {300, 200});
    first.step(1), first.step(2);
    const auto from = first.optimizer->moments(), to = second.optimizer->moments();
    CHECK(from.size() == to.size());
    for (size_t i = 0; i < from.size(); ++i) to[i].second.copy_from(from[i].second);
    second.flat.values().copy_from(first.flat.values());
    second.optimizer->set_steps_done(first.optimizer->steps_done());
    second.step(3), second.step(4);
    CHECK(largest_difference(one->flat.values(), second.flat.values()) == 0);
  }
  set_thread_count(before);
}

TEST_CASE("every optimizer steps bf16 parameters as f32 ones, rounded") {
  for (const std::string& name : optimizers().names()) {
    INFO(name);
    Run half(name, Dtype::bf16, {20, 30}), whole(name, Dtype::f32, {20, 30});
    half.step(1, 0.1), whole.step(1, 0.1);
    for (const auto& [x, y] :
         {std::pair(&half.model.matrix, &whole.model.matrix), std::pair(&half.model.vector, &whole.model.vector)})
      CHECK(largest_difference(x->value, y->value) <= 0.03);
    CHECK(largest_difference(half.model.matrix.value, Three(Dtype::bf16, {20, 30}).matrix.value) > 0);
  }
}
