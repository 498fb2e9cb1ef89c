// orrery completion: shell scripts and a man page, made from commands, settings and registries.
#include <algorithm>
#include <iostream>
#include <map>

#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/help.h"
#include "models/catalogue/catalogue.h"
#include "models/training/loss_settings.h"

namespace orrery::program {
namespace {

// One command with all keys that some model or task has.
struct Completed {
  std::string name, usage, summary;
  CommandHelp help;
};
using Names = std::vector<std::string>;
using NamesOfFamilies = std::map<std::string, Names>;

NamesOfFamilies names_of_families() {
  NamesOfFamilies all;
  for (const models::CatalogueFamily& family : models::catalogue())
    for (const models::CatalogueEntry& entry : family.entries) all[family.name].push_back(entry.name);
  const Names& presets = all["model_preset"];
  all["model"].insert(all["model"].end(), presets.begin(), presets.end());
  return all;
}

// Returns the settings of runs of every model and task, without those of train itself (its output).
std::vector<SettingHelp> settings_of_all_models(const NamesOfFamilies& names) {
  const Command& train = *find_command("train");
  std::vector<SettingHelp> all = train.help({}).settings;
  for (const char* key : {"model", "task"})
    for (const std::string& name : names.at(key))
      for (SettingHelp& setting : train.help({text("--", key, "=", name)}).settings)
        if (!find_help(all, setting.key)) all.push_back(std::move(setting));
  std::erase_if(all, [](const SettingHelp& setting) { return setting.section == "output"; });
  return all;
}

// Returns the values of settings that list registered names or metrics; other settings have none.
Names listed_values(const SettingHelp& setting, const NamesOfFamilies& names) {
  const bool of_models = setting.key == "metrics" && setting.value == "default";  // of train
  if (of_models || setting.key == "analysis") {
    Names all = names.at(of_models ? "metric" : "analysis");
    all.emplace_back("all");
    if (of_models) all.insert(all.end(), {"default", "none"});
    return all;
  }
  if (setting.key == "metric") return models::metrics_with_meaning("[!l]*");  // of validations, so not the step's loss
  return setting.key == "metrics" ? models::metrics_with_meaning("*") : Names();
}

Names values_of(const SettingHelp& setting, const NamesOfFamilies& names) {
  if (Names listed = listed_values(setting, names); !listed.empty()) return listed;
  const std::string& family = setting.key == "model" || setting.key == "task" ? setting.key : setting.family;
  const auto found = names.find(family);
  return found == names.end() ? setting.choices : found->second;
}

// Returns sorted names: a name may belong to several families.
Names without_repetitions(Names names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<Completed> completed_commands() {
  const NamesOfFamilies names = names_of_families();
  const std::vector<SettingHelp> train_settings = settings_of_all_models(names);
  std::vector<Completed> all;
  for (const Command& command : commands()) {
    CommandHelp help = command.help({});
    if (find_help(help.settings, "model")) help.settings = with_rest(std::move(help.settings), train_settings);
    help.settings.push_back({.key = "plugin", .help = "FILE.so of a plug-in to load"});
    for (SettingHelp& setting : help.settings) setting.choices = values_of(setting, names);
    help.positional_values = without_repetitions(std::move(help.positional_values));
    all.push_back({command.name, command.arguments, command.summary, std::move(help)});
  }
  Names topics = command_names();
  const Names registered = catalogue_names();
  topics.insert(topics.end(), registered.begin(), registered.end());
  all.push_back({"help",
                 "[COMMAND [KEY ...] | NAME]",
                 "explain a command, a setting or a registered name",
                 {.positional_values = without_repetitions(topics)}});
  return all;
}

// Quotes for bash, zsh and fish; `escaped_quote` is the text for a single quote inside.
std::string quoted(const std::string& text, const std::string& escaped_quote = "'\\''") {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? escaped_quote : std::string(1, c);
  return all + "'";
}

std::string brief(const SettingHelp& setting) { return setting.help.substr(0, setting.help.find(';')); }

// Returns the body of a function of COMMAND and KEY that prints the values; paths have none.
std::string cases_of_values(const std::vector<Completed>& commands) {
  std::map<std::string, Names> patterns;  // by values
  for (const Completed& command : commands)
    for (const SettingHelp& setting : command.help.settings)
      if (!setting.choices.empty())
        patterns[join(setting.choices, " ")].push_back(quoted(command.name + " " + setting.key));
  std::string all = "  case \"$1 $2\" in\n";
  for (const auto& [values, pattern] : patterns)
    all += "    " + join(pattern, " | ") + ") echo " + quoted(values) + " ;;\n";
  return all + "  esac\n";
}

std::string cases_of_words(const std::vector<Completed>& commands) {
  std::string all = "  case \"$1\" in\n";
  for (const Completed& command : commands)
    if (!command.help.positional_values.empty())
      all += "    " + command.name + ") echo " + quoted(join(command.help.positional_values, " ")) + " ;;\n";
  return all + "  esac\n";
}

std::string functions_of_values(const std::vector<Completed>& commands) {
  return "_orrery_values() {\n" + cases_of_values(commands) + "}\n_orrery_words() {\n" + cases_of_words(commands) +
         "}\n";
}

constexpr const char* bash_function = R"(_orrery() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} key= prefix= words=
  if [[ $current == --*=* ]]; then  # = does not divide words
    key=${current%%=*} prefix=${current%%=*}= current=${current#*=}
  elif [[ $current == = ]]; then
    key=${COMP_WORDS[COMP_CWORD-1]} current=
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
    key=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if [[ -n $key ]]; then
    words=$(_orrery_values "$command" "${key#--}")
  elif (( COMP_CWORD == 1 )); then
    words="$_orrery_commands --help --version"
  elif [[ $current == -* ]]; then
    words=$(_orrery_keys "$command")
    compopt -o nospace
  else
    words=$(_orrery_words "$command")
  fi
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$current")
  else
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -- "$current")
  fi
}
complete -F _orrery orrery
)";

std::string bash_script(const std::vector<Completed>& commands) {
  Names names;
  std::string keys = "_orrery_keys() {\n  case \"$1\" in\n";
  for (const Completed& command : commands) {
    names.push_back(command.name);
    Names own = {"--help"};
    for (const SettingHelp& setting : command.help.settings) own.push_back("--" + setting.key + "=");
    keys += "    " + command.name + ") echo " + quoted(join(own, " ")) + " ;;\n";
  }
  return "# Completion for bash: source <(orrery completion bash)\n_orrery_commands=" + quoted(join(names, " ")) +
         "\n" + keys + "  esac\n}\n" + functions_of_values(commands) + bash_function;
}

constexpr const char* zsh_function = R"(_orrery() {
  local -a found
  local command=$words[2]
  if (( CURRENT == 2 )); then
    _orrery_commands
    _describe command found
  elif [[ $PREFIX == --*=* ]]; then
    local key=${${PREFIX%%=*}#--}
    compset -P '*='
    found=(${=$(_orrery_values $command $key)})
    if (( $#found )); then compadd -a found; else _files; fi
  elif [[ $PREFIX == -* ]]; then
    _orrery_keys $command
    _describe -o setting found -S ''
  else
    found=(${=$(_orrery_words $command)})
    if (( $#found )); then compadd -a found; else _files; fi
  fi
}
if [[ $funcstack[1] == _orrery ]]; then _orrery "$@"; else compdef _orrery orrery; fi
)";

std::string zsh_script(const std::vector<Completed>& commands) {
  std::string names = "_orrery_commands() {\n  found=(\n", keys = "_orrery_keys() {\n  case \"$1\" in\n";
  for (const Completed& command : commands) {
    names += "    " + quoted(command.name + ":" + command.summary) + "\n";
    keys += "    " + command.name + ") found=(\n";
    for (const SettingHelp& setting : command.help.settings)
      keys += "      " + quoted("--" + setting.key + "=:" + brief(setting)) + "\n";
    keys += "    ) ;;\n";
  }
  return "#compdef orrery\n# Completion for zsh: source <(orrery completion zsh), after compinit\n" + names +
         "  )\n}\n" + keys + "  esac\n}\n" + functions_of_values(commands) + zsh_function;
}

std::string fish_line(const Completed& command, const SettingHelp& setting) {
  const auto fish_quoted = [](const std::string& text) { return quoted(text, "\\'"); };
  return "complete -c orrery -n '__fish_seen_subcommand_from " + command.name + "' -l " + setting.key +
         (setting.choices.empty() ? " -r -F" : " -x -a " + fish_quoted(join(setting.choices, " "))) + " -d " +
         fish_quoted(brief(setting)) + "\n";
}

std::string fish_script(const std::vector<Completed>& commands) {
  std::string all = "# Completion for fish: orrery completion fish | source\n";
  for (const Completed& command : commands) {
    all += "complete -c orrery -f -n __fish_use_subcommand -a " + command.name + " -d " +
           quoted(command.summary, "\\'") + "\n";
    if (!command.help.positional_values.empty())
      all += "complete -c orrery -f -n '__fish_seen_subcommand_from " + command.name + "' -a " +
             quoted(join(command.help.positional_values, " ")) + "\n";
    for (const SettingHelp& setting : command.help.settings) all += fish_line(command, setting);
  }
  return all;
}

// Escapes text for roff: backslashes, minus signs and control characters at the begin of a line.
std::string roff(const std::string& text) {
  std::string all;
  for (const char c : text) {
    if ((all.empty() || all.back() == '\n') && (c == '.' || c == '\'')) all += "\\&";
    all += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return all;
}

std::string man_paragraph(const std::string& text) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    all += ".PP\n" + roff(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return all;
}

std::string man_section(const Completed& command) {
  std::string all = ".SS " + roff("orrery " + command.name + " " + command.usage) + "\n" + roff(command.summary) +
                    "\n" + man_paragraph(command.help.about);
  for (const SettingHelp& setting : command.help.settings)
    all += ".TP\n.B " + roff("--" + setting.key + "=" + (setting.value.empty() ? "..." : setting.value)) + "\n" +
           roff(setting.help + (setting.range.empty() ? "" : "; " + setting.range)) + "\n";
  return all + man_paragraph(command.help.notes) +
         (command.help.example.empty() ? "" : man_paragraph("Example: " + command.help.example));
}

std::string man_page(const std::vector<Completed>& commands) {
  std::string all =
      ".TH ORRERY 1\n.SH NAME\norrery \\- train, study and extend small transformer models\n"
      ".SH SYNOPSIS\n.B orrery\nCOMMAND [ARGUMENT ...] [\\-\\-key=value ...]\n.SH COMMANDS\n";
  for (const Completed& command : commands) all += man_section(command);
  return all + ".SH NOTES\n" + man_paragraph(general_notes());
}

const std::map<std::string, std::string (*)(const std::vector<Completed>&)>& scripts() {
  static const std::map<std::string, std::string (*)(const std::vector<Completed>&)> all = {
      {"bash", bash_script}, {"fish", fish_script}, {"man", man_page}, {"zsh", zsh_script}};
  return all;
}

Names script_names() {
  Names names;
  for (const auto& [name, script] : scripts()) names.push_back(name);
  return names;
}

}  // namespace

CommandHelp completion_help(const Arguments&) {
  return {
      "bash: source <(orrery completion bash)\nzsh: source <(orrery completion zsh), after compinit\n"
      "fish: orrery completion fish | source\nman: orrery completion man > orrery.1; man ./orrery.1",
      {},
      "",
      "orrery completion bash > ~/.local/share/bash-completion/completions/orrery",
      script_names()};
}

int completion(const Arguments& arguments) {
  const std::vector<std::string> words = read_arguments("completion", arguments, {});
  check_usage(words.size() == 1, "completion: ", words.size(), " names are given; give one of ", join(script_names()));
  const auto script = scripts().find(words[0]);
  if (script == scripts().end()) orrery::detail::fail_unknown("completion", words[0], script_names(), {});
  std::cout << script->second(completed_commands());
  return 0;
}

}  // namespace orrery::program
