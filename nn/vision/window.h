// A window that moves over an image, for convolution and pooling.
//
// Images are (B, H, W, C), channels last. So linear layers, normalizations and matrix products work
// on the last axis as for tokens, and the pixels of a patch's row are adjacent. A reshape makes an
// image a sequence (B, H W, C). PNG and JPEG files have the same order; planes (B, C, H, W) are
// permuted once, at loading.
#pragma once

#include <ostream>

#include "engine/tensor/tensor.h"
#include "engine/types/host_device.h"

namespace orrery::nn {

struct Pixels {  // vertical and horizontal; one number means both
  int64_t vertical, horizontal;
  constexpr Pixels(int64_t both) : vertical(both), horizontal(both) {}
  constexpr Pixels(int64_t down, int64_t across) : vertical(down), horizontal(across) {}
  bool operator==(const Pixels&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Pixels& p);  // prints 3 x 5

struct WindowSteps {
  Pixels stride = 1;    // pixels from one window to the next
  Pixels padding = 0;   // pixels beyond each edge of the image
  Pixels dilation = 1;  // pixels from one element of the window to the next
};

// One axis. Element `tap` of window `window` is at pixel  window stride - padding + tap dilation.
struct WindowAxis {
  int64_t pixels, size, stride, padding, dilation;
  int64_t windows;  // floor((pixels + 2 padding - extent) / stride) + 1,  extent = (size - 1) dilation + 1

  HOST_DEVICE int64_t pixel(int64_t window, int64_t tap) const { return window * stride - padding + tap * dilation; }
  HOST_DEVICE bool is_inside(int64_t pixel) const { return pixel >= 0 && pixel < pixels; }
  // Returns the window whose element `tap` is at `pixel`, or -1 if there is none.
  HOST_DEVICE int64_t window_over(int64_t pixel, int64_t tap) const {
    const int64_t begin = pixel + padding - tap * dilation;
    return begin < 0 || begin % stride != 0 || begin / stride >= windows ? -1 : begin / stride;
  }
  HOST_DEVICE int64_t taps_inside(int64_t window) const {
    int64_t count = 0;
    for (int64_t tap = 0; tap < size; ++tap) count += is_inside(pixel(window, tap)) ? 1 : 0;
    return count;
  }
};

struct WindowGrid {
  int64_t batch, channels;
  WindowAxis vertical, horizontal;

  HOST_DEVICE int64_t taps() const { return vertical.size * horizontal.size; }
  int64_t windows() const { return vertical.windows * horizontal.windows; }  // per image
  int64_t pixels() const { return vertical.pixels * horizontal.pixels; }     // per image

  struct GridPosition {  // position of a pixel or a window in the batch
    int64_t image, down, across;
  };
  HOST_DEVICE GridPosition window(int64_t r) const {
    return {r / horizontal.windows / vertical.windows, r / horizontal.windows % vertical.windows,
            r % horizontal.windows};
  }
  HOST_DEVICE GridPosition pixel(int64_t r) const {
    return {r / horizontal.pixels / vertical.pixels, r / horizontal.pixels % vertical.pixels, r % horizontal.pixels};
  }
  HOST_DEVICE int64_t element(int64_t image, int64_t down, int64_t across) const {  // first element of a pixel in x
    return ((image * vertical.pixels + down) * horizontal.pixels + across) * channels;
  }
  // Calls f(tap, first element of the pixel in x) for each window element on the image.
  template <class F>
  HOST_DEVICE void each_pixel_of(const GridPosition& window, const F& f) const {
    for (int64_t i = 0; i < vertical.size; ++i) {
      const int64_t line = vertical.pixel(window.down, i);
      if (!vertical.is_inside(line)) continue;
      for (int64_t j = 0; j < horizontal.size; ++j) {
        const int64_t column = horizontal.pixel(window.across, j);
        if (horizontal.is_inside(column)) f(i * horizontal.size + j, element(window.image, line, column));
      }
    }
  }
  // Calls f(tap, window as a GridPosition) for each window that contains the pixel.
  template <class F>
  HOST_DEVICE void each_window_over(const GridPosition& pixel, const F& f) const {
    for (int64_t i = 0; i < vertical.size; ++i) {
      const int64_t down = vertical.window_over(pixel.down, i);
      if (down < 0) continue;
      for (int64_t j = 0; j < horizontal.size; ++j) {
        const int64_t across = horizontal.window_over(pixel.across, j);
        if (across >= 0) f(i * horizontal.size + j, GridPosition{pixel.image, down, across});
      }
    }
  }
  HOST_DEVICE int64_t row_of(const GridPosition& window) const {  // row of y
    return (window.image * vertical.windows + window.down) * horizontal.windows + window.across;
  }
  HOST_DEVICE int64_t pixels_of(const GridPosition& window) const {  // on the image
    return vertical.taps_inside(window.down) * horizontal.taps_inside(window.across);
  }
};

// Throws, with `operation` in front, unless x is (B, H, W, C) and the window fits the padded image.
WindowGrid window_grid(const char* operation, const Shape& x, Pixels size, const WindowSteps& steps);

// Returns (B rows columns, taps, C), with `outside` for window elements beyond the image. Uses
// simple operations, for references.
Tensor elements_of_windows(const Tensor& x, const WindowGrid& grid, double outside);

}  // namespace orrery::nn
