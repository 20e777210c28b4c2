#include "runtime/data/corpus/filters/url_lists.hpp"

namespace sluice {

std::string_view openwebtext_domains() {
  return "500px aapks akamaihd amazon apple artifactfire artstation awwni bandcamp battleforthenet "
         "coinscalendar dailymotion deviantart discord discordapp dlapkandroid dropbox e621 ebay "
         "edealinfo erome eroshare explosm facebook fbcdn flickr furaffinity futhead gatopardo "
         "gfycat gifsound gifsoup giphy github google gunprime gyazo horsefucker hotdealstar "
         "imagefap imageshack imgflip imgur instagram karmadecay kryptocal kym-cdn liveleak "
         "livememe "
         "lmgtfy magaimg memegenerator minorplanetcenter minus mobafire morejpeg nocookie "
         "pcpartpicker photobucket pinimg pinterest pixiv pornhub prntscr puu qkme quickmeme radd "
         "redd reddit reddit-stream redditlog redditmedia reddituploads redtube reupp reverb "
         "roanoke "
         "rollingstone sli soundcloud soundgasm spankbang spotify strawpoll streamable timeanddate "
         "tinypic touhouradio tumblr twimg twitch twitter vid vimeo vine vkaao vocaroo "
         "voyagefusion "
         "walmart wciu wikimedia wikipedia xhamster xkcd xvideos youtu youtube youtubedoubler "
         "ytimg "
         "zillexplorer";
}

std::string_view openwebtext_extensions() {
  return "3gp 7z ai aif apk app avi bin bmp bz2 css csv dat deb dmg doc docx exe gif gifv gz iso "
         "jar "
         "jpeg jpg js log mid midi mkv mov mp3 mp4 mpeg mpg ogg ogv otf pdf pkg png pps ppt pptx "
         "psd "
         "py qt ram rar sql svg swf tar tar.gz tgz tiff ttf txt wav webm wma wmv xls xlsx xml xz "
         "zip";
}

}  // namespace sluice
