-- Count that a driver's body failed.
-- KEYS: meta
-- ARGV: fence, incarnation
-- Returns: {"OK", failures} | {"FENCED", fence, 1, ""} | {"GONE", why}

local m = read_meta(KEYS[1], now_us())
if not m.incarnation or m.expired or m.incarnation ~= ARGV[2] then return {'GONE', 'deleted'} end
if m.fence ~= ARGV[1] then return {'FENCED', m.fence, 1, ''} end
return {'OK', redis.call('HINCRBY', KEYS[1], 'failures', 1)}
