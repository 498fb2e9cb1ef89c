#include "nn/feed_forwards/base/feed_forward.h"

#include "nn/base/spec_family.h"

namespace orrery::nn {

Registry<FeedForwardEntry>& feed_forwards() {
  static Registry<FeedForwardEntry> all("feed_forward");
  return all;
}
std::unique_ptr<Sublayer> make_feed_forward(const Spec& spec, const FeedForwardOptions& options) {
  return make_from(feed_forwards(), spec, options);
}

const bool family_of_feed_forwards = add_spec_family<feed_forwards>("feed_forward");

}  // namespace orrery::nn
