// External text on terminals, in Markdown and in HTML, and shell words of commands.
#include "models/formats/shown_text.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "models/formats/shell_words.h"
#include "models/inspection/base/inspected_example.h"
#include "models/study/verdict_table.h"

using namespace orrery::models;

TEST_CASE("shown text: output to a terminal has no control characters, direction marks or invalid UTF-8") {
  CHECK(for_terminal("plain é 漢 🙂") == "plain é 漢 🙂");
  CHECK(for_terminal("a\x1b[2Jb\nc\td\x7f") == "a\\x1b[2Jb\\x0ac\\x09d\\x7f");
  CHECK(for_terminal(std::string_view("\0", 1)) == "\\x00");
  CHECK(for_terminal("\xe4\xf0\x9f") == "\\xe4\\xf0\\x9f");
  CHECK(for_terminal("\xc2\x9b"
                     "31m") == "\\u009b31m");  // 8-bit CSI
  CHECK(for_terminal("a\xe2\x80\xae"
                     "b") == "a\\u202eb");  // right-to-left override
  CHECK(for_terminal_lines("a\n\tb\x1b\r") == "a\n\tb\\x1b\\x0d");
  CHECK(display_token(" \n\t\x1b\xe4") == "␣\\n\\t\\x1b\\xe4");
}

TEST_CASE("shown text: special characters of Markdown and HTML are escaped") {
  CHECK(for_html("<b a=\"1\">&") == "&lt;b a=&quot;1&quot;&gt;&amp;");
  CHECK(for_markdown("relu - softmax, feed_forward: 0.5 % of 1,024") == "relu - softmax, feed_forward: 0.5 % of 1,024");
  CHECK(for_markdown("<img src=x onerror=a()>") == "&#60;img src=x onerror=a()&#62;");
  CHECK(for_markdown("a | b \\| c") == "a &#124; b &#92;&#124; c");
  CHECK(for_markdown("[x](y) `c` *b* _i_ ~s~ $m$ &lt;") ==
        "&#91;x&#93;(y) &#96;c&#96; &#42;b&#42; &#95;i&#95; &#126;s&#126; &#36;m&#36; &#38;lt;");
  CHECK(for_markdown("# h\nb\x1b") == "&#35; h b&#92;x1b");
  CHECK(for_markdown("- a") == "&#45; a");
  CHECK(for_markdown("-0.5") == "-0.5");
  CHECK(for_markdown("12. a") == "12&#46; a");
  CHECK(for_markdown("1.5 times") == "1.5 times");
  CHECK(code_for_markdown("max(validation_loss)") == "`max(validation_loss)`");
  CHECK(code_for_markdown("a`|<b>") == "<code>a&#96;&#124;&#60;b&#62;</code>");
  CHECK(link_for_markdown("a/b_1.toml") == "a/b_1.toml");
  CHECK(link_for_markdown("a b)|\n<") == "a%20b%29%7C%0A%3C");
}

TEST_CASE("verdicts page: texts of claims cannot be HTML, end a cell or begin a link") {
  StudyVerdict verdict;
  const std::string hostile = "<script>alert(1)</script> a | b \\| c [x](javascript:1) \n# no";
  verdict.sentence = verdict.source = verdict.reported = verdict.smaller = verdict.metric = verdict.samples = hostile;
  verdict.version = verdict.claim = hostile;
  verdict.kind = "trained", verdict.main = true;
  verdict.learning_rates = {{hostile, 0.1}};
  ComparisonResult& result = verdict.result.comparisons.emplace_back();
  result.metric = "other " + hostile, result.name = result.at = hostile;
  result.known = true, result.mean = 1, result.high = 2;
  const std::vector<ListedVerdict> all = {{hostile, hostile, {}, verdict, "", true},
                                          {"group", hostile, {}, {}, hostile}};
  const std::string page = verdicts_page(all, ".");
  CHECK(page.find("<script") == page.npos);
  CHECK(page.find("](javascript") == page.npos);
  CHECK(page.find("\n# no") == page.npos);
  size_t rows = 0;
  for (size_t at = 0; at < page.size();) {
    const std::string line = page.substr(at, page.find('\n', at) - at);
    at += line.size() + 1;
    if (!line.starts_with("|")) continue;
    CHECK(std::count(line.begin(), line.end(), '|') == (rows < 3 ? 5 : 8));  // four cells, then seven
    CHECK(line.find("\\|") == line.npos);
    ++rows;
  }
  // Four tables with two header lines and one row: the claim with a verdict, three times, and the other.
  CHECK(rows == 12);
}

TEST_CASE("verdicts page: ten claims, those of each group that contradict their source, and all reversed ones") {
  const auto listed = [](const std::string& group, const std::string& name, Verdict verdict, bool main) {
    StudyVerdict v;
    v.sentence = name, v.kind = "trained", v.main = main, v.result.verdict = verdict;
    for (const Verdict each : {Verdict::shown, Verdict::not_shown, Verdict::reversed}) {
      ComparisonResult& comparison = v.result.comparisons.emplace_back();
      comparison.metric = "loss", comparison.name = orrery::models::name(each), comparison.verdict = each;
    }
    return ListedVerdict{group, name, {}, v, "", group == "two"};
  };
  std::vector<ListedVerdict> all;
  for (const char* group : {"one", "two"}) {
    for (const char* name : {"a", "b", "c", "d"}) all.push_back(listed(group, name, Verdict::shown, true));
    all.push_back(listed(group, "e", Verdict::reversed, true));
    all.push_back(listed(group, "f", Verdict::not_shown, true));
    all.push_back(listed(group, "g", Verdict::reversed, false));
  }
  const std::string table = short_verdicts(all, "claims");
  const auto has = [&](const std::string& claim) { return table.find("(claims/" + claim + ".toml)") != table.npos; };
  CHECK(std::count(table.begin(), table.end(), '\n') == 2 + 10);
  for (const char* group : {"one/", "two/"}) {  // of each, the two that contradict, then three that do not
    for (const char* name : {"a", "b", "c", "e", "f"}) CHECK(has(std::string(group) + name));
    for (const char* name : {"d", "g"}) CHECK(!has(std::string(group) + name));
  }
  CHECK(table.find("| [e](claims/one/e.toml) |  | `loss` reversed: runs failed or diverged | **reversed** |") !=
        table.npos);
  CHECK(table.find("one/f.toml") < table.find("two/a.toml"));  // in the page's order
  CHECK(short_verdicts({}, ".").empty());
  const std::string list =
      "Reversed:\n\n* [e](claims/one/e.toml)\n* [g](claims/one/g.toml)\n"
      "* [e](claims/two/e.toml) ([discussion](claims/two/README.md))\n"
      "* [g](claims/two/g.toml) ([discussion](claims/two/README.md))\n\nA claim is shown if";
  CHECK(verdicts_page(all, "claims").find(list) != std::string::npos);
}

TEST_CASE("shell words: quoted so that a shell restores them, for any bytes") {
  CHECK(shell_quoted("--out=a b") == "'--out=a b'");
  CHECK(shell_quoted("é") == "'é'");
  CHECK(shell_quoted("a\x1b'\n\xe4") == "$'a\\x1B\\x27\\x0A\\xE4'");
  CHECK(command_line({"train", "--resume=runs/a", "it's"}) == "orrery train --resume=runs/a 'it'\\''s'");
}
