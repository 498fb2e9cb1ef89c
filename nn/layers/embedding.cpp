// Embedding:  y[r] = W[index[r]],   dW[v] = sum of dy[r] over the r with index[r] = v.
// The operation is index_select (engine/ops/indexing.cpp). Saved for backward: the indices.
#include "nn/layers/embedding.h"

#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/layers/layer.h"

namespace orrery::nn {
namespace {

constexpr Info embedding_layer{.name = "embedding",
                               .formula = "row t of a table, for token t",
                               .source = "Bengio et al. 2003, JMLR 3",
                               .parameters = "table N(0, 0.02^2)",
                               .saves = "the tokens"};
REGISTER_LAYER(embedding_layer);

GradientCase gradient_case(const CaseTensors& random) {
  const std::vector<int32_t> ids = {2, 0, 2, 4, 1, 2};
  return {{{"weight", random({5, 3})}, {"indices", Tensor::from(Shape{2, 3}, ids)}},
          [](const auto& in) { return index_select(in[0], in[1]); },
          [](const auto& in) { return matmul(one_hot(in[1], 5, Dtype::f64), in[0]); }};
}
REGISTER_GRADIENT_CASE("layer", "embedding", gradient_case);

}  // namespace

Tensor Embedding::forward(const Tensor& indices, ForwardPass&) { return index_select(weight.value, indices); }

}  // namespace orrery::nn
