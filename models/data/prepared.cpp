#include "models/data/prepared.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/types/check.h"
#include "engine/types/usage_error.h"
#include "models/data/characters.h"
#include "models/data/text_files.h"
#include "models/data/text_format.h"
#include "models/data/token_fingerprint.h"
#include "models/formats/gzip.h"
#include "models/formats/json.h"
#include "models/settings/settings_file.h"

namespace orrery::models {
namespace {

constexpr const char *description_name = "/tokens.json", *train_name = "/train.bin", *validation_name = "/val.bin";
std::string found_file(const std::string& folder, const char* name) { return find_data_file(folder, {name + 1}); }
constexpr const char* format = "orrery tokens 1";

SortedJson read_description(const std::string& path) {
  const std::string file = found_file(path, description_name);
  SortedJson json = parse_large_json(read_data_file(file, max_json_bytes), file);
  const auto is = [&](const char* key, auto wanted) { return json.contains(key) && wanted(json[key]); };
  check(json.is_object() && is("format", [](const SortedJson& j) { return j == format; }) &&
            is("tokenizer", [](const SortedJson& j) { return j.is_object(); }) &&
            is("files", [](const SortedJson& j) { return j.is_object(); }),
        file, ": not a description of tokens (", format, "); make it with `orrery prepare`");
  return json;
}

// Returns whether the description has this value of `key` for a file.
template <class T>
bool describes(const SortedJson& description, const char* name, const char* key, const T& value) {
  const auto entry = description["files"].find(name + 1);
  return entry != description["files"].end() && entry->is_object() && entry->contains(key) && (*entry)[key] == value;
}

constexpr const char* characters_key = "characters";

// Returns the number that the description lists for a file, "bytes" or "characters", if any.
std::optional<uint64_t> described_number(const SortedJson& description, const char* name, const char* key) {
  if (description.is_null()) return std::nullopt;
  const auto entry = description["files"].find(name + 1);
  if (entry == description["files"].end() || !entry->is_object() || !entry->contains(key)) return std::nullopt;
  const SortedJson& number = (*entry)[key];
  return number.is_number_unsigned() ? std::optional(number.get<uint64_t>()) : std::nullopt;
}

// Returns the text that a file's tokens were made of, as the description lists it, if it does.
std::optional<TextPart> described_text(const SortedJson& description, const char* name) {
  constexpr uint64_t largest = 1'000'000'000'000'000;
  if (description.is_null()) return std::nullopt;
  const auto entry = description["files"].find(name + 1);
  if (entry == description["files"].end() || !entry->is_object() || !entry->contains("text")) return std::nullopt;
  const SortedJson& made_of = (*entry)["text"];
  if (!made_of.is_object() || !made_of.contains("sha256") || !made_of["sha256"].is_string()) return std::nullopt;
  for (const char* const key : {"bytes", "begin", "tokens"})
    if (!made_of.contains(key) || !made_of[key].is_number_unsigned() || made_of[key].get<uint64_t>() > largest)
      return std::nullopt;
  return TextPart{.fingerprint = {made_of["bytes"].get<uint64_t>(), made_of["sha256"].get<std::string>()},
                  .offset = made_of["begin"].get<int64_t>(),
                  .all = made_of["tokens"].get<int64_t>()};
}

constexpr const char* sample_key = "sample_sha256";  // a hash as models/data/token_fingerprint.h makes it

// Returns true if the description has the hash of a file's tokens. `unlisted`: the result where the
// hash is of a sample, which earlier versions did not write.
bool describes_hash(const SortedJson& description, const char* name, const Fingerprint& file, bool sample,
                    bool unlisted) {
  const auto entry = description["files"].find(name + 1);
  const bool listed = entry != description["files"].end() && entry->is_object() && entry->contains(sample_key);
  if (sample && !listed) return unlisted;
  return describes(description, name, sample ? sample_key : "sha256", file.sha256);
}

// Hashes the uncompressed bytes of the files, named `names`, and checks them against their
// description, if there is one.
TokenFileFingerprints hash_files(std::span<const std::string> files, std::span<const char* const> names,
                                 const std::string& path, const SortedJson& description) {
  const bool described = !description.is_null();
  const auto check_described = [&](size_t i, bool holds) {
    check(holds, "tokens: ", path, names[i], " does not match ", path, description_name, "; prepare the text again");
  };
  for (size_t i = 0; described && i < files.size(); ++i)
    if (!is_named_packed(files[i]))
      check_described(i, describes(description, names[i], "bytes", FileReader(files[i]).size()));
  TokenFileFingerprints found = fingerprints_of_token_files(files, [&](size_t i, uint64_t bytes) {
    const std::optional<uint64_t> max_bytes = described_number(description, names[i], "bytes");
    if (max_bytes) check_described(i, bytes <= *max_bytes);
  });
  for (size_t i = 0; described && i < files.size(); ++i)
    check_described(i, describes(description, names[i], "bytes", found.files[i].bytes) &&
                           describes_hash(description, names[i], found.files[i],
                                          found.is_sample && found.files[i].bytes > max_hashed_whole, true));
  return found;
}

// Returns the name by which tokens.json next to a file of tokens lists it; null if it does not.
const char* listed_name(const std::string& path, const std::string& folder) {
  if (found_file(folder, description_name).empty()) return nullptr;
  for (const char* const name : {train_name, validation_name})
    if (ends_with_or_packed("/" + path, name) && read_description(folder)["files"].contains(name + 1)) return name;
  return nullptr;
}
std::string folder_of(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == file.npos ? "." : file.substr(0, slash);
}

// Returns the file that a link leads to; "" if `path` is not a link, or is one that leads nowhere.
std::string target_of_link(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_symlink(path, none) ? std::filesystem::canonical(path, none).string() : "";
}

}  // namespace

bool is_prepared(const std::string& path) {
  if (folder_exists(path)) return !found_file(path, train_name).empty();
  return ends_with_or_packed(path, ".bin") && file_exists(path);
}

std::unique_ptr<Tokenizer> tokenizer_of_prepared(const std::string& path) {
  if (!is_prepared(path)) return nullptr;
  const bool whole = folder_exists(path);
  const std::string folder = whole ? path : folder_of(path);
  if (found_file(folder, description_name).empty()) {
    const std::string file = target_of_link(whole ? found_file(path, train_name) : path);
    return file.empty() ? nullptr : tokenizer_of_prepared(file);
  }
  return whole || listed_name(path, folder) ? restore_tokenizer(json_text(read_description(folder)["tokenizer"]))
                                            : nullptr;
}

void check_tokenizer_of_prepared(const std::string& path, const Tokenizer& tokenizer) {
  const auto own = tokenizer.name() == "token_ids" ? nullptr : tokenizer_of_tokens(path);
  if (own && !is_same_tokenizer(*own, tokenizer))
    fail("tokens: ", path, " was prepared with another tokenizer (", own->name(), ", ", own->size(),
         " tokens) than the model's (", tokenizer.name(), ", ", tokenizer.size(),
         " tokens); both must be the same; give the text itself, or prepare it with the model's tokenizer");
}

PreparedTokens read_prepared(const std::string& path, int64_t vocabulary) {
  PreparedTokens prepared;
  const bool folder = folder_exists(path);
  const std::string train = folder ? found_file(path, train_name) : path,
                    validation = folder ? found_file(path, validation_name) : "";
  const bool described = folder && !found_file(path, description_name).empty();
  const SortedJson description = described ? read_description(path) : SortedJson();
  check(description.is_null() || !validation.empty() || !description["files"].contains(validation_name + 1),
        "tokens: ", path, validation_name, " is missing, but ", path, description_name,
        " lists it; prepare the text again");
  const auto read_tokens = [&] {
    const auto read = [&](const std::string& file, const char* name) {
      return TokenSequence::from_file(file, vocabulary, FileReader(file).size() > max_hashed_whole)
          .with_characters_recorded(described_number(description, name, characters_key));
    };
    prepared.train = read(train, train_name);
    if (!validation.empty()) prepared.validation = read(validation, validation_name);
  };
  if (!described) read_tokens();  // a wrong header or number is found before hashing
  std::vector<std::string> files = {train};
  if (!validation.empty()) files.push_back(validation);
  constexpr std::array names = {train_name, validation_name};
  const TokenFileFingerprints found = hash_files(files, names, path, description);
  prepared.fingerprint = found.all;
  if (found.is_sample) prepared.notes.push_back(note_about_sample(path, found.all.bytes));
  const Fingerprint& of_train = found.files[0];
  if (described) read_tokens();  // bytes that differ from the description are found before they are read as tokens
  const auto add_components = [&](const Fingerprint& print, int64_t begin, int64_t size, std::optional<TextPart> text) {
    if (print != prepared.fingerprint) prepared.parts.push_back({print, begin, begin + size, 0, size});
    if (!text) return;
    text->begin = begin, text->end = begin + size;
    prepared.parts.push_back(std::move(*text));
  };
  const int64_t trained = prepared.train.size();
  if (folder) {
    add_components(of_train, 0, trained, described_text(description, train_name));
    if (!validation.empty())
      add_components(found.files[1], trained, prepared.validation.size(), described_text(description, validation_name));
    return prepared;
  }
  const bool by_link = found_file(folder_of(path), description_name).empty();
  const std::string target = by_link ? target_of_link(path) : "", file = target.empty() ? path : target;
  if (const char* const listed = listed_name(file, folder_of(file))) {
    const SortedJson beside = read_description(folder_of(file));
    if (describes_hash(beside, listed, of_train, found.is_sample, false))
      add_components(of_train, 0, trained, described_text(beside, listed));
  }
  return prepared;
}

int64_t training_tokens(int64_t all, double last) {
  return static_cast<int64_t>(std::floor(static_cast<double>(all) * (1 - last)));
}
std::pair<TokenSequence, TokenSequence> split(const TokenSequence& tokens, double last) {
  const int64_t boundary = training_tokens(tokens.size(), last);
  return {tokens.slice(0, boundary), tokens.slice(boundary, tokens.size())};
}

void check_validation_fraction(double fraction) {
  check(fraction >= 0 && fraction < 1, "text: validation_fraction is ", fraction,
        "; it must be at least 0 and below 1");
}

Prepared prepare(const Preparation& p, const std::function<void(const std::string&, double)>& progress) {
  check_usage(!p.input.empty(), "prepare: no text; give a file or a folder with --input=PATH");
  check_usage(!p.out.empty(), "prepare: no output folder; give one with --out=DIR");
  check_validation_fraction(p.validation_fraction);
  check_utf8_settings("prepare", {{"input", p.input}, {"out", p.out}});
  const FolderLock lock(p.out, {"prepare"});
  for (const char* name : {train_name, validation_name, description_name})
    check(!file_exists(p.out + name), "prepare: ", p.out, name, " already exists; remove it, or choose another --out");
  const bool own = !p.validation_input.empty();
  const TextSource source(p.input, p.text_field);
  const TextFiles input(source), held_out(own ? TextSource(p.validation_input, p.text_field) : source);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(p.tokenizer, source, [&](double fraction) {
    if (progress) progress("learned", fraction);
  });
  const auto bytes = static_cast<double>(input.bytes() + (own ? held_out.bytes() : 0));
  double done = 0;
  const auto encode = [&](const TextFiles& files) {
    TokenSpool spool(p.out), by_token(p.out);
    const auto add = [&](std::span<const int32_t> tokens, std::span<const int32_t> characters) {
      spool.add(tokens), by_token.add(characters);
    };
    encode_files(*tokenizer, files, add, [&](uint64_t more) {
      done += static_cast<double>(more);
      if (progress) progress("read", std::min(1.0, done / bytes));  // unpacked bytes can exceed the file sizes
    });
    const TokenSequence tokens = spool.sequence();
    return by_token.size() == spool.size() ? tokens.with_characters(by_token.sequence()) : tokens;
  };
  TokenSequence train = encode(input), validation;
  if (own)
    validation = encode(held_out);
  else
    std::tie(train, validation) = split(train, p.validation_fraction);
  const auto check_any = [&](const TokenSequence& tokens, const std::string& text, const char* purpose) {
    check(tokens.size() > 0, "prepare: ", text, " has no tokens for ", purpose, " with tokenizer=", p.tokenizer,
          "; use a longer text or another tokenizer");
  };
  check_any(train, p.input, "training");
  if (own) check_any(validation, p.validation_input, "validation");
  const int64_t vocabulary = tokenizer->size();
  SortedJson files = SortedJson::object();
  const Fingerprint of_input = input.fingerprints().text;
  const auto describe = [&](const char* name, const TokenSequence& tokens, const Fingerprint& made_of, int64_t begin,
                            int64_t all) {
    const TokenFileHashes of = hashes_of_token_file(tokens, vocabulary);
    files[name + 1] = {
        {"bytes", of.whole.bytes},
        {"sha256", of.whole.sha256},
        {"tokens", tokens.size()},
        {"text", {{"bytes", made_of.bytes}, {"sha256", made_of.sha256}, {"begin", begin}, {"tokens", all}}}};
    if (of.sample != of.whole) files[name + 1][sample_key] = of.sample.sha256;
    if (tokens.has_characters())
      if (const auto count = characters_of_targets(*tokenizer, tokens)) files[name + 1][characters_key] = *count;
  };
  const int64_t trained = train.size(), apart = validation.size();
  describe(train_name, train, of_input, 0, own ? trained : trained + apart);
  if (apart > 0 && own) describe(validation_name, validation, held_out.fingerprints().text, 0, apart);
  if (apart > 0 && !own) describe(validation_name, validation, of_input, trained, trained + apart);
  const SortedJson description = {{"format", format},
                                  {"tokenizer", parse_own_json<SortedJson>(tokenizer->save())},
                                  {"vocabulary", vocabulary},
                                  {"source", p.input},
                                  {"files", files}};
  // train.bin makes it a prepared folder, so it is written last.
  if (validation.size() > 0) write_token_file(p.out + validation_name, validation, vocabulary);
  write_file_atomically(p.out + description_name, json_text(description, 1) + "\n");
  write_token_file(p.out + train_name, train, vocabulary);
  std::vector<std::string> notes = tokenizer->notes();
  for (const TextFiles* const files : {&input, &held_out})
    if (files == &input || own)
      for (std::string& note : files->notes()) notes.push_back(std::move(note));
  return {train.size(), validation.size(), vocabulary, std::move(notes)};
}

}  // namespace orrery::models
