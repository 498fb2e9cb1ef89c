#include "models/study/verdict_table.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/types/format.h"
#include "models/formats/csv.h"
#include "models/formats/shown_text.h"

namespace orrery::models {
namespace {

std::string number(double x, bool is_relative) {
  if (is_relative) return signed_fixed(100 * x, 1) + " %";
  const double size = std::abs(x);
  return size == 0 || (size >= 1e-3 && size < 1e5) ? signed_fixed(x, size < 10 ? 3 : 1)
                                                   : (x > 0 ? "+" : "") + significant(x, 3);
}

// Returns "relu - softmax, slots=256: -0.035 (-0.056 to -0.014)".
std::string comparison_text(const ComparisonResult& c) {
  const bool is_relative = c.name.ends_with(" - 1");
  const std::string quantity = is_relative ? c.name.substr(0, c.name.size() - 4) : c.name;
  return for_markdown(quantity + (c.at.empty() ? "" : ", " + c.at)) +
         (c.known ? text(": ", number(c.mean, is_relative), " (", number(c.low, is_relative), " to ",
                         number(c.high, is_relative), ")")
                  : ": runs failed or diverged");
}

// Returns a line per comparison.
std::string results_text(const ClaimResult& result, const std::string& metric) {
  std::string all;
  for (const ComparisonResult& each : result.comparisons) {
    if (!all.empty()) all += "<br>";
    all += each.metric == metric ? "" : code_for_markdown(each.metric) + " ";
    all += comparison_text(each);
    if (each.verdict != result.verdict || each.is_borderline)
      all += text(" [", name(each.verdict), each.is_borderline ? ", on the border" : "", "]");
  }
  return all;
}

// Returns the first comparison whose verdict is that of the claim.
std::string deciding_text(const ClaimResult& result) {
  for (const ComparisonResult& each : result.comparisons)
    if (each.verdict == result.verdict) return code_for_markdown(each.metric) + " " + comparison_text(each);
  return "";
}

std::string learning_rates_text(const StudyVerdict& v) {
  if (v.learning_rates.empty()) return "";
  std::string all = "<br>learning rates:";
  for (const auto& [variant, rate] : v.learning_rates) all += " " + for_markdown(variant) + " " + print_number(rate);
  if (!v.at_shared_lr) return all;
  return all + text("<br>all with learning rate ", print_number(v.shared_lr), ", ", name(v.at_shared_lr->verdict), ": ",
                    results_text(*v.at_shared_lr, v.metric));
}

std::string path_in(const std::string& folder, const std::string& path) {
  return folder == "." ? path : folder + "/" + path;
}

// "| [The claim.](file.toml)<br>Here: how it is smaller. | the reported value"
std::string source_cells(const auto& of, const std::string& link) {
  const std::string smaller = of.smaller.empty() ? "" : "<br>Here: " + for_markdown(of.smaller) + ".";
  return text("| [", for_markdown(of.sentence), "](", link, ")", smaller, " | ", for_markdown(of.reported));
}

std::string row_of(const ListedVerdict& listed, const std::string& claims) {
  const std::string link = link_for_markdown(path_in(claims, listed.path() + ".toml"));
  if (!listed.verdict)
    return text(
        listed.claim ? source_cells(*listed.claim, link) : text("| [", for_markdown(listed.name), "](", link, ") | "),
        " | ", for_markdown(listed.error), " | | - | | |\n");
  const StudyVerdict& v = *listed.verdict;
  const std::string result_text =
      v.smoke ? "not tested (smoke)" : results_text(v.result, v.metric) + learning_rates_text(v);
  return text(source_cells(v, link), " | ", code_for_markdown(v.metric), "<br>", result_text, " | ",
              for_markdown(v.samples), " | **", v.label(), "**", v.is_borderline() ? ", on the border" : "", " | ",
              fixed(v.minutes_of_runs, 1), " | ", code_for_markdown(v.claim.substr(0, 12)), " |\n");
}

constexpr const char *csv_header = "study,verdict,claim,found,minutes\n",
                     *page_heading = "# Claims, put to the test\n\n";
constexpr const char* table_header =
    "| claim | reported by the source | result (95 % interval) | samples | verdict | time (core minutes) | SHA-256 |\n"
    "| --- | --- | --- | --- | --- | ---: | --- |\n";

std::string verdict_counts(std::span<const ListedVerdict> all) {
  std::map<std::string, int> counts;
  for (const ListedVerdict& each : all) ++counts[each.verdict ? each.verdict->label() : "without a verdict"];
  std::string counts_text = text(pluralize(static_cast<int64_t>(all.size()), "claim"), ": ");
  bool first = true;
  for (const auto& [word, count] : counts) counts_text += text(first ? "" : ", ", count, " ", word), first = false;
  return counts_text + ".\n";
}

// "(claims/group/README.md)": the discussion of the claim's group; empty if there is none.
std::string discussion_link(const ListedVerdict& listed, const std::string& claims) {
  return listed.has_readme ? "(" + link_for_markdown(path_in(claims, listed.group + "/README.md")) + ")" : "";
}

// "Reversed:", and a list of the reversed claims with their discussions; empty if there is none.
std::string reversed_claims(std::span<const ListedVerdict> all, const std::string& claims) {
  std::string list;
  for (const ListedVerdict& each : all) {
    if (!each.verdict || each.verdict->smoke || each.verdict->result.verdict != Verdict::reversed) continue;
    const std::string discussion = discussion_link(each, claims);
    list += text("* [", for_markdown(each.sentence()), "](", link_for_markdown(path_in(claims, each.path() + ".toml")),
                 ")", discussion.empty() ? "" : " ([discussion]" + discussion + ")", "\n");
  }
  return list.empty() ? "" : "Reversed:\n\n" + list + "\n";
}

std::string versions(std::span<const ListedVerdict> all) {
  std::vector<std::string> names;
  for (const ListedVerdict& each : all)
    if (each.verdict && std::find(names.begin(), names.end(), each.verdict->version) == names.end())
      names.push_back(each.verdict->version);
  return for_markdown(join(names));
}

}  // namespace

std::string short_verdicts(std::span<const ListedVerdict> all, const std::string& claims) {
  constexpr size_t max_rows = 10;
  std::vector<const ListedVerdict*> tested;
  for (const ListedVerdict& each : all)
    if (each.verdict && !each.verdict->smoke) tested.push_back(&each);
  std::stable_sort(tested.begin(), tested.end(), [](const ListedVerdict* a, const ListedVerdict* b) {
    return a->verdict->result.verdict > b->verdict->result.verdict;  // reversed, not shown, shown
  });
  std::map<std::pair<std::string, bool>, size_t> ranks;  // by group and kind
  std::vector<std::tuple<bool, size_t, const ListedVerdict*>> order;
  for (const ListedVerdict* each : tested)
    order.emplace_back(!each->main(), ranks[{each->group, each->main()}]++, each);
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), max_rows));
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return std::get<2>(a) < std::get<2>(b); });
  std::string table =
      "| claim | the source's result | our result (95 % interval) | verdict |\n| --- | --- | --- | --- |\n";
  for (const auto& [is_minor, rank, each] : order) {
    const StudyVerdict& v = *each->verdict;
    table += text("| [", for_markdown(v.sentence), "](", link_for_markdown(path_in(claims, each->path() + ".toml")),
                  ") | ", for_markdown(v.reported), " | ", deciding_text(v.result), " | **", v.label(), "** |\n");
  }
  return order.empty() ? "" : table;
}

OutputKind verdicts_csv_kind() { return marked_kind("a list of verdicts", csv_header); }
OutputKind verdicts_page_kind() { return marked_kind("a page of verdicts", page_heading); }

std::string verdicts_csv(std::span<const ListedVerdict> all) {
  std::string csv = csv_header;
  for (const ListedVerdict& each : all) {
    std::string found;
    if (each.verdict)
      for (const ComparisonResult& c : each.verdict->result.comparisons)
        found += (found.empty() ? "" : "; ") + c.sentence;
    csv += csv_line({each.path(), each.verdict ? each.verdict->label() : "-", each.sentence(),
                     each.verdict ? found : each.error, fixed(each.verdict ? each.verdict->minutes_of_runs : 0, 1)});
  }
  return csv;
}

std::string verdicts_page(std::span<const ListedVerdict> all, const std::string& claims) {
  std::string page = page_heading;
  page += verdict_counts(all) + "\n" + reversed_claims(all, claims);
  page +=
      "A claim is shown if every 95 % interval is on the claim's side of the bound that would refute it, reversed if "
      "one is on the other side of this bound and of zero, else not shown; \"at this scale\" means that the test is "
      "smaller than the source's.  [verdicts.csv](verdicts.csv) has a line for each claim.\n\n";
  if (const std::string table = short_verdicts(all, claims); !table.empty()) page += table + "\n";
  page +=
      "Written by `orrery study --all`.  Each row is a claim file, which states what would refute the claim.  Paired "
      "runs, fresh weights or times test it.  `orrery study FILE` repeats a test.  The time is that of all steps at "
      "the pace of the fastest tenth of each run, which excludes brief load by other programs, but not lasting load.  "
      "The last column is the start of the SHA-256 of the claim file as it was when the claim was tested; a later "
      "change of comments or names does not count.  Tested by orrery " +
      versions(all) + ".\n";
  std::vector<ListedVerdict> main;
  std::copy_if(all.begin(), all.end(), std::back_inserter(main), [](const ListedVerdict& each) { return each.main(); });
  if (!main.empty()) {
    page += std::string("\n## Main claims\n\n") + table_header;
    for (const ListedVerdict& each : main) page += row_of(each, claims);
    for (const ListedVerdict& each : main)
      if (each.verdict)
        page +=
            text("\n![", for_markdown(each.verdict->sentence), "](", link_for_markdown(each.path()), "/samples.svg)\n");
  }
  std::string group;
  bool begun = false;
  for (const ListedVerdict& each : all) {
    if (!begun || each.group != group) {
      group = each.group, begun = true;
      page += text("\n## ", group.empty() ? "Claims" : for_markdown(group), "\n\n");
      if (!each.source().empty()) page += for_markdown(each.source()) + ".";
      if (each.has_readme) page += "  [Discussion]" + discussion_link(each, claims) + ".";
      page += std::string("\n\n") + table_header;
    }
    page += row_of(each, claims);
  }
  return page;
}

}  // namespace orrery::models
