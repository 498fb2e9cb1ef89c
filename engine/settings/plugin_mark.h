// The first include of a plug-in: its version mark, which engine/settings/plugin.h describes.
#pragma once

namespace {
[[gnu::used]] const char orrery_plugin_mark[] = "orrery plug-in for " ORRERY_PLUGIN_MARK ".";
}  // namespace
