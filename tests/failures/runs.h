// A small run in each state that a command may find it in, and whether what a command leaves of one is sound.
#pragma once

#include <map>
#include <string>

#include "tests/failures/trial.h"

namespace failures {

// A folder that goes when the object does; in memory where there is such a place, since every run syncs its files.
class Place {
 public:
  Place();
  ~Place();
  Place(const Place&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void copy_folder(const std::string& from, const std::string& to);
Words operator+(Words words, const Words& more);

// Four steps with a checkpoint after every second one, in run/, of text.txt; all in the folder where it is called.
const Words& train_words();

// Made once.
struct Templates {
  Place place;
  std::string fresh = place / "fresh", begun = place / "begun", done = place / "done", plugin = place / "plugin.so";
  std::map<std::string, std::string> last;  // what an undisturbed run leaves in its last checkpoint

  Templates();
  static const Templates& get();
};

// Empty, or what is wrong with the run in folder/run after `ran`: it can be gone on with, or begun again where nothing
// had been saved, to the same bytes.
std::string wrong_run(const std::string& folder, const Ran& ran, bool had_checkpoint);

}  // namespace failures
