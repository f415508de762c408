-- Keeps artifacts for as long as a thread stands, for what mentions them outside of its checkpoints.
-- KEYS: meta, artifacts
-- ARGV: digest...
-- Returns: {"OK"} | {"GONE"}

local m = read_meta(KEYS[1], now_us())
if not m.incarnation or m.expired or closed(m) then return {'GONE'} end
for _, digest in ipairs(ARGV) do
  redis.call('HSET', KEYS[2], digest, 'mentioned')
end
return {'OK'}
