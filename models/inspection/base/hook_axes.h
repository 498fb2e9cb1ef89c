// The axes of hook values (engine/autograd/hooks.h).
#pragma once

#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery::models {

// Returns the axes of batch and positions: one for (B, C), two with positions, three for the pixels of an image
// (B, H, W, C); none for a value of the model alone.
std::vector<int> position_axes(const std::string& hook, const Shape& shape);
bool is_of_keys(const std::string& hook);             // scores and weights (B, H, Tq, Tk + N)
bool is_of_cross_attention(const std::string& hook);  // by its name
bool is_of_encoder(const std::string& hook);          // keys and values of a cross attention

}  // namespace orrery::models
