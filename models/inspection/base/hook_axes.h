// The axes of hook values (engine/autograd/hooks.h).
#pragma once

#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery::models {

// Returns what each axis of the value counts: batch, position, head, key (then persistent slots), slot, unit of a
// feed-forward, feature of a vector, choice (token or class), and row, column and channel of an image; one number for
// all keys, or for all of the value, is a value.
std::vector<std::string> hook_axes(const std::string& hook, const Shape& shape, Dtype dtype = Dtype::f32);
// Returns the numbers of the axes of batch and positions, which are rows and columns in an image.
std::vector<int> position_axes(const std::string& hook, const Shape& shape);
bool is_of_keys(const std::string& hook);             // scores and weights (B, H, Tq, Tk + N)
bool is_of_cross_attention(const std::string& hook);  // by its name
bool is_step_of_attention(const std::string& hook);   // a step on the way to weights, which is only read
bool is_of_encoder(const std::string& hook);          // keys and values of a cross attention

}  // namespace orrery::models
