// First include of a plug-in: the version that it was built for. See engine/settings/plugin.h.
#pragma once

namespace {
[[gnu::used]] const char orrery_plugin_mark[] = "orrery plug-in for " ORRERY_PLUGIN_MARK ".";
}  // namespace
