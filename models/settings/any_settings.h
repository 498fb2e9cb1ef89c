// Settings of a class that is chosen by name; copies are independent.
#pragma once

#include <memory>
#include <vector>

#include "engine/settings/config.h"
#include "engine/types/check.h"

namespace orrery {

class AnySettings {
 public:
  template <Visited Settings>
  explicit AnySettings(Settings settings) : held_(std::make_unique<Of<Settings>>(std::move(settings))) {}
  AnySettings(const AnySettings& other) : held_(other.held_->copy()) {}
  AnySettings(AnySettings&&) = default;
  AnySettings& operator=(AnySettings other) {
    held_ = std::move(other.held_);
    return *this;
  }

  std::vector<Setting> members() const { return held_->members(); }  // pointers into these settings
  // Returns the settings as their type; throws Error if they have another type.
  template <class Settings>
  Settings& as() const {
    auto* const found = dynamic_cast<Of<Settings>*>(held_.get());
    check(found != nullptr, "settings: wrong settings class; use the class they were made from");
    return found->settings;
  }
  template <class V>
  void visit(V& v) {
    v.include(members());
  }

 private:
  struct Held {
    virtual ~Held() = default;
    virtual std::unique_ptr<Held> copy() const = 0;
    virtual std::vector<Setting> members() = 0;
  };
  template <class Settings>
  struct Of final : Held {
    explicit Of(Settings s) : settings(std::move(s)) {}
    std::unique_ptr<Held> copy() const override { return std::make_unique<Of>(settings); }
    std::vector<Setting> members() override { return settings_of(settings); }
    Settings settings;
  };

  std::unique_ptr<Held> held_;
};

}  // namespace orrery
