// A window that moves over a picture: what convolution and pooling share.
//
// Pictures are (B, H, W, C), channels last: a linear layer, a normalization and a matrix product work on the last axis
// as they do on tokens, the pixels of a patch's row lie side by side, and a picture becomes a sequence (B, H W, C) by a
// reshape.  It is also the order of the bytes in PNG and JPEG files; planes (B, C, H, W) are permuted once, when
// loaded.
#pragma once

#include <ostream>

#include "engine/tensor/tensor.h"
#include "engine/types/host_device.h"

namespace orrery::nn {

struct Pixels {  // down and across; one number means both
  int64_t vertical, horizontal;
  constexpr Pixels(int64_t both) : vertical(both), horizontal(both) {}
  constexpr Pixels(int64_t down, int64_t across) : vertical(down), horizontal(across) {}
  bool operator==(const Pixels&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Pixels& p);  // 3 x 5

struct WindowSteps {
  Pixels stride = 1;    // from one window to the next
  Pixels padding = 0;   // beyond each edge of the picture
  Pixels dilation = 1;  // from one element of the window to the next
};

// One direction.  Element `tap` of window `window` lies on pixel  window stride - padding + tap dilation.
struct WindowAxis {
  int64_t pixels, size, stride, padding, dilation;
  int64_t windows;  // floor((pixels + 2 padding - extent) / stride) + 1,  extent = (size - 1) dilation + 1

  HOST_DEVICE int64_t pixel(int64_t window, int64_t tap) const { return window * stride - padding + tap * dilation; }
  HOST_DEVICE bool on_picture(int64_t pixel) const { return pixel >= 0 && pixel < pixels; }
  // The window whose element `tap` lies on `pixel`; -1 if there is none.
  HOST_DEVICE int64_t window_over(int64_t pixel, int64_t tap) const {
    const int64_t begin = pixel + padding - tap * dilation;
    return begin < 0 || begin % stride != 0 || begin / stride >= windows ? -1 : begin / stride;
  }
  HOST_DEVICE int64_t taps_on_picture(int64_t window) const {
    int64_t count = 0;
    for (int64_t tap = 0; tap < size; ++tap) count += on_picture(pixel(window, tap)) ? 1 : 0;
    return count;
  }
};

struct WindowGrid {
  int64_t batch, channels;
  WindowAxis vertical, horizontal;

  HOST_DEVICE int64_t taps() const { return vertical.size * horizontal.size; }
  int64_t windows() const { return vertical.windows * horizontal.windows; }  // of a picture
  int64_t pixels() const { return vertical.pixels * horizontal.pixels; }     // of a picture

  struct Place {  // of a pixel in the batch, or of a window in the batch
    int64_t picture, down, across;
  };
  HOST_DEVICE Place window(int64_t r) const {
    return {r / horizontal.windows / vertical.windows, r / horizontal.windows % vertical.windows,
            r % horizontal.windows};
  }
  HOST_DEVICE Place pixel(int64_t r) const {
    return {r / horizontal.pixels / vertical.pixels, r / horizontal.pixels % vertical.pixels, r % horizontal.pixels};
  }
  HOST_DEVICE int64_t element(int64_t picture, int64_t down, int64_t across) const {  // the first one of a pixel in x
    return ((picture * vertical.pixels + down) * horizontal.pixels + across) * channels;
  }
  // Calls f(tap, first element of the pixel in x) for each element of the window that lies on the picture.
  template <class F>
  HOST_DEVICE void each_pixel_of(const Place& window, const F& f) const {
    for (int64_t i = 0; i < vertical.size; ++i) {
      const int64_t line = vertical.pixel(window.down, i);
      if (!vertical.on_picture(line)) continue;
      for (int64_t j = 0; j < horizontal.size; ++j) {
        const int64_t column = horizontal.pixel(window.across, j);
        if (horizontal.on_picture(column)) f(i * horizontal.size + j, element(window.picture, line, column));
      }
    }
  }
  // Calls f(tap, window), the latter as a Place, for each window of which an element lies on the pixel.
  template <class F>
  HOST_DEVICE void each_window_over(const Place& pixel, const F& f) const {
    for (int64_t i = 0; i < vertical.size; ++i) {
      const int64_t down = vertical.window_over(pixel.down, i);
      if (down < 0) continue;
      for (int64_t j = 0; j < horizontal.size; ++j) {
        const int64_t across = horizontal.window_over(pixel.across, j);
        if (across >= 0) f(i * horizontal.size + j, Place{pixel.picture, down, across});
      }
    }
  }
  HOST_DEVICE int64_t row_of(const Place& window) const {  // of y
    return (window.picture * vertical.windows + window.down) * horizontal.windows + window.across;
  }
  HOST_DEVICE int64_t pixels_of(const Place& window) const {  // on the picture
    return vertical.taps_on_picture(window.down) * horizontal.taps_on_picture(window.across);
  }
};

// Errors begin with `operation`.  x must be (B, H, W, C), and the window must fit into the padded picture.
WindowGrid window_grid(const char* operation, const Shape& x, Pixels size, const WindowSteps& steps);

// By simple operations, for references: (B rows columns, taps, C) with `outside` where an element of a window lies
// beyond the picture.
Tensor elements_of_windows(const Tensor& x, const WindowGrid& grid, double outside);

}  // namespace orrery::nn
