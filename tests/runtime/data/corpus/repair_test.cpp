#include "runtime/data/corpus/repair/repair.hpp"

#include "runtime/data/corpus/json_object.hpp"
#include "runtime/data/corpus/repair/mojibake.hpp"
#include "tests/runtime/data/corpus/corpus_testing.hpp"

namespace sluice::testing {
namespace {

// JSON strings: a text, and what ftfy 6.3.1 makes of it.
constexpr std::pair<const char*, const char*> kRepairs[] = {
    // clang-format off
    {R"("plain")", R"("plain")"},
    {R"("voil\u00c3\u00a0 le travail")", R"("voil\u00e0 le travail")"},
    {R"("\u00e2\u0153\u201d No problems")", R"("\u2714 No problems")"},
    {R"("&macr;\\_(\u00e3\u0083\u0084)_/&macr;")", R"("\u00af\\_(\u30c4)_/\u00af")"},
    {R"("Broken text&hellip; it&#x2019;s \ufb02ubberi\ufb01c!")", R"("Broken text\u2026 it's flubberific!")"},
    {R"("\uff2c\uff2f\uff35\uff24\u3000\uff2e\uff2f\uff29\uff33\uff25\uff33")", R"("LOUD NOISES")"},
    {R"("P&EACUTE;REZ BUNDESSTRA&SZLIG;E &ntilde;&NTILDE; &nTILDE; &#59; &COPYSR;")", R"("P\u00c9REZ BUNDESSTRASSE \u00f1\u00d1 &nTILDE; &#59; &COPYSR;")"},
    {R"("\u001b[36;44mblue\u001b[0m\u0007")", R"("blue")"},
    {R"("a\r\nb\rc\u2028d\u0085e")", R"("a\nb\nc\nd\u2026e")"},
    {R"("\u00e2\u00e0\u00a0 \u00c3 la mode")", R"("\u00e2\u00e0\u00a0 \u00c3 la mode")"},
    {R"("\u201clike this \u00e2\u20ac\ufffd\u201d")", R"("\"like this \ufffd\"")"},
    {R"("\u00e2\u20ac\u0153 like this \u00e2\u20ac\ufffd")", R"("\" like this \ufffd")"},
    {R"("\u00d0\u00a1\u00d0\u00be\u00d0\u00be\u00d0\u00b1\u00d1\u00d0\u00b5\u00d0\u00bd\u00d0\u00b8\u00d0\u00b5")", R"("\u0421\u043e\u043e\u0431\u00d1\u0435\u043d\u0438\u0435")"},
    {R"("<b>&amp;</b>\n&amp;")", R"("<b>&amp;</b>\n&amp;")"},
    {R"("&amp;\n<b>&amp;")", R"("&\n<b>&amp;")"},
    {R"("f\u00c3\u00bcr \u00c3\u0153berm\u00c3\u00a4\u00c3\u0178ige")", R"("f\u00fcr \u00dcberm\u00e4\u00dfige")"},
    {R"("l\u2019humanit\u00c3\u00a9")", R"("l'humanit\u00e9")"},
    {R"("\u00c3\u0192\u00c2\u00a9t\u00c3\u0192\u00c2\u00a9")", R"("\u00e9t\u00e9")"},
    {R"("\uff35\uff80\uff70\uff9d \uff76\uff9e")", R"("U\u30bf\u30fc\u30f3 \u30ac")"},
    {R"("e\u0301 \u212b \u0149 \u01c4")", R"("\u00e9 \u00c5 'n D\u017d")"},
    {R"("\ufeffbom \ufffc")", R"("bom ")"},
    {R"("\u00e2\u0080\u009cC1\u00e2\u0080\u009d \u0093x\u0094")", R"("\"C1\" \"x\"")"},
    {R"("\u221a\u00a9 and \u201a\u00c4\u00f4s")", R"("\u00e9 and 's")"},
    {R"("\u00c5\u00e4\u00c7\u00ed\u00d6\u00d1")", R"("\u00c5\u00e4\u00c7\u00ed\u00d6\u00d1")"},
    {R"("&#0; &#xD800; &#128; &#xFFFF; &#1; &#11111111111111111111;")", R"("\ufffd \ufffd \u20ac   \ufffd")"},
    {R"("\u00ed \u00a0\u00bd\u00ed\u00b8\u0080")", R"("\u00ed \u00a0\u00bd\u00ed\u00b8\u20ac")"},
    // clang-format on
};

TEST(Repair, TextsAreRepairedAsByFtfy) {
  for (const auto& [text, repaired] : kRepairs) {
    EXPECT_EQ(repair_text(*json_text(text)), *json_text(repaired)) << text;
  }
}

TEST(Repair, EachRuleCanBeOff) {
  const std::string all =
      "&eacute; v\u00c3\u00a9 \u0093 \ufb01 \uff21 \u2019 \r \x1b[m\x07 e\u0301";
  EXPECT_EQ(repair_text(all), "\u00e9 v\u00e9 \" fi A ' \n  \u00e9");
  RepairOptions none{false, false, false, false, false, false, false, false, false, false};
  EXPECT_EQ(repair_text(all, none), all);
  none.quotes = true;
  EXPECT_EQ(repair_text("\u2019\u201c\ufb01", none), "'\"\ufb01");
}

TEST(Repair, LongAndNestedTextsEnd) {
  std::string nested = "&";
  for (int i = 0; i < 150; ++i) nested += "amp;";
  EXPECT_EQ(repair_text(nested).size(), 1 + 4 * 50U);  // 100 passes
  const std::string line(2'500'000, 'x');
  EXPECT_EQ(repair_text(line + "\u00c3\u00a9"), line + "\u00e9");
  std::string mojibake;
  for (int i = 0; i < 200'000; ++i) mojibake += "\u00c3\u00a9";
  EXPECT_EQ(repair_text(mojibake + "\u65e5").size(), 400'003U);
}

}  // namespace
}  // namespace sluice::testing
