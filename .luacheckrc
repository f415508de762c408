-- Scripts run inside the server: Lua 5.1 and the names below. A prelude's functions are prefixed to the scripts that
-- use them, so they are known everywhere and used nowhere in their own file.
std = "lua51"
read_globals = {"redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct", "bit",
                "now_us", "whole", "read_meta", "closed", "judge_life", "judge_fence"}
max_line_length = 140
max_comment_line_length = false
files["**/checkpoints/thread.lua"] = {ignore = {"211"}}
