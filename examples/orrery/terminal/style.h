// Colors of a terminal: the name in an error, the word "warning" and the headers of tables.
#pragma once

#include <string>
#include <string_view>

namespace orrery::program {

// Returns true if the stream is a terminal that follows cursor movements; TERM=dumb does not.
bool is_live_terminal(int descriptor) noexcept;

enum class Style { header, warning, error };

struct StyleCodes {
  std::string_view begin, end;  // empty: the stream has no colors
};
// Returns the codes for a stream: none unless it is a live terminal and NO_COLOR is unset or empty.
StyleCodes style_codes(Style style, int descriptor) noexcept;

// Returns the text in that style.
std::string styled(std::string_view text, Style style, int descriptor);

}  // namespace orrery::program
