// Put before a plug-in's first line by its compiler call: says what it was built for.  See engine/settings/plugin.h.
#pragma once

namespace {
[[gnu::used]] const char orrery_plugin_mark[] = "orrery plug-in for " ORRERY_PLUGIN_MARK ".";
}  // namespace
