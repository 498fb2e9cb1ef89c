#include "examples/orrery/commands/help.h"

#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/table.h"
#include "models/catalogue/catalogue.h"
#include "models/formats/replaced.h"

namespace orrery::program {
namespace {

constexpr size_t max_settings_in_full = 28;  // a command with more has a short help
constexpr const char* unbroken_dots = "\u00a0...";  // after a no-break space

constexpr const char* exit_codes =
    "Exit codes: 0: success; 1: an error, with a message; 2: wrong usage, such as an unknown setting, a value out of "
    "its range or a missing argument; 3: a complete training run whose validation loss is above that of uniform "
    "guessing; 128 + N: signal N.";
constexpr const char* streams =
    "Results are printed to standard output; settings, progress, warnings and notes to standard error.  "
    "OMP_NUM_THREADS is the default of --threads; NO_COLOR turns colors off.";
constexpr const char* plugins =
    "Every command accepts --plugin=FILE.so, which loads a plug-in compiled by orrery try.  A plug-in is code and runs "
    "with your rights: load only plug-ins compiled by you or people you trust.  A checkpoint, a text and a file of "
    "settings are data and never run code.";
constexpr const char* ways_to_help =
    "orrery COMMAND --help, or orrery help COMMAND, lists the arguments of a command; orrery help COMMAND KEY explains "
    "one, and orrery help NAME a registered name with its settings, such as softmax or 'dense(relu)'.";

std::string paragraph(const std::string& text, size_t columns) {
  return text.empty() ? "" : "\n" + wrapped(text, columns, 2);
}

// Returns what to call for settings that the short help leaves out.
std::string rest_of_help(const std::string& name, size_t settings) {
  return text("All ", settings, ", (...) in full: orrery ", name, " --help=all. One: orrery help ", name, " KEY.");
}

// Returns `name: text` lines with equal margins.
std::string facts(const HelpRows& rows, size_t columns) {
  HelpRows given;
  for (const auto& [name, content] : rows)
    if (!content.empty()) given.emplace_back(name + ":", content);
  return print_rows(given, columns);
}

std::string default_of(const SettingHelp& setting) {
  return setting.value.empty() ? "not given" : for_terminal(setting.value);
}

// Returns the catalogue's entry of a default such as softmax(qk_norm=layer).
std::string entry_of_default(const SettingHelp& setting) {
  return setting.family.empty() ? "" : catalogue_of(setting.value, setting.family);
}

// `with`: the argument without which the command lacks the setting, such as " --task=translation".
std::string help_of(const Command& command, const SettingHelp& setting, size_t columns, const std::string& with = "") {
  const std::string names =
      setting.family.empty() ? "" : text("NAME or 'NAME(key=value, ...)' from `orrery list ", setting.family, "`");
  return wrapped("orrery " + command.name + with + " --" + setting.key + "=" +
                     (setting.value.empty() ? "..." : for_terminal(setting.value)),
                 columns) +
         wrapped(setting.help, columns) +
         facts({{"default", default_of(setting)},
                {"range", setting.range},
                {"values", setting.family.empty() ? join(setting.choices) : names},
                {"also", join(setting.aliases)},
                {"section", setting.section}},
               columns) +
         paragraph(entry_of_default(setting), columns);
}

// Returns the setting of a key or alias; for a dotted key inside a spec, that of the spec.
const SettingHelp* find_outer(const std::vector<SettingHelp>& settings, const std::string& key) {
  if (const SettingHelp* const found = find_help(settings, key)) return found;
  const size_t dot = key.find('.');
  return dot == std::string::npos ? nullptr : find_help(settings, key.substr(0, dot));
}

// Returns the help of a setting that a command has with another task or model; "" if none has it.
std::string help_with_others(const Command& command, const Arguments& given, const std::string& key) {
  for (const models::CatalogueFamily& family : models::catalogue())
    for (const models::CatalogueEntry& entry : family.entries) {
      if (family.name != "task" && family.name != "model") break;
      const std::string with = "--" + family.name + "=" + entry.name;
      try {
        Arguments more = given;
        more.push_back(with);
        const std::vector<SettingHelp> settings = command.help(more).settings;
        if (const SettingHelp* const found = find_outer(settings, key))
          return help_of(command, *found, help_columns(), " " + with);
      } catch (const Error&) {  // the command takes no such argument, or not with those given
      }
    }
  return "";
}

std::vector<std::string> keys_of(const std::vector<SettingHelp>& settings) {
  std::vector<std::string> keys;
  for (const SettingHelp& setting : settings) keys.push_back(setting.key);
  return keys;
}

std::string help_of_keys(const Command& command, const Arguments& given, const std::vector<std::string>& keys) {
  const std::vector<SettingHelp> settings = command.help(given).settings;
  std::string all;
  for (const std::string& key : keys) {
    const SettingHelp* const setting = find_outer(settings, key);
    const std::string found =
        setting ? help_of(command, *setting, help_columns()) : help_with_others(command, given, key);
    const std::string meant = setting ? "" : nearest(key, keys_of(settings));
    check_usage(!found.empty(), "help: '", key, "' is not a setting of ", command.name, "; ",
                meant.empty() ? "" : "did you mean '" + meant + "'? ", "orrery help ", command.name, " lists all");
    all += (all.empty() ? "" : "\n") + found;
  }
  return all;
}

// Returns the help of a setting of train and the catalogue's entries with this name.
std::string help_of_name(const std::string& name, const Arguments& given) {
  const Command& train = *find_command("train");
  const std::vector<SettingHelp> settings = train.help(given).settings;
  const SettingHelp* const setting = find_outer(settings, name);
  const std::string entries = catalogue_of(name);
  std::string all = setting           ? help_of(train, *setting, help_columns())
                    : entries.empty() ? help_with_others(train, given, name)
                                      : "";
  if (!entries.empty())
    all += (setting ? "\n" : "") + wrapped(entries, help_columns(), 2);
  if (!all.empty()) return all;
  std::vector<std::string> known = command_names();
  for (const auto& more : {keys_of(settings), catalogue_names()}) known.insert(known.end(), more.begin(), more.end());
  const std::string meant = nearest(name, known);
  fail_usage("help: '", name, "' is not a command, a setting of train or a registered name; ",
             meant.empty() ? "" : "did you mean '" + meant + "'? ", "commands: ", join(command_names()));
}

// Returns the arguments --key=value; moves the others to `words`.
Arguments keys_and_values(const Arguments& arguments, std::vector<std::string>& words) {
  ParsedArguments parsed = parse_arguments("help", arguments, {});
  words = std::move(parsed.positional);
  Arguments given;
  for (const auto& [key, value] : parsed.assignments) given.push_back("--" + key + "=" + value);
  return given;
}

}  // namespace

const Command* find_command(const std::string& name) {
  const auto found =
      std::find_if(commands().begin(), commands().end(), [&](const Command& c) { return c.name == name; });
  return found == commands().end() ? nullptr : &*found;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return names;
}

std::string general_notes() { return text(exit_codes, "\n", streams, "\n", ways_to_help, "\n", plugins, "\n"); }

std::string general_help() {
  const size_t columns = help_columns();
  HelpRows rows;
  for (const Command& command : commands()) rows.emplace_back(command.name, command.summary);
  rows.emplace_back("help", "explain a command, a setting or a registered name");
  rows.emplace_back("--version", "print the version, compiler, instruction sets, BLAS and CUDA of this program");
  return wrapped("A tensor engine and a library of transformer components: train, study and extend small models.",
                 columns) +
         "Usage: orrery COMMAND [ARGUMENT ...] [--key=value ...]\n\n" + print_rows(rows, columns) +
         paragraph(general_notes(), columns);
}

// Returns an example that can be pasted into a shell: a line that is broken ends in a backslash. Only
// words longer than a line are broken themselves.
std::string example_text(const std::string& example, size_t columns) {
  const std::string title = "Example: ", continued = " \\";
  std::string all = title + models::replaced(example, "\n", "\n" + std::string(title.size(), ' ')) + "\n", result;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end + 1) {
    end = all.find('\n', begin);
    std::string lines = wrapped(all.substr(begin, end - begin), columns - continued.size(), 2);
    lines.pop_back();  // the end of the last line, which has no backslash
    result += models::replaced(std::move(lines), "\n", continued + "\n") + "\n";
  }
  return result;
}

std::string help_of(const Command& command, const Arguments& given, bool all) {
  const size_t columns = help_columns();
  const CommandHelp help = command.help(given);
  const bool in_full = all || help.settings.size() <= max_settings_in_full;
  const std::string settings =
      print_settings(help.settings, in_full ? HelpForm::in_full : HelpForm::in_brief, columns);
  return wrapped(command.summary, columns) +
         wrapped("Usage: orrery " + command.name + " " + models::replaced(command.arguments, " ...", unbroken_dots),
                 columns) +
         paragraph(help.about, columns) +
         (settings.empty() ? "" : "\n" + settings) +
         paragraph(in_full ? help.notes : rest_of_help(command.name, help.settings.size()), columns) +
         (in_full ? "\n" : "") + example_text(help.example, columns);
}

int print_help(const Arguments& arguments) {
  Arguments given(arguments.begin(), std::find(arguments.begin(), arguments.end(), "--"));
  const bool all = std::erase(given, "--help=all") > 0;
  std::vector<std::string> words;
  given = keys_and_values(given, words);
  if (words.empty()) return std::cout << general_help(), 0;
  const std::vector<std::string> keys(words.begin() + 1, words.end());
  const Command* const command = find_command(words[0]);
  check_usage(command || keys.empty(), "help: '", keys.empty() ? "" : keys[0], "' follows ", words[0],
              "; give one name, or a command and its settings, as in orrery help train learning_rate");
  std::cout << (!command       ? help_of_name(words[0], given)
                : keys.empty() ? help_of(*command, given, all)
                               : help_of_keys(*command, given, keys));
  return 0;
}

}  // namespace orrery::program
