#include "examples/orrery/terminal/messages.h"

#include <unistd.h>

#include <iostream>
#include <mutex>
#include <utility>

#include "examples/orrery/terminal/process_io.h"
#include "examples/orrery/terminal/style.h"
#include "models/formats/shown_text.h"

namespace orrery::program {
namespace {

constexpr std::string_view erase = "\r\x1b[K";

std::mutex lock;
bool live = false;  // the cursor is on the live line

// Writes text in place of the live line, in one call, so that no other output divides it.
// Returns whether there was one.
bool put(std::string_view text, bool stays_live) {
  const std::lock_guard guard(lock);
  const bool was_live = std::exchange(live, stays_live);
  write_all(STDERR_FILENO, std::string(was_live || stays_live ? erase : "").append(text));
  return was_live;
}

void print_labelled(const char* label, Style style, const std::string& sentence) {
  print_message(styled(label, style, STDERR_FILENO) + " " + models::for_terminal(sentence));
}

}  // namespace

void print_message(std::string_view lines) {
  if (lines.empty()) return;
  std::cout.flush();
  put(std::string(lines).append(lines.ends_with('\n') ? "" : "\n"), false);
}

void warn(const std::string& sentence) { print_labelled("warning:", Style::warning, sentence); }
void warn(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) warn(sentence);
}
void note(const std::string& sentence) { print_message("note: " + models::for_terminal(sentence)); }

void show_live_line(const std::string& line) {
  if (is_live_terminal(STDERR_FILENO))
    put(line, true);
  else
    put(line + "\n", false);
}
bool erase_live_line() { return put("", false); }

}  // namespace orrery::program
