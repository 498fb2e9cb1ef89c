#include "examples/orrery/terminal/style.h"

#include <unistd.h>

#include <cstdlib>

namespace orrery::program {

bool is_live_terminal(int descriptor) noexcept {
  const char* const terminal = std::getenv("TERM");
  return ::isatty(descriptor) != 0 && !(terminal && std::string_view(terminal) == "dumb");
}

StyleCodes style_codes(Style style, int descriptor) noexcept {
  const char* const no_color = std::getenv("NO_COLOR");
  if ((no_color && *no_color) || !is_live_terminal(descriptor)) return {};
  constexpr std::string_view bold = "\x1b[1m", yellow = "\x1b[33m", bold_red = "\x1b[1;31m";
  return {style == Style::error ? bold_red : style == Style::warning ? yellow : bold, "\x1b[0m"};
}

std::string styled(std::string_view text, Style style, int descriptor) {
  const StyleCodes codes = style_codes(style, descriptor);
  return std::string(codes.begin).append(text).append(codes.end);
}

}  // namespace orrery::program
