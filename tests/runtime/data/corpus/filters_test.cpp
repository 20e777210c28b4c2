#include "runtime/data/corpus/filters/filter.hpp"
#include "tests/runtime/data/corpus/corpus_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Outcome {
  std::string rule;  // empty: kept
  std::string text;
};

Outcome apply(const std::string& filter, const std::string& text,
              std::optional<std::string> url = std::nullopt) {
  Document document(text, std::move(url));
  const auto rejection = make_filter(parse_filter(filter))->apply(document);
  return {std::string(rejection ? rejection->rule : ""), document.text()};
}
std::string rule(const std::string& filter, const std::string& text) {
  return apply(filter, text).rule;
}
std::string text_after(const std::string& filter, const std::string& text) {
  const Outcome outcome = apply(filter, text);
  EXPECT_EQ(outcome.rule, "");
  return outcome.text;
}
std::string url_rule(const std::string& filter, const std::string& url) {
  return apply(filter, "text", url).rule;
}

std::string repeat(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}
// Sentences without a repeated word.
std::string prose(int words) {
  std::string text = "the of";
  for (int i = 0; i < words - 2; ++i) text += " word" + std::to_string(i) + (i % 9 == 8 ? "." : "");
  return text;
}

TEST(Filters, WordsAreLettersOrSymbols) {
  std::vector<std::string> words;
  for (const Word& word :
       split_words("Don't \u2019tis e\u0301t\u00e9, 4.5!! \u65e5\u672c\u3000x-y")) {
    words.push_back(std::string(word.text) + (word.symbols ? "*" : "") + (word.letter ? "" : "-"));
  }
  EXPECT_THAT(words, ElementsAre("Don't", "\u2019*-", "tis", "e\u0301t\u00e9", ",*-", "4-", ".*-",
                                 "5-", "!!*-", "\u65e5", "\u672c", "x", "-*-", "y"));
  EXPECT_EQ(trim("\u3000\u00a0 a b\u2003\n"), "a b");
  EXPECT_EQ(to_lower("ABC\u00c9\u0130"), "abc\u00e9i");
  EXPECT_THAT(split_lines("a\r\n\nb\n"), ElementsAre("a", "", "b"));
}

TEST(Filters, LengthHasLimits) {
  EXPECT_EQ(rule("length:min_characters=3", "\u00e9\u00e9"), "min_characters");
  EXPECT_EQ(rule("length:min_characters=2", "\u00e9\u00e9"), "");
  EXPECT_EQ(rule("length:max_characters=2", "abc"), "max_characters");
  EXPECT_EQ(rule("length:min_words=3", "a b"), "min_words");
  EXPECT_EQ(rule("length:max_words=1", "a b"), "max_words");
  EXPECT_EQ(rule("length:min_tokens=4,tokenizer=bytes", "abc"), "min_tokens");
  EXPECT_EQ(rule("length:min_tokens=3,tokenizer=bytes", "abc"), "");
  EXPECT_EQ(rule("length:max_tokens=2,tokenizer=bytes", "abc"), "max_tokens");
  EXPECT_THAT(message_of<ConfigError>([] {
                (void)make_filter({"length", {{"min_tokens", "1"}}});
              }),
              HasSubstr("counts tokens and has no tokenizer"));
}

TEST(Filters, UrlsAreJudgedByHostAndPath) {
  const std::string owt = "url:domains=openwebtext,extensions=openwebtext";
  EXPECT_EQ(url_rule(owt, "https://www.youtube.com/watch?v=1"), "domain");
  EXPECT_EQ(url_rule(owt, "http://m.Google.co.uk/"), "domain");
  EXPECT_EQ(url_rule(owt, "http://notyoutube.com/a"), "");
  EXPECT_EQ(url_rule(owt, "http://a.org/x.tar.GZ?q=1"), "extension");
  EXPECT_EQ(url_rule(owt, "http://a.org/x.gz/page"), "");
  EXPECT_EQ(url_rule(owt, "http://a"), "min_characters");
  EXPECT_EQ(url_rule(owt, "http://1.2.3.4:80/x"), "");
  for (const char* bad :
       {"ftp://example.org", "http://no-host/", "http://a..org/", "http://a.org/x y",
        "http://-a.org/", "http://a.org:x/", "http://1.2.3/"}) {
    EXPECT_EQ(url_rule(owt, bad), "malformed") << bad;
    EXPECT_EQ(url_rule("url:malformed=off", bad), "") << bad;
  }
  EXPECT_EQ(url_rule("url:domains=example.org", "http://sub.example.org/"), "domain");
  EXPECT_EQ(url_rule("url:domains=sub.example.org", "http://example.org/"), "");
  EXPECT_EQ(rule("url", "no URL"), "");
  EXPECT_EQ(rule("url:missing=on", "no URL"), "missing");
  const TempFolder folder;
  write_file(folder / "list", "# mine\nbad.org  worse\n");
  EXPECT_EQ(url_rule("url:domains=@" + (folder / "list"), "http://x.bad.org/"), "domain");
  EXPECT_EQ(url_rule("url:domains=@" + (folder / "list"), "http://worse.net/"), "domain");
  EXPECT_EQ(url_rule("url:domains=@" + (folder / "list"), "http://mine.net/"), "");
}

TEST(Filters, LanguageIsTheFirstOfTheText) {
  const std::string english = "This is a simple English sentence, and here is another one for you.";
  const std::string german = "Dies ist ein einfacher deutscher Satz, und hier ist noch einer.";
  EXPECT_EQ(rule("language", english), "");
  EXPECT_EQ(rule("language", german), "other");
  EXPECT_EQ(rule("language:keep=en|de", german), "");
  EXPECT_EQ(rule("language:keep=en,below_characters=10", german), "");
  EXPECT_EQ(rule("language:min_share=0.9", repeat(english + "\n", 6) + german), "min_share");
  EXPECT_THAT(message_of<ConfigError>([] {
                (void)make_filter({"language", {{"keep", "xx-no"}}});
              }),
              HasSubstr("keep=xx-no is not a list of codes"));
}

TEST(Filters, GopherQualityHasTenRules) {
  const std::string good = prose(60);
  EXPECT_EQ(rule("gopher_quality", good), "");
  EXPECT_EQ(rule("gopher_quality", prose(40)), "min_words");
  EXPECT_EQ(rule("gopher_quality:max_words=59", good), "max_words");
  EXPECT_EQ(rule("gopher_quality", "the of " + repeat("ab c ", 40)), "min_word_length");
  EXPECT_EQ(rule("gopher_quality", "the of " + repeat("abcdefghijklmn ", 60)), "max_word_length");
  EXPECT_EQ(rule("gopher_quality", good + repeat(" #", 8)), "max_hashes");
  EXPECT_EQ(rule("gopher_quality", good + repeat(" \u2026", 8)), "max_ellipses");
  EXPECT_EQ(rule("gopher_quality", "- " + prose(60)), "max_bullet_lines");
  EXPECT_EQ(rule("gopher_quality", good + " ..."), "max_ellipsis_lines");
  EXPECT_EQ(rule("gopher_quality", good + repeat(" 1234", 20)), "min_letter_words");
  EXPECT_EQ(rule("gopher_quality", prose(60).substr(7)), "min_stop_words");
  EXPECT_EQ(rule("gopher_quality:min_stop_words=off", prose(60).substr(7)), "");
}

TEST(Filters, GopherRepetitionCountsLinesAndWords) {
  const std::string good = prose(60);
  EXPECT_EQ(rule("gopher_repetition", good), "");
  EXPECT_EQ(rule("gopher_repetition", "a\n\nb\n\na\n\na\n\n" + good), "paragraphs");
  EXPECT_EQ(rule("gopher_repetition", good + "\n\nx\n\ny\n\nz\n\n" + good), "paragraph_characters");
  EXPECT_EQ(rule("gopher_repetition", "a\nb\na\na\n" + good), "lines");
  EXPECT_EQ(rule("gopher_repetition", good + "\nx\ny\nz\n" + good), "line_characters");
  EXPECT_EQ(rule("gopher_repetition", prose(30) + repeat(" same pair", 8)), "top_2_gram");
  EXPECT_EQ(rule("gopher_repetition:top_2_gram=off,top_3_gram=off,top_4_gram=off",
                 prose(20) + repeat(" five words that come again", 4)),
            "repeated_5_grams");
}

TEST(Filters, C4RemovesLinesAndRejectsTexts) {
  const std::string body = "One line here. Two. Three. Four. Five.";
  EXPECT_EQ(text_after("c4", body +
                                 "\nno end of a sentence\nToo few.\nSee the cookie policy now.\n"
                                 "Turn on Javascript to read this.\nCited[1] words [edit] end.\n" +
                                 std::string(1001, 'x') + " a b.\n"),
            body + "\nCited words  end.");
  EXPECT_EQ(rule("c4", "One. Two. Three words here. Four."), "min_sentences");
  EXPECT_EQ(rule("c4", body + "\nLorem ipsum dolor sit."), "lorem_ipsum");
  EXPECT_EQ(rule("c4", body + "\nint main() { return 0; }."), "curly_bracket");
  EXPECT_EQ(text_after("c4:end_punctuation=off", body + "\nthree words here"),
            body + "\nthree words here");
}

TEST(Filters, FineWebCountsLines) {
  const std::string line = "A line of more than thirty characters number ";
  std::string good;
  for (int i = 0; i < 9; ++i) good += line + std::to_string(i) + ".\n";
  EXPECT_EQ(rule("fineweb", good), "");
  EXPECT_EQ(rule("fineweb", " \n\t\n"), "empty");
  std::string open = good;
  std::replace(open.begin(), open.end(), '.', ',');
  EXPECT_EQ(rule("fineweb", open), "min_punctuated_lines");
  EXPECT_EQ(rule("fineweb", good + repeat("short.\nbrief.\nsmall.\n", 8)), "max_short_lines");
  EXPECT_EQ(rule("fineweb", good + line + "0.\n"), "max_duplicate_characters");
  EXPECT_EQ(rule("fineweb", good + repeat("\n", 90)), "max_lines_a_word");
}

TEST(Filters, DuplicateLinesGo) {
  EXPECT_EQ(text_after("duplicate_lines", "a\nB\n\nb \n\na\nc"), "a\nB\n\n\nc");
  EXPECT_EQ(text_after("duplicate_lines:min_characters=2", "a\na\nbb\nbb\n"), "a\na\nbb\n");
  const std::string line = "the quick brown fox jumps over the lazy dog number ";
  EXPECT_EQ(text_after("duplicate_lines:near=0.8", line + "1\n" + line + "2\nother words\n"),
            line + "1\nother words\n");
  EXPECT_EQ(rule("duplicate_lines:max_removed=0.4", "a\na\n"), "max_removed");
}

TEST(Filters, SmallOnesDoWhatTheirNameSays) {
  EXPECT_EQ(text_after("nfc", "e\u0301\u212B"), "\u00e9\u00c5");
  EXPECT_EQ(text_after("spaces", "a  b\n\n c.\n\nd   \ne"), "a b c.\n\nd \ne");
  EXPECT_EQ(rule("javascript", "Enable JavaScript"), "javascript");
  EXPECT_EQ(rule("javascript", "javascript" + std::string(246, ' ')), "");
}

TEST(Filters, WrongSpecsAreRefused) {
  const auto message = [](const std::string& spec) {
    return message_of<ConfigError>([&] { (void)make_filter(parse_filter(spec)); });
  };
  EXPECT_THAT(message("langage"), HasSubstr("no filter 'langage'; the filters: url, "));
  EXPECT_EQ(message("javascript:below=3"),
            "filter javascript has no option 'below'; its options: below_characters");
  EXPECT_EQ(message("javascript:below_characters=x"),
            "filter javascript: below_characters=x is not a number from 0 or 'off'");
  EXPECT_EQ(message("c4:policy=yes"), "filter c4: policy=yes is not 'on' or 'off'");
  EXPECT_EQ(message("c4:policy"), "filter c4: 'policy' is not of the form option=value");
  EXPECT_EQ(message(":x=1"), "':x=1' names no filter");
  EXPECT_EQ(message_of<ConfigError>([] { (void)filter_recipe("x"); }),
            "no recipe 'x'; the recipes: openwebtext, fineweb, none");
}

TEST(Filters, EveryFilterTakesEmptyAndOddTexts) {
  for (const FilterKind& kind : filter_kinds()) {
    const auto filter = make_filter({std::string(kind.name)});
    for (const std::string& text : {std::string(), std::string("\n"), std::string("\0", 1),
                                    std::string("\uFFFD\u0301"), random_text(300, 5)}) {
      Document document(text, "http://" + text);
      (void)filter->apply(document);
      EXPECT_EQ(valid_utf8_prefix(document.text()), document.text().size()) << kind.name;
    }
  }
  for (const char* name : {"fineweb", "none"}) {
    for (const FilterSpec& spec : filter_recipe(name)) (void)make_filter(spec);
  }
}

}  // namespace
}  // namespace sluice::testing
